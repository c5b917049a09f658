import AsyncHTTPClient
import ChatDomain
import Crypto
import Foundation
import GatewayPool
import NIOCore
import NIOHPACK
import PushWire
import Synchronization

/// An encrypted push on its way to a browser (RFC 8030 §5).
final class WebPushRequest: Sendable {
    /// The maximum lifetime in seconds: 28 days. Apple's service keeps pushes for 30 days.
    private static let longestLifetime: Int64 = 28 * 86_400

    let push: AddressedPush
    let sentAt: Timestamp
    private let endpoint: PushEndpoint
    let http2: HTTP2Request
    /// The number of times that a connection has returned the request.
    let returns = Atomic(0)

    /// Encrypts the push, which takes about 0.1 ms.
    ///
    /// - Parameters:
    ///   - authorization: The value of the header.
    ///   - lifetime: The lifetime of a push without an expiration.
    /// - Throws: The reason why the subscription cannot be used.
    init(
        _ addressed: AddressedPush, authorization: String, lifetime: Duration, now: Timestamp, deadline: NIODeadline
    ) throws {
        push = addressed
        sentAt = now
        let (content, subscription) = (addressed.push, addressed.subscription)
        endpoint = try PushEndpoint(subscription.endpoint)
        let body = try MessageEncryption.encrypt(
            content.payload,
            for: try SubscriptionKeys(publicKey: subscription.publicKey, secret: subscription.secret))
        var headers = HPACKHeaders()
        headers.reserveCapacity(11)
        headers.add(name: ":method", value: "POST")
        headers.add(name: ":scheme", value: "https")
        headers.add(name: ":authority", value: endpoint.authority)
        // Values that differ between pushes do not enter the service's table. The path is a secret.
        headers.add(name: ":path", value: endpoint.path, indexing: .neverIndexed)
        headers.add(name: "content-type", value: "application/octet-stream")
        headers.add(name: "content-encoding", value: MessageEncryption.coding)
        headers.add(
            name: "ttl", value: String(WebPushRequest.lifetime(content.expiration, lifetime, now)),
            indexing: .nonIndexable)
        headers.add(name: "urgency", value: WebPushRequest.urgency(content.priority))
        if let id = content.collapseID {
            headers.add(name: "topic", value: WebPushRequest.topic(id), indexing: .nonIndexable)
        }
        headers.add(name: "authorization", value: authorization)
        headers.add(name: "content-length", value: String(body.count), indexing: .nonIndexable)
        http2 = HTTP2Request(content, headers: headers, body: body, deadline: deadline)
    }

    /// The same request for HTTP/1.1.
    var http1: HTTPClientRequest {
        var request = HTTPClientRequest(url: endpoint.url)
        request.method = .POST
        for (name, value, _) in http2.headers where name.first != ":" && name != "content-length" {
            request.headers.add(name: name, value: value)
        }
        request.body = .bytes(http2.body)
        return request
    }

    /// Returns the number of seconds for which the service keeps the push for a browser that is offline. Never 0, which
    /// Apple rejects.
    private static func lifetime(_ expiration: Int64?, _ lifetime: Duration, _ now: Timestamp) -> Int64 {
        let seconds = expiration.map { $0 - now.seconds } ?? lifetime.components.seconds
        return min(max(seconds, 1), longestLifetime)
    }

    private static func urgency(_ priority: UInt8?) -> String {
        switch priority {
        case 1: "low"
        case 5: "normal"
        default: "high"
        }
    }

    /// Returns the topic for a collapse id: 32 characters of the allowed alphabet, always the same for the same id.
    static func topic(_ collapseID: String) -> String {
        Data(SHA256.hash(data: Data(collapseID.utf8)).prefix(24)).base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_")
    }
}

/// The result of a request.
enum WebPushResponse: Sendable, Hashable {
    case status(UInt, retryAfter: Timestamp?, text: String)
    /// The connection was lost, no response arrived in time, or the response is not HTTP.
    case lost(String)
    /// No connection could be opened.
    case unreached(String)
    /// Nothing was sent, because the relay stops or its configuration has changed.
    case notSent
    /// The subscription or its endpoint cannot be used.
    case unusable(String)

    /// The statuses of services that get too many pushes. Windows' service answers 406 (Microsoft, "Push notification
    /// service request and response headers"; WindowsAppSDK#3501). The relay sends no `Accept`, so 406 has no other meaning.
    private static let limits: Set<UInt> = [406, 429]
    /// The statuses below 500 with which a request may succeed later (RFC 9110 §15.5.9 and §15.5.20, RFC 8470).
    private static let temporary: Set<UInt> = [408, UInt(misdirected), 425]

