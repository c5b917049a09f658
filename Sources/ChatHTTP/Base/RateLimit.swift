/// A limit on the rate of requests: a steady rate and a burst.
package struct RateLimit: Sendable, Hashable {
    /// The number of requests per second in the long run. Above 0, at most 1,000,000.
    package let perSecond: Double
    /// The maximum number of requests in quick succession after a pause. At least 1, at most 1,000,000.
    package let burst: Int

    /// `nil` if a value is out of range.
    package init?(perSecond: Double, burst: Int) {
        guard perSecond > 0, perSecond <= 1_000_000, burst >= 1, burst <= 1_000_000 else { return nil }
        self.perSecond = perSecond
        self.burst = burst
    }

    /// Returns this limit multiplied by `count`, up to the highest valid values.
    func times(_ count: Int) -> RateLimit {
        RateLimit(perSecond: min(perSecond * Double(count), 1_000_000), burst: min(burst * count, 1_000_000)) ?? self
    }

    /// The time between two requests in the long run.
    var interval: Duration { .nanoseconds(Int64(1_000_000_000 / perSecond)) }
}
