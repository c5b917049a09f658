import ChatDomain

/// An in-memory index of unsettled pushes: ranges that may contain due pushes, leased pushes, and rows that have not
/// been scanned. A pure value. It can be rebuilt from the database at any time.
///
/// A push stays pending on disk until its outcome is committed, leased or not. A scan therefore skips rows that are
/// leased. Reading a row twice is harmless: it is sent once.
struct QueueIndex: Sendable {
    /// The valid push ids. Ids outside were inserted by hand, and would leave no room for the next id.
    static let ids: ClosedRange<Int64> = -(1 << 62)...(1 << 62) - 1

    /// Push ids above this limit are replaced by lower ones, long before the range is exhausted.
    static let highestKept: Int64 = 1 << 61

    /// The maximum number of runs that one read of the database covers.
    private static let runsInRead = 64
    /// The maximum number of pushes whose content is cached until they are leased: a few megabytes.
    private static let maxCachedPushes = 2048
    /// The time for which cached content stays valid. Other programs may change the row.
    private static let cacheLifetime = Duration.seconds(1)

    private struct Part {
        var lanes = [DueRuns](repeating: DueRuns(), count: PushLane.allCases.count)
        /// The leased pushes.
        var inFlight = IDRanges()
        /// Runs that are being read, by claim.
        var claimed: [Int: [DueRuns.Run]] = [:]
        /// The due time of the next waiting push. `nil` if no push waits.
        var nextWaiting: Timestamp?
        /// Whether ``nextWaiting`` is unknown.
        var mustScanWaiting = true
        /// Pushes with an earlier due time have been taken up. `nil` if the next scan has to include all of them.
        var lookedTo: Timestamp?

        var lowest: Int64? {
            (lanes.map(\.first) + [inFlight.first] + claimed.values.map { $0.first?.range.lowerBound })
                .compactMap { $0 }.min()
        }
    }

    private struct FreshPush {
        let push: QueuedPush
        let queuedAt: ContinuousClock.Instant
    }

    private var parts: [AppName: Part] = [:]
    private var fresh: [Int64: FreshPush] = [:]
    private var nextClaim = 0
    /// The number of commits that have withdrawn content.
    private var withdrawals = 0
    /// Rows that have not been scanned.
    private(set) var unscanned = IDRanges()
    /// The highest known push id.
    private(set) var highest: Int64
    /// Whether the relay's own pushes have ids outside ``ids``, because another program inserted such an id.
    var hasNumbersOutOfRange = false

    /// - Parameters:
    ///   - settledTo: Every push up to here is settled, or waits for a time.
    ///   - highest: The highest push id in the database.
    init(settledTo: Int64, highest: Int64) {
        self.highest = max(settledTo, highest)
        if highest > settledTo { unscanned.insert(settledTo + 1...highest) }
    }

    // MARK: - Queries

    /// Every push up to here is settled, or waits for a time.
    var settledTo: Int64 {
        #if PLANTED_FAULTS
        if PlantedFault.markTooHigh.isPlanted { return highest }
        #endif
        let lowest = (parts.values.map(\.lowest) + [unscanned.first]).compactMap { $0 }.min()
        return lowest.map { min($0 - 1, highest) } ?? highest
    }

    var apps: [AppName] { Array(parts.keys) }

    func dueCount(_ app: AppName) -> Int {
        parts[app].map { part in
            part.lanes.reduce(0) { $0 + $1.count } + part.claimed.values.joined().reduce(0) { $0 + $1.count }
        } ?? 0
    }

    func inFlightCount(_ app: AppName) -> Int { parts[app]?.inFlight.count ?? 0 }

    /// The push ids of a range that are leased, of all apps.
    func inFlight(in range: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        IDRanges(parts.values.flatMap { $0.inFlight.intersection(range) }).ranges
    }

    /// Ranges that may contain due pushes, by lane.
    func runs(_ app: AppName) -> [[ClosedRange<Int64>]] { parts[app]?.lanes.map { $0.runs.map(\.range) } ?? [] }

    func lanes(_ app: AppName) -> Set<PushLane> {
        guard let part = parts[app] else { return [] }
        return Set(PushLane.allCases.filter { !part.lanes[$0.rawValue].isEmpty })
    }

    // MARK: - Inserts

