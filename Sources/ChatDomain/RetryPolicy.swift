/// When a push that the gateway could not take is tried again.
package struct RetryPolicy: Sendable, Hashable {
    /// Before the second attempt; doubles with each further one.
    package var first: Duration
    package var longest: Duration
    /// Attempts in all, after which the push has failed with the gateway's reason. A hundred take about a day.
    package var attempts: Int

    package init(first: Duration = .seconds(1), longest: Duration = .seconds(900), attempts: Int = 100) {
        self.first = first
        self.longest = longest
        self.attempts = attempts
    }

    /// How long to wait after so many attempts; nil when it is to be given up.
    package func delay(afterAttempts made: Int) -> Duration? {
        guard made < attempts else { return nil }
        return min(longest, first * Double(1 << min(max(made - 1, 0), 30)))
    }
}
