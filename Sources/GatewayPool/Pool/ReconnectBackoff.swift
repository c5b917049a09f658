import ChatDomain
package import NIOCore

/// Computes the delay before the next connection.
///
/// There is no delay after a connection on which the gateway accepted or rejected pushes: over the binary protocol, an
/// error response always ends the connection. After many connections in a row with rejections only, the delay is short.
/// After failures, the delay grows (``Backoff``), so that Apple does not mistake the attempts for an attack.
struct ReconnectBackoff: Sendable {
    /// The maximum delay if the gateway has accepted pushes recently. In that case a push probably caused the failure.
    static let longestAfterProgress = Duration.milliseconds(250)
    /// ``refusalDelay`` applies after more than this number of connections in a row with rejections only.
    static let refusalLimit = 20
    static let refusalDelay = TimeAmount.milliseconds(200)

    private var failures = Backoff(first: .milliseconds(250), longest: .seconds(30))
    private var refusals = 0

    /// Returns the delay after a connection with this result.
    /// - Parameters:
    ///   - hasSucceededRecently: Whether the connection was opened and the gateway has recently accepted pushes of the
    ///     app.
    ///   - random: A number from 0 to 1.
    mutating func delay(
        after result: ConnectionResult, hasSucceededRecently: Bool = false, random: Double
    ) -> TimeAmount {
        guard result == .nothing else {
            failures.reset()
            refusals = result == .refusal ? refusals + 1 : 0
            return refusals > Self.refusalLimit ? Self.refusalDelay : .zero
        }
        return TimeAmount(failures.delay(limit: hasSucceededRecently ? Self.longestAfterProgress : nil, random: random))
    }
}

/// The clock that paces connections. Tests provide one that they can advance.
package struct MonotonicClock: Sendable {
    package let now: @Sendable () -> NIODeadline
    package let sleep: @Sendable (_ until: NIODeadline) async throws -> Void

    package init(
        now: @escaping @Sendable () -> NIODeadline = { .now() },
        sleep: @escaping @Sendable (_ until: NIODeadline) async throws -> Void = { deadline in
            try await Task.sleep(for: .nanoseconds((deadline - .now()).nanoseconds))
        }
    ) {
        self.now = now
        self.sleep = sleep
    }
}
