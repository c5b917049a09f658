import ChatDomain

/// Decides when the next requests may go to the upstream server. A pure value. All times are measured from any fixed
/// moment.
struct UpstreamSchedule {
    /// The rate limit of ntfy's servers for visitors: this many requests at once, and one more after each interval.
    private static let burst = 60
    private static let interval = Duration.seconds(5)
    /// The limit of a pause that the server asks for.
    private static let maxPause = Duration.seconds(3600)

    /// The time at which the whole burst is allowed again.
    private var full = Duration.zero
    private var pausedUntil = Duration.zero
    private var backoff = Self.backoff

    /// The delays after failures, of the server and of one message.
    private static let backoff = Backoff(first: .seconds(5), longest: .seconds(600))

    /// Returns the time until the next request for a message.
    ///
    /// - Parameter attempts: The number of requests for it that failed before the last one.
    static func delay(attempts: Int) -> Duration {
        var backoff = backoff
        for _ in 0..<min(attempts, 10) { _ = backoff.delay() }
        return backoff.delay()
    }

    /// Whether requests have failed since the last success.
    var isFailing: Bool { !backoff.isFresh }

    /// Returns the number of requests that are allowed, or the time to wait for the next one.
    func allowance(at now: Duration) -> (count: Int, wait: Duration) {
        guard now >= pausedUntil else { return (0, pausedUntil - now) }
        let missing = max(full, now) - now
        let used = Int((missing / Self.interval).rounded(.up))
        guard used < Self.burst else { return (0, missing - Self.interval * (Self.burst - 1)) }
        return (Self.burst - used, .zero)
    }

    mutating func sent(_ count: Int, at now: Duration) {
        full = max(full, now) + Self.interval * count
    }

    mutating func succeeded() { backoff.reset() }

    /// Pauses after a failure.
    ///
    /// - Parameters:
    ///   - wanted: The pause that the server asks for. `nil` if it asks for none.
    ///   - random: From 0 to 1, for ``Backoff``.
    /// - Returns: The time until the next request.
    mutating func failed(at now: Duration, wanted: Duration?, random: Double) -> Duration {
        let pause = max(backoff.delay(random: random), min(wanted ?? .zero, Self.maxPause))
        pausedUntil = max(pausedUntil, now + pause)
        return pausedUntil - now
    }
}