    /// Adds pushes that the relay has inserted, in the order of its commits.
    mutating func inserted(_ rows: DuePushes, at now: ContinuousClock.Instant) {
        let (range, pushes) = (rows.range, rows.pushes)
        guard Self.ids.contains(range.lowerBound), Self.ids.contains(range.upperBound) else {
            hasNumbersOutOfRange = true
            return
        }
        // Another program has inserted rows in between.
        if range.lowerBound > highest + 1 { unscanned.insert(highest + 1...range.lowerBound - 1) }
        // A scan may have found these pushes already, and they may have been sent. So they have to be read again.
        let isNew = range.lowerBound > highest
        highest = max(highest, range.upperBound)
        guard isNew else { return found(rows) }
        parts[rows.app, default: Part()].lanes[rows.lane.rawValue].add(range, count: rows.count ?? range.count)
        guard !pushes.isEmpty else { return }
        if fresh.count + pushes.count > Self.maxCachedPushes { fresh = fresh.filter { isFresh($0.value, now) } }
        guard fresh.count + pushes.count <= Self.maxCachedPushes else { return }
        for push in pushes { fresh[push.id] = FreshPush(push: push, queuedAt: now) }
    }

    private func isFresh(_ push: FreshPush, _ now: ContinuousClock.Instant) -> Bool {
        now - push.queuedAt < Self.cacheLifetime
    }

    /// Discards cached content after a commit that has withdrawn some, so that the next leases read the rows. Reads that
    /// are under way do not count.
    mutating func forgetContent() {
        fresh = [:]
        withdrawals += 1
    }

    /// Adds due pushes that a scan has found.
    mutating func found(_ rows: DuePushes) {
        let range = rows.range
        guard Self.ids.contains(range.lowerBound), Self.ids.contains(range.upperBound) else { return }
        var unknown = IDRanges([range])
        if let part = parts[rows.app] {
            for held in part.inFlight.intersection(range) { unknown.subtract(held) }
            for lane in part.lanes { for run in lane.overlapping(range) { unknown.subtract(run) } }
            for run in part.claimed.values.joined() where run.range.overlaps(range) { unknown.subtract(run.range) }
        }
        // If only a part of the range belongs to the app, the count of the unknown parts is not known. Use the count of
        // the whole range.
        let count = rows.count == range.count ? nil : rows.count
        for part in unknown.ranges {
            parts[rows.app, default: Part()].lanes[rows.lane.rawValue].add(part, count: count ?? part.count)
        }
    }

    /// Records that there are rows up to `id`, some of which may belong to other programs.
    mutating func reaches(_ id: Int64) {
        guard id > highest, Self.ids.contains(id) else { return }
        unscanned.insert(highest + 1...id)
        highest = id
    }

    /// Records that pushes with ids that were too high have new ids in this range.
    mutating func renumbered(from first: Int64, to last: Int64) {
        // If the scan has not reached these ids, it will find the rows as usual.
        guard first <= last, highest >= first else { return }
        unscanned.subtract(first...Self.ids.upperBound)
        unscanned.insert(first...last)
        highest = last
    }

    mutating func scanned(_ range: ClosedRange<Int64>) { unscanned.subtract(range) }

    // MARK: - Leases

    /// The result of a claim: pushes from the cache, or runs to read.
    struct Claim: Sendable {
        let number: Int
        let app: AppName
        let lane: PushLane
        /// Pushes that were leased from the cache. If there are any, there are no runs to read.
        let pushes: [QueuedPush]
        let runs: [DueRuns.Run]
        /// The push ids in each run that are leased already.
        let excluded: [[ClosedRange<Int64>]]
        fileprivate let withdrawals: Int
    }

    /// Takes the first runs of a lane, so that no other lease reads them. Returns `nil` if the lane has none.
    mutating func claim(_ app: AppName, _ lane: PushLane, limit: Int, at now: ContinuousClock.Instant) -> Claim? {
        guard limit > 0, var part = parts[app], let first = part.lanes[lane.rawValue].takeFirst() else { return nil }
        // Removed while it changes, so that it is not copied.
        parts[app] = nil
        defer { parts[app] = part }
        let pushes = takeFresh(first, limit, lane, part.inFlight, now)
        nextClaim += 1
        if let last = pushes.last {
            part.inFlight.insert(first.range.lowerBound...last.id)
            if last.id < first.range.upperBound {
                part.lanes[lane.rawValue].add(
                    last.id + 1...first.range.upperBound, count: max(0, first.count - pushes.count))
            }
            return Claim(
                number: nextClaim, app: app, lane: lane, pushes: pushes, runs: [], excluded: [],
                withdrawals: withdrawals)
        }
        var (runs, count) = ([first], first.count)
        while count < limit, runs.count < Self.runsInRead, let next = part.lanes[lane.rawValue].takeFirst() {
            runs.append(next)
            count += next.count
        }
        part.claimed[nextClaim] = runs
        return Claim(
            number: nextClaim, app: app, lane: lane, pushes: [], runs: runs,
            excluded: runs.map { part.inFlight.intersection($0.range) }, withdrawals: withdrawals)
    }

