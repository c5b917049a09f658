import Foundation
import HTTPTypes
import PushWire

/// A request to the push service with a message for a browser (RFC 8030 §5), and the rules for it.
///
/// The RFC does not give the order of the checks, so the sandbox has its own. `docs/sandbox-browsers.md` has the rules
/// as a table.
struct BrowserPush: Sendable {
    /// The maximum TTL in seconds, as with Mozilla's service. A longer TTL is shortened to this.
    static let maxTTL = 30 * 86_400
    private static let maxTopicSize = 32
    /// The maximum validity of a VAPID token in seconds (RFC 8292 §2).
    private static let tokenLifetime: Int64 = 24 * 3600
    /// The maximum number of characters of a header that the inbox keeps.
    private static let maxHeaderLength = 200

    /// The origin of the push service: scheme, host and port.
    let origin: String
    /// The last part of the path.
    let secret: String
    let headers: HTTPFields
    /// The payload for the inbox (``SandboxBrowser/read(_:)``). `nil` if the body is too long, or if there is no such
    /// browser.
    let payload: Result<[UInt8], WebPushError>?

    /// The SHA-256 of the endpoint that was called.
    var token: [UInt8] { SandboxBrowser.token(of: origin + SandboxBrowser.path + secret) }

    /// The headers that the inbox shows, as the sender wrote them.
    var shownHeaders: [String: String] {
        var shown: [String: String] = [:]
        for name in [HTTPField.Name.ttl, .urgency, .topic] {
            shown[name.canonicalName] = headers[name].map { String($0.prefix(Self.maxHeaderLength)) }
        }
        return shown
    }

    /// Checks the request.
    /// - Parameter browser: The browser that is registered under ``secret``.
    /// - Returns: The number of seconds for which the service would store the message.
    func check(_ browser: SandboxBrowser?, at now: Date) throws(WebPushRefusal) -> Int {
        guard let browser else { throw WebPushRefusal(404, 102, "there is no such subscription") }
        guard browser.removedAt == nil else { throw WebPushRefusal(410, 103, "the subscription was removed") }
        let ttl = try lifetime()
        try checkHeaders()
        try checkAuthorization(browser, at: now)
        switch payload {
        case nil:
            throw WebPushRefusal(413, 104, "the body must have at most \(MessageEncryption.largestBody) bytes")
        case .failure(let error): throw WebPushRefusal(400, 110, "\(error)")
        case .success: return ttl
        }
    }

    /// The vendor whose service has more rules.
    private enum Vendor {
        case apple, windows
    }

    private var vendor: Vendor? {
        let host = Self.withoutPort(origin).dropFirst("https://".count)
        if host.hasSuffix(".push.apple.com") { return .apple }
        return host.hasSuffix(".notify.windows.com") ? .windows : nil
    }

