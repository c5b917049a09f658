import Crypto
import Foundation

/// The keys with which provider tokens can be signed, by key id (apns-http2.md §5).
struct ProviderKeyring: Sendable {
    struct Key: Sendable {
        var key: P256.Signing.PublicKey
        /// Belongs to Apple's production environment, which the sandbox does not play.
        var isForProduction = false
    }

    var teamID: String
    var keys: [String: Key]

    subscript(keyID: String) -> Key? { keys[keyID] }
}

extension SandboxCredentials {
    /// Reads the public halves of the two provider token keys.
    func providerKeyring() throws -> ProviderKeyring {
        func key(_ path: String) throws -> P256.Signing.PublicKey {
            try P256.Signing.PrivateKey(pemRepresentation: String(contentsOfFile: path, encoding: .utf8)).publicKey
        }
        return ProviderKeyring(
            teamID: teamID,
            keys: [
                keyID: .init(key: try key(providerKeyFile)),
                productionKeyID: .init(key: try key(productionKeyFile), isForProduction: true),
            ])
    }
}