    private mutating func takeFresh(
        _ run: DueRuns.Run, _ limit: Int, _ lane: PushLane, _ inFlight: IDRanges, _ now: ContinuousClock.Instant
    ) -> [QueuedPush] {
        guard !fresh.isEmpty else { return [] }
        var pushes: [QueuedPush] = []
        var pushID = run.range.lowerBound
        while pushes.count < limit, pushID <= run.range.upperBound, let known = fresh.removeValue(forKey: pushID),
            isFresh(known, now), !inFlight.contains(pushID)
        {
            pushes.append(known.push)
            pushID += 1
        }
        return pushes
    }

    /// - Parameter read: For each run that was read: the pushes found in it, and the id up to which it was read. `nil`
    ///   if it was read to its end.
    /// - Returns: False if a commit has withdrawn content since the claim. The read may have returned it, so it counts for
    ///   nothing: no push is leased, and the runs are back in their lane.
    @discardableResult
    mutating func finish(_ claim: Claim, _ read: [(pushes: [QueuedPush], upTo: Int64?)]) -> Bool {
        guard var part = parts[claim.app] else { return false }
        let isCurrent = claim.withdrawals == withdrawals
        let read = isCurrent ? read : []
        parts[claim.app] = nil
        defer { parts[claim.app] = part }
        part.claimed[claim.number] = nil
        for (index, run) in claim.runs.enumerated() {
            guard index < read.count else {
                part.lanes[claim.lane.rawValue].add(run.range, count: run.count)
                continue
            }
            let (pushes, upTo) = read[index]
            for push in pushes {
                part.inFlight.insert(push.id...push.id)
                if !fresh.isEmpty { fresh[push.id] = nil }
            }
            if let upTo, upTo < run.range.upperBound {
                part.lanes[claim.lane.rawValue].add(
                    upTo + 1...run.range.upperBound, count: max(0, run.count - pushes.count))
            }
        }
        return isCurrent
    }

    /// Ends leases. The pushes are due again in the given lane, or not due if `lane` is `nil`.
    mutating func release(_ range: ClosedRange<Int64>, to lane: PushLane?, app: AppName) {
        parts[app]?.inFlight.subtract(range)
        if let lane { parts[app]?.lanes[lane.rawValue].add(range, count: range.count) }
    }

    // MARK: - Pushes that wait for a time

    func nextWaiting(_ app: AppName) -> Timestamp? { parts[app]?.nextWaiting }

    /// The margin for pushes whose time was set by another program and has passed by the time of its commit.
    private static let lateness = Duration.seconds(2)

    /// Must be called before the query for waiting pushes, so that pushes that arrive during the query are not missed.
    /// - Returns: The due time from which to query, in milliseconds. `nil` if no unknown push can be due.
    mutating func beginScanOfWaiting(_ app: AppName, at now: Timestamp) -> Int64? {
        var part = parts[app] ?? Part()
        let isDue = part.nextWaiting.map { $0 <= now || $0 > now + PushLifeCycle.longestWait } ?? false
        guard part.mustScanWaiting || isDue else { return nil }
        let from = part.lookedTo.flatMap { $0 <= now ? ($0 - Self.lateness).milliseconds : nil } ?? .min
        part.mustScanWaiting = false
        part.nextWaiting = nil
        part.lookedTo = now
        parts[app] = part
        return from
    }

    /// Requests a scan, because there may be waiting pushes that the index does not know.
    /// - Parameter atAll: Whether the next scan includes all waiting pushes, however old their due time is.
    mutating func requestScanOfWaiting(atAll: Bool = false) {
        for app in parts.keys {
            parts[app]?.mustScanWaiting = true
            if atAll { parts[app]?.lookedTo = nil }
        }
    }

