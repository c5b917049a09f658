import APNSWire
import ChatDomain

/// What a refusal by Apple's HTTP/2 API means: the outcome of the push, and text for people.
struct OutcomeMapping: Sendable {
    let host: String
    let bundleID: String?

    /// - Parameters:
    ///   - type: the push's.
    ///   - writtenAt: when the push was written: the time of a refusal without one.
    func outcome(of refusal: ProviderRefusal, type: String, writtenAt: Timestamp) -> Outcome {
        switch refusal.remedy {
        case .giveUp: .rejected(reason: refusal.reason, hint: hint(refusal, type: type))
        case .deactivate:
            // Not later than the push: a device that registered after it is not concerned.
            .unregistered(
                since: Timestamp(milliseconds: max(0, min(refusal.timestamp ?? .max, writtenAt.milliseconds))),
                reason: refusal.reason)
        case .retryDevice, .retryService: .retry(reason: refusal.reason)
        case .reconnect: .sentBack(reason: refusal.reason)
        case .mendCredentials: .notAuthorized(reason: refusal.reason)
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

    /// What an operator has to do so that the gateway accepts our credentials.
    static func advice(_ reason: ProviderReason?) -> String {
        switch reason {
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
        default: "check the credentials"
        }
    }
}
