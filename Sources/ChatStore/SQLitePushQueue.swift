package import ChatDomain
import GRDB
import Logging
import Synchronization

/// The durable queue in the table `push_queue`.
///
/// Leases stand in memory, because one relay serves the file (``DatabaseLock``). Rows are read beside the writer, and
/// written when something has become of them. `queue_state.settled_to` tells the next process where to begin.
package final class SQLitePushQueue: PushQueue {
    /// Rows that one look at the table goes through: some milliseconds.
    private static let scanStep = 20_000
    /// Rows that one transaction gives to another app.
    private static let adoptionStep = 1000

    private let database: SQLiteDatabase
    private let outcomes: OutcomeCounter
    private let settings: @Sendable () -> StoreSettings
    let ids: PushIDs
    private let index: Mutex<QueueIndex>
    /// Devices of other programs' rows that were recognised and are noted with the next outcomes.
    private let recognized = Mutex<[Int64: Int64]>([:])
    /// Devices that one transaction notes.
    private static let recognizedStep = 1000
    /// What stands in `queue_state`. Of the writer alone.
    private let settledTo: Mark
    private let signals = Signals()

    init(
        database: SQLiteDatabase, outcomes: OutcomeCounter, settings: @escaping @Sendable () -> StoreSettings
    ) throws {
        self.database = database
        self.outcomes = outcomes
        self.settings = settings
        let (ids, settledTo, highest) = try database.pool.read { db in
            let settledTo = try Int64.fetchOne(db, sql: "SELECT settled_to FROM queue_state")
            return (try PushIDs.load(db), settledTo ?? QueueIndex.ids.lowerBound, try Self.highest(db))
        }
        self.ids = ids
        self.settledTo = Mark(settledTo)
        index = Mutex(QueueIndex(settledTo: settledTo, highest: highest ?? settledTo))
    }

    static func highest(_ db: Database) throws -> Int64? {
        try Int64.fetchOne(
            db.cachedStatement(sql: "SELECT max(message_id) FROM push_queue WHERE message_id <= ?"),
            arguments: [QueueIndex.highestKept])
    }

    // MARK: - Leases

    package func lease(app: AppName, lanes: [PushLane], limit: Int) async throws(ChatError) -> LeasedPushes {
        try await lookForWaiting(app)
        var pushes: [QueuedPush] = []
        for lane in lanes {
            while pushes.count < limit,
                let claim = index.withLock({ $0.claim(app, lane, limit: limit - pushes.count, at: .now) })
            {
                if claim.runs.isEmpty {
                    pushes += claim.pushes
                } else {
                    pushes += try await read(claim, limit: limit - pushes.count, after: pushes)
                }
            }
        }
        return LeasedPushes(pushes, lanes: index.withLock { $0.lanes(app) })
    }

    /// - Parameter earlier: what was leased already, and goes back when the read fails.
    private func read(
        _ claim: QueueIndex.Claim, limit: Int, after earlier: [QueuedPush]
    ) async throws(ChatError) -> [QueuedPush] {
        let now = database.clock()
        do throws(ChatError) {
            let (read, found) = try await database.scan { [ids] db in
                var reader = QueueReader(app: claim.app, now: now, ids: ids)
                var read: [(pushes: [QueuedPush], upTo: Int64?)] = []
                var count = 0
                for (run, excluded) in zip(claim.runs, claim.excluded) where count < limit {
                    let (pushes, hasMore) = try reader.rows(
                        in: run.range, excluding: excluded, limit: limit - count, db)
                    let taken = pushes.prefix(limit - count)
                    count += taken.count
                    let isPart = hasMore || taken.count < pushes.count
                    read.append((Array(taken), isPart ? taken.last?.entry ?? run.range.lowerBound - 1 : nil))
                }
                return (read, reader.recognized)
            }
            index.withLock { $0.finish(claim, read) }
            if !found.isEmpty {
                recognized.withLock { recognized in for row in found { recognized[row.entry] = row.device } }
            }
            return read.flatMap(\.pushes)
        } catch {
            index.withLock { index in
                index.finish(claim, [])
                for push in earlier { index.release(push.entry...push.entry, to: push.lane, app: claim.app) }
            }
            throw error
        }
    }

    package func giveBack(_ entries: [ClosedRange<Int64>], lane: PushLane, app: AppName) {
        guard !entries.isEmpty else { return }
        index.withLock { index in
            for range in entries { index.release(range, to: lane, app: app) }
        }
        signal()
    }

    // MARK: - What waits for its time

    package func nextDue(app: AppName) async throws(ChatError) -> Timestamp? {
        try await lookForWaiting(app) ? database.clock() : index.withLock { $0.nextWaiting(app) }
    }

    /// Runs of pushes whose time has come that one look takes up: some milliseconds.
    private static let waitingStep = 2000
    static let waitingSQL = """
        SELECT message_id, not_before, unanswered, refused, bulk FROM push_queue
        WHERE app = ? AND (attempts > 0) = ? AND state = 'pending' AND not_before IS NOT NULL
            AND not_before BETWEEN ? AND ?
        ORDER BY not_before
        """
    static let nextWaitingSQL = """
        SELECT min(not_before) FROM push_queue
        WHERE app = ? AND (attempts > 0) = ? AND state = 'pending' AND not_before IS NOT NULL AND not_before > ?
        """

    /// The next look is at all that wait, however long ago their time was.
    func lookForAllWaiting() {
        index.withLock { index in
            for app in index.apps { index.mustLookForAllWaiting(app) }
        }
    }

    /// Takes up the pushes whose time has come, and those repeats that wait for longer than any repeat does.
    /// - Returns: whether there were any.
    @discardableResult
    private func lookForWaiting(_ app: AppName) async throws(ChatError) -> Bool {
        let now = database.clock()
        guard index.withLock({ $0.mustLookForWaiting(app, at: now) }) else { return false }
        let from = index.withLock { $0.willLookForWaiting(app, at: now) }?.milliseconds ?? .min
        let beyond = now + PushLifeCycle.longestWait
        do throws(ChatError) {
            var count = try await takeUp(app, isRepeat: false, from: from, upTo: now.milliseconds)
            count += try await takeUp(app, isRepeat: true, from: from, upTo: now.milliseconds)
            count += try await takeUp(app, isRepeat: true, from: beyond.milliseconds + 1, upTo: .max)
            let next = try await database.scan { db in
                try [0, 1].compactMap { isRepeat in
                    try Int64.fetchOne(
                        db.cachedStatement(sql: Self.nextWaitingSQL), arguments: [app.text, isRepeat, now.milliseconds])
                }.min()
            }
            // Not later than any repeat waits: what lies beyond says that the clock was set back.
            if let next {
                index.withLock { $0.waits(until: min(Timestamp(milliseconds: next), beyond), app: app) }
            }
            return count > 0
        } catch {
            index.withLock { $0.mustLookForAllWaiting(app) }
            throw error
        }
    }

    private typealias DueList = [(range: ClosedRange<Int64>, lane: PushLane, app: AppName)]

    /// - Returns: how many runs of pushes were taken up.
    private func takeUp(
        _ app: AppName, isRepeat: Bool, from: Int64, upTo: Int64
    ) async throws(ChatError) -> Int {
        var (count, from) = (0, Optional(from))
        while let start = from {
            let (runs, next) = try await database.scan { db -> (DueList, Int64?) in
                var due = RunCollector()
                let rows = try RawStatement(db, Self.waitingSQL, app.text, Int64(isRepeat ? 1 : 0), start, upTo)
                while try rows.step() {
                    // A look ends where the time changes: those of one time are mostly neighbours, and few runs.
                    if due.runs.count >= Self.waitingStep, rows.int(1) > start { return (due.runs, rows.int(1)) }
                    let history = PushHistory(unanswered: rows.count(2), refused: rows.count(3))
                    due.add(rows.int(0), PushLane(history, isBulk: rows.bool(4)), app)
                }
                return (due.runs, nil)
            }
            index.withLock { index in
                for run in runs { index.found(run.range, count: run.range.count, lane: run.lane, app: app) }
            }
            count += runs.count
            from = next
        }
        return count
    }

    // MARK: - Outcomes

    package func settle(_ settlements: [Settlement], app: AppName) async throws(ChatError) -> [SettledPushes] {
        guard !settlements.isEmpty else { return [] }
        let noted = recognized.withLock { recognized in
            let noted = recognized.prefix(Self.recognizedStep).map { (entry: $0.key, device: $0.value) }
            for row in noted { recognized[row.entry] = nil }
            return noted
        }
        // Of before: what is settled now may lie below with the next.
        let mark = index.withLock { $0.settledTo }
        do throws(ChatError) {
            let (settled, endings) = try await database.writer.perform(.upkeep) { [self] db in
                var writer = OutcomeWriter(app: app, now: database.clock(), db)
                let settled = try settlements.map { try writer.write($0) }
                try writer.finish(recognized: noted)
                try write(mark: mark, db)
                return (settled, writer.endings)
            } committed: { [settledTo] _, _ in
                if mark > settledTo.value.load(ordering: .relaxed) { settledTo.value.store(mark, ordering: .relaxed) }
            }
            outcomes.add(endings)
            release(settlements, app)
            return settled
        } catch {
            recognized.withLock { recognized in
                for row in noted where recognized[row.entry] == nil { recognized[row.entry] = row.device }
            }
            throw error
        }
    }

    private func write(mark: Int64, _ db: Database) throws {
        guard mark > settledTo.value.load(ordering: .relaxed) else { return }
        try RawStatement(db, "UPDATE queue_state SET settled_to = ? WHERE settled_to < ?", mark, mark).run()
    }

    private func release(_ settlements: [Settlement], _ app: AppName) {
        let isDue = index.withLock { index in
            var isDue = false
            for settlement in settlements {
                var lane: PushLane?
                switch settlement.transition.result {
                case .due(let next, _):
                    lane = next
                    isDue = true
                case .waiting(let time, _):
                    index.waits(until: time, app: app)
                case .sent, .failed, .expired, .cancelled: break
                }
                index.release(settlement.entries, to: lane, app: app)
            }
            return isDue
        }
        if isDue { signal() }
    }

    // MARK: - Pushes come

    package func announceArrivals(to signal: AsyncStream<Void>.Continuation) { signals.add(signal) }

    /// Tells everyone who waits for pushes that there may be some.
    func signal() { signals.send() }

    /// Rows of a commit of ours, in the order of their numbers. On the writer's thread, right after the commit.
    func inserted(_ rows: [InsertedPushes]) {
        guard !rows.isEmpty else { return }
        index.withLock { index in
            for rows in rows {
                index.inserted(rows, at: .now)
            }
        }
        signal()
    }

    /// Rows were inserted that wait for their time.
    func insertedWaiting(_ range: ClosedRange<Int64>, until time: Timestamp, apps: [AppName]) {
        index.withLock { index in
            index.reaches(range.upperBound)
            for app in apps { index.waits(until: time, app: app) }
        }
        signal()
    }

    // MARK: - The table's other writers

    /// Looks at rows that other programs may have inserted, and at those of before the start.
    /// - Parameter limit: looks.
    /// - Returns: whether something due was found.
    @discardableResult
    func scan(limit: Int = .max) async throws(ChatError) -> Bool {
        let highest = try await database.scan { db in try Self.highest(db) }
        index.withLock { index in
            if let highest { index.reaches(highest) }
            index.mustLookForWaiting(nil)
        }
        var (found, looks) = (false, 0)
        while looks < limit, let range = index.withLock({ $0.unscanned.ranges.first }) {
            looks += 1
            let end = try await look(range)
            index.withLock { $0.scanned(range.lowerBound...end.upTo) }
            found = found || end.found
        }
        return found
    }

    static let scanSQL = """
        SELECT message_id, app, unanswered, refused, bulk FROM push_queue
        WHERE message_id BETWEEN ? AND ? AND state = 'pending' AND not_before IS NULL ORDER BY message_id
        """

    /// Takes up the due rows of the first ``scanStep`` of a range.
    private func look(_ range: ClosedRange<Int64>) async throws(ChatError) -> (upTo: Int64, found: Bool) {
        let app = settings().defaultApp
        let (due, strays, upTo) = try await database.scan { db in
            let boundary = try Int64.fetchOne(
                db.cachedStatement(
                    sql: """
                        SELECT message_id FROM push_queue WHERE message_id BETWEEN ? AND ?
                        ORDER BY message_id LIMIT 1 OFFSET ?
                        """), arguments: [range.lowerBound, range.upperBound, Self.scanStep - 1])
            let upTo = boundary ?? range.upperBound
            var due = RunCollector()
            var strays: [Int64] = []
            var (name, text) = (AppName(""), "")
            let rows = try RawStatement(db, Self.scanSQL, range.lowerBound, upTo)
            while try rows.step() {
                let history = PushHistory(unanswered: rows.count(2), refused: rows.count(3))
                if rows.text(1) != text {
                    text = rows.text(1) ?? ""
                    name = AppName(text)
                }
                let isStray = app != .default && name == .default
                if isStray { strays.append(rows.int(0)) }
                due.add(rows.int(0), PushLane(history, isBulk: rows.bool(4)), isStray ? app : name)
            }
            return (due.runs, strays, upTo)
        }
        if !strays.isEmpty { try await adopt(strays, app) }
        index.withLock { index in
            for run in due { index.found(run.range, count: run.range.count, lane: run.lane, app: run.app) }
        }
        return (upTo, !due.isEmpty)
    }

    /// Gives rows of the app named `default`, which is what an insert that names no app gets, to the default app of a
    /// configuration that calls it otherwise.
    private func adopt(_ entries: [Int64], _ app: AppName) async throws(ChatError) {
        let list = JSONValue.array(entries.map { .number($0) }).description
        try await database.writer.perform(.upkeep) { db in
            try db.cachedStatement(
                sql: """
                    UPDATE push_queue SET app = ? WHERE app = 'default' AND state = 'pending'
                        AND message_id IN (SELECT value FROM json_each(?))
                    """
            ).execute(arguments: [app.text, list])
        }
    }

    /// The same for those that wait for their time.
    func adoptWaiting() async throws(ChatError) {
        let app = settings().defaultApp
        guard app != .default else { return }
        var count = Self.adoptionStep
        while count == Self.adoptionStep {
            count = try await database.writer.perform(.upkeep) { db in
                try db.cachedStatement(
                    sql: """
                        UPDATE push_queue SET app = ? WHERE message_id IN (
                            SELECT message_id FROM push_queue
                            WHERE app = 'default' AND state = 'pending' AND not_before IS NOT NULL LIMIT ?)
                        """
                ).execute(arguments: [app.text, Self.adoptionStep])
                return db.changesCount
            }
        }
    }

    /// Looks for rows below all that was looked at, which another program made pending again, or inserted with a number of
    /// its own choice: so many rows at a time.
    /// - Parameter position: from which number on; nil at the end.
    func sweep(from position: Int64) async throws(ChatError) -> (next: Int64?, found: Bool) {
        let end = index.withLock { $0.highest }
        guard position <= end else { return (nil, false) }
        let look = try await look(position...end)
        return (look.upTo < end ? look.upTo + 1 : nil, look.found)
    }

    /// The relay's own rows follow a number that leaves no room.
    var mustRepairNumbers: Bool { index.withLock { $0.hasStrayNumbers } }

    /// Rows that one transaction gives another number.
    private static let renumberedStep = 1000

    /// Puts right rows with numbers that leave little room for the next: those above get new ones, those below fail. What is
    /// with a gateway keeps its number until it has come back.
    func repairNumbers() async throws(ChatError) {
        let (low, high) = (QueueIndex.ids.lowerBound, QueueIndex.highestKept)
        var total = 0
        var count = Self.renumberedStep
        while count == Self.renumberedStep {
            let isNeeded = try await database.read { db in
                try Bool.fetchOne(
                    db.cachedStatement(
                        sql: """
                            SELECT EXISTS (SELECT 1 FROM push_queue WHERE message_id > ?1)
                                OR EXISTS (SELECT 1 FROM push_queue WHERE message_id < ?2 AND state = 'pending')
                            """), arguments: [high, low]) ?? false
            }
            guard isNeeded else { break }
            count = try await database.writer.perform(.upkeep) { [self] db in
                try failLowNumbers(low, db)
                return try renumber(above: high, db)
            }
            total += count
        }
        index.withLock { $0.hasStrayNumbers = false }
        guard total > 0 else { return }
        database.logger.warning(
            "pushes had a message_id that leaves no room for the next, and have been given another",
            metadata: ["renumbered": "\(total)"])
    }

    private func failLowNumbers(_ low: Int64, _ db: Database) throws {
        try db.execute(
            sql: """
                UPDATE push_queue SET state = 'failed', reason = 'InvalidMessageID', time_settled = ?
                WHERE message_id < ? AND state = 'pending'
                """, arguments: [database.clock().sqlText, low])
    }

    private func renumber(above high: Int64, _ db: Database) throws -> Int {
        let held = IDRanges(inFlight(in: high...Int64.max - 1))
        let rows = try Int64.fetchAll(
            db, sql: "SELECT message_id FROM push_queue WHERE message_id > ? ORDER BY message_id LIMIT ?",
            arguments: [high, Self.renumberedStep]
        ).filter { !held.contains($0) }
        guard !rows.isEmpty else { return 0 }
        let first = max(try Self.highest(db) ?? 0, 0) + 1
        for (row, number) in zip(rows, first...) {
            // A notification's pushes lie between its first and its last.
            try db.cachedStatement(
                sql: """
                    UPDATE notifications SET first_push = min(first_push, ?1)
                    WHERE notification_id = (SELECT notification FROM push_queue WHERE message_id = ?2)
                    """
            ).execute(arguments: [number, row])
            try db.cachedStatement(sql: "UPDATE push_queue SET message_id = ? WHERE message_id = ?")
                .execute(arguments: [number, row])
        }
        let last = first - 1 + Int64(rows.count)
        try db.execute(
            sql: "UPDATE sqlite_sequence SET seq = ? WHERE name = 'push_queue' AND seq > ?", arguments: [last, high])
        try db.execute(
            sql: "UPDATE queue_state SET settled_to = min(settled_to, ?)", arguments: [first - 1])
        // What this transaction has not brought to the disk is found by the next start's sweep.
        settledTo.value.store(min(settledTo.value.load(ordering: .relaxed), first - 1), ordering: .relaxed)
        index.withLock { $0.renumbered(from: first, to: last) }
        return rows.count
    }

    // MARK: - Figures

    /// What of a range is with a gateway, in order.
    func inFlight(in range: ClosedRange<Int64>) -> [ClosedRange<Int64>] { index.withLock { $0.inFlight(in: range) } }

    /// Apps with due pushes.
    var dueApps: Set<AppName> { index.withLock { index in Set(index.apps.filter { index.dueCount($0) > 0 }) } }

    static let delayedSQL = """
        SELECT count(*) FROM push_queue WHERE app = ? AND state = 'pending' AND not_before IS NOT NULL
        """
    static let nextAppSQL = """
        SELECT min(app) FROM push_queue WHERE state = 'pending' AND not_before IS NOT NULL AND app > ?
        """

    /// Due pushes of an app up to which they are counted in the rows: what is known of them in memory may be too many,
    /// after another program has changed some.
    private static let countedRows = 5000
    static let dueSQL = """
        SELECT count(*) FROM push_queue
        WHERE message_id BETWEEN ? AND ? AND app = ? AND state = 'pending' AND (not_before IS NULL OR not_before <= ?)
        """

    func depths() async throws(ChatError) -> [QueueDepth] {
        let parts = index.withLock { index in
            index.apps.map { app in
                (
                    depth: QueueDepth(app: app, due: index.dueCount(app), written: index.inFlightCount(app)),
                    runs: index.runs(app)
                )
            }
        }
        let now = database.clock().milliseconds
        return try await database.read { db in
            var depths = Dictionary(uniqueKeysWithValues: parts.map { ($0.depth.app, $0.depth) })
            for (depth, lanes) in parts {
                let first = lanes.compactMap(\.first)
                depths[depth.app]?.oldest = try first.compactMap { try Self.oldest(in: $0, depth.app, db) }.min()
                let width = lanes.joined().reduce(0) { $0 + $1.count }
                guard width <= 10 * Self.countedRows else { continue }
                depths[depth.app]?.due = try lanes.joined().reduce(0) { sum, run in
                    try sum
                        + (Int.fetchOne(
                            db.cachedStatement(sql: Self.dueSQL),
                            arguments: [run.lowerBound, run.upperBound, depth.app.text, now]) ?? 0)
                }
            }
            var last = ""
            while let app = try String.fetchOne(db.cachedStatement(sql: Self.nextAppSQL), arguments: [last]) {
                last = app
                let delayed =
                    try Int.fetchOne(
                        db.cachedStatement(sql: Self.delayedSQL + " AND not_before > ?"), arguments: [app, now]) ?? 0
                depths[AppName(app), default: QueueDepth(app: AppName(app))].delayed = delayed
            }
            return depths.values.filter { $0.due + $0.delayed + $0.written > 0 }.sorted { $0.app < $1.app }
        }
    }

    private static func oldest(in range: ClosedRange<Int64>, _ app: AppName, _ db: Database) throws -> Timestamp? {
        try String.fetchOne(
            db.cachedStatement(
                sql: """
                    SELECT time_queued FROM push_queue
                    WHERE message_id BETWEEN ? AND ? AND app = ? AND state = 'pending' ORDER BY message_id LIMIT 1
                    """), arguments: [range.lowerBound, range.upperBound, app.text]
        ).flatMap(Timestamp.init(sqlText:))
    }
}

/// A number that the writer's thread and others share.
private final class Mark: Sendable {
    let value: Atomic<Int64>

    init(_ value: Int64) {
        self.value = Atomic(value)
    }
}

/// Rows that a commit of ours inserted, with consecutive numbers.
struct InsertedPushes: Sendable {
    var range: ClosedRange<Int64>
    /// How many of them are the app's; nil: all.
    var count: Int?
    let lane: PushLane
    let app: AppName
    /// Their content, all of them or none.
    var pushes: [QueuedPush] = []
}

/// Those who wait for pushes.
final class Signals: Sendable {
    private struct State {
        var continuations: [Int: AsyncStream<Void>.Continuation] = [:]
        var next = 0
    }

    private let state = Mutex(State())

    func add(_ continuation: AsyncStream<Void>.Continuation) {
        let number = state.withLock { state in
            state.next += 1
            state.continuations[state.next] = continuation
            return state.next
        }
        continuation.onTermination = { [weak self] _ in
            self?.state.withLock { $0.continuations[number] = nil }
        }
    }

    func send() {
        for continuation in state.withLock({ Array($0.continuations.values) }) { continuation.yield() }
    }
}
