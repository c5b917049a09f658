import Synchronization

/// Finds out whether what is written reaches the disk, by writing something that changes nothing, as a store does it.
///
/// One attempt at a time, and one a second at the most, however many ask: they share its result.
package final class WriteProbe: Sendable {
    /// How long a result counts.
    private static let freshness = Duration.seconds(1)
    private static let interval = Duration.milliseconds(5)

    private struct State {
        var began: ContinuousClock.Instant?
        var ended: ContinuousClock.Instant?
        var failure: ChatError?
    }

    /// How long an attempt may take.
    private let limit: Duration
    private let attempt: @Sendable (_ end: @escaping @Sendable (ChatError?) -> Void) -> Void
    private let state = Mutex(State())

    /// - Parameter attempt: begins to write and returns at once; ends once, with the error if there was one.
    package init(
        limit: Duration, attempt: @escaping @Sendable (_ end: @escaping @Sendable (ChatError?) -> Void) -> Void
    ) {
        self.limit = limit
        self.attempt = attempt
    }

    /// Throws ``ChatError/Code/unavailable`` when the disk refuses, or when the writer has not come to it for some seconds. A
    /// writer that is stuck keeps nobody longer than that.
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

    /// - Returns: whether an attempt is to be made.
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
