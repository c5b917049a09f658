import APNSWire
import Crypto
import Foundation
import WebPushWire

/// Where a real browser reads its messages: a channel of Mozilla's push protocol.
struct PushChannel: Sendable, Hashable {
    /// The browser's name at the service, its `uaid`.
    let userAgent: String
    /// The browser's name for the subscription: a UUID, lower case.
    let id: String
}

/// A browser that subscribed to messages of one page, simulated or real, in JSON as `GET /browsers` shows it.
struct SandboxBrowser: Sendable, Encodable {
    /// From 1, in the order of making.
    let id: Int
    /// Where messages for it go: the last part of the endpoint.
    let secret: String
    let endpoint: String
    /// What the inbox has as its token, and the relay as its device token: the SHA-256 of the endpoint.
    let token: [UInt8]
    /// Of a real browser; nil: a simulated one.
    let channel: PushChannel?
    /// Its public part is the subscription's `p256dh`. A real browser's is not known here, nor is its ``auth``.
    private let key: P256.KeyAgreement.PrivateKey?
    /// The subscription's `auth`.
    private let auth: [UInt8]
    /// Only this sender may send to it, 65 bytes; nil: any.
    let applicationServerKey: [UInt8]?
    let createdAt: Date
    /// When the subscription ended; nil while it lasts.
    fileprivate(set) var removedAt: Date?

    fileprivate init(
        id: Int, secret: String, origin: String, channel: PushChannel?, applicationServerKey: [UInt8]?, at now: Date
    ) {
        self.id = id
        self.secret = secret
        endpoint = origin + BrowserRegistry.path + secret
        token = Self.token(of: endpoint)
        self.channel = channel
        key = channel == nil ? P256.KeyAgreement.PrivateKey() : nil
        auth = MessageEncryption.randomSalt()
        self.applicationServerKey = applicationServerKey
        createdAt = now
    }

    static func token(of endpoint: String) -> [UInt8] { Array(SHA256.hash(data: Data(endpoint.utf8))) }

    /// The text of a message (RFC 8291); for a real browser, which alone can decrypt it, the message as it came.
    /// - Throws: what is wrong with it.
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

    /// What `JSON.stringify(subscription)` gives in a browser; of a real one without its keys.
    private struct Subscription: Encodable {
        struct Keys: Encodable {
            let p256dh: String, auth: String
        }
        let endpoint: String
        // An optional that is null, and not left out.
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

/// The browsers that were made through the control API, and the subscriptions of real ones. Removed ones stay, so that their
/// endpoints stay refused.
struct BrowserRegistry: Sendable {
    /// Browsers that are kept when nothing else is asked for, removed ones too.
    private static let defaultLimit = 100_000
    /// The beginning of an endpoint's path.
    static let path = "/push/"
    /// Random bytes in an endpoint.
    static let secretSize = 24

    private let limit: Int
    private var browsers: [SandboxBrowser] = []
    private var indices: [String: Int] = [:]

    init(limit: Int = defaultLimit) {
        self.limit = limit
    }

    var count: Int { browsers.count }
    private(set) var removedCount = 0

    /// The key of a sender; nil where the text is none: a point on P-256, uncompressed, 65 bytes in base64url.
    static func applicationServerKey(_ text: String) -> [UInt8]? {
        // Browsers take and send it with padding, too.
        guard let bytes = Base64URL.bytes(text.replacing("=", with: "")),
            (try? P256.Signing.PublicKey(x963Representation: bytes)) != nil
        else { return nil }
        return bytes
    }

    /// The browser to which this path belongs.
    subscript(secret: String) -> SandboxBrowser? { indices[secret].map { browsers[$0] } }

    /// - Parameters:
    ///   - secret: the last part of its endpoint, never used before.
    ///   - origin: of the push service.
    ///   - channel: where a real browser reads its messages; nil: a simulated one.
    mutating func subscribe(
        secret: String, origin: String, channel: PushChannel? = nil, applicationServerKey: [UInt8]? = nil, at now: Date
    ) throws(LimitReached) -> SandboxBrowser {
        guard browsers.count < limit else {
            throw LimitReached(text: "there are \(limit) browsers already, and no more can be made")
        }
        let browser = SandboxBrowser(
            id: browsers.count + 1, secret: secret, origin: origin, channel: channel,
            applicationServerKey: applicationServerKey, at: now)
        indices[secret] = browsers.count
        browsers.append(browser)
        return browser
    }

    /// Ends the subscription.
    /// - Returns: nil where there is no such browser.
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

    /// At most `limit` browsers with a higher id than `since`, and the id to ask from next.
    func page(since: Int, limit: Int) -> (browsers: [SandboxBrowser], next: Int) {
        let page = browsers.dropFirst(max(0, since)).prefix(limit)
        return (Array(page), page.last?.id ?? browsers.count)
    }
}
