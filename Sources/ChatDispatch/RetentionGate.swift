package import ChatDomain

/// Decides whether rows may be deleted by age. A wrong wall clock can make every row look old, and deleted rows cannot
/// be restored.
///
/// A pure value: the caller reads the clocks, the kernel and the database.
package struct RetentionGate: Sendable {
    /// The longest time in which a relay normally stores nothing. If the wall clock is further ahead of the newest
    /// stored time, the relay was off or the clock is wrong.
    static let plausibleGap = Duration.seconds(3 * 86_400)
    /// Times stored within this period before now prove nothing: the same wrong clock may have written them before a
    /// restart.
    package static let minimumEvidenceAge = Duration.seconds(86_400)
    /// The time since the relay's start after which the clock is trusted. By then a time service or a person has had
    /// time to correct it.
    static let settlingTime = SteadyClock.settlingTime
    /// The largest plausible difference between the clocks of two machines.
    static let tolerance = SteadyClock.tolerance

    /// The state of the clocks and the database at one moment.
    package struct Reading: Sendable {
        package var wall: Timestamp
        /// The time since the relay started, by the monotonic clock.
        package var elapsed: Duration
        /// Whether the kernel reports that a time service has set the clock.
        package var isSynchronized: Bool
        /// The database's evidence. ``ClockEvidence/newest`` is at least ``minimumEvidenceAge`` before now.
        package var evidence: ClockEvidence

        package init(wall: Timestamp, elapsed: Duration, isSynchronized: Bool, evidence: ClockEvidence) {
            self.wall = wall
            self.elapsed = elapsed
            self.isSynchronized = isSynchronized
            self.evidence = evidence
        }

        fileprivate func milliseconds(aheadOf time: Timestamp) -> Int64 { wall.milliseconds - time.milliseconds }
    }

    /// A reason not to delete anything by age now.
    package enum Doubt: Sendable, Hashable {
        /// The wall clock did not keep pace with the monotonic clock.
        case jumped
        /// The wall clock is implausibly far ahead of the newest stored time.
        case ahead(of: Timestamp)
        /// The database server's clock shows a different time.
        case differs(from: Timestamp)
    }

    private var steady: SteadyClock

    package init(wall: Timestamp) {
        steady = SteadyClock(wall: wall, elapsed: .zero)
    }

    /// Returns the reason not to delete rows by age now. `nil` if rows may be deleted.
    package mutating func doubt(_ reading: Reading) -> Doubt? {
        let isSteady = steady.isSteady(wall: reading.wall, elapsed: reading.elapsed)
        if reading.isSynchronized {
            steady = SteadyClock(wall: reading.wall, elapsed: reading.elapsed)
            return nil
        }
        if !isSteady { return .jumped }
        // A period in which the relay was off cannot explain a difference between two clocks. So this doubt does not
        // expire.
        if let server = reading.evidence.server,
            abs(reading.milliseconds(aheadOf: server)) > Self.tolerance.milliseconds
        {
            return .differs(from: server)
        }
        if reading.elapsed < Self.settlingTime, let newest = reading.evidence.newest,
            reading.milliseconds(aheadOf: newest) > Self.plausibleGap.milliseconds
        {
            return .ahead(of: newest)
        }
        return nil
    }
}

/// Detects jumps of the wall clock by comparing it with the monotonic clock.
///
/// A wall clock that jumps ahead by years makes every row look old enough to delete. After a jump, the clock counts as
/// unsteady for ``SteadyClock/settlingTime``. In this time a time service or a person can correct it.
struct SteadyClock: Sendable {
    /// The drift between two readings that counts as a jump.
    static let tolerance = Duration.seconds(3600)
    static let settlingTime = Duration.seconds(24 * 3600)

    private var wall: Timestamp
    private var elapsed: Duration
    private var jumpedAt: Duration?

    init(wall: Timestamp, elapsed: Duration) {
        self.wall = wall
        self.elapsed = elapsed
    }

    mutating func isSteady(wall now: Timestamp, elapsed: Duration) -> Bool {
        let drift = (now.milliseconds - wall.milliseconds) - (elapsed - self.elapsed).milliseconds
        if abs(drift) > Self.tolerance.milliseconds { jumpedAt = elapsed }
        wall = now
        self.elapsed = elapsed
        guard let jumpedAt else { return true }
        return elapsed - jumpedAt >= Self.settlingTime
    }
}