    private func lifetime() throws(WebPushRefusal) -> Int {
        let values = headers[values: .ttl]
        guard let value = values.first else { throw WebPushRefusal(400, 111, "TTL: must be given") }
        guard values.count == 1, !value.isEmpty, value.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            throw WebPushRefusal(400, 112, "TTL: must be a whole number of seconds from 0")
        }
        // A number that does not fit counts as the maximum (RFC 8030 §5.2).
        let seconds = min(Int(value) ?? Self.maxTTL, Self.maxTTL)
        switch vendor {
        // Apple, "Sending web push notifications in web apps and browsers": the number must be positive.
        case .apple where seconds == 0:
            throw WebPushRefusal(400, 112, "TTL: must be above 0 at Apple's service", as: .apple("BadTtl"))
        // pywebpush#162, webpush-go#66.
        case .windows where seconds == 0 && headers[.cachePolicy]?.lowercased() != "no-cache":
            throw WebPushRefusal(
                400, 112, "TTL: 0 needs X-WNS-Cache-Policy: no-cache at Windows' service",
                as: .windows("Ttl value conflicts with X-WNS-Cache-Policy."))
        default: return seconds
        }
    }

    private func checkHeaders() throws(WebPushRefusal) {
        let urgency = headers[values: .urgency]
        guard urgency.count <= 1, urgency.allSatisfy(["very-low", "low", "normal", "high"].contains) else {
            throw WebPushRefusal(400, 111, "Urgency: must be one of very-low, low, normal and high")
        }
        let topic = headers[values: .topic]
        let isTopic = topic.allSatisfy {
            (1...Self.maxTopicSize).contains($0.utf8.count) && $0.utf8.allSatisfy(\.isURLSafe)
        }
        guard topic.count <= 1, isTopic else {
            throw WebPushRefusal(
                400, 113, "Topic: must be 1 to \(Self.maxTopicSize) letters, digits, hyphens and underscores")
        }
        // Apple's service decodes the topic (AltanS/collie#90). No base64 has a single character in its last group.
        if vendor == .apple, let text = topic.first, text.utf8.count % 4 == 1 {
            throw WebPushRefusal(
                400, 113, "Topic: must be base64url at Apple's service, which never has \(text.utf8.count) characters",
                as: .apple("BadWebPushTopic"))
        }
        guard headers[values: .contentEncoding] == [MessageEncryption.coding] else {
            throw WebPushRefusal(400, 110, "Content-Encoding: must be \(MessageEncryption.coding), and nothing else")
        }
    }

    private func checkAuthorization(_ browser: SandboxBrowser, at now: Date) throws(WebPushRefusal) {
        let values = headers[values: .authorization]
        guard let value = values.first else {
            throw WebPushRefusal(401, 109, "Authorization: must be vapid t=…, k=…")
        }
        func wrong(_ rule: String) -> WebPushRefusal {
            WebPushRefusal(403, 109, "Authorization: " + rule, as: vendor == .apple ? .apple("BadJwtToken") : .mozilla)
        }
        guard values.count == 1 else { throw wrong("must be given once") }
        let sender: VAPIDAuthorization
        do {
            sender = try VAPIDAuthorization(header: value)
        } catch {
            throw wrong(error.rule)
        }
        // Libraries that omit the port work with the vendors' services, because those use port 443.
        guard [origin, Self.withoutPort(origin)].contains(sender.audience) else { throw wrong("aud must be \(origin)") }
        let now = Int64(now.timeIntervalSince1970)
        guard sender.expiresAt > now else { throw wrong("exp must not be past") }
        guard sender.expiresAt <= now + Self.tokenLifetime else { throw wrong("exp must be within 24 hours") }
        if let subject = sender.subject {
            guard subject.hasPrefix("mailto:") || subject.hasPrefix("https:") else {
                throw wrong("sub must be a URL of mailto or https")
            }
        }
        if vendor == .apple {
            // web-push#787, web-push#947, and alphastorm/omp-session-gateway#173 for `.invalid`.
            guard let contact = sender.subject.flatMap(VAPIDContact.init) else {
                throw wrong("sub must be given as mailto or https, with a host")
            }
            if let host = contact.privateHost { throw wrong("sub must have a public host; \(host) is none") }
        }
        if let key = browser.applicationServerKey, Base64URL.bytes(sender.publicText) != key {
            throw wrong("k must be the application server key of the subscription")
        }
    }
}

extension BrowserPush {
    private static func withoutPort(_ origin: String) -> String {
        guard let colon = origin.lastIndex(of: ":"), origin[colon...].dropFirst().allSatisfy(\.isNumber) else {
            return origin
        }
        return String(origin[..<colon])
    }
}

extension HTTPField.Name {
    static let ttl = Self("TTL")!
    static let urgency = Self("Urgency")!
    static let topic = Self("Topic")!
    static let cachePolicy = Self("X-WNS-Cache-Policy")!
}

/// The properties of a message to a browser: TTL, urgency and topic as the sender wrote them.
struct BrowserDetails: InboxDetails, Hashable {
    let headers: [String: String]

    var gateway: GatewayProtocol { .webpush }
    var json: JSONMembers { ["headers": headers] }

    /// Reads a declarative message, which the worker of the relay's page shows in the same way. Other workers may do
    /// anything. With `renotify`, a notification that replaces another one rings again (Notifications API §2.7).
    func effect(of payload: [UInt8], receiver: InboxEntry.PhoneDelivery.Receiver?) -> Screen.Effect? {
        guard let notification = PayloadObject(payload)?.object("notification") else { return nil }
        let ring: Screen.Ring = notification.isTrue("renotify") ? .always : .unlessReplacing
        return Screen.Content(
            title: notification.text("title"), body: notification.text("body"), key: notification.text("tag"),
            message: notification.object("data")?.text("message_id"),
            ring: notification.isTrue("silent") ? .never : ring
        ).map { .show($0) }
    }
}

extension InboxEntry.Response {
    static func denied(_ refusal: WebPushRefusal) -> Self { .error("\(refusal.status)", message: refusal.message) }
}
