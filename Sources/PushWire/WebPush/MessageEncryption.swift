package import Crypto
import Foundation

/// The keys of a browser's `PushSubscription`, with which a sender encrypts messages to it (RFC 8291 §2).
package struct SubscriptionKeys: Sendable {
    /// The size of `auth` in bytes.
    package static let secretSize = 16
    /// The size of `p256dh` in bytes: an uncompressed point on P-256.
    package static let publicKeySize = 65

    package let publicKey: [UInt8]
    package let secret: [UInt8]
    fileprivate let point: P256.KeyAgreement.PublicKey

    /// Checks both values.
    /// - Throws: An error if a size is wrong or the public key is not a point on the curve.
    package init(publicKey: [UInt8], secret: [UInt8]) throws(WebPushError) {
        guard publicKey.count == Self.publicKeySize, publicKey[0] == 4,
            let point = try? P256.KeyAgreement.PublicKey(x963Representation: publicKey)
        else { throw WebPushError("p256dh", "must be an uncompressed point on the curve P-256, 65 bytes") }
        guard secret.count == Self.secretSize else { throw WebPushError("auth", "must have 16 bytes") }
        self.publicKey = publicKey
        self.secret = secret
        self.point = point
    }
}

/// A value that cannot be used, with its name and the rule that it breaks.
package struct WebPushError: Error, Sendable, Hashable, CustomStringConvertible {
    package let field: String
    package let rule: String

    package init(_ field: String, _ rule: String) {
        self.field = field
        self.rule = rule
    }

    package var description: String { "\(field) \(rule)" }
}

