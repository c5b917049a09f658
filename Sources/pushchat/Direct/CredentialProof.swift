import APNSGateway
import APNSWire
import ChatDomain

/// Proves an app's credentials with one push to a token that no device has: a gateway that refuses nothing but the token accepts
/// the key or certificate, and the topic.
struct CredentialProof {
    /// All zeros. It has the size of Apple's, so that it is looked at last.
    private static let token = DeviceToken(bytes: [UInt8](repeating: 0, count: DeviceToken.sizes.lowerBound))
    /// The gateway's connection, the push and its repeats.
    private static let timeLimit = Duration.seconds(30)

    enum Verdict: Equatable {
        case proven(String)
        /// Neither proven nor refuted.
        case open(String)
        case refused(String)
    }

    let app: AppConfiguration

    /// - Throws: ``Failure``, where the gateway cannot be reached.
    func run() async throws -> Verdict {
        let content = try NotificationContent(["alert": .string("pushchat check --send")], now: .now())
        let composed = try app.gatewayKind.format(sound: nil, threads: nil).compose(content, for: app.name)
        let results = try await DirectSending(
            app: app, content: content, composed: composed, tokens: [Self.token].compactMap(\.self),
            timeLimit: Self.timeLimit
        ).run()
        return results.first.map(verdict) ?? .open("nothing was sent")
    }

    /// What the gateway's answer says of the credentials.
    func verdict(_ result: DirectResult) -> Verdict {
        let reason = result.reason ?? "no answer"
        switch result.outcome {
        case .refused
        where reason == ProviderReason.badDeviceToken.rawValue || reason == BinaryStatus.invalidToken.name:
            return .proven(
                "\(app.key == nil ? "certificate" : "key") and topic are accepted: only the token of this test was refused "
                    + "(\(reason))")
        case .refused:
            return .refused([reason, advice(reason) ?? result.hint].compactMap(\.self).joined(separator: ": "))
        case .accepted:
            return .open("the gateway took a push for a token that no device has: it does not say what it thinks of it")
        case .unknown, .unsent:
            return .refused(
                [reason, advice(reason) ?? "no answer within \(Self.timeLimit.components.seconds) s"].joined(
                    separator: ": "))
        }
    }

    /// What to do about a refusal.
    private func advice(_ reason: String) -> String? {
        let known = ProviderReason(rawValue: reason)
        switch known {
        case .topicDisallowed, .badTopic, .deviceTokenNotForTopic, .missingTopic:
            let credential = app.key == nil ? "certificate" : "key"
            return
                "the \(credential) is not for the topic \(app.topic ?? "that it names"); topic is the app's bundle id"
        default: return known?.advice
        }
    }
}
