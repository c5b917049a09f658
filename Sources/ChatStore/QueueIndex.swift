import ChatDomain

/// What the relay knows in memory of the pushes that are not settled: where due ones lie, which are leased, and which rows
/// have not been looked at. A value without a database; everything in it can be found again in the file.
///
/// A row is pending on disk until its outcome is committed, leased or not. So a row that is met while somebody holds it is
/// passed over, and a row that is met twice is read twice and sent once.
struct QueueIndex: Sendable {
    /// Numbers of pushes. What lies outside was made by hand and would leave no room for the next number.
    static let ids: ClosedRange<Int64> = -(1 << 62)...(1 << 62) - 1

    /// Numbers above are given up for lower ones, long before there is no room for the next.
    static let highestKept: Int64 = 1 << 61

    /// Runs of numbers that one read of the database covers.
    private static let runsInRead = 64
    /// Rows that are kept with their content until they are leased: some megabytes.
    private static let maxCachedPushes = 2048
    /// How long a row's content is used without reading it again: another program may change it.
    private static let cacheLifetime = Duration.seconds(1)

    private struct Part {
        var lanes = [DueRuns](repeating: DueRuns(), count: PushLane.allCases.count)
        /// Leased.
        var inFlight = IDRanges()
        /// Runs that are being read.
        var claimed: [Int: [DueRuns.Run]] = [:]
        /// When the next push that waits for its time is due; nil: none does.
        var nextWaiting: Timestamp?
        /// ``nextWaiting`` is not known any more.
        var mustScanWaiting = true
        /// Pushes whose time came before have been taken up; nil: look at all of them.
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
    /// Rows that nobody has looked at.
    private(set) var unscanned = IDRanges()
    /// The highest number that is known of.
    private(set) var highest: Int64
    /// The relay's own rows have numbers outside ``ids``, because another program's has.
    var hasNumbersOutOfRange = false

    /// - Parameters:
    ///   - settledTo: every row up to here is settled, or waits for a time.
    ///   - highest: of all rows there are.
    init(settledTo: Int64, highest: Int64) {
        self.highest = max(settledTo, highest)
        if highest > settledTo { unscanned.insert(settledTo + 1...highest) }
    }

    // MARK: - What is there

