import ChatDomain

/// The state of a relay's leases that is not in the table `push_queue_due`. It consists of releases that are not
/// written yet, leases that the relay may not know of, and the position from which to read each lane. A pure value.
struct QueueLeases: Sendable {
    /// The position from which a lane is read. Rows before it are leased or settled. While another session keeps a
    /// transaction open for long, the server would have to skip their old versions again for each lease.
    struct Floor: Sendable, Hashable, Comparable {
        /// The due time of pushes that wait for a time; otherwise the same value for all.
        var time: Int64 = .min
        var id: Int64 = .min

        static func < (left: Floor, right: Floor) -> Bool { (left.time, left.id) < (right.time, right.id) }
    }

    /// Rises with a delay, because a transaction may commit lower ids after another one has committed higher ids.
    /// `QueueUpkeep.look()` finds pushes that arrive even later.
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
    /// The time after an uncertain commit during which to search for orphans. By then the server has ended the
    /// transaction.
    private static let doubtTime = Duration.seconds(120)

    /// The floors of a lane: for pushes without a time, and for those that wait for one.
    private struct LaneFloors: Sendable {
        var due = RisingFloor()
        var waiting = RisingFloor()
    }

    private struct Part {
        var lanes = [LaneFloors](repeating: LaneFloors(), count: PushLane.allCases.count)
        var returned = IDRanges()
    }

    /// The input of a lease.
    struct Plan: Sendable {
        let number: Int
        let start: Int64
        /// Pushes to release first.
        let returned: [ClosedRange<Int64>]
        /// Indexed by lane.
        let due: [Floor]
        let waiting: [Floor]
    }

    /// The start of the relay that holds these leases.
    private var start: Int64 = 0
    private var parts: [AppName: Part] = [:]
    /// The leased push ids, of all apps.
    private var held = IDRanges()
    /// Calls in progress, with their pushes, which are neither in `held` nor in `returned` during the call.
    private var open: [Int: [ClosedRange<Int64>]] = [:]
    private var nextNumber = 0
    /// The last time at which a lease may have been committed without this relay's knowledge. `nil` if there was none.
    private var doubtfulSince: ContinuousClock.Instant?
    private var searchBegan: ContinuousClock.Instant?
    /// All push ids that the relay has known since the search for orphans began. `nil` outside of a search.
    private var known: IDRanges?

    // MARK: - Leases

    mutating func begin(_ app: AppName) -> Plan {
        let part = parts[app] ?? Part()
        nextNumber += 1
        open[nextNumber] = part.returned.ranges
        parts[app, default: part].returned = IDRanges()
        return Plan(
            number: nextNumber, start: start, returned: part.returned.ranges, due: part.lanes.map(\.due.floor),
            waiting: part.lanes.map(\.waiting.floor))
    }

