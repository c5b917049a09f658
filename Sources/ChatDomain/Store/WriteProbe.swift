import Synchronization

/// Tests whether writes reach the disk. The test is a write that goes through the store like any other and changes
/// nothing.
///
/// There is one attempt at a time, and at most one a second. All callers share its result.
package final class WriteProbe: Sendable {
    /// The time for which a result is valid.
    private static let freshness = Duration.seconds(1)
    private static let interval = Duration.milliseconds(5)

    private struct State {
        var began: ContinuousClock.Instant?
        var ended: ContinuousClock.Instant?
        var failure: ChatError?
    }

    /// The time after which the writer counts as stuck.
    private let limit: Duration
    private let attempt: @Sendable (_ end: @escaping @Sendable (ChatError?) -> Void) -> Void
    private let state = Mutex(State())

    /// Creates a probe.
    ///
    /// - Parameter attempt: Begins to write and returns at once. It calls `end` once, with the error if there was one.
    package init(
        limit: Duration, attempt: @escaping @Sendable (_ end: @escaping @Sendable (ChatError?) -> Void) -> Void
    ) {
        self.limit = limit
        self.attempt = attempt
    }

    /// Throws ``ChatError/Code/unavailable`` if the disk rejects the write, or if the writer does not get to it within
    /// the limit. A caller never waits longer than the limit for a writer that is stuck.
    package func run() async throws(ChatError) {
        if begin() { attempt { self.end($0) } }
        while let began = state.withLock({ $0.began }) {
            let age = ContinuousClock.now - began
            guard age < limit, !Task.isCancelled else {
                throw .unavailable(cause: "the writer has not moved for \(age.components.seconds) s")
            }
            try? await Task.sleep(for: Self.interval)
        }
        if let failure = state.withLock({ $0.failure }) { throw failure }
    }

    /// Begins an attempt, unless one is in progress or a result is still valid.
    ///
    /// - Returns: Whether the caller must make the attempt.
    private func begin() -> Bool {
        state.withLock { state in
            let now = ContinuousClock.now
            guard state.began == nil, state.ended.map({ now - $0 >= Self.freshness }) ?? true else { return false }
            state.began = now
            return true
        }
    }

    private func end(_ failure: ChatError?) {
        state.withLock { $0 = State(began: nil, ended: .now, failure: failure) }
    }
}
