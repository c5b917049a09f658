import ChatDomain
import Hummingbird
import Synchronization

/// Token buckets for many clients.
///
/// A bucket is stored as the moment at which it will be full again, so a full bucket needs no entry. The table has two
/// generations, each with half the capacity. When the newer one is full, the older one is dropped, and with it the
/// clients with the least recent requests.
struct RateLimiter<Key: Hashable & Sendable>: Sendable {
    private var newer: [Key: Duration] = [:]
    private var older: [Key: Duration] = [:]
    private let half: Int

    /// Creates a limiter whose buckets are all full.
    ///
    /// - Parameter capacity: The maximum number of clients to remember. At least 2.
    init(capacity: Int = HTTPLimits.rateEntries) {
        half = max(1, capacity / 2)
    }

    var count: Int { newer.count + older.count }

    /// Takes tokens, or returns the time to wait for them.
    ///
    /// - Parameters:
    ///   - price: The number of tokens. A bucket that is smaller must be full.
    ///   - now: The time since any fixed moment.
    mutating func admit(_ key: Key, limit: RateLimit, price: Int = 1, at now: Duration) -> Duration? {
        let interval = limit.interval
        let known = newer[key] ?? older[key]
        let full = max(known ?? now, now) + interval * min(price, limit.burst)
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

    /// Puts tokens back into their bucket. ``admit(_:limit:price:at:)`` must have taken them with the same limit and price.
    mutating func refund(_ key: Key, limit: RateLimit, price: Int = 1) {
        let time = limit.interval * min(price, limit.burst)
        newer[key]? -= time
        older[key]? -= time
    }
}

/// Enforces the rate limits of addresses and members, and of attempts that may be guesses of a secret.
final class RequestLimiter: Sendable {
    /// The single key of a bucket that all clients share.
    private enum Everyone {
        case all
    }

    private struct Rejections {
        var ofAddresses = RateLimiter<IPAddress>()
        var inAll = RateLimiter<Everyone>(capacity: 2)
    }

    private struct Guesses {
        var ofAddresses = RateLimiter<IPAddress>()
        var inAll = RateLimiter<Everyone>(capacity: 2)
        var reports = RateLimiter<Everyone>(capacity: 2)
    }

    /// A join that counts as a guess until the store reports that members use the code.
    struct CountedJoin: Sendable {
        fileprivate let address: IPAddress
        fileprivate let limit: RateLimit
        fileprivate let names: Int
        fileprivate let isCountedInAll: Bool
    }

    private let addresses = Mutex(RateLimiter<IPAddress>())
    private let members = Mutex(RateLimiter<MemberID>())
    private let codes = Mutex(Guesses())
    private let wrongTokens = Mutex(RateLimiter<IPAddress>())
    private let missingTokens = Mutex(RateLimiter<IPAddress>())
    private let rejectionLines = Mutex(Rejections())
    private let metrics: LimitMetrics
    private let clock: MonotonicTime

    init(metrics: LimitMetrics = LimitMetrics(), clock: MonotonicTime) {
        self.metrics = metrics
        self.clock = clock
    }

    /// Counts a request against the limits of its address, and returns the address. `nil` for a Unix socket.
    @discardableResult
    func admit(
        _ request: Request, _ context: ChatContext, _ settings: ChatHTTPSettings
    ) throws(ChatError) -> IPAddress? {
        guard let address = ClientAddress.find(request, context, trusted: settings.trustedProxies) else { return nil }
        try admit(address, limit: settings.addressRate)
        return address
    }

    func admit(_ address: IPAddress, limit: RateLimit?) throws(ChatError) {
        guard let limit else { return }
        let wait = addresses.withLock { $0.admit(address.rateKey, limit: limit, at: clock.now()) }
        if let wait { throw tooMany(.ratePerAddress, from: "address", wait) }
    }

    /// - Parameter price: The number of requests for which this one counts.
    func admit(_ member: MemberID, limit: RateLimit?, price: Int = 1) throws(ChatError) {
        guard let limit else { return }
        let wait = members.withLock { $0.admit(member, limit: limit, price: price, at: clock.now()) }
        if let wait { throw tooMany(.ratePerMember, from: "device", wait) }
    }