    /// - Parameter isFromFloors: Whether all pushes between the floors and these were leased or settled before.
    mutating func finish(
        _ plan: Plan, _ pushes: [LeasedRow], app: AppName, isFromFloors: Bool = true, at now: ContinuousClock.Instant
    ) {
        open[plan.number] = nil
        for row in pushes {
            let range = row.push.id...row.push.id
            held.insert(range)
            known?.insert(range)
        }
        guard isFromFloors else { return }
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

    /// Records that the call failed. It may have been committed all the same.
    mutating func fail(_ plan: Plan, app: AppName, at now: ContinuousClock.Instant) {
        open[plan.number] = nil
        // The relay may have started again since, and may have leased the same pushes for the new start.
        if plan.start == start { for range in plan.returned { parts[app]?.returned.insert(range) } }
        doubt(at: now)
    }

    /// Records that the database may have leases that the relay does not know.
    mutating func doubt(at now: ContinuousClock.Instant) { doubtfulSince = now }

    mutating func release(_ ranges: [ClosedRange<Int64>], app: AppName) {
        for range in ranges {
            held.subtract(range)
            parts[app, default: Part()].returned.insert(range)
            isDue(from: range.lowerBound, app)
        }
    }

    /// Takes the released pushes of all apps, in order to write the releases.
    mutating func takeReturned() -> [(app: AppName, ranges: [ClosedRange<Int64>])] {
        var taken: [(app: AppName, ranges: [ClosedRange<Int64>])] = []
        for (app, part) in parts where !part.returned.isEmpty {
            taken.append((app, part.returned.ranges))
            parts[app]?.returned = IDRanges()
        }
        return taken
    }

    /// - Returns: The number of the call.
    mutating func beginSettling(_ settlements: [Settlement]) -> Int {
        nextNumber += 1
        open[nextNumber] = settlements.map(\.pushIDs)
        // Before the commit: after it, a push that is due again may be leased again before this call returns.
        for settlement in settlements { held.subtract(settlement.pushIDs) }
        return nextNumber
    }

    mutating func settled(_ number: Int, _ settlements: [Settlement], app: AppName) {
        open[number] = nil
        for settlement in settlements {
            let first = settlement.pushIDs.lowerBound
            switch settlement.transition.result {
            case .due: isDue(from: first, app)
            case .waiting(let time, _, _):
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

    /// Lowers the floors, because a push is due again, whether it waited for a time or not.
    private mutating func isDue(from pushID: Int64, _ app: AppName) {
        for lane in PushLane.allCases {
            parts[app, default: Part()].lanes[lane.rawValue].due.lower(to: Floor(id: pushID))
            parts[app]?.lanes[lane.rawValue].waiting.lower(to: Floor())
        }
    }

    // MARK: - Changes by others

    /// Raises the floor of a lane: a query of all rows found no unleased push before it.
    mutating func found(_ app: AppName, lane: Int, due floor: Floor, at now: ContinuousClock.Instant) {
        guard PushLane(rawValue: lane) != nil else { return }
        parts[app, default: Part()].lanes[lane].due.rise(to: floor, at: now)
    }

    /// Lowers the floor for pushes that wait for a time. `nil` if the lane has none.
    mutating func found(_ app: AppName, lane: Int, waiting floor: Floor?) {
        guard PushLane(rawValue: lane) != nil, let floor else { return }
        parts[app, default: Part()].lanes[lane].waiting.lower(to: floor)
    }

    /// Resets all floors, because any push may be due.
    mutating func forgetFloors() {
        for app in parts.keys {
            parts[app]?.lanes = [LaneFloors](repeating: LaneFloors(), count: PushLane.allCases.count)
        }
    }

    /// Voids the leases of an earlier start. Must be called before leases begin and before the search for them.
    mutating func belong(to start: Int64) {
        guard start != self.start else { return }
        self.start = start
        held = IDRanges()
        for app in parts.keys { parts[app]?.returned = IDRanges() }
    }

    // MARK: - Unknown leases

    /// Must be called before the query for this start's leases.
    /// - Returns: Whether there may be unknown leases.
    mutating func beginSearch(at now: ContinuousClock.Instant) -> Bool {
        guard doubtfulSince != nil else { return false }
        searchBegan = now
        var all = held
        for range in parts.values.map(\.returned.ranges).joined() { all.insert(range) }
        for range in open.values.joined() { all.insert(range) }
        known = all
        return true
    }

    /// Calls in progress. A call that began before the query may have committed leases that the query found.
    var underWay: Set<Int> { Set(open.keys) }

    /// The push ids that this start has leased in the table without the relay's knowledge. Must be called after the
    /// calls that were in progress at the time of the query have ended.
    mutating func orphans(among found: [Int64]) -> [Int64] {
        defer { known = nil }
        return found.filter { known?.contains($0) == false }
    }

    /// Records that the orphans were released. The search that begins long enough after the last doubt is the last one.
    mutating func endSearch() {
        guard let since = doubtfulSince, let searchBegan, searchBegan - since > Self.doubtTime else { return }
        doubtfulSince = nil
    }
}
