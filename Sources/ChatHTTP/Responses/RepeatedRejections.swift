import Synchronization

/// Decides which of many equal failures to log: the first at once, then one per interval, with the number of failures
/// since the last line.
final class RepeatedRejections: Sendable {
    /// The maximum number of kinds to track. There are few; kinds above the limit share one counter.
    private static let kinds = 16

    private let reported = Mutex<[String: (time: Duration, unreported: Int)]>([:])
    private let interval: Duration
    private let clock: MonotonicTime

    init(interval: Duration = HTTPLimits.rejectionReports, clock: MonotonicTime) {
        self.interval = interval
        self.clock = clock
    }

    /// Counts a failure.
    ///
    /// - Returns: The number of failures to log, including this one. `nil` if none should be logged now.
    func count(_ kind: String) -> Int? {
        let now = clock.now()
        return reported.withLock { reported in
            let kind = reported[kind] == nil && reported.count >= Self.kinds ? "" : kind
            let (time, unreported) = reported[kind] ?? (now - interval, 0)
            let isDue = now - time >= interval
            reported[kind] = isDue ? (now, 0) : (time, unreported + 1)
            return isDue ? unreported + 1 : nil
        }
    }

    /// Records that the failure is over, so that the next one is logged at once.
    ///
    /// - Returns: Whether there was a failure.
    func end(_ kind: String) -> Bool {
        reported.withLock { $0.removeValue(forKey: kind) != nil }
    }
}