/// The content coding `aes128gcm` (RFC 8188) as Web Push uses it (RFC 8291): one record, with keys agreed on for each
/// message.
package enum MessageEncryption {
    package static let coding = "aes128gcm"
    /// The largest body in bytes that every push service must accept (RFC 8030 §7.2).
    package static let largestBody = 4096
    /// The size of the header: the salt, the record size, the key's length, and the sender's public key.
    private static let headerSize = 16 + 4 + 1 + SubscriptionKeys.publicKeySize
    private static let tagSize = 16
    /// The maximum size of a text, in bytes. The delimiter takes one more byte.
    package static let largestText = largestBody - headerSize - 1 - tagSize

    /// Marks the end of the text in the last record. Zeros may follow.
    private static let delimiter: UInt8 = 2

    /// Encrypts a text for one browser. Returns the body to send: a header and one record.
    /// - Parameters:
    ///   - text: At most ``largestText`` bytes.
    ///   - key: The sender's key, for this message only.
    ///   - salt: 16 random bytes, for this message only.
    package static func encrypt(
        _ text: [UInt8], for keys: SubscriptionKeys, key: P256.KeyAgreement.PrivateKey = messageKey(),
        salt: [UInt8] = randomSalt()
    ) throws -> [UInt8] {
        guard text.count <= largestText else { throw WebPushError("text", "must have at most \(largestText) bytes") }
        let sender = Array(key.publicKey.x963Representation)
        let (contentKey, nonce) = derive(
            try key.sharedSecretFromKeyAgreement(with: keys.point), secret: keys.secret, receiver: keys.publicKey,
            sender: sender, salt: salt)
        let sealed = try AES.GCM.seal(text + [delimiter], using: contentKey, nonce: try AES.GCM.Nonce(data: nonce))
        var body: [UInt8] = []
        body.reserveCapacity(headerSize + text.count + 1 + tagSize)
        body += salt
        // The record size only has to be greater than the sum of text, delimiter and tag (RFC 8291 §4).
        withUnsafeBytes(of: UInt32(largestBody).bigEndian) { body += $0 }
        body.append(UInt8(sender.count))
        body += sender
        body += sealed.ciphertext
        body += sealed.tag
        return body
    }

    /// Decrypts a body as a browser does. The sandbox's browsers use this function.
    /// - Parameters:
    ///   - key: The subscription's private key. Its public part is `p256dh`.
    ///   - secret: The subscription's `auth`.
    /// - Throws: The reason why the body is invalid.
    package static func decrypt(
        _ body: [UInt8], key: P256.KeyAgreement.PrivateKey, secret: [UInt8]
    ) throws(WebPushError) -> [UInt8] {
        let (sender, publicKey, record) = try parts(of: body)
        guard let agreed = try? key.sharedSecretFromKeyAgreement(with: publicKey) else { throw wrongKey }
        let (contentKey, nonce) = derive(
            agreed, secret: secret, receiver: Array(key.publicKey.x963Representation), sender: sender,
            salt: Array(body[..<16]))
        guard let gcmNonce = try? AES.GCM.Nonce(data: nonce),
            let box = try? AES.GCM.SealedBox(
                nonce: gcmNonce, ciphertext: record.dropLast(tagSize), tag: record.suffix(tagSize)),
            let padded = try? AES.GCM.open(box, using: contentKey)
        else { throw WebPushError("body", "cannot be decrypted with the subscription's keys") }
        guard let end = padded.lastIndex(where: { $0 != 0 }), padded[end] == delimiter else {
            throw WebPushError("body", "must end with the delimiter 2, followed only by zeros")
        }
        return Array(padded[..<end])
    }

    /// Creates a key from random bytes. `PrivateKey()` would also sign and verify with each key as a test, and discard
    /// every second key because its public part has no compact form. That costs more than all other steps.
    package static func messageKey() -> P256.KeyAgreement.PrivateKey {
        // One in 2³² random numbers is not a key of the curve. `SymmetricKey(size:)` would draw more bytes than it has, as
        // many as its allocation, so that the random numbers after it depend on the heap.
        withUnsafeBytes(of: SIMD4<UInt64>.random(in: .min ... .max)) {
            try? P256.KeyAgreement.PrivateKey(rawRepresentation: $0)
        } ?? .init()
    }

    /// Checks the parts of a body that are visible without the browser's keys: header, sender's key, one record.
    /// - Throws: The reason why the body is invalid.
    package static func checkForm(_ body: [UInt8]) throws(WebPushError) {
        _ = try parts(of: body)
    }

    private static let wrongKey = WebPushError("body", "must have a sender's key that is a point on the curve P-256")

    private static func parts(
        of body: [UInt8]
    ) throws(WebPushError) -> (sender: [UInt8], publicKey: P256.KeyAgreement.PublicKey, record: ArraySlice<UInt8>) {
        guard body.count >= headerSize + 1 + tagSize, Int(body[20]) == SubscriptionKeys.publicKeySize else {
            throw WebPushError("body", "must begin with salt, record size and the sender's public key of 65 bytes")
        }
        let recordSize = body[16..<20].reduce(0) { $0 << 8 | Int($1) }
        let sender = Array(body[21..<headerSize])
        let record = body[headerSize...]
        guard recordSize >= 18, record.count <= recordSize else {
            throw WebPushError("body", "must be one record: \(record.count) bytes, at most \(recordSize) allowed")
        }
        guard let publicKey = try? P256.KeyAgreement.PublicKey(x963Representation: sender) else { throw wrongKey }
        return (sender, publicKey, record)
    }

    package static func randomSalt() -> [UInt8] {
        withUnsafeBytes(of: SIMD2<UInt64>.random(in: .min ... .max)) { Array($0) }
    }

    private static func derive(
        _ agreed: SharedSecret, secret: [UInt8], receiver: [UInt8], sender: [UInt8], salt: [UInt8]
    ) -> (key: SymmetricKey, nonce: Data) {
        let input = agreed.hkdfDerivedSymmetricKey(
            using: SHA256.self, salt: secret, sharedInfo: Array("WebPush: info\0".utf8) + receiver + sender,
            outputByteCount: 32)
        let extracted = HKDF<SHA256>.extract(inputKeyMaterial: input, salt: salt)
        func expand(_ info: String, _ size: Int) -> SymmetricKey {
            HKDF<SHA256>.expand(pseudoRandomKey: extracted, info: Array(info.utf8), outputByteCount: size)
        }
        let nonce = expand("Content-Encoding: nonce\0", 12).withUnsafeBytes { Data($0) }
        return (expand("Content-Encoding: aes128gcm\0", 16), nonce)
    }
}
