import CryptoExtras
import Foundation

/// The content of a service account file, as Google's console creates it. Clients sign their requests for access tokens
/// with its key.
struct ServiceAccount: Codable, Sendable, Hashable {
    static let fileName = "service-account.json"
    static let defaultProject = "pushchat-sandbox"
    /// The `aud` of a request for an access token. Google's libraries write it even if `token_uri` differs.
    static let audience = "https://oauth2.googleapis.com/token"

    var type = "service_account"
    let projectID: String
    let privateKeyID: String
    /// The RSA key as PKCS#8 PEM.
    let privateKey: String
    let clientEmail: String
    let clientID: String
    /// The address of the token endpoint.
    var tokenURL: String
    var universeDomain = "googleapis.com"

    enum CodingKeys: String, CodingKey {
        case type
        case projectID = "project_id"
        case privateKeyID = "private_key_id"
        case privateKey = "private_key"
        case clientEmail = "client_email"
        case clientID = "client_id"
        case tokenURL = "token_uri"
        case universeDomain = "universe_domain"
    }

    /// Creates an account with a new key.
    init(project: String = ServiceAccount.defaultProject, tokenURL: String, randomBytes: (Int) -> [UInt8]) throws {
        projectID = project
        privateKey = try _RSA.Signing.PrivateKey(keySize: .bits2048).pkcs8PEMRepresentation + "\n"
        privateKeyID = randomBytes(20).hex
        clientEmail = "sandbox@\(project).iam.gserviceaccount.com"
        clientID = "100000000000000000001"
        self.tokenURL = tokenURL
    }

    /// Reads a file's content. `nil` for any other content than a service account with a readable key.
    init?(_ bytes: [UInt8]) {
        guard let account = try? JSONDecoder().decode(ServiceAccount.self, from: Data(bytes)),
            (try? account.publicKey) != nil
        else { return nil }
        self = account
    }

    var file: [UInt8] {
        get throws {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
            return Array(try encoder.encode(self)) + [0x0A]
        }
    }

    var publicKey: _RSA.Signing.PublicKey {
        get throws { try _RSA.Signing.PrivateKey(pemRepresentation: privateKey).publicKey }
    }
}
