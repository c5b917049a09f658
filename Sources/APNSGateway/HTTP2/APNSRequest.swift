import ChatDomain
import GatewayPool
import NIOHPACK
package import PushWire

/// The common parts of the requests of one connection.
///
/// Header values that change with each push are literals without indexing, so that they do not evict others from the
/// peer's small table. The path is marked as never to be indexed. The first request is an exception: it enters the
/// *names* of the changing headers into the table, and later literals refer to them.
///
/// `authorization` is the same for the connection's whole life and is indexed, which takes one byte instead of 200.
/// Apple, "Establishing a connection to APNs", allows this; the older page "Sending notification requests to APNs" asks
/// for a literal without indexing.
struct HTTP2RequestTemplate: Sendable {
    private let bundleID: String?
    /// The headers at the start of every request.
    private let prefix: HPACKHeaders
    private let authorization: HPACKHeaders

    /// Creates the template for one connection.
    /// - Parameter token: `nil` if the certificate is the credential.
    init(host: String, bundleID: String?, token: String?) {
        self.bundleID = bundleID
        var prefix = HPACKHeaders()
        prefix.reserveCapacity(12)
        prefix.add(name: ":method", value: "POST")
        prefix.add(name: ":scheme", value: "https")
        prefix.add(name: ":authority", value: host)
        self.prefix = prefix
        var authorization = HPACKHeaders()
        if let token { authorization.add(name: ProviderHeader.authorization, value: ProviderHeader.bearer + token) }
        self.authorization = authorization
    }

    /// Returns the topic of a push. `nil` if the certificate's own topic is used.
    static func topic(type: String, bundleID: String?) -> String? {
        bundleID.map { PushType(rawValue: type).topic(bundleID: $0) }
    }

    func request(for push: Push) -> HTTP2Request {
        // The names enter the table once per connection.
        let changing = push.identifier == 1 ? HPACKIndexing.indexable : .nonIndexable
        var headers = prefix
        headers.add(name: ":path", value: ProviderHeader.devicePath + push.address.description, indexing: .neverIndexed)
        headers.add(contentsOf: authorization)
        if let topic = Self.topic(type: push.type, bundleID: bundleID) {
            headers.add(name: ProviderHeader.topic, value: topic)
        }
        headers.add(name: ProviderHeader.pushType, value: push.type)
        if let id = push.apnsID { headers.add(name: ProviderHeader.id, value: id, indexing: changing) }
        // A background push with priority 10 is an error, and Apple assumes 10 if there is none (Apple, "Sending
        // notification requests to APNs").
        if let priority = push.priority ?? (push.type == Push.background ? 5 : nil) {
            headers.add(name: ProviderHeader.priority, value: String(priority))
        }
        if let expiration = push.expiration {
            headers.add(name: ProviderHeader.expiration, value: String(expiration), indexing: changing)
        }
        if let collapseID = push.collapseID ?? (push.type == Push.alert ? push.apnsID : nil) {
            // A retry after a loss may deliver a second copy, because Apple does not compare ids. With the push's own
            // id as its collapse id, the second copy replaces the first on the screen.
            headers.add(name: ProviderHeader.collapseID, value: collapseID, indexing: changing)
        }
        return HTTP2Request(push, headers: headers, body: push.payload)
    }
}

/// Maps a rejection by Apple's HTTP/2 API to the outcome of the push and a hint for operators.
struct OutcomeMapping: Sendable {
    let host: String
    let bundleID: String?

    /// Returns the meaning of a rejection.
    /// - Parameter notBefore: The time before which the gateway wants no retry. `nil` if it names none.
    func answer(
        to refusal: ProviderRefusal, type: String, writtenAt: Timestamp, notBefore: Timestamp? = nil
    ) -> HTTP2Answer {
        let subject: HTTP2Answer.Subject =
            switch refusal.action {
            case .giveUp: .push
            case .deactivate, .retryDevice: .device
            case .retryService: .service
            case .reconnect: .connection(reason: refusal.reason)
            case .waitForCredentials: .credentials(CredentialsProblem(refusal))
            }
        return HTTP2Answer(
            outcome(of: refusal, type: type, writtenAt: writtenAt, notBefore: notBefore), subject,
            provesCredentials: refusal.status != 403)
    }

