import Crypto
import Foundation

/// The key pair that identifies a sender to push services and restricts a browser's subscription to that sender (RFC
/// 8292).
package struct VAPIDKey: Sendable {
    private let key: P256.Signing.PrivateKey

    /// Creates a new key pair.
    package init() {
        key = P256.Signing.PrivateKey()
    }

    /// Reads a private key as other servers write it: 32 bytes in base64url or base64, DER in base64, or PEM.
    package init(text: String) throws(WebPushError) {
        do throws(NoP256Key) {
            key = try text.contains("-----BEGIN") ? P256.Signing.PrivateKey(PEM(text)) : Self.key(base64: text)
        } catch {
            throw WebPushError(
                "key", "must be a private key of the curve P-256, 32 bytes in base64url, or PEM; \(error)")
        }
    }

    private static func key(base64 text: String) throws(NoP256Key) -> P256.Signing.PrivateKey {
        guard let bytes = Base64URL.bytesOfAny(text), !bytes.isEmpty else { throw .missing }
        if bytes.count == 65, bytes[0] == 4 { throw .other("a public key") }
        // DER begins with a SEQUENCE, and is longer.
        if bytes.count > 65, bytes[0] == 0x30 { return try P256.Signing.PrivateKey(der: bytes) }
        guard let key = try? P256.Signing.PrivateKey(rawRepresentation: bytes) else { throw .damaged }
        return key
    }

    /// The private key: 32 bytes in base64url.
    package var text: String { Base64URL.text(Array(key.rawRepresentation)) }

    /// Derives a secret of 32 bytes from the private key, a different one for each purpose (RFC 5869). The secret
    /// reveals nothing about the key.
    package func secret(for purpose: String) -> [UInt8] {
        let derived = HKDF<SHA256>.deriveKey(
            inputKeyMaterial: SymmetricKey(data: key.rawRepresentation), info: Data(purpose.utf8), outputByteCount: 32)
        return derived.withUnsafeBytes { Array($0) }
    }

    /// The public key with which pages subscribe (`applicationServerKey`): 65 bytes in base64url.
    package var publicText: String { Base64URL.text(Array(key.publicKey.x963Representation)) }

    /// Returns the header `Authorization`.
    /// - Parameters:
    ///   - audience: The origin of the push service: scheme, host, and port if it is not the scheme's default.
    ///   - expiresAt: UNIX seconds, at most 24 hours from now.
    ///   - subject: The contact for the push service's operator, as `mailto:` or `https:`. `nil` is allowed, but Apple
    ///     rejects it.
    package func authorization(audience: String, expiresAt: Int64, subject: String?) throws -> String {
        struct Claims: Encodable {
            let aud: String, exp: Int64, sub: String?
        }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let claims = try encoder.encode(Claims(aud: audience, exp: expiresAt, sub: subject))
        let signed =
            Base64URL.text(Array(#"{"typ":"JWT","alg":"ES256"}"#.utf8)) + "." + Base64URL.text(Array(claims))
        let signature = try key.signature(for: Data(signed.utf8))
        // Without a space after the comma: py-vapid does not accept one.
        return "vapid t=\(signed).\(Base64URL.text(Array(signature.rawRepresentation))),k=\(publicText)"
    }
}

/// The header `Authorization` as a push service reads it.
package struct VAPIDAuthorization: Sendable, Hashable {
    /// The sender's public key: 65 bytes in base64url.
    package let publicText: String
    package let audience: String
    /// UNIX seconds.
    package let expiresAt: Int64
    package let subject: String?

    /// Parses and verifies the header.
    /// - Throws: The reason why the header is invalid.
    package init(header: String) throws(WebPushError) {
        func wrong(_ rule: String) -> WebPushError { WebPushError("Authorization", rule) }
        let parts = header.split(separator: " ", maxSplits: 1)
        guard header.utf8.count <= 4096, parts.count == 2, parts[0].lowercased() == "vapid" else {
            throw wrong("must be vapid t=…, k=…")
        }
        var values: [Substring: Substring] = [:]
        for part in parts[1].split(separator: ",") {
            let pair = part.drop { $0 == " " }.split(separator: "=", maxSplits: 1)
            if pair.count == 2 { values[pair[0]] = pair[1] }
        }
        guard let token = values["t"], let keyText = values["k"], let keyBytes = Base64URL.bytes(keyText),
            let key = try? P256.Signing.PublicKey(x963Representation: keyBytes)
        else { throw wrong("must have a token t and a public key k of the curve P-256") }
        let pieces = token.split(separator: ".", omittingEmptySubsequences: false)
        guard pieces.count == 3, let head = Base64URL.bytes(pieces[0]), let claimBytes = Base64URL.bytes(pieces[1]),
            let signatureBytes = Base64URL.bytes(pieces[2]),
            let signature = try? P256.Signing.ECDSASignature(rawRepresentation: signatureBytes),
            key.isValidSignature(signature, for: Data((pieces[0] + "." + pieces[1]).utf8))
        else { throw wrong("must have a token that is signed with k") }
        struct Header: Decodable {
            let alg: String
        }
        struct Claims: Decodable {
            let aud: String, exp: Double, sub: String?
        }
        guard (try? JSONDecoder().decode(Header.self, from: Data(head)))?.alg == "ES256",
            let claims = try? JSONDecoder().decode(Claims.self, from: Data(claimBytes)),
            let expiresAt = Int64(exactly: claims.exp.rounded(.down))
        else { throw wrong("must have a token with the algorithm ES256 and the claims aud and exp") }
        publicText = String(keyText)
        audience = claims.aud
        self.expiresAt = expiresAt
        subject = claims.sub
    }
}
