#if PostgreSQL
import ChatDomain

/// What a relay knows of its leases, beside what stands in `push_queue_due`: what was given back and is not written down yet,
/// what may be leased without its knowing, and from where each lane is read. A value without a database.
struct QueueLeases: Sendable {
    /// From where a lane is read. What lies before is leased or settled, and where somebody holds a transaction open for long, it
    /// would be passed over again and again.
    struct Floor: Sendable, Hashable, Comparable {
        /// Of what waits for a time; else the same for all.
        var time: Int64 = .min
        var id: Int64 = .min

        static func < (left: Floor, right: Floor) -> Bool { (left.time, left.id) < (right.time, right.id) }
    }

    /// Rises late, because a transaction may commit lower numbers after another's higher ones. What is later still, ``look``
    /// finds.
    private struct RisingFloor: Sendable {
        var floor = Floor()
        var next: (floor: Floor, since: ContinuousClock.Instant)?

        mutating func rise(to floor: Floor, at now: ContinuousClock.Instant) {
            guard floor > self.floor else { return lower(to: floor) }
            if let next, now - next.since >= QueueLeases.lateness {
                self.floor = max(self.floor, next.floor)
                self.next = nil
            }
            if next == nil { next = (floor, now) }
        }

        mutating func lower(to floor: Floor) {
            self.floor = min(self.floor, floor)
            next = next.map { (min($0.floor, floor), $0.since) }
        }
    }

    /// Longer than a relay's own transactions take.
    private static let lateness = Duration.seconds(2)
    /// How long after a doubtful commit orphans are looked for: until the server has ended what it had begun.
    private static let doubtTime = Duration.seconds(120)

    /// Of a lane: what can go at once, and what waits for its time.
    private struct LaneFloors: Sendable {
        var due = RisingFloor()
        var waiting = RisingFloor()
    }

    private struct Part {
        var lanes = [LaneFloors](repeating: LaneFloors(), count: PushLane.allCases.count)
        var returned = IDRanges()
    }

    /// What a lease is to do.
    struct Plan: Sendable {
        let number: Int
        /// To be released first.
        let returned: [ClosedRange<Int64>]
        /// By lane.
        let due: [Floor]
        let waiting: [Floor]
    }

    /// The relay's, whose leases these are.
    private var start: Int64 = 0
    private var parts: [AppName: Part] = [:]
    /// Leased, of all apps.
    private var held = IDRanges()
    /// Calls that are under way, and rows of theirs that are neither held nor returned meanwhile.
    private var open: [Int: [ClosedRange<Int64>]] = [:]
    private var nextNumber = 0
    /// Since when a lease may have been committed of which this relay does not know.
    private var doubtfulSince: ContinuousClock.Instant?
    private var searchBegan: ContinuousClock.Instant?
    /// While orphans are looked for: all that was known since then.
    private var known: IDRanges?

    // MARK: - Leases

    mutating func begin(_ app: AppName) -> Plan {
        let part = parts[app] ?? Part()
        nextNumber += 1
        open[nextNumber] = part.returned.ranges
        parts[app, default: part].returned = IDRanges()
        return Plan(
            number: nextNumber, returned: part.returned.ranges, due: part.lanes.map(\.due.floor),
            waiting: part.lanes.map(\.waiting.floor))
    }

    mutating func finish(_ plan: Plan, _ pushes: [LeasedRow], app: AppName, at now: ContinuousClock.Instant) {
        open[plan.number] = nil
        for row in pushes {
            let range = row.push.id...row.push.id
            held.insert(range)
            known?.insert(range)
        }
        for lane in PushLane.allCases {
            let rows = pushes.lazy.filter { $0.push.lane == lane }.map(\.floor)
            if let first = rows.filter({ $0.time == .min }).min() {
                parts[app]?.lanes[lane.rawValue].due.rise(to: first, at: now)
            }
            if let first = rows.filter({ $0.time != .min }).min() {
                parts[app]?.lanes[lane.rawValue].waiting.rise(to: first, at: now)
            }
        }
    }

    /// It may have been committed all the same.
    mutating func fail(_ plan: Plan, app: AppName, at now: ContinuousClock.Instant) {
        open[plan.number] = nil
        for range in plan.returned { parts[app]?.returned.insert(range) }
        doubtfulSince = now
    }

