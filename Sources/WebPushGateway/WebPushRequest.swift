import AsyncHTTPClient
import ChatDomain
import Crypto
import Foundation
import NIOCore
import NIOHPACK
import Synchronization
import WebPushWire

/// A push on its way to a browser, encrypted (RFC 8030 §5).
final class WebPushRequest: Sendable {
    /// Bytes of an answer that are read: an explanation for people, if anything.
    static let longestResponse = 4096
    /// Seconds. 28 days; Apple's service keeps for 30.
    private static let longestLifetime: Int64 = 28 * 86_400

    let push: BrowserPush
    let sentAt: Timestamp
    /// Without an answer by then it is lost.
    let deadline: NIODeadline
    private let endpoint: PushEndpoint
    /// As HTTP/2 has them, which is with method and path.
    let headers: HPACKHeaders
    let body: [UInt8]
    /// How often a connection has returned it.
    let returns = Atomic(0)

    /// Encrypts; some 0.1 ms of work.
    ///
    /// - Parameters:
    ///   - authorization: the header's value.
    ///   - lifetime: where the push has no expiration.
    /// - Throws: what is wrong with the subscription.
    init(
        _ addressed: BrowserPush, authorization: String, lifetime: Duration, now: Timestamp, deadline: NIODeadline
    ) throws {
        push = addressed
        sentAt = now
        self.deadline = deadline
        let (content, subscription) = (addressed.push, addressed.subscription)
        endpoint = try PushEndpoint(subscription.endpoint)
        body = try MessageEncryption.encrypt(
            content.payload,
            for: try SubscriptionKeys(publicKey: subscription.publicKey, secret: subscription.secret))
        var headers = HPACKHeaders()
        headers.reserveCapacity(11)
        headers.add(name: ":method", value: "POST")
        headers.add(name: ":scheme", value: "https")
        headers.add(name: ":authority", value: endpoint.authority)
        // What differs from push to push is not entered into the service's table; the path is a secret.
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
        self.headers = headers
    }

    /// The same for HTTP/1.1.
    var http1: HTTPClientRequest {
        var request = HTTPClientRequest(url: endpoint.url)
        request.method = .POST
        for (name, value, _) in headers where name.first != ":" && name != "content-length" {
            request.headers.add(name: name, value: value)
        }
        request.body = .bytes(body)
        return request
    }

    /// Seconds that the service keeps it for a browser that is off. Never 0, which Apple refuses.
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

    /// 32 characters of the alphabet that is allowed, the same for the same id.
    static func topic(_ collapseID: String) -> String {
        Data(SHA256.hash(data: Data(collapseID.utf8)).prefix(24)).base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_")
    }
}

/// What became of a request.
enum WebPushResponse: Sendable, Hashable {
    case status(UInt, retryAfter: Timestamp?, text: String)
    /// No connection, no answer in time, or an answer that is not HTTP.
    case lost(String)
    /// Nothing was sent: the relay stops, or sends in another way by now.
    case notSent
    /// The subscription, or what it names, cannot be used.
    case unusable(String)

    /// What it says about the service.
    var result: OriginState.Result {
        switch self {
        case .status(200..<300, _, _): .answered(accepted: true)
        case .status(401, _, _), .status(403, _, _): .notAuthorized
        case .status(500..., let retryAfter, _): .failed(notBefore: retryAfter)
        // With 429 a service may mean the one subscription only: that push waits, the others need not.
        case .status, .unusable: .answered(accepted: false)
        case .lost: .failed(notBefore: nil)
        case .notSent: .notSent
        }
    }

    /// For the queue's row and the log: the status, and what the service says about it.
    var reason: String {
        switch self {
        case .status(let code, _, let text): text.isEmpty ? "\(code)" : "\(code) \(text)"
        case .lost(let reason), .unusable(let reason): reason
        case .notSent: "NotSent"
        }
    }

    /// What follows for the push.
    ///
    /// - Parameters:
    ///   - isAuthorized: others got through to the service lately, so that a refusal of the credentials is about this
    ///     subscription.
    ///   - pausedUntil: the service takes nothing until then.
    func outcome(sentAt: Timestamp, isAuthorized: Bool, pausedUntil: Timestamp?) -> Outcome {
        switch self {
        case .status(200..<300, _, _): return .accepted
        // Only these two end a subscription.
        case .status(404, _, _), .status(410, _, _): return .unregistered(since: sentAt, reason: reason)
        case .status(401, _, _), .status(403, _, _):
            if let pausedUntil, !isAuthorized { return .postponed(until: pausedUntil, reason: reason) }
            return .notAuthorized(reason: reason)
        case .status(429, let retryAfter, _), .status(500..., let retryAfter, _):
            return .retry(reason: reason, notBefore: retryAfter)
        case .status, .unusable: return .rejected(reason: reason)
        case .lost: return .retry(reason: reason)
        case .notSent: return .notProcessed
        }
    }

    /// - Parameter retryAfter: the field `Retry-After`.
    init(_ status: UInt, retryAfter: String?, body: ByteBuffer, now: Timestamp) {
        self = .status(
            status, retryAfter: retryAfter.flatMap { Self.time($0, now: now) }, text: Self.explanation(body))
    }

    /// Seconds, or a date (RFC 9110 §10.2.3).
    static func time(_ text: String, now: Timestamp) -> Timestamp? {
        if let seconds = Int64(digits: text.trimmingCharacters(in: .whitespaces)) {
            return now + .seconds(min(seconds, Int64(PushLifeCycle.longestWait.components.seconds)))
        }
        let date = #/[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d:\d\d:\d\d) GMT/#
        guard let match = text.wholeMatch(of: date)?.output, let month = Self.months.firstIndex(of: match.2) else {
            return nil
        }
        return Timestamp(sqlText: "\(match.3)-\(month + 1)-\(match.1) \(match.4)")
    }

    private static let months: [Substring] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// A word or a sentence of the services' bodies: Apple's `reason`, Mozilla's `message`, else the first line.
    private static func explanation(_ body: ByteBuffer) -> String {
        guard body.readableBytes > 0 else { return "" }
        var text = String(buffer: body)
        if let object = try? JSONValue(parsing: text).object {
            text = object["reason"]?.text ?? object["message"]?.text ?? object["error"]?.text ?? ""
        }
        let line = text.prefix { !$0.isNewline }.unicodeScalars.prefix(100).filter {
            $0.value >= 0x20 && $0.value < 0x7F
        }
        return String(String.UnicodeScalarView(line))
    }
}
