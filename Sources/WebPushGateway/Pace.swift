import ChatDomain

/// The rate at which a push service gets pushes after it has limited the relay. A value.
struct Pace: Sendable {
    /// The part of the accepted rate at which sending continues, so that the service's limit is not hit at once.
    private static let start = 0.9
    /// The slowest rate, per second. It is below the 1,000 pushes a minute that Chrome's service grants at least
    /// (developer.chrome.com, "Increasing web push notification value with rate limits"). A slower one would let refused
    /// subscriptions delay the others.
    static let slowest = 10.0
    /// The rate rises by this factor in each minute without another refusal, because the service's limit may have
    /// ended.
    private static let raise = 1.1
    private static let raiseAfter = Duration.seconds(60)
    /// The limit ends at this rate per second, or at twice the first rate if that is higher.
    private static let leastEnd = 500.0
    /// The time for which unused capacity is kept. It lets a few new pushes pass the ones that were postponed.
    private static let burst = 5.0

    private(set) var perSecond: Double
    private let end: Double
    private var raisedAt: Timestamp
    private var tokens: Double
    private var filledAt: Timestamp

    /// - Parameter accepted: The number of pushes that the service accepted in a minute.
    init(accepted: Int, at now: Timestamp) {
        perSecond = max(Self.slowest, Double(accepted) / 60 * Self.start)
        end = max(Self.leastEnd, 2 * perSecond)
        (raisedAt, filledAt, tokens) = (now, now, 0)
    }

    var perMinute: Int { Int(perSecond * 60) }

    /// Whether the rate has risen so far that it limits nothing.
    mutating func isOver(at now: Timestamp) -> Bool {
        // A wall clock that was set back starts the minute again.
        if now < raisedAt { raisedAt = now }
        while perSecond < end, now >= raisedAt + Self.raiseAfter {
            perSecond *= Self.raise
            raisedAt = raisedAt + Self.raiseAfter
        }
        return perSecond >= end
    }

    /// Returns whether a push may be sent now, and counts it.
    mutating func take(at now: Timestamp) -> Bool {
        let elapsed = Double(max(0, now.milliseconds - filledAt.milliseconds)) / 1000
        filledAt = now
        tokens = min(tokens + elapsed * perSecond, max(1, Self.burst * perSecond))
        guard tokens >= 1 else { return false }
        tokens -= 1
        return true
    }
}
