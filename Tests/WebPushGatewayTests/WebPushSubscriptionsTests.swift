import ChatDomain
import Crypto
import Foundation
import PushWire
import Testing

@testable import WebPushGateway

@Suite("Subscriptions in browsers' form")
struct WebPushSubscriptionsTests {
    private let key = Base64URL.text(Array(P256.KeyAgreement.PrivateKey().publicKey.x963Representation))
    private let secret = Base64URL.text(MessageEncryption.randomSalt())
    private let reader: WebPushSubscriptions

    init() throws {
        reader = WebPushSubscriptions(key: VAPIDKey(), rules: try EndpointRules())
    }

    private func json(
        endpoint: String = "https://fcm.googleapis.com/fcm/send/abc", key: String? = nil, secret: String? = nil,
        time: String = "null"
    ) -> String {
        """
        {"endpoint":"\(endpoint)","expirationTime":\(time),"keys":{"p256dh":"\(key ?? self.key)","auth":"\(secret ?? self.secret)"}}
        """
    }

    @Test("A browser's subscription is read; the device is the endpoint's hash")
    func read() throws {
        let subscription = try reader.subscription(json(time: "1900000000999.5"))
        #expect(subscription.endpoint == "https://fcm.googleapis.com/fcm/send/abc")
        let hash = SHA256.hash(data: Data(subscription.endpoint.utf8)).map { String(format: "%02x", $0) }.joined()
        #expect(subscription.address.description == hash)
        #expect(Base64URL.text(subscription.publicKey) == key)
        #expect(Base64URL.text(subscription.secret) == secret)
        #expect(subscription.expiresAt == Timestamp(seconds: 1_900_000_000))
        // Some libraries write padding.
        #expect(try reader.subscription(json(secret: secret + "==")).secret == subscription.secret)
        #expect(try reader.subscription(json()).expiresAt == nil)
        // Pages that encode the keys with `btoa` write the other alphabet.
        func standard(_ text: String) throws -> String {
            Data(try #require(Base64URL.bytes(text))).base64EncodedString()
        }
        let encoded = try reader.subscription(json(key: standard(key), secret: standard(secret)))
        #expect(encoded.publicKey == subscription.publicKey && encoded.secret == subscription.secret)
    }

    @Test("An invalid subscription is refused with the part and the rule")
    func refused() {
        let cases = [
            ("", "PushSubscription"), ("{}", "PushSubscription"), ("[1]", "PushSubscription"),
            (#"{"endpoint":1,"keys":{"p256dh":"a","auth":"b"}}"#, "PushSubscription"),
            (json(endpoint: "http://fcm.googleapis.com/x"), "https"),
            (json(endpoint: "https://10.0.0.1/x"), "endpoint"),
            (json(endpoint: "https://example.org/x"), "webpush.hosts"), (json(key: "AAAA"), "p256dh"),
            (json(key: "not base64url!"), "p256dh"), (json(secret: "AAAA"), "auth"),
            (json(time: "-1"), "expirationTime"),
            (json(time: "1e300"), "expirationTime"), (json(time: "\"soon\""), "expirationTime"),
            (json(endpoint: "https://fcm.googleapis.com/" + String(repeating: "x", count: 5000)), "4096"),
        ]
        for (text, part) in cases {
            #expect("\(text.prefix(80))") {
                try reader.subscription(text)
            } throws: { error in
                (error as? ChatError)?.field == "subscription" && "\(error)".contains(part)
            }
        }
    }
}
