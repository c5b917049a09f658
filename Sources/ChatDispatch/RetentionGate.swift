package import ChatDomain

/// Decides whether rows may be deleted by their age. With a wall clock that is wrong everything looks old, and what is deleted
/// does not come back.
///
/// A pure value: the caller reads the clocks, the kernel and the database.
package struct RetentionGate: Sendable {
    /// The longest time in which a relay normally stores nothing. With more between the wall clock and what was stored before,
    /// the relay was off, or the clock is wrong.
    static let plausibleGap = Duration.seconds(3 * 86_400)
    /// What was stored in so long a time before now proves nothing: this clock may have written it before a restart.
    package static let unproven = Duration.seconds(86_400)
    /// After so long an uptime the clock is believed: a time service or a person had time to set it right.
    static let settlingTime = SteadyClock.settlingTime
    /// How far two machines' clocks may be apart.
    static let tolerance = SteadyClock.tolerance

    /// What is known at one moment.
    package struct Reading: Sendable {
        package var wall: Timestamp
        /// By the monotonic clock, since the relay started.
        package var elapsed: Duration
        /// Whether the kernel says that a time service has set the clock.
        package var isSynchronized: Bool
        /// ``ClockEvidence/newest`` up to ``unproven`` before now.
        package var evidence: ClockEvidence

        package init(wall: Timestamp, elapsed: Duration, isSynchronized: Bool, evidence: ClockEvidence) {
            self.wall = wall
            self.elapsed = elapsed
            self.isSynchronized = isSynchronized
            self.evidence = evidence
        }

        /// Milliseconds.
        fileprivate func lead(over time: Timestamp) -> Int64 { wall.milliseconds - time.milliseconds }
    }

    /// Why nothing may be deleted by age now.
    package enum Doubt: Sendable, Hashable {
        /// The wall clock did not keep pace with the monotonic one.
        case jumped
        /// The wall clock is implausibly far ahead of everything that was stored.
        case ahead(of: Timestamp)
        /// The database's server has another time.
        case differs(from: Timestamp)
    }

    private var steady: SteadyClock

    package init(wall: Timestamp) {
        steady = SteadyClock(wall: wall, elapsed: .zero)
    }

    /// - Returns: `nil` if rows may be deleted.
    package mutating func doubt(_ reading: Reading) -> Doubt? {
        let isSteady = steady.isSteady(wall: reading.wall, elapsed: reading.elapsed)
        if reading.isSynchronized {
            steady = SteadyClock(wall: reading.wall, elapsed: reading.elapsed)
            return nil
        }
        if !isSteady { return .jumped }
        // That the relay was off explains no difference between two clocks, so no time ends this doubt.
        if let server = reading.evidence.server, abs(reading.lead(over: server)) > Self.tolerance.milliseconds {
            return .differs(from: server)
        }
        if reading.elapsed < Self.settlingTime, let newest = reading.evidence.newest,
            reading.lead(over: newest) > Self.plausibleGap.milliseconds
        {
            return .ahead(of: newest)
        }
        return nil
    }
}

/// Tells whether the wall clock kept pace with the one that only counts.
///
/// A wall clock that jumps ahead by years would make everything look old enough to be deleted. A jump is reported for
/// ``SteadyClock/settlingTime`` after it was seen, which is time for a time server or a person to set it right.
struct SteadyClock: Sendable {
    /// What counts as a jump.
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