    mutating func release(_ ranges: [ClosedRange<Int64>], app: AppName) {
        for range in ranges {
            held.subtract(range)
            parts[app, default: Part()].returned.insert(range)
            isDue(from: range.lowerBound, app)
        }
    }

    /// What was given back, to be released now, of all apps.
    mutating func takeReturned() -> [(app: AppName, ranges: [ClosedRange<Int64>])] {
        var taken: [(app: AppName, ranges: [ClosedRange<Int64>])] = []
        for (app, part) in parts where !part.returned.isEmpty {
            taken.append((app, part.returned.ranges))
            parts[app]?.returned = IDRanges()
        }
        return taken
    }

    /// - Returns: the call's number.
    mutating func beginSettling(_ settlements: [Settlement]) -> Int {
        nextNumber += 1
        open[nextNumber] = settlements.map(\.pushIDs)
        // Before the commit, because after it a row that is due again may be leased again before this call knows.
        for settlement in settlements { held.subtract(settlement.pushIDs) }
        return nextNumber
    }

    mutating func settled(_ number: Int, _ settlements: [Settlement], app: AppName) {
        open[number] = nil
        for settlement in settlements {
            let first = settlement.pushIDs.lowerBound
            switch settlement.transition.result {
            case .due: isDue(from: first, app)
            case .waiting(let time, _):
                for lane in PushLane.allCases {
                    parts[app, default: Part()].lanes[lane.rawValue].waiting
                        .lower(to: Floor(time: time.milliseconds, id: first))
                }
            case .sent, .failed, .expired, .cancelled: break
            }
        }
    }

    mutating func failedToSettle(_ number: Int, _ settlements: [Settlement]) {
        open[number] = nil
        for settlement in settlements where !settlement.overrulesSilence { held.insert(settlement.pushIDs) }
    }

    /// A row is due again, whether it waited for a time or not.
    private mutating func isDue(from pushID: Int64, _ app: AppName) {
        for lane in PushLane.allCases {
            parts[app, default: Part()].lanes[lane.rawValue].due.lower(to: Floor(id: pushID))
            parts[app]?.lanes[lane.rawValue].waiting.lower(to: Floor())
        }
    }

    // MARK: - What others did

    /// By a look at all, nobody has leased a row of the lane before this one.
    mutating func found(_ app: AppName, lane: Int, due floor: Floor, at now: ContinuousClock.Instant) {
        guard PushLane(rawValue: lane) != nil else { return }
        parts[app, default: Part()].lanes[lane].due.rise(to: floor, at: now)
    }

    /// The same of what waits; nil where nothing does.
    mutating func found(_ app: AppName, lane: Int, waiting floor: Floor?) {
        guard PushLane(rawValue: lane) != nil, let floor else { return }
        parts[app, default: Part()].lanes[lane].waiting.lower(to: floor)
    }

    /// Anything may be due.
    mutating func forgetFloors() {
        for app in parts.keys {
            parts[app]?.lanes = [LaneFloors](repeating: LaneFloors(), count: PushLane.allCases.count)
        }
    }

    /// To be called before leases are begun or looked for: those of a start before are void.
    mutating func belong(to start: Int64) {
        guard start != self.start else { return }
        self.start = start
        held = IDRanges()
        for app in parts.keys { parts[app]?.returned = IDRanges() }
    }

    // MARK: - Leases that nobody knows of

    /// To be called before the table is asked for this start's leases.
    /// - Returns: whether there is doubt.
    mutating func beginSearch(at now: ContinuousClock.Instant) -> Bool {
        guard doubtfulSince != nil else { return false }
        searchBegan = now
        var all = held
        for range in parts.values.map(\.returned.ranges).joined() { all.insert(range) }
        for range in open.values.joined() { all.insert(range) }
        known = all
        return true
    }

    /// Calls that are under way. One that has begun when the table was asked may have committed what was found there.
    var underWay: Set<Int> { Set(open.keys) }

    /// Of this start's leases in the table those that the relay does not know. To be asked when those calls have ended that were
    /// under way when the table was read.
    mutating func orphans(among found: [Int64]) -> [Int64] {
        defer { known = nil }
        return found.filter { known?.contains($0) == false }
    }

    /// What the search has found is released. One that began long enough after the doubt was the last.
    mutating func endSearch() {
        guard let since = doubtfulSince, let searchBegan, searchBegan - since > Self.doubtTime else { return }
        doubtfulSince = nil
    }
}
#endif
