import ChatDomain
import CryptoExtras
import Foundation
package import GatewayPool
import PushWire

/// A service account of Google's, with the key that signs the relay's requests for access tokens.
package struct ServiceAccountFile: Sendable {
    /// The maximum size of a file in bytes. Google's have about 2,400.
    private static let longestFile = 1 << 16
    private static let expected = "expected the JSON file of a service account, as Google's console creates it"
    /// The `aud` of every request, whatever the address of the token endpoint (Google, "Using OAuth 2.0 for Server to
    /// Server Applications").
    private static let audience = "https://oauth2.googleapis.com/token"
    private static let scope = "https://www.googleapis.com/auth/firebase.messaging"
    /// The lifetime of a signed request in seconds, which is the longest that Google accepts.
    private static let lifetime: Int64 = 3600

    package let project: String
    package let email: String
    /// The address of the token endpoint.
    package let tokenURL: String
    private let keyID: String
    private let key: _RSA.Signing.PrivateKey

    /// Reads a file.
    package init(file: String) throws(CredentialsError) {
        let bytes = try CredentialsError.read(file, limit: Self.longestFile, expected: Self.expected)
        let value: JSONValue
        do throws(JSONValue.Malformed) {
            value = try JSONValue(parsing: bytes)
        } catch {
            throw Self.notAccount(file, "\(error)")
        }
        guard let content = value.object else { throw Self.notAccount(file, "it is \(value.kind)") }
        func member(_ name: String) throws(CredentialsError) -> String {
            guard let value = content[name] else { throw Self.notAccount(file, "\(name) is missing") }
            guard let text = value.nonEmptyText else { throw Self.notAccount(file, "\(name) is not a text, or empty") }
            return text
        }
        let type = try member("type")
        guard type == "service_account" else {
            throw Self.notAccount(file, "type is \(type.printableASCII(limit: 40))")
        }
        project = try member("project_id")
        keyID = try member("private_key_id")
        let keyText = try member("private_key")
        email = try member("client_email")
        tokenURL = try member("token_uri")
        guard Self.isProject(project) else {
            throw CredentialsError("\(file): project_id is not the id of a Google project")
        }
        guard let url = URL(string: tokenURL), url.scheme == "https", url.host != nil,
            tokenURL.isVisibleASCII
        else { throw CredentialsError("\(file): token_uri must be an address with https://") }
        let pem = PEM(keyText)
        guard pem.privateKey?.isEncrypted != true else {
            throw CredentialsError("\(file): private_key is encrypted; Google's is not. Download the file again")
        }
        do {
            key = try _RSA.Signing.PrivateKey(pemRepresentation: pem.text)
        } catch {
            throw CredentialsError("\(file): private_key is not a readable RSA key; download the file again")
        }
    }

    private static func notAccount(_ file: String, _ problem: String) -> CredentialsError {
        CredentialsError("\(file) is not a service account: \(problem); \(expected)")
    }

    /// Returns the signed request for an access token: a JWT.
    func assertion(issuedAt now: Int64) throws -> String {
        func part(_ value: some Encodable) throws -> String {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            return Base64URL.text(Array(try encoder.encode(value)))
        }
        let claims = Claims(
            iss: email, scope: Self.scope, aud: Self.audience, iat: now, exp: now + Self.lifetime)
        let text = try part(Header(kid: keyID)) + "." + part(claims)
        let signature = try key.signature(for: Data(text.utf8), padding: .insecurePKCS1v1_5)
        return text + "." + Base64URL.text(Array(signature.rawRepresentation))
    }

    /// Whether a text is a project's id or number. It becomes a part of the path of every request.
    private static func isProject(_ text: String) -> Bool {
        // Ids of old projects begin with their domain and a colon.
        (1...63).contains(text.utf8.count)
            && text.utf8.allSatisfy {
                $0.isASCIIDigit || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) || "-.:".utf8.contains($0)
            }
    }

    private struct Header: Encodable {
        let alg = "RS256"
        let typ = "JWT"
        let kid: String
    }

    private struct Claims: Encodable {
        let iss: String
        let scope: String
        let aud: String
        let iat: Int64
        let exp: Int64
    }
}
