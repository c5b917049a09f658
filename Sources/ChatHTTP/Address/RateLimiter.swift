import ChatDomain
import Synchronization

/// How often requests may come: a steady rate, and a burst.
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

    /// The time after which one more request may come.
    var interval: Duration { .nanoseconds(Int64(1_000_000_000 / perSecond)) }
}

/// A token bucket for each of many clients.
///
/// A bucket is kept as the one moment at which it will be full again; a full bucket need not be kept at all. The table
/// has two generations of half its capacity: when the newer one is full, the older one is dropped, and with it the
/// clients whose last request is the longest ago.
struct RateLimiter<Key: Hashable & Sendable>: Sendable {
    private var newer: [Key: Duration] = [:]
    private var older: [Key: Duration] = [:]
    private let half: Int

    /// - Parameter capacity: clients that are remembered at the most; at least 2.
    init(capacity: Int = HTTPLimits.rateEntries) {
        half = max(1, capacity / 2)
    }

    var count: Int { newer.count + older.count }

    /// Takes one token, or returns how long to wait for it.
    ///
    /// - Parameter now: the time since any fixed moment.
    mutating func admit(_ key: Key, limit: RateLimit, at now: Duration) -> Duration? {
        let interval = limit.interval
        let known = newer[key] ?? older[key]
        let full = max(known ?? now, now) + interval
        let wait = full - now - interval * limit.burst
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

/// Counts the requests of addresses and members against their limits.
final class RequestLimiter: Sendable {
    private let addresses = Mutex(RateLimiter<IPAddress>())
    private let members = Mutex(RateLimiter<MemberID>())
    private let now: @Sendable () -> Duration

    init(now: @escaping @Sendable () -> Duration) {
        self.now = now
    }

    func admit(_ address: IPAddress, limit: RateLimit?) throws(ChatError) {
        guard let limit else { return }
        let wait = addresses.withLock { $0.admit(address.rateKey, limit: limit, at: now()) }
        if let wait { throw Self.tooMany("address", wait) }
    }

    func admit(_ member: MemberID, limit: RateLimit?) throws(ChatError) {
        guard let limit else { return }
        let wait = members.withLock { $0.admit(member, limit: limit, at: now()) }
        if let wait { throw Self.tooMany("device", wait) }
    }

    private static func tooMany(_ whose: String, _ wait: Duration) -> ChatError {
        ChatError(
            .tooManyRequests,
            "Too many requests from this \(whose); try again in \(ErrorAnswer.wholeSeconds(wait)) s", retryAfter: wait)
    }
}
