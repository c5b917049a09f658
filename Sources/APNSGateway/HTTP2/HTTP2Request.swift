package import APNSWire
import ChatDomain
import NIOHPACK

/// One push as an HTTP/2 request: a stream's headers and body, and what the outcome of its answer depends on.
struct HTTP2Request: Sendable {
    let identifier: UInt32
    /// The push's type (`apns-push-type`).
    let type: String
    let headers: HPACKHeaders
    let body: [UInt8]
}

/// What the requests of one connection share.
///
/// What changes with each push goes as a literal without indexing, so that it does not evict the rest from the peer's
/// small table, and the path is marked as never to be indexed. The first request is the exception: it enters the *names*
/// of the changing headers, which later literals then refer to. `authorization` is the same for a connection's whole
/// life and is indexed, as the newer of Apple's two pages says it may (apns-http2.md §8): one byte instead of 200.
struct HTTP2RequestTemplate: Sendable {
    private let bundleID: String?
    /// What begins every request's headers.
    private let prefix: HPACKHeaders
    private let rest: HPACKHeaders

    /// - Parameter token: nil where the certificate is the credential.
    init(host: String, bundleID: String?, token: String?) {
        self.bundleID = bundleID
        var prefix = HPACKHeaders()
        prefix.reserveCapacity(12)
        prefix.add(name: ":method", value: "POST")
        prefix.add(name: ":scheme", value: "https")
        prefix.add(name: ":authority", value: host)
        self.prefix = prefix
        var rest = HPACKHeaders()
        if let token { rest.add(name: ProviderHeader.authorization, value: ProviderHeader.bearer + token) }
        self.rest = rest
    }

    /// The topic of a push; nil for the certificate's own.
    static func topic(type: String, bundleID: String?) -> String? {
        bundleID.map { PushType(rawValue: type).topic(bundleID: $0) }
    }

    func request(for push: Push) -> HTTP2Request {
        // The names are entered once per connection.
        let changing = push.identifier == 1 ? HPACKIndexing.indexable : .nonIndexable
        var headers = prefix
        headers.add(name: ":path", value: ProviderHeader.devicePath + push.address.description, indexing: .neverIndexed)
        headers.add(contentsOf: rest)
        if let topic = Self.topic(type: push.type, bundleID: bundleID) {
            headers.add(name: ProviderHeader.topic, value: topic)
        }
        headers.add(name: ProviderHeader.pushType, value: push.type)
        if let id = push.apnsID { headers.add(name: ProviderHeader.id, value: id, indexing: changing) }
        // A background push with any other priority is an error (apns-http2.md §2), and 10 is what Apple assumes.
        if let priority = push.priority ?? (push.type == Push.background ? 5 : nil) {
            headers.add(name: ProviderHeader.priority, value: String(priority))
        }
        if let expiration = push.expiration {
            headers.add(name: ProviderHeader.expiration, value: String(expiration), indexing: changing)
        }
        if let collapseID = push.collapseID ?? (push.type == Push.alert ? push.apnsID : nil) {
            // A repeat after a loss may be a second copy, and Apple does not compare ids. With the push's own id as its
            // collapse id, the second replaces the first on the screen and not every message shows twice.
            headers.add(name: ProviderHeader.collapseID, value: collapseID, indexing: changing)
        }
        return HTTP2Request(
            identifier: push.identifier, type: push.type, headers: headers, body: push.payload)
    }
}

/// What a refusal by Apple's HTTP/2 API means: the outcome of the push, and text for people.
struct OutcomeMapping: Sendable {
    let host: String
    let bundleID: String?

    /// - Parameters:
    ///   - type: the push's.
    ///   - writtenAt: when the push was written: the time of a refusal without one.
    func outcome(of refusal: ProviderRefusal, type: String, writtenAt: Timestamp) -> Outcome {
        switch refusal.action {
        case .giveUp: .rejected(reason: refusal.reason, hint: hint(refusal, type: type))
        case .deactivate:
            // Not later than the push: a device that registered after it is not concerned.
            .unregistered(
                since: Timestamp(milliseconds: max(0, min(refusal.timestamp ?? .max, writtenAt.milliseconds))),
                reason: refusal.reason)
        case .retryDevice, .retryService: .retry(reason: refusal.reason)
        case .reconnect: .sentBack(reason: refusal.reason)
        case .waitForCredentials: .notAuthorized(reason: refusal.reason)
        }
    }

    /// The probable cause of a final refusal; nil where the reason names it.
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

extension ProviderReason {
    /// What an operator has to do so that the gateway accepts the credentials; nil where it does not refuse them.
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
        case .badCertificate: "the certificate is not good for push; renew it"
        case .badCertificateEnvironment: "the certificate is for the other environment; change host or certificate"
        case .forbidden: "the credentials may not push to this topic; check key or certificate, and bundle id"
        default: nil
        }
    }
}