    /// Counts a join as a guess, before it is known whether members use the code. Above the limit, the rejection must
    /// not reveal to a guesser which codes are in use.
    ///
    /// All addresses together may make ``HTTPLimits/joinShares`` times the guesses of one. Above that, no address has a
    /// burst any more, but an address that has not opened a room recently can still join.
    ///
    /// - Parameter names: The number of guesses. More than the burst need a full bucket, and then count in full.
    func admitJoin(_ address: IPAddress, limit: RateLimit, names: Int = 1) throws(ChatError) -> CountedJoin {
        let now = clock.now()
        let (own, isCountedInAll, wait) = codes.withLock { codes -> (RateLimit, Bool, Duration?) in
            let all = limit.times(HTTPLimits.joinShares)
            let isBelow = codes.inAll.admit(.all, limit: all, price: names, at: now) == nil
            let burst = max(names, isBelow ? limit.burst : 1)
            let own = RateLimit(perSecond: limit.perSecond, burst: burst) ?? limit
            let wait = codes.ofAddresses.admit(address.rateKey, limit: own, price: names, at: now)
            if wait != nil, isBelow { codes.inAll.refund(.all, limit: all, price: names) }
            return (own, isBelow, wait)
        }
        if let wait { throw tooMany(.joinsPerAddress, "new rooms", from: "address", wait) }
        return CountedJoin(address: address.rateKey, limit: own, names: names, isCountedInAll: isCountedInAll)
    }

    /// Refunds a join because members use the code, or because the join failed.
    func refund(_ join: CountedJoin) {
        codes.withLock { codes in
            codes.ofAddresses.refund(join.address, limit: join.limit, price: join.names)
            guard join.isCountedInAll else { return }
            codes.inAll.refund(.all, limit: join.limit.times(HTTPLimits.joinShares), price: join.names)
        }
    }

    /// Whether the log may report rejected joins now. It reports them at most once per minute.
    func mayReportJoins() -> Bool {
        codes.withLock { $0.reports.admit(.all, limit: HTTPLimits.reports, at: clock.now()) == nil }
    }

    /// Counts a wrong token from an address. Correct tokens are never counted or rejected, so that a client cannot lock
    /// out others at the same address.
    ///
    /// - Parameter address: The client's address. All clients without an address share a bucket.
    func countWrongToken(_ address: IPAddress?) throws(ChatError) {
        let wait = wrongTokens.withLock { $0.admit(Self.key(address), limit: HTTPLimits.wrongTokens, at: clock.now()) }
        if let wait { throw tooMany(.wrongTokens, "wrong tokens", from: "address", wait) }
    }

    /// Counts a rejected call without a token, like a wrong token.
    func countMissingToken(_ address: IPAddress?) throws(ChatError) {
        let wait = missingTokens.withLock {
            $0.admit(Self.key(address), limit: HTTPLimits.missingTokens, at: clock.now())
        }
        if let wait { throw tooMany(.missingTokens, "calls without a token", from: "address", wait) }
    }

    /// Whether the log may report a rejected call now. Otherwise one client could fill the log.
    func mayReportRejection(_ address: IPAddress?) -> Bool {
        let now = clock.now()
        return rejectionLines.withLock { lines in
            lines.ofAddresses.admit(Self.key(address), limit: HTTPLimits.rejectionLines, at: now) == nil
                && lines.inAll.admit(.all, limit: HTTPLimits.allRejectionLines, at: now) == nil
        }
    }

    private static func key(_ address: IPAddress?) -> IPAddress { address?.rateKey ?? IPAddress(bits: 0) }

    private func tooMany(
        _ limit: Limit, _ what: String = "requests", from whose: String, _ wait: Duration
    ) -> ChatError {
        metrics.hit(limit)
        return ChatError(
            .tooManyRequests,
            "Too many \(what) from this \(whose); try again in \(ErrorResponse.wholeSeconds(wait)) s", retryAfter: wait,
            cause: limit.rawValue)
    }
}
