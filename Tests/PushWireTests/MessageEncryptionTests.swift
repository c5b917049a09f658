import Crypto
import Foundation
import Testing

@testable import PushWire

@Suite("Messages for browsers (RFC 8291)")
struct MessageEncryptionTests {
    /// The example of RFC 8291, appendix A.
    private static let text = "When I grow up, I want to be a watermelon"
    private static let body = """
        DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl\
        7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN
        """
    private static let sender = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
    private static let receiver = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
    private static let secret = "BTBZMqHH6r4Tts7J_aSIgg"
    private static let salt = "DGv6ra1nlYgDCS1FRnbzlw"

    private let browser = P256.KeyAgreement.PrivateKey()
    private let browserSecret = MessageEncryption.randomSalt()

    private static func bytes(_ text: String) throws -> [UInt8] { try #require(Base64URL.bytes(text)) }

    private static func key(_ text: String) throws -> P256.KeyAgreement.PrivateKey {
        try P256.KeyAgreement.PrivateKey(rawRepresentation: bytes(text))
    }

    private func keys() throws -> SubscriptionKeys {
        try SubscriptionKeys(publicKey: Array(browser.publicKey.x963Representation), secret: browserSecret)
    }

    @Test("The RFC's example is reproduced to the byte, and can be decrypted")
    func example() throws {
        let receiver = try Self.key(Self.receiver)
        let secret = try Self.bytes(Self.secret)
        let encrypted = try MessageEncryption.encrypt(
            Array(Self.text.utf8),
            for: SubscriptionKeys(publicKey: Array(receiver.publicKey.x963Representation), secret: secret),
            key: try Self.key(Self.sender), salt: try Self.bytes(Self.salt))
        #expect(Base64URL.text(encrypted) == Self.body)
        #expect(encrypted.count == 144)
        let read = try MessageEncryption.decrypt(encrypted, key: receiver, secret: secret)
        #expect(String(decoding: read, as: UTF8.self) == Self.text)
    }

    @Test(
        "A message of every size up to the largest can be decrypted; the largest body has 4096 bytes",
        arguments: [0, 1, 41, 3992, 3993])
    func sizes(size: Int) throws {
        let text = (0..<size).map { UInt8(truncatingIfNeeded: $0) }
        let encrypted = try MessageEncryption.encrypt(text, for: keys())
        #expect(encrypted.count == size + 103)
        #expect(encrypted.count <= MessageEncryption.largestBody)
        #expect(try MessageEncryption.decrypt(encrypted, key: browser, secret: browserSecret) == text)
    }

    @Test("One byte more is refused")
    func tooLong() throws {
        #expect(MessageEncryption.largestText == 3993)
        #expect(throws: WebPushError.self) {
            try MessageEncryption.encrypt([UInt8](repeating: 0, count: 3994), for: keys())
        }
    }

    @Test("Two encryptions of the same text have only their size in common")
    func fresh() throws {
        let one = try MessageEncryption.encrypt(Array("text".utf8), for: keys())
        let other = try MessageEncryption.encrypt(Array("text".utf8), for: keys())
        #expect(one.prefix(16) != other.prefix(16))
        #expect(one[21..<86] != other[21..<86])
        #expect(one.suffix(21) != other.suffix(21))
    }

    @Test("A changed byte anywhere but in the record size is detected")
    func changed() throws {
        let encrypted = try MessageEncryption.encrypt(Array("text".utf8), for: keys())
        for index in encrypted.indices where !(16..<20).contains(index) {
            var other = encrypted
            other[index] ^= 1
            #expect(throws: WebPushError.self, "byte \(index)") {
                try MessageEncryption.decrypt(other, key: browser, secret: browserSecret)
            }
        }
    }

    @Test("Padding is removed; a body without the last record's delimiter is refused")
    func padding() throws {
        #expect(throws: WebPushError.self) {
            try MessageEncryption.decrypt([UInt8](repeating: 0, count: 200), key: browser, secret: browserSecret)
        }
        for count in [0, 20, 85, 86, 102] {
            #expect(throws: WebPushError.self) {
                try MessageEncryption.decrypt([UInt8](repeating: 4, count: count), key: browser, secret: browserSecret)
            }
        }
    }

    @Test("The error names an invalid key")
    func badKeys() {
        let good = Array(browser.publicKey.x963Representation)
        var offCurve = good
        offCurve[64] ^= 1
        for key in [[], Array(good.dropLast()), offCurve, Array(browser.publicKey.compressedRepresentation)] {
            #expect { try SubscriptionKeys(publicKey: key, secret: browserSecret) } throws: {
                ($0 as? WebPushError)?.field == "p256dh"
            }
        }
        #expect { try SubscriptionKeys(publicKey: good, secret: [1, 2, 3]) } throws: {
            ($0 as? WebPushError)?.field == "auth"
        }
    }
}

@Suite("The sender's identification (RFC 8292)")
struct VAPIDTests {
    @Test("A header identifies the sender, the service and the expiry, and can be verified")
    func header() throws {
        let key = VAPIDKey()
        let header = try key.authorization(
            audience: "https://push.example.net", expiresAt: 1_453_523_768, subject: "mailto:push@example.com")
        let read = try VAPIDAuthorization(header: header)
        #expect(read.publicText == key.publicText)
        #expect(read.audience == "https://push.example.net")
        #expect(read.expiresAt == 1_453_523_768)
        #expect(read.subject == "mailto:push@example.com")
        #expect(try VAPIDAuthorization(header: header.replacing(",k=", with: ", k=")) == read)
        // Quotes and slashes in the subject add no other claim.
        let odd = try key.authorization(audience: "https://a", expiresAt: 1, subject: #"https://b/","exp":"9"#)
        #expect(try VAPIDAuthorization(header: odd).subject == #"https://b/","exp":"9"#)
        #expect(try VAPIDAuthorization(header: odd).expiresAt == 1)
    }

    @Test("A key is written as other servers write it, and can be read")
    func text() throws {
        let key = VAPIDKey()
        #expect(key.text.utf8.count == 43)
        #expect(key.publicText.utf8.count == 87)
        #expect(try VAPIDKey(text: key.text).publicText == key.publicText)
        #expect(try VAPIDKey(text: key.text + "=\n").publicText == key.publicText)
        // Standard base64 and PEM, as Python's libraries store the key.
        let standard = key.text.replacing("-", with: "+").replacing("_", with: "/")
        #expect(try VAPIDKey(text: standard + "=").publicText == key.publicText)
        let secret = try P256.Signing.PrivateKey(rawRepresentation: #require(Base64URL.bytes(key.text)))
        #expect(try VAPIDKey(text: secret.pemRepresentation).publicText == key.publicText)
        for text in ["", "abc", key.publicText, String(repeating: "A", count: 43), "not base64!"] {
            #expect(throws: WebPushError.self) { try VAPIDKey(text: text) }
        }
    }

    @Test("A changed header is refused")
    func changed() throws {
        let header = try VAPIDKey().authorization(audience: "https://a", expiresAt: 1, subject: "mailto:a@b")
        let other = VAPIDKey().publicText
        let (token, _) = try #require(header.firstRange(of: ",k=").map { (header[..<$0.lowerBound], $0) })
        for text in [
            "", "vapid", "Bearer abc", String(token), "\(token),k=\(other)",
            header.replacingOccurrences(of: ".", with: ""),
            header.replacingOccurrences(of: "t=ey", with: "t=fy"), "vapid t=a.b.c,k=\(other)",
        ] {
            #expect(throws: WebPushError.self, "\(text)") { try VAPIDAuthorization(header: text) }
        }
    }
}
