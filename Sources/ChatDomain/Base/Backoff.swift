/// The delays between attempts of an operation that is retried until it succeeds. Each delay is twice the one before,
/// up to a limit.
package struct Backoff: Sendable {
    package let first: Duration
    private let longest: Duration
    private var next: Duration

    package init(first: Duration = .milliseconds(100), longest: Duration = .seconds(5)) {
        self.first = first
        self.longest = longest
        next = first
    }

    /// Whether nothing has failed since the last reset.
    package var isFresh: Bool { next == first }

    package mutating func reset() {
        next = first
    }

    /// Returns the delay after another failure.
    ///
    /// - Parameters:
    ///   - limit: The longest delay this time.
    ///   - random: From 0 to 1. A value below 1 shortens the delay by up to a half, so that clients do not all retry at
    ///     the same moment.
    package mutating func delay(limit: Duration? = nil, random: Double = 1) -> Duration {
        defer { next = min(longest, next * 2) }
        return min(limit ?? longest, next) * (0.5 + random / 2)
    }

    /// Waits for the next delay.
    ///
    /// - Returns: `false` if the task was cancelled.
    package mutating func pause() async -> Bool {
        do {
            try await Task.sleep(for: delay())
            return true
        } catch {
            return false
        }
    }
}
