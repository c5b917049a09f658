/// How often something may happen: a steady rate, and how much at once.
package struct RateLimit: Sendable, Hashable {
    /// Requests per second in the long run; above 0.
    package let perSecond: Double
    /// Requests that may come at once after a pause; at least 1.
    package let burst: Int

    /// Nil if one of the values is out of range.
    package init?(perSecond: Double, burst: Int) {
        guard perSecond > 0, perSecond <= 1_000_000, burst >= 1, burst <= 1_000_000 else { return nil }
        self.perSecond = perSecond
        self.burst = burst
    }

    /// The time in which one request is earned.
    var interval: Duration { .nanoseconds(Int64(1_000_000_000 / perSecond)) }
}

/// A token bucket for each of many clients.
///
/// A bucket is kept as the one moment at which it will be full again; a full bucket need not be kept at all. The table
/// has two generations of half its capacity: when the newer one is full, the older one is dropped, and with it the
/// clients that were not seen for longest.
struct RateLimiter<Key: Hashable & Sendable>: Sendable {
    private var newer: [Key: ContinuousClock.Instant] = [:]
    private var older: [Key: ContinuousClock.Instant] = [:]
    private let half: Int

    /// - Parameter capacity: clients that are remembered at the most; at least 2.
    init(capacity: Int = HTTPLimits.rateEntries) {
        half = max(1, capacity / 2)
    }

    var count: Int { newer.count + older.count }

    /// Takes one token, or says how long to wait for it.
    mutating func admit(_ key: Key, limit: RateLimit, at now: ContinuousClock.Instant) -> Duration? {
        let interval = limit.interval
        let known = newer[key] ?? older[key]
        let full = max(known ?? now, now) + interval
        let wait = now.duration(to: full) - interval * limit.burst
        guard wait <= .zero else { return wait }
        if newer[key] == nil {
            older[key] = nil
            if newer.count >= half {
                older = newer
                newer = [:]
            }
        }
        newer[key] = full
        return nil
    }
}
