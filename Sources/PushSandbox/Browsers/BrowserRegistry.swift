import Crypto
import Foundation
import PushWire

/// The channel of Mozilla's push protocol on which a real browser receives its messages.
struct PushChannel: Sendable, Hashable {
    /// The browser's name at the service, its `uaid`.
    let userAgent: String
    /// The browser's name for the subscription: a UUID in lower case.
    let id: String
}

/// A browser that subscribed to the messages of one page, simulated or real, encoded as in the response to `GET
/// /browsers`.
struct SandboxBrowser: Sendable, JSONRecord, RegistryItem {
    static let plural = "browsers"
    /// The beginning of the path of every endpoint.
    static let path = "/push/"
    /// The number of random bytes in an endpoint.
    static let secretSize = 24

    let id: Int
    /// The last part of the endpoint, to which senders send their messages.
    let secret: String
    /// The origin of the push service in the endpoint: scheme, host and port.
    let origin: String
    let endpoint: String
    /// The SHA-256 of the endpoint. The inbox shows it as the token, and the relay uses it as the device token.
    let token: [UInt8]
    /// The channel of a real browser. `nil` for a simulated browser.
    let channel: PushChannel?
    /// The private key, whose public part is the subscription's `p256dh`. `nil` for a real browser, whose keys the
    /// sandbox does not know.
    private let privateKey: P256.KeyAgreement.PrivateKey?
    /// The subscription's `auth`. Not used for a real browser.
    private let auth: [UInt8]
    /// The public key of the only sender that may send to the browser, 65 bytes. `nil` if every sender may.
    let applicationServerKey: [UInt8]?
    let createdAt: Date
    /// The time at which the subscription ended. `nil` while it exists.
    var removedAt: Date?

    fileprivate init(
        id: Int, secret: String, origin: String, channel: PushChannel?, applicationServerKey: [UInt8]?, at now: Date
    ) {
        self.id = id
        self.secret = secret
        self.origin = origin
        endpoint = origin + Self.path + secret
        token = Self.token(of: endpoint)
        self.channel = channel
        privateKey = channel == nil ? P256.KeyAgreement.PrivateKey() : nil
        auth = MessageEncryption.randomSalt()
        self.applicationServerKey = applicationServerKey
        createdAt = now
    }

    static func token(of endpoint: String) -> [UInt8] { Array(SHA256.hash(data: Data(endpoint.utf8))) }

    /// Decrypts a message (RFC 8291). A message for a real browser is returned unchanged, because only that browser can
    /// decrypt it.
    /// - Throws: The rule that the message breaks.
    func read(_ body: [UInt8]) throws(WebPushError) -> [UInt8] {
        if let privateKey { return try MessageEncryption.decrypt(body, key: privateKey, secret: auth) }
        try MessageEncryption.checkForm(body)
        return body
    }

    var key: String { secret }

    /// The object that `JSON.stringify(subscription)` returns in a browser. For a real browser, it has no keys here.
    private struct Subscription: Encodable {
        struct Keys: Encodable {
            let p256dh: String, auth: String
        }
        let endpoint: String
        // This optional is encoded as null, not left out.
        let expirationTime: Int?? = .some(nil)
        let keys: Keys?
    }

    var json: JSONMembers {
        let keys = privateKey.map { key in
            Subscription.Keys(
                p256dh: Base64URL.text(Array(key.publicKey.x963Representation)), auth: Base64URL.text(auth))
        }
        return [
            "id": id, "token": token.hex, "subscription": Subscription(endpoint: endpoint, keys: keys),
            "channel_id": channel?.id, "application_server_key": applicationServerKey.map(Base64URL.text),
            "created_at": createdAt, "removed_at": removedAt,
        ]
    }

    /// Parses the public key of a sender. `nil` unless the text is an uncompressed point on P-256: 65 bytes in
    /// base64url.
    static func applicationServerKey(_ text: String) -> [UInt8]? {
        // Browsers also accept and send the key with padding.
        guard let bytes = Base64URL.bytesOfAny(text),
            (try? P256.Signing.PublicKey(x963Representation: bytes)) != nil
        else { return nil }
        return bytes
    }
}

/// The browsers that were created through the control API, and the subscriptions of real browsers.
typealias BrowserRegistry = Registry<SandboxBrowser>

extension Registry<SandboxBrowser> {
    /// Adds a browser.
    /// - Parameters:
    ///   - secret: The last part of its endpoint, which was never used before.
    ///   - origin: The origin of the push service.
    ///   - channel: The channel of a real browser. `nil` for a simulated browser.
    mutating func subscribe(
        secret: String, origin: String, channel: PushChannel? = nil, applicationServerKey: [UInt8]? = nil, at now: Date
    ) throws(LimitReached) -> SandboxBrowser {
        try add(secret) { id in
            SandboxBrowser(
                id: id, secret: secret, origin: origin, channel: channel, applicationServerKey: applicationServerKey,
                at: now)
        }
    }

    /// Ends the subscription.
    /// - Returns: The browser. `nil` if there is no such browser.
    mutating func remove(id: Int, at now: Date) -> SandboxBrowser? {
        guard let index = index(id: id) else { return nil }
        _ = remove(index: index, at: now)
        return items[index]
    }

    mutating func remove(secret: String, at now: Date) {
        if let index = index(of: secret) { _ = remove(index: index, at: now) }
    }
}