    /// Returns the outcome of a push that the gateway rejected.
    ///
    /// - Parameters:
    ///   - type: The push's type.
    ///   - writtenAt: The time at which the push was written. It is used if the rejection contains no time.
    func outcome(
        of refusal: ProviderRefusal, type: String, writtenAt: Timestamp, notBefore: Timestamp? = nil
    ) -> Outcome {
        switch refusal.action {
        case .giveUp: .rejected(reason: refusal.reason, hint: hint(refusal, type: type))
        case .deactivate:
            // The time is never later than the push, so that a device that has registered since then stays active.
            .unregistered(
                since: Timestamp(milliseconds: max(0, min(refusal.timestamp ?? .max, writtenAt.milliseconds))),
                reason: refusal.reason)
        case .retryDevice, .retryService: .retry(reason: refusal.reason, notBefore: notBefore)
        case .reconnect: .sentBack(reason: refusal.reason)
        case .waitForCredentials: .notAuthorized(reason: refusal.reason)
        }
    }

    /// The probable cause of a final rejection. `nil` if the reason says enough.
    private func hint(_ refusal: ProviderRefusal, type: String) -> String? {
        switch refusal.known {
        case .badDeviceToken:
            return isDevelopment || isProduction
                ? "wrong environment? \(host) is \(environment), where only tokens of \(builds) are known"
                : "wrong environment?"
        case .deviceTokenNotForTopic, .badTopic, .topicDisallowed, .missingTopic:
            guard let topic = HTTP2RequestTemplate.topic(type: type, bundleID: bundleID) else {
                return "no topic was sent, because no bundle id is configured"
            }
            return "the topic sent was \(topic)"
        case .payloadTooLarge:
            return "\(host) takes smaller payloads than this relay sends; lower payload_limit"
        default:
            return nil
        }
    }

    private var isDevelopment: Bool { host.contains("sandbox") || host.contains("development") }
    private var isProduction: Bool { host == "api.push.apple.com" }
    private var environment: String { "the \(isDevelopment ? "development" : "production") environment" }
    private var builds: String {
        isDevelopment ? "apps installed by Xcode" : "apps from the App Store, TestFlight or ad-hoc distribution"
    }
}

extension CredentialsProblem {
    init(_ refusal: ProviderRefusal) {
        // After too many token updates, another token would not help.
        let blamesToken =
            switch refusal.known {
            case .expiredProviderToken, .invalidProviderToken: true
            case nil: refusal.status == 403
            default: false
            }
        self.init(
            reason: refusal.reason, advice: refusal.known?.advice, blamesToken: blamesToken,
            endsConnection: refusal.known == .expiredProviderToken || refusal.known == .tooManyProviderTokenUpdates)
    }
}

extension ProviderReason {
    /// Advice to the operator on how to correct the credentials. `nil` if the reason does not concern credentials.
    package var advice: String? {
        switch self {
        case .expiredProviderToken: "the provider token was too old; is this machine's clock right?"
        case .invalidProviderToken:
            "key, key id and team id do not belong together, or the key was revoked; check them against the developer account"
        case .missingProviderToken: "configure a key for provider tokens, or a certificate"
        case .unrelatedKeyIDInToken, .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            "the key is for other topics or for the other environment; create one that covers this app and host"
        case .tooManyProviderTokenUpdates:
            "provider tokens change too often; do other programs sign with this key on the same connections?"
        case .badCertificate: "the certificate is not valid for push; renew it"
        case .badCertificateEnvironment: "the certificate is for the other environment; change host or certificate"
        case .forbidden: "the credentials may not push to this topic; check key or certificate, and bundle id"
        default: nil
        }
    }
}
