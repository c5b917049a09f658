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

    /// So many of this limit's shares together.
    func times(_ count: Int) -> RateLimit {
        RateLimit(perSecond: min(perSecond * Double(count), 1_000_000), burst: min(burst * count, 1_000_000)) ?? self
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

    /// Gives back a token that ``admit(_:limit:at:)`` took with the same limit.
    mutating func refund(_ key: Key, limit: RateLimit) {
        newer[key]? -= limit.interval
        older[key]? -= limit.interval
    }
}

/// Counts the requests of addresses and members against their limits, and what may be guesses of a secret.
final class RequestLimiter: Sendable {
    /// The key of what is counted for all clients together.
    private enum Everyone {
        case all
    }

    private struct Guesses {
        var ofAddresses = RateLimiter<IPAddress>()
        var inAll = RateLimiter<Everyone>(capacity: 2)
        var reports = RateLimiter<Everyone>(capacity: 2)
    }

    /// A join that is counted as a guess until it is known that somebody uses the code.
    struct CountedJoin: Sendable {
        fileprivate let address: IPAddress
        fileprivate let limit: RateLimit
        fileprivate let isCountedInAll: Bool
    }

    private let addresses = Mutex(RateLimiter<IPAddress>())
    private let members = Mutex(RateLimiter<MemberID>())
    private let codes = Mutex(Guesses())
    private let wrongTokens = Mutex(RateLimiter<IPAddress>())
    private let metrics: LimitMetrics
    private let clock: MonotonicTime

    init(metrics: LimitMetrics = LimitMetrics(), clock: MonotonicTime) {
        self.metrics = metrics
        self.clock = clock
    }

    func admit(_ address: IPAddress, limit: RateLimit?) throws(ChatError) {
        guard let limit else { return }
        let wait = addresses.withLock { $0.admit(address.rateKey, limit: limit, at: clock.now()) }
        if let wait { throw tooMany(.ratePerAddress, from: "address", wait) }
    }

    func admit(_ member: MemberID, limit: RateLimit?) throws(ChatError) {
        guard let limit else { return }
        let wait = members.withLock { $0.admit(member, limit: limit, at: clock.now()) }
        if let wait { throw tooMany(.ratePerMember, from: "device", wait) }
    }

    /// Counts a join as one to a code that nobody uses, before it is known: above the limit the refusal must not tell a
    /// guesser which codes are used.
    ///
    /// Many addresses together have ``HTTPLimits/joinShares`` times the limit of one. Above that each has no burst any more,
    /// so that whoever has not opened a room lately can still join.
    func admitJoin(_ address: IPAddress, limit: RateLimit) throws(ChatError) -> CountedJoin {
        let now = clock.now()
        let (isCountedInAll, wait) = codes.withLock { codes -> (Bool, Duration?) in
            let all = limit.times(HTTPLimits.joinShares)
            let isBelow = codes.inAll.admit(.all, limit: all, at: now) == nil
            let own = isBelow ? limit : RateLimit(perSecond: limit.perSecond, burst: 1) ?? limit
            let wait = codes.ofAddresses.admit(address.rateKey, limit: own, at: now)
            if wait != nil, isBelow { codes.inAll.refund(.all, limit: all) }
            return (isBelow, wait)
        }
        if let wait { throw tooMany(.joinsPerAddress, "new rooms", from: "address", wait) }
        return CountedJoin(address: address.rateKey, limit: limit, isCountedInAll: isCountedInAll)
    }

    /// Somebody uses the code, or the join was not done: it does not count.
    func refund(_ join: CountedJoin) {
        codes.withLock { codes in
            codes.ofAddresses.refund(join.address, limit: join.limit)
            if join.isCountedInAll { codes.inAll.refund(.all, limit: join.limit.times(HTTPLimits.joinShares)) }
        }
    }

    /// Whether it is time to tell the operator that joins are refused: once a minute.
    func mayReportJoins() -> Bool {
        codes.withLock { $0.reports.admit(.all, limit: HTTPLimits.reports, at: clock.now()) == nil }
    }

    /// Counts a wrong token of an address. A right one never counts and is never refused, so that nobody can lock out others of
    /// the same address.
    ///
    /// - Parameter address: `nil` where there is none; all of those count together.
    func countWrongToken(_ address: IPAddress?) throws(ChatError) {
        let key = address?.rateKey ?? IPAddress(bits: 0)
        let wait = wrongTokens.withLock { $0.admit(key, limit: HTTPLimits.wrongTokens, at: clock.now()) }
        if let wait { throw tooMany(.wrongTokens, "wrong tokens", from: "address", wait) }
    }

    private func tooMany(
        _ limit: Limit, _ what: String = "requests", from whose: String, _ wait: Duration
    ) -> ChatError {
        metrics.hit(limit)
        return ChatError(
            .tooManyRequests,
            "Too many \(what) from this \(whose); try again in \(ErrorResponse.wholeSeconds(wait)) s", retryAfter: wait)
    }
}
