/// The delays between attempts of a call that is retried. Each is twice the one before, up to a limit.
struct RetryDelay: Sendable, Hashable {
    private let first: Duration
    private let longest: Duration
    private var next: Duration

    init(first: Duration, longest: Duration) {
        self.first = first
        self.longest = longest
        next = first
    }

    mutating func reset() { next = first }

    /// Returns the delay after another failure.
    ///
    /// - Parameter random: From 0 to 1. A value below 1 shortens the delay by up to a half, so that clients do not all
    ///   retry at the same moment.
    mutating func delay(random: Double) -> Duration {
        defer { next = min(longest, next * 2) }
        return next * (0.5 + random / 2)
    }
}