    /// Every row up to here is settled, or waits for a time.
    var settledTo: Int64 {
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

    /// What of a range is leased, of all apps.
    func inFlight(in range: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        IDRanges(parts.values.flatMap { $0.inFlight.intersection(range) }).ranges
    }

    /// Where due pushes may lie, by lane.
    func runs(_ app: AppName) -> [[ClosedRange<Int64>]] { parts[app]?.lanes.map { $0.runs.map(\.range) } ?? [] }

    func lanes(_ app: AppName) -> Set<PushLane> {
        guard let part = parts[app] else { return [] }
        return Set(PushLane.allCases.filter { !part.lanes[$0.rawValue].isEmpty })
    }

    // MARK: - Inserts

    /// The relay has inserted rows, in the order of its commits.
    mutating func inserted(_ rows: DuePushes, at now: ContinuousClock.Instant) {
        let (range, pushes) = (rows.range, rows.pushes)
        guard Self.ids.contains(range.lowerBound), Self.ids.contains(range.upperBound) else {
            hasNumbersOutOfRange = true
            return
        }
        // Another program was there in between.
        if range.lowerBound > highest + 1 { unscanned.insert(highest + 1...range.lowerBound - 1) }
        // What a scan has met before may have been sent already: it is read again.
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

    /// The next leases read the rows again.
    mutating func forgetContent() { fresh = [:] }

    /// Due rows were met.
    mutating func found(_ rows: DuePushes) {
        let range = rows.range
        guard Self.ids.contains(range.lowerBound), Self.ids.contains(range.upperBound) else { return }
        var unknown = IDRanges([range])
        if let part = parts[rows.app] {
            for held in part.inFlight.intersection(range) { unknown.subtract(held) }
            for lane in part.lanes { for run in lane.overlapping(range) { unknown.subtract(run) } }
            for run in part.claimed.values.joined() where run.range.overlaps(range) { unknown.subtract(run.range) }
        }
        // Where not all of the range are the app's, how many of the unknown ones are can only be told for the whole.
        let count = rows.count == range.count ? nil : rows.count
        for part in unknown.ranges {
            parts[rows.app, default: Part()].lanes[rows.lane.rawValue].add(part, count: count ?? part.count)
        }
    }

    /// There are rows up to a number, of which some may be others'.
    mutating func reaches(_ id: Int64) {
        guard id > highest, Self.ids.contains(id) else { return }
        unscanned.insert(highest + 1...id)
        highest = id
    }

    /// Rows with too high numbers were given those up to this one.
    mutating func renumbered(from first: Int64, to last: Int64) {
        // Those were not met yet: they will be like others.
        guard first <= last, highest >= first else { return }
        unscanned.subtract(first...Self.ids.upperBound)
        unscanned.insert(first...last)
        highest = last
    }

    mutating func scanned(_ range: ClosedRange<Int64>) { unscanned.subtract(range) }

    // MARK: - Leases

    /// What a lease is to read.
    struct Claim: Sendable {
        let number: Int
        let app: AppName
        let lane: PushLane
        /// Taken without reading; then there is nothing to read.
        let pushes: [QueuedPush]
        let runs: [DueRuns.Run]
        /// For each run what somebody has already.
        let excluded: [[ClosedRange<Int64>]]
    }

    /// Takes the first runs of a lane, so that nobody else reads them; nil where there are none.
    mutating func claim(_ app: AppName, _ lane: PushLane, limit: Int, at now: ContinuousClock.Instant) -> Claim? {
        guard limit > 0, var part = parts[app], let first = part.lanes[lane.rawValue].takeFirst() else { return nil }
        // Not copied while it changes.
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
            return Claim(number: nextClaim, app: app, lane: lane, pushes: pushes, runs: [], excluded: [])
        }
        var (runs, count) = ([first], first.count)
        while count < limit, runs.count < Self.runsInRead, let next = part.lanes[lane.rawValue].takeFirst() {
            runs.append(next)
            count += next.count
        }
        part.claimed[nextClaim] = runs
        return Claim(
            number: nextClaim, app: app, lane: lane, pushes: [], runs: runs,
            excluded: runs.map { part.inFlight.intersection($0.range) })
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

    /// - Parameter read: for each run that was read what was found in it, and how far it was read; nil for to its end.
    mutating func finish(_ claim: Claim, _ read: [(pushes: [QueuedPush], upTo: Int64?)]) {
        guard var part = parts[claim.app] else { return }
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
    }

    /// Leases end, and the pushes are due again: in the lane that is given, or not at all.
    mutating func release(_ range: ClosedRange<Int64>, to lane: PushLane?, app: AppName) {
        parts[app]?.inFlight.subtract(range)
        if let lane { parts[app]?.lanes[lane.rawValue].add(range, count: range.count) }
    }

    // MARK: - Those that wait for their time

    func nextWaiting(_ app: AppName) -> Timestamp? { parts[app]?.nextWaiting }

    /// How far back the time of a push may lie that another program has only just set.
    private static let lateness = Duration.seconds(2)

    /// To be called before the rows of pushes that wait are looked at, so that what comes during the look is not missed.
    /// - Returns: from which time on to look, in milliseconds; nil where no push is due that is not known.
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

    /// Something may wait that is not known.
    /// - Parameter atAll: the next look is at all pushes, however long ago their time was.
    mutating func requestScanOfWaiting(atAll: Bool = false) {
        for app in parts.keys {
            parts[app]?.mustScanWaiting = true
            if atAll { parts[app]?.lookedTo = nil }
        }
    }

    /// A push waits for a time.
    mutating func waits(until time: Timestamp, app: AppName) {
        parts[app, default: Part()].nextWaiting = min(parts[app]?.nextWaiting ?? time, time)
    }
}

/// Due rows of one app and lane, with numbers in a range.
struct DuePushes: Sendable {
    var range: ClosedRange<Int64>
    /// How many of them are the app's; nil: all.
    var count: Int?
    let lane: PushLane
    let app: AppName
    /// Their content, all of them or none.
    var pushes: [QueuedPush] = []
}

/// Collects rows one by one, in the order of their numbers, as runs of neighbours of one app and lane.
struct RunCollector {
    /// What it reads of a row, first of all columns.
    static let columns = "message_id, unanswered, refused, bulk"

    private(set) var runs: [DuePushes] = []

    /// Leaves out numbers beyond ``QueueIndex/ids``: the row is repaired first.
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

/// Where due pushes of one app and lane may lie: ranges of ids, disjoint and in order.
///
/// A hint, never a promise: whoever takes a run reads its rows, and takes those that are due. So runs may cover others'
/// rows and settled ones, and the list stays short however the rows lie.
struct DueRuns: Sendable {
    struct Run: Sendable, Hashable {
        var range: ClosedRange<Int64>
        /// Due pushes that were seen in it. Rows that another program takes back make it too large until the run is read.
        var count: Int
    }

    /// Runs that are told apart; beyond that neighbours become one. A few dozen kilobytes.
    static let most = 1024

    private(set) var runs: [Run] = []

    var isEmpty: Bool { runs.isEmpty }
    var first: Int64? { runs.first?.range.lowerBound }
    var count: Int { runs.reduce(0) { $0 + $1.count } }

    /// The first run that ends at an id or above it.
    private func index(from id: Int64) -> Int { (0..<runs.count).partitioningIndex { runs[$0].range.upperBound >= id } }

    /// What it covers of a range, and around it.
    func overlapping(_ range: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        runs[index(from: range.lowerBound)...].prefix { $0.range.lowerBound <= range.upperBound }.map(\.range)
    }

    mutating func add(_ range: ClosedRange<Int64>, count: Int) {
        // The usual case: right behind the last.
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

    /// Halves their number.
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
