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
struct SandboxBrowser: Sendable, Encodable {
    /// The browser's id: from 1, in the order of creation.
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
    private let key: P256.KeyAgreement.PrivateKey?
    /// The subscription's `auth`. Not used for a real browser.
    private let auth: [UInt8]
    /// The public key of the only sender that may send to the browser, 65 bytes. `nil` if every sender may.
    let applicationServerKey: [UInt8]?
    let createdAt: Date
    /// The time at which the subscription ended. `nil` while it exists.
    fileprivate(set) var removedAt: Date?

    fileprivate init(
        id: Int, secret: String, origin: String, channel: PushChannel?, applicationServerKey: [UInt8]?, at now: Date
    ) {
        self.id = id
        self.secret = secret
        self.origin = origin
        endpoint = origin + BrowserRegistry.path + secret
        token = Self.token(of: endpoint)
        self.channel = channel
        key = channel == nil ? P256.KeyAgreement.PrivateKey() : nil
        auth = MessageEncryption.randomSalt()
        self.applicationServerKey = applicationServerKey
        createdAt = now
    }

    static func token(of endpoint: String) -> [UInt8] { Array(SHA256.hash(data: Data(endpoint.utf8))) }

    /// Decrypts a message (RFC 8291). A message for a real browser is returned unchanged, because only that browser can
    /// decrypt it.
    /// - Throws: The rule that the message breaks.
    func read(_ body: [UInt8]) throws(WebPushError) -> [UInt8] {
        if let key { return try MessageEncryption.decrypt(body, key: key, secret: auth) }
        try MessageEncryption.checkForm(body)
        return body
    }

    private enum CodingKeys: String, CodingKey {
        case id, token, subscription
        case channelID = "channel_id"
        case applicationServerKey = "application_server_key"
        case createdAt = "created_at"
        case removedAt = "removed_at"
    }

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

    func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: CodingKeys.self)
        try fields.encode(id, forKey: .id)
        try fields.encode(token.hex, forKey: .token)
        let keys = key.map { key in
            Subscription.Keys(
                p256dh: Base64URL.text(Array(key.publicKey.x963Representation)), auth: Base64URL.text(auth))
        }
        try fields.encode(Subscription(endpoint: endpoint, keys: keys), forKey: .subscription)
        try fields.encodeIfPresent(channel?.id, forKey: .channelID)
        try fields.encodeIfPresent(applicationServerKey.map(Base64URL.text), forKey: .applicationServerKey)
        try fields.encode(createdAt.rfc3339, forKey: .createdAt)
        try fields.encodeIfPresent(removedAt?.rfc3339, forKey: .removedAt)
    }
}

/// The browsers that were created through the control API, and the subscriptions of real browsers. Removed ones stay,
/// so that their endpoints remain rejected.
struct BrowserRegistry: Sendable {
    /// The default maximum number of browsers, including removed ones.
    private static let defaultLimit = 100_000
    /// The beginning of the path of every endpoint.
    static let path = "/push/"
    /// The number of random bytes in an endpoint.
    static let secretSize = 24

    private let limit: Int
    private var browsers: [SandboxBrowser] = []
    private var indices: [String: Int] = [:]

    init(limit: Int = defaultLimit) {
        self.limit = limit
    }

    var count: Int { browsers.count }
    private(set) var removedCount = 0

    /// Parses the public key of a sender. `nil` unless the text is an uncompressed point on P-256: 65 bytes in
    /// base64url.
    static func applicationServerKey(_ text: String) -> [UInt8]? {
        // Browsers also accept and send the key with padding.
        guard let bytes = Base64URL.bytesOfAny(text),
            (try? P256.Signing.PublicKey(x963Representation: bytes)) != nil
        else { return nil }
        return bytes
    }

    /// The browser whose endpoint ends with `secret`, even if it was removed.
    subscript(secret: String) -> SandboxBrowser? { indices[secret].map { browsers[$0] } }

    /// Adds a browser.
    /// - Parameters:
    ///   - secret: The last part of its endpoint, which was never used before.
    ///   - origin: The origin of the push service.
    ///   - channel: The channel of a real browser. `nil` for a simulated browser.
    mutating func subscribe(
        secret: String, origin: String, channel: PushChannel? = nil, applicationServerKey: [UInt8]? = nil, at now: Date
    ) throws(LimitReached) -> SandboxBrowser {
        guard browsers.count < limit else {
            throw LimitReached(
                text: "there are \(limit) browsers, which is the limit; restart the sandbox to remove them")
        }
        let browser = SandboxBrowser(
            id: browsers.count + 1, secret: secret, origin: origin, channel: channel,
            applicationServerKey: applicationServerKey, at: now)
        indices[secret] = browsers.count
        browsers.append(browser)
        return browser
    }

    /// Ends the subscription.
    /// - Returns: The browser. `nil` if there is no such browser.
    mutating func remove(id: Int, at now: Date) -> SandboxBrowser? {
        guard browsers.indices.contains(id - 1) else { return nil }
        if browsers[id - 1].removedAt == nil {
            browsers[id - 1].removedAt = now
            removedCount += 1
        }
        return browsers[id - 1]
    }

    mutating func remove(secret: String, at now: Date) {
        if let index = indices[secret] { _ = remove(id: index + 1, at: now) }
    }

    /// Returns at most `limit` browsers with an id above `since`, and the `since` of the next page.
    func page(since: Int, limit: Int) -> (browsers: [SandboxBrowser], next: Int) {
        let page = browsers.dropFirst(max(0, since)).prefix(limit)
        return (Array(page), page.last?.id ?? browsers.count)
    }
}
