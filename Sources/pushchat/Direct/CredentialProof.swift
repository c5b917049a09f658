import APNSGateway
import ChatDomain
import PushWire

/// Tests an app's credentials with one push to a token that no device has. If the gateway rejects only the token, it
/// accepts the key or certificate, and the topic.
struct CredentialProof {
    /// All zeros. It has the length of Apple's tokens, so that the gateway examines the credentials and the topic
    /// before it rejects the token.
    private static let appleToken = DeviceToken(bytes: [UInt8](repeating: 0, count: DeviceToken.sizes.lowerBound))
    /// An installation id in the form of Google's.
    private static let androidToken = DeviceToken.text(
        "c" + String(repeating: "A", count: TokenKind.installationID - 1), .installation)
    /// The time limit for the push and its retries.
    private static let timeLimit = Duration.seconds(30)

    enum Verdict: Equatable {
        case proven(String)
        /// The outcome neither confirms nor rules out that the credentials are good.
        case inconclusive(String)
        case refused(String)
    }

    let app: AppConfiguration

    /// Sends the push.
    ///
    /// - Throws: ``Failure`` if the gateway cannot be reached.
    func run() async throws -> Verdict {
        let content = try NotificationContent(["alert": .string("pushchat check --send")], now: .now())
        let composed = try app.gatewayKind.format(sound: nil, threads: nil).compose(content, for: app.name)
        let results = try await DirectSending(
            app: app, content: content, composed: composed,
            tokens: [app.gateway == .fcm ? Self.androidToken : Self.appleToken].compactMap(\.self),
            timeLimit: Self.timeLimit
        ).run()
        return results.first.map(verdict) ?? .inconclusive("nothing was sent")
    }

    /// Returns the verdict on the credentials that follows from the outcome.
    func verdict(_ result: DirectResult) -> Verdict {
        let reason = result.reason ?? "no response"
        switch result.outcome {
        case .refused where app.gateway == .fcm && ["UNREGISTERED", "INVALID_ARGUMENT"].contains(reason):
            return .proven(
                "service account and project are accepted: only the token of this test was refused (\(reason))")
        case .refused
        where reason == ProviderReason.badDeviceToken.rawValue || reason == BinaryStatus.invalidToken.name:
            return .proven(
                "\(app.credentialName) and topic are accepted: only the token of this test was refused "
                    + "(\(reason))")
        case .refused:
            return .refused([reason, advice(reason) ?? result.hint].compactMap(\.self).joined(separator: ": "))
        case .accepted:
            return .inconclusive(
                "the gateway accepted a push to a token that no device has, which says nothing about the credentials")
        case .unknown, .unsent:
            return .refused(
                [reason, advice(reason) ?? "no response within \(Self.timeLimit.components.seconds) s"].joined(
                    separator: ": "))
        }
    }

    /// Returns the steps that fix a rejection. `nil` if none are known.
    private func advice(_ reason: String) -> String? {
        let known = ProviderReason(rawValue: reason)
        switch known {
        case .topicDisallowed, .badTopic, .deviceTokenNotForTopic, .missingTopic:
            return
                "the \(app.credentialName) is not for the topic \(app.topic ?? "that it names"); topic is the app's bundle id"
        default: return known?.advice
        }
    }
}