    /// Records that a push waits for a time. The time may have passed: a scheduled notification is queued in steps, and
    /// the last ones may come after its time. Then the next scan begins there.
    mutating func waits(until time: Timestamp, app: AppName) {
        var part = parts[app] ?? Part()
        part.nextWaiting = min(part.nextWaiting ?? time, time)
        part.lookedTo = part.lookedTo.map { min($0, time) }
        parts[app] = part
    }
}

/// Due pushes of one app and lane, with ids in a range.
struct DuePushes: Sendable {
    var range: ClosedRange<Int64>
    /// The number of pushes of the app in the range. `nil` if the whole range is the app's.
    var count: Int?
    let lane: PushLane
    let app: AppName
    /// The content of all of these pushes, or empty.
    var pushes: [QueuedPush] = []
}

/// Collects pushes one by one, in the order of their ids, into runs of consecutive ids with the same app and lane.
struct RunCollector {
    /// The columns that it reads. They have to be the first ones of the query.
    static let columns = "message_id, unanswered, refused, bulk"

    private(set) var runs: [DuePushes] = []

    /// Skips ids outside ``QueueIndex/ids``: such a push has to be repaired first.
    mutating func add(_ row: borrowing RawStatement, _ app: AppName) {
        let pushID = row.int(0)
        guard QueueIndex.ids.contains(pushID) else { return }
        let lane = PushLane(PushHistory(unanswered: row.count(1), refused: row.count(2)), isBulk: row.bool(3))
        if let last = runs.last, last.range.upperBound + 1 == pushID, last.lane == lane, last.app == app {
            runs[runs.count - 1].range = last.range.lowerBound...pushID
        } else {
            runs.append(DuePushes(range: pushID...pushID, lane: lane, app: app))
        }
    }
}

/// Ranges of ids that may contain due pushes of one app and lane, disjoint and in order.
///
/// A hint: the caller reads the rows of a run and leases those that are due. Runs may therefore cover settled rows and
/// rows of other apps, and the list stays short however the rows are distributed.
struct DueRuns: Sendable {
    struct Run: Sendable, Hashable {
        var range: ClosedRange<Int64>
        /// The number of due pushes that were found in the range. Too high until the run is read, if another program
        /// has cancelled some of them.
        var count: Int
    }

    /// The maximum number of runs, a few dozen kilobytes. Above it, neighbours are merged.
    static let most = 1024

    private(set) var runs: [Run] = []

    var isEmpty: Bool { runs.isEmpty }
    var first: Int64? { runs.first?.range.lowerBound }
    var count: Int { runs.reduce(0) { $0 + $1.count } }

    /// The index of the first run that ends at `id` or above it.
    private func index(from id: Int64) -> Int { (0..<runs.count).partitioningIndex { runs[$0].range.upperBound >= id } }

    /// The runs that overlap a range.
    func overlapping(_ range: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        runs[index(from: range.lowerBound)...].prefix { $0.range.lowerBound <= range.upperBound }.map(\.range)
    }

    mutating func add(_ range: ClosedRange<Int64>, count: Int) {
        // The usual case: directly after the last run.
        if let last = runs.last, last.range.upperBound + 1 == range.lowerBound {
            runs[runs.count - 1] = Run(range: last.range.lowerBound...range.upperBound, count: last.count + count)
            return
        }
        let start = index(from: range.lowerBound)
        var (end, merged) = (start, Run(range: range, count: count))
        while end < runs.count, runs[end].range.lowerBound <= range.upperBound {
            let other = runs[end]
            let first = min(merged.range.lowerBound, other.range.lowerBound)
            merged.range = first...max(merged.range.upperBound, other.range.upperBound)
            merged.count += other.count
            end += 1
        }
        runs.replaceSubrange(start..<end, with: [merged])
        if runs.count > Self.most { mergeNeighbours() }
    }

    /// Halves the number of runs.
    private mutating func mergeNeighbours() {
        runs = stride(from: 0, to: runs.count, by: 2).map { index in
            guard index + 1 < runs.count else { return runs[index] }
            let (left, right) = (runs[index], runs[index + 1])
            return Run(range: left.range.lowerBound...right.range.upperBound, count: left.count + right.count)
        }
    }

    mutating func takeFirst() -> Run? {
        runs.isEmpty ? nil : runs.removeFirst()
    }
}
