import ChatDomain
import NIOCore

/// When the next connection may be opened.
///
/// At once after one that achieved something (an error answer ends a good connection, too), unless many in a row achieved only
/// refusals. After failures with a ``Backoff``, so that Apple does not take the attempts for an attack.
struct ReconnectBackoff: Sendable {
    /// The longest delay where the gateway has accepted pushes shortly before: what ended the connection was probably a push.
    static let longestAfterProgress = Duration.milliseconds(250)
    /// Connections in a row that achieved only refusals, after which there is ``refusalDelay`` between them.
    static let refusalLimit = 20
    static let refusalDelay = TimeAmount.milliseconds(200)

    private var failures = Backoff(first: .milliseconds(250), longest: .seconds(30))
    private var refusals = 0

    /// - Parameters:
    ///   - isAmidProgress: the connection was opened, and the gateway accepts pushes of the app.
    ///   - random: from 0 to 1.
    mutating func delay(
        after result: ConnectionResult, isAmidProgress: Bool = false, random: Double
    ) -> TimeAmount {
        guard result == .nothing else {
            failures.reset()
            refusals = result == .refusal ? refusals + 1 : 0
            return refusals > Self.refusalLimit ? Self.refusalDelay : .zero
        }
        return TimeAmount(failures.delay(limit: isAmidProgress ? Self.longestAfterProgress : nil, random: random))
    }
}

/// The clock by which connections are paced; a test hands in one that it moves.
struct MonotonicClock: Sendable {
    var now: @Sendable () -> NIODeadline = { .now() }
    var sleep: @Sendable (_ until: NIODeadline) async throws -> Void = { deadline in
        try await Task.sleep(for: .nanoseconds((deadline - .now()).nanoseconds))
    }
}
