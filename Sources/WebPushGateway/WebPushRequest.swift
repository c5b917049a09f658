import AsyncHTTPClient
import ChatDomain
import Crypto
import Foundation
import NIOCore
import NIOHTTP1
import WebPushWire

/// A push on its way to a browser (RFC 8030 §5).
struct WebPushRequest: Sendable {
    /// Bytes of an answer that are read: an explanation for people, if anything.
    static let longestAnswer = 4096
    /// Seconds. 28 days; Apple's service keeps for 30.
    private static let longestLifetime: Int64 = 28 * 86_400

    private let payload: [UInt8]
    private let subscription: Subscription
    private let headers: HTTPHeaders

    init(_ addressed: BrowserPush, lifetime: Duration, now: Timestamp) {
        let push = addressed.push
        payload = push.payload
        subscription = addressed.subscription
        var headers: HTTPHeaders = [
            "Content-Type": "application/octet-stream", "Content-Encoding": MessageEncryption.coding,
            "TTL": String(Self.lifetime(push.expiration, lifetime, now)), "Urgency": Self.urgency(push.priority),
        ]
        if let id = push.collapseID { headers.add(name: "Topic", value: Self.topic(id)) }
        self.headers = headers
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

    /// Encrypts; some 0.1 ms of work.
    func encrypted(authorization: String) throws -> HTTPClientRequest {
        let keys = try SubscriptionKeys(publicKey: subscription.publicKey, secret: subscription.secret)
        var request = HTTPClientRequest(url: subscription.endpoint)
        request.method = .POST
        request.headers = headers
        request.headers.add(name: "Authorization", value: authorization)
        request.body = .bytes(try MessageEncryption.encrypt(payload, for: keys))
        return request
    }
}

/// What became of a request.
enum WebPushAnswer: Sendable, Hashable {
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

    init(_ status: UInt, _ headers: HTTPHeaders, body: ByteBuffer, now: Timestamp) {
        self = .status(
            status, retryAfter: headers.first(name: "Retry-After").flatMap { Self.time($0, now: now) },
            text: Self.explanation(body))
    }

    /// Seconds, or a date (RFC 9110 §10.2.3).
    static func time(_ text: String, now: Timestamp) -> Timestamp? {
        if let seconds = Int64(digits: text.trimmingCharacters(in: .whitespaces)) {
            return now + .seconds(min(seconds, Int64(PushLifeCycle.longestWait.components.seconds)))
        }
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.timeZone = TimeZone(identifier: "GMT")
        format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss zzz"
        return format.date(from: text).map { Timestamp(seconds: Int64($0.timeIntervalSince1970)) }
    }

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
