package import ChatDomain
import Crypto
import Foundation
package import PushWire

/// Reads the result of `JSON.stringify(subscription)` in a browser: `{"endpoint", "expirationTime", "keys": {"p256dh",
/// "auth"}}`.
package struct WebPushSubscriptions: SubscriptionReader {
    /// The maximum size of the JSON, in bytes.
    private static let longest = 4096

    package let publicKey: String
    private let rules: EndpointRules

    package init(key: VAPIDKey, rules: EndpointRules) {
        publicKey = key.publicText
        self.rules = rules
    }

    package func subscription(_ text: String) throws(ChatError) -> Subscription {
        func wrong(_ rule: String) -> ChatError { .invalid("subscription", rule) }
        guard text.utf8.count <= Self.longest else { throw wrong("must have at most \(Self.longest) bytes") }
        guard let object = (try? JSONValue(parsing: text))?.object, let url = object["endpoint"]?.text,
            let keys = object["keys"]?.object, let publicKey = keys["p256dh"]?.text, let secret = keys["auth"]?.text
        else { throw wrong("must be a browser's PushSubscription as JSON, with endpoint, keys.p256dh and keys.auth") }
        do throws(WebPushError) {
            let endpoint = try PushEndpoint(url)
            try rules.check(endpoint)
            let keys = try SubscriptionKeys(
                publicKey: Self.bytes(publicKey, "p256dh"), secret: Self.bytes(secret, "auth"))
            return Subscription(
                address: Self.address(of: endpoint), endpoint: endpoint.url, publicKey: keys.publicKey,
                secret: keys.secret, expiresAt: try Self.time(object["expirationTime"]))
        } catch {
            throw wrong("\(error)")
        }
    }

    /// Returns the address of a browser: the SHA-256 of its endpoint.
    static func address(of endpoint: PushEndpoint) -> DeviceToken {
        guard let token = DeviceToken(bytes: Array(SHA256.hash(data: Data(endpoint.url.utf8)))) else {
            preconditionFailure("a hash has as many bytes as a token may have")
        }
        return token
    }

    /// Decodes base64 in either alphabet, with or without padding. Browsers write base64url without padding, and pages
    /// that encode the keys with `btoa` write the standard alphabet.
    private static func bytes(_ text: String, _ field: String) throws(WebPushError) -> [UInt8] {
        guard let bytes = Base64URL.bytesOfAny(text) else {
            throw WebPushError(field, "must be base64url or base64")
        }
        return bytes
    }

    /// Parses milliseconds since 1970, or null.
    private static func time(_ value: JSONValue?) throws(WebPushError) -> Timestamp? {
        switch value {
        case nil, .null: return nil
        case .number(let text)?:
            guard let milliseconds = Double(text), milliseconds >= 0,
                let seconds = Int64(exactly: (milliseconds / 1000).rounded(.down)), seconds <= Timestamp.latestSeconds
            else { throw WebPushError("expirationTime", "must be milliseconds since 1970, or null") }
            return Timestamp(seconds: seconds)
        default: throw WebPushError("expirationTime", "must be milliseconds since 1970, or null")
        }
    }
}