    /// Whether another attempt may succeed. A redirection comes from another server, such as a proxy, and says nothing
    /// about the push.
    private static func isTemporary(_ status: UInt) -> Bool {
        !(400..<500).contains(status) || temporary.contains(status) || limits.contains(status)
    }

    /// Another connection may lead to another response.
    static let misdirected = 421

    /// The meaning of the response for the service.
    var result: OriginState.Result {
        switch self {
        case .status(200..<300, _, _): .answered(accepted: true)
        case .status(401, _, _), .status(403, _, _): .notAuthorized
        case .status(let code, _, _) where Self.limits.contains(code): .limited
        case .status(let code, _, _) where Self.isTemporary(code): .refused
        case .status, .unusable: .answered(accepted: false)
        case .lost: .refused
        case .unreached: .unreachable
        case .notSent: .notSent
        }
    }

    /// The reason for the queue and the log: the status, and the service's explanation.
    var reason: String {
        switch self {
        case .status(let code, _, let text): text.isEmpty ? "\(code)" : "\(code) \(text)"
        case .lost(let reason), .unreached(let reason), .unusable(let reason): reason
        case .notSent: "NotSent"
        }
    }

    /// A hint for 413. RFC 8030 §7.2 obliges services to take 4,096 bytes of body, which is 3,993 of payload. For
    /// Firefox on Android, Mozilla's service is reported to take less, as a part of its pushes goes through FCM
    /// (web-push-libs/web-push-php, issues 62 and 108; the number counts the encrypted body).
    private static let smallerLimit = """
        the push service takes smaller payloads; Firefox for Android is reported to take 3,070 bytes. Send a shorter text
        """

    /// Returns the outcome of the push.
    ///
    /// - Parameters:
    ///   - isAuthorized: Whether the service has recently accepted other pushes, so that a rejection of the credentials
    ///     concerns this subscription.
    ///   - pausedUntil: The time until which sending to the service pauses. `nil` if it does not.
    ///   - contact: The contact that the sender names.
    func outcome(sentAt: Timestamp, isAuthorized: Bool, pausedUntil: Timestamp?, contact: String?) -> Outcome {
        switch self {
        case .status(200..<300, _, _): return .accepted
        // Only these two statuses end a subscription.
        case .status(404, _, _), .status(410, _, _): return .unregistered(since: sentAt, reason: reason)
        case .status(401, _, _), .status(403, _, _):
            let hint = hint(contact: contact)
            if let pausedUntil, !isAuthorized { return .postponed(until: pausedUntil, reason: reason, hint: hint) }
            return .notAuthorized(reason: reason, hint: hint)
        case .status(let code, let retryAfter, _) where Self.isTemporary(code):
            return .retry(reason: reason, notBefore: retryAfter)
        case .status(413, _, _): return .rejected(reason: reason, hint: Self.smallerLimit)
        case .status, .unusable: return .rejected(reason: reason)
        case .lost, .unreached: return .retry(reason: reason)
        case .notSent: return .notProcessed
        }
    }

    /// The probable cause of a rejection. `nil` if the reason says enough.
    func hint(contact: String?) -> String? {
        guard case .status(403, _, "BadJwtToken") = self else { return nil }
        guard let contact else { return "Apple's service needs a contact: set push.contact" }
        guard let host = VAPIDContact(contact)?.privateHost else {
            return "does the contact \(contact) exist (push.contact), and is this machine's clock right?"
        }
        return "Apple's service rejects the contact \(contact), because no public host has the name \(host): "
            + "set push.contact to an address of yours"
    }

    /// - Parameter retryAfter: The field `Retry-After`.
    init(_ status: Int, retryAfter: String?, body: [UInt8], now: Timestamp) {
        self = .status(
            UInt(status), retryAfter: retryAfter.flatMap { Timestamp(retryAfter: $0, now: now) },
            text: Self.explanation(body))
    }

    /// Returns a short explanation from the service's body: Apple's `reason`, Mozilla's `message`, `error`, or the
    /// first line.
    private static func explanation(_ body: [UInt8]) -> String {
        guard !body.isEmpty else { return "" }
        var text = String(decoding: body, as: UTF8.self)
        if let object = try? JSONValue(parsing: text).object {
            text = object["reason"]?.text ?? object["message"]?.text ?? object["error"]?.text ?? ""
        }
        return String(text.prefix { !$0.isNewline }).printableASCII(limit: 100)
    }
}
