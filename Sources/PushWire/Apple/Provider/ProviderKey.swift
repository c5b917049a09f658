package import Crypto
import Foundation

/// The private key of provider tokens, as Apple issues it (`AuthKey_….p8`), with its key id and team id.
package struct ProviderKey: Sendable {
    package let keyID: String
    package let teamID: String
    private let key: P256.Signing.PrivateKey

    /// Reads a private key from PEM text: a key on the curve P-256.
    package init(pem: String, keyID: String, teamID: String) throws(NoP256Key) {
        self.key = try P256.Signing.PrivateKey(PEM(pem))
        self.keyID = keyID
        self.teamID = teamID
    }

    /// SHA-256 of the public key, in hexadecimal digits. Distinguishes keys even if they have the same id by mistake.
    package var fingerprint: String {
        SHA256.hash(data: key.publicKey.x963Representation).hex
    }

    package var publicKey: P256.Signing.PublicKey { key.publicKey }

    /// Returns a signed provider token. It uses ES256 with a signature of 64 bytes (RFC 7518 section 3.4), and `iat` is
    /// a number (Apple, "Establishing a token-based connection to APNs").
    /// - Parameter issuedAt: UNIX seconds.
    package func token(issuedAt: Int64) throws -> String {
        // The order of keys is fixed. The ids were checked to need no escapes.
        let header = #"{"alg":"ES256","kid":"\#(keyID)"}"#
        let claims = #"{"iss":"\#(teamID)","iat":\#(issuedAt)}"#
        let signed = Base64URL.text(Array(header.utf8)) + "." + Base64URL.text(Array(claims.utf8))
        let signature = try key.signature(for: Data(signed.utf8))
        return signed + "." + Base64URL.text(Array(signature.rawRepresentation))
    }
}
