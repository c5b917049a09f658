import ChatDomain

/// Tests an app's credentials with one push to a token that no device has. If the gateway rejects only the token, it
/// accepts the key or certificate, and the topic.
struct CredentialProof {
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
            tokens: [app.gateway.kind.strangersToken].compactMap(\.self),
            timeLimit: Self.timeLimit
        ).run()
        return results.first.map(verdict) ?? .inconclusive("nothing was sent")
    }

    /// Returns the verdict on the credentials that follows from the outcome.
    func verdict(_ result: DirectResult) -> Verdict {
        let (kind, reason) = (app.gatewayKind, result.reason ?? "no response")
        switch result.outcome {
        case .refused:
            if let accepted = kind.proof(of: reason) {
                return .proven("\(accepted) are accepted: only the token of this test was refused (\(reason))")
            }
            return .refused(
                [reason, kind.advice(on: reason) ?? result.hint].compactMap(\.self).joined(separator: ": "))
        case .accepted:
            return .inconclusive(
                "the gateway accepted a push to a token that no device has, which says nothing about the credentials")
        case .unknown, .unsent:
            return .refused(
                [reason, kind.advice(on: reason) ?? "no response within \(Self.timeLimit.components.seconds) s"].joined(
                    separator: ": "))
        }
    }
}
