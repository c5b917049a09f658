package import ChatDomain
package import GatewayPool
import NIOHPACK
import Synchronization

/// Google's Firebase Cloud Messaging, and an app's service account for it. See `docs/fcm.md`, and Google, "Firebase Cloud
/// Messaging API", `v1`.
package struct FirebaseService: HTTP2Service {
    package let endpoint: GatewayEndpoint
    private let tokens: OAuthTokens
    private let now: TimeSource
    private let shared = Shared()

    package init(endpoint: GatewayEndpoint, tokens: OAuthTokens, now: @escaping TimeSource = Timestamp.now) {
        self.endpoint = endpoint
        self.tokens = tokens
        self.now = now
    }

    package func client() async throws -> FCMClient {
        let token = try await tokens.token(refused: shared.withLock { $0.refused })
        return FCMClient(
            host: endpoint.host, project: tokens.account.project, token: token, shared: shared, now: now)
    }

    /// The knowledge that all connections of an app share.
    final class Shared: Sendable {
        struct State {
            /// The last access token that FCM rejected.
            var refused: String?
            /// The last access token with which FCM accepted a push.
            var accepted: String?
        }

        private let state = Mutex(State())

        func withLock<Value: Sendable>(_ body: (inout State) -> Value) -> Value { state.withLock { body(&$0) } }
    }
}

