package import Crypto
import Foundation

/// The private key of provider tokens, as Apple hands it out (`AuthKey_….p8`), with the two names that go with it.
package struct ProviderKey: Sendable {
    package let keyID: String
    package let teamID: String
    private let key: P256.Signing.PrivateKey

    /// - Parameter pem: PKCS#8 with a key on the curve P-256.
    package init(pem: String, keyID: String, teamID: String) throws {
        self.key = try P256.Signing.PrivateKey(pemRepresentation: pem)
        self.keyID = keyID
        self.teamID = teamID
    }

    /// Tells keys apart, also where they have the same id by mistake: SHA-256 of the public key, in hexadecimal digits.
    package var fingerprint: String {
        SHA256.hash(data: key.publicKey.x963Representation).hex
    }

    package var publicKey: P256.Signing.PublicKey { key.publicKey }

    /// A provider token: ES256, signature of 64 bytes, `iat` a number (apns-http2.md §5).
    /// - Parameter issuedAt: UNIX seconds.
    package func token(issuedAt: Int64) throws -> String {
        // The order of keys is fixed; the names were checked to need no escapes.
        let header = #"{"alg":"ES256","kid":"\#(keyID)"}"#
        let claims = #"{"iss":"\#(teamID)","iat":\#(issuedAt)}"#
        let signed = Base64URL.text(Array(header.utf8)) + "." + Base64URL.text(Array(claims.utf8))
        let signature = try key.signature(for: Data(signed.utf8))
        return signed + "." + Base64URL.text(Array(signature.rawRepresentation))
    }
}