/// The requests and responses of one connection to FCM.
package struct FCMClient: HTTP2PushClient {
    /// The shortest waits before a retry that Google asks for.
    private static let quotaWait = Duration.seconds(60)
    private static let serviceWait = Duration.seconds(10)

    private let project: String
    private let token: OAuthToken
    private let shared: FirebaseService.Shared
    private let now: TimeSource
    private let random: @Sendable () -> Double
    /// The headers of every request.
    private let headers: HPACKHeaders

    init(
        host: String, project: String, token: OAuthToken, shared: FirebaseService.Shared, now: @escaping TimeSource,
        random: @escaping @Sendable () -> Double = { .random(in: 0...1) }
    ) {
        self.project = project
        self.token = token
        self.shared = shared
        self.now = now
        self.random = random
        var headers = HPACKHeaders()
        headers.add(name: ":method", value: "POST")
        headers.add(name: ":scheme", value: "https")
        headers.add(name: ":authority", value: host)
        headers.add(name: ":path", value: "/v1/projects/\(project)/messages:send")
        headers.add(name: "content-type", value: "application/json")
        headers.add(name: "authorization", value: "Bearer " + token.text)
        self.headers = headers
    }

    package func lifeLeft(at now: Timestamp) -> Duration? {
        .milliseconds(max(0, token.usableUntil.milliseconds - now.milliseconds))
    }

    package func request(for push: Push) -> HTTP2Request {
        HTTP2Request(push, headers: headers, body: FCMBody.request(push, now: now()))
    }

    package func accepted() {
        shared.withLock { $0.accepted = token.text }
    }

    package func refused(_ problem: CredentialsProblem) {
        if problem.blamesToken { shared.withLock { $0.refused = token.text } }
    }

    // MARK: - Responses

    package func answer(to response: HTTP2Response) -> HTTP2Answer {
        let refusal = FCMError(status: response.status, body: response.body)
        let reason = refusal.reason
        switch (refusal.code, response.status) {
        case ("UNREGISTERED", _):
            return HTTP2Answer(.unregistered(since: response.writtenAt, reason: reason), .device)
        case ("SENDER_ID_MISMATCH", _):
            return HTTP2Answer(
                .rejected(
                    reason: reason,
                    hint: "the device's token belongs to another Firebase project than \(project)"), .push)
        case ("THIRD_PARTY_AUTH_ERROR", _), ("APNS_AUTH_ERROR", _):
            return HTTP2Answer(
                .rejected(
                    reason: reason,
                    hint: "Firebase needs a valid APNs key or Web Push key for this device; see the console"), .push)
        case (_, 401): return notAuthorized(reason)
        case (nil, 403), ("PERMISSION_DENIED", 403):
            return HTTP2Answer(
                .notAuthorized(reason: reason),
                .credentials(
                    CredentialsProblem(
                        reason: reason,
                        advice: "enable the Firebase Cloud Messaging API in project \(project), and give the service "
                            + "account the role Firebase Cloud Messaging API Admin", blamesToken: false,
                        endsConnection: false)), provesCredentials: false)
        case ("QUOTA_EXCEEDED", _), (_, 429): return limited(response, reason)
        // A code of FCM's does not make these final either (RFC 9110 §15.5.9 and §15.5.20, RFC 8470).
        case (_, 408), (_, 421), (_, 425): return failed(response, reason, provesCredentials: false)
        case ("INTERNAL", _), ("UNAVAILABLE", _), (_, 500...): return failed(response, reason, provesCredentials: true)
        case (.some, 400..<500), (nil, 400), (nil, 413):
            let tooLarge = response.status == 413 ? "FCM takes smaller messages; lower payload_limit" : nil
            return HTTP2Answer(.rejected(reason: reason, hint: refusal.explanation ?? tooLarge), .push)
        default:
            // Google documents no other status. It is the answer of a proxy or a front end, and says nothing about the
            // push. 404 without a code of FCM's concerns the project or the host.
            return failed(response, reason, provesCredentials: false)
        }
    }

    private func failed(_ response: HTTP2Response, _ reason: String, provesCredentials: Bool) -> HTTP2Answer {
        HTTP2Answer(
            .retry(reason: reason, notBefore: wait(response, Self.serviceWait)), .service,
            provesCredentials: provesCredentials)
    }

    /// Returns the answer to a rejected access token. The first time, a new token and the push are sent at once.
    private func notAuthorized(_ reason: String) -> HTTP2Answer {
        let isSecond = token.isReplacement && shared.withLock { $0.accepted } != token.text
        let problem = CredentialsProblem(
            reason: reason,
            advice: isSecond
                ? "FCM rejected two access tokens in a row; does the service account still exist?"
                : "the relay requests another access token", blamesToken: true, endsConnection: true)
        return HTTP2Answer(
            isSecond ? .notAuthorized(reason: reason) : .sentBack(reason: reason), .credentials(problem),
            provesCredentials: false)
    }

    private func limited(_ response: HTTP2Response, _ reason: String) -> HTTP2Answer {
        let end = wait(response, Self.quotaWait)
        return HTTP2Answer(
            .retry(reason: reason, notBefore: end),
            .quota(pause: .milliseconds(max(0, end.milliseconds - now().milliseconds))))
    }

    /// Returns the time before which the push is not sent again: as `Retry-After` says, or after `shortest` and up to
    /// half of it more.
    private func wait(_ response: HTTP2Response, _ shortest: Duration) -> Timestamp {
        let now = now()
        if let text = response.retryAfter, let time = Timestamp(retryAfter: text, now: now) {
            return min(max(time, now), now + PushLifeCycle.longestWait)
        }
        return now + shortest * (1 + random() / 2)
    }
}

/// The body of a request.
enum FCMBody {
    /// The longest time for which FCM keeps a message, in seconds.
    private static let longestStorage: Int64 = 2_419_200
    /// The start of every payload that ``FCMFormat`` returns.
    static let start = Array(#"{"android":{"#.utf8)

    /// Completes a payload with the target and the lifetime.
    static func request(_ push: Push, now: Timestamp) -> [UInt8] {
        let target = push.address.description
        let kind = target.utf8.count == TokenKind.installationID ? "fid" : "token"
        var head = #"{"message":{"\#(kind)":"\#(target)","android":{"#
        if let expiration = push.expiration {
            let seconds = min(max(expiration == 0 ? 0 : expiration - now.seconds, 0), longestStorage)
            head += #""ttl":"\#(seconds)s","#
        }
        var body = Array(head.utf8)
        body.reserveCapacity(body.count + push.payload.count + 1)
        body += push.payload.dropFirst(start.count)
        body.append(UInt8(ascii: "}"))
        return body
    }
}
