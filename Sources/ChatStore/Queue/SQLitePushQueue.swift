package import ChatDomain
import ChatSQL
import GRDB
import Synchronization

/// The durable queue in the table `push_queue`.
///
/// Leases are kept in memory, because only one relay serves the file (``DatabaseLock``). The queue reads pushes in
/// parallel with the writer, and writes only their outcomes. `queue_state.settled_to` records where the next process
/// has to start its scan.
package final class SQLitePushQueue: PushQueue {
    private let database: SQLiteDatabase
    private let outcomes: OutcomeCounter
    private let memory: QueueMemory
    private let settings: @Sendable () -> StoreSettings
    let ids: APNSIDs
    /// Devices that were found for other programs' pushes, by push id. They are recorded with the next outcomes.
    private let recognized = Mutex<[Int64: Int64]>([:])
    /// The number of such devices to record in one transaction.
    private static let recognizedStep = 1000
    /// The number of reads in one lease that may end after a withdrawal. It bounds the wait of a dispatcher while many
    /// messages are deleted.
    private static let staleReads = 8
    private let signals = Signals()

    init(
        database: SQLiteDatabase, outcomes: OutcomeCounter, memory: QueueMemory, ids: APNSIDs,
        settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.outcomes = outcomes
        self.memory = memory
        self.settings = settings
        self.ids = ids
    }

    // MARK: - Leases

    package func lease(app: AppName, lanes: [PushLane], limit: Int) async throws(ChatError) -> LeasedPushes {
        guard !isPaused(app) else { return LeasedPushes([]) }
        try await lookForWaiting(app)
        let showsUnread = settings().format(app).showsUnread
        var pushes: [QueuedPush] = []
        var staleReads = 0
        for lane in lanes {
            while pushes.count < limit, staleReads < Self.staleReads,
                let claim = memory.index.withLock({ $0.claim(app, lane, limit: limit - pushes.count, at: .now) })
            {
                if claim.runs.isEmpty {
                    pushes += claim.pushes
                } else if let read = try await read(
                    claim, limit: limit - pushes.count, after: pushes, findsReaders: showsUnread)
                {
                    pushes += read
                } else {
                    staleReads += 1
                }
            }
        }
        if staleReads == Self.staleReads { signal([app]) }
        // While a read ran, pushes with lower ids may have become due, and a later claim got them. An operator's retry may
        // have changed the lane of a row.
        func isEarlier(_ left: QueuedPush, _ right: QueuedPush) -> Bool {
            (place(left.lane, lanes), left.id) < (place(right.lane, lanes), right.id)
        }
        #if PLANTED_FAULTS
        if !PlantedFault.unorderedLease.isPlanted { pushes.sort(by: isEarlier) }
        #else
        pushes.sort(by: isEarlier)
        #endif
        if showsUnread { await countUnread(&pushes, of: app) }
        return LeasedPushes(pushes, lanes: memory.index.withLock { $0.lanes(app) })
    }

    private func place(_ lane: PushLane, _ lanes: [PushLane]) -> Int { lanes.firstIndex(of: lane) ?? lanes.count }

    static let unreadSQL = UnreadCount.sql(ofDevice: "?1", app: "?2")

    /// Adds the number of messages that each device has not fetched to the chat's pushes. Needs a query of its own,
    /// because the newest pushes are leased without reading the database. A phone has one member at a time. If the
    /// member has fetched nothing, there is nothing to query, so an app that never fetches costs no time.
    private func countUnread(_ pushes: inout [QueuedPush], of app: AppName) async {
        func counts(_ push: QueuedPush) -> Bool { push.message != nil && (push.isOfReader || app == .web) }
        let addresses = Set(pushes.lazy.filter(counts).compactMap(\.address))
        guard !addresses.isEmpty else { return }
        // If the number cannot be read, the pushes go out without it.
        let numbers = try? await database.scan { db in
            var numbers: [Address: Int64] = [:]
            for address in addresses {
                let row = try RawStatement(db, Self.unreadSQL, address.description, app.text)
                if try row.step() { numbers[address] = UnreadCount.shown(row.optionalInt(0)) }
            }
            return numbers
        }
        guard let numbers else { return }
        for index in pushes.indices where counts(pushes[index]) {
            pushes[index].unread = pushes[index].address.flatMap { numbers[$0] }
        }
    }

    /// - Parameters:
    ///   - earlier: Pushes that are leased already. They are released if the read fails.
    ///   - findsReaders: Whether to find out which chat pushes are for members who have fetched messages.
    /// - Returns: `nil` if a commit withdrew content during the read. The claim's runs are then in their lane again.
    private func read(
        _ claim: QueueIndex.Claim, limit: Int, after earlier: [QueuedPush], findsReaders: Bool
    ) async throws(ChatError) -> [QueuedPush]? {
        let now = database.now()
        do throws(ChatError) {
            let (read, found) = try await database.scan { [ids] db in
                var reader = QueueReader(app: claim.app, now: now, ids: ids, findsReaders: findsReaders)
                var read: [(pushes: [QueuedPush], upTo: Int64?)] = []
                var count = 0
                for (run, excluded) in zip(claim.runs, claim.excluded) where count < limit {
                    let (pushes, hasMore) = try reader.rows(
                        in: run.range, excluding: excluded, limit: limit - count, db)
                    let taken = pushes.prefix(limit - count)
                    count += taken.count
                    let isPart = hasMore || taken.count < pushes.count
                    read.append((Array(taken), isPart ? taken.last?.id ?? run.range.lowerBound - 1 : nil))
                }
                return (read, reader.recognized)
            }
            guard memory.index.withLock({ $0.finish(claim, read) }) else { return nil }
            if !found.isEmpty {
                recognized.withLock { recognized in for row in found { recognized[row.id] = row.device } }
            }
            return read.flatMap(\.pushes)
        } catch {
            #if PLANTED_FAULTS
            if PlantedFault.claimLost.isPlanted { throw error }
            #endif
            memory.index.withLock { index in
                index.finish(claim, [])
                for push in earlier { index.release(push.id...push.id, to: push.lane, app: claim.app) }
            }
            throw error
        }
    }

    package func release(_ pushIDs: [ClosedRange<Int64>], lane: PushLane, app: AppName) {
        guard !pushIDs.isEmpty else { return }
        memory.index.withLock { index in
            for range in pushIDs { index.release(range, to: lane, app: app) }
        }
        signal([app])
    }

    // MARK: - Pushes that wait for a time

    package func nextDue(app: AppName) async throws(ChatError) -> Timestamp? {
        // Resuming the app signals.
        guard !isPaused(app) else { return nil }
        return try await lookForWaiting(app) ? database.now() : memory.index.withLock { $0.nextWaiting(app) }
    }

    /// The number of runs of due pushes that one query takes up, in a few milliseconds.
    private static let waitingStep = 2000
    static let waitingSQL = """
        SELECT \(RunCollector.columns), not_before FROM push_queue
        WHERE app = ? AND (attempts > 0) = ? AND state = 'pending' AND not_before IS NOT NULL
            AND not_before BETWEEN ? AND ?
        ORDER BY not_before
        """
    static let nextWaitingSQL = """
        SELECT min(not_before) FROM push_queue
        WHERE app = ? AND (attempts > 0) = ? AND state = 'pending' AND not_before IS NOT NULL AND not_before > ?
        """

    /// Takes up the pushes whose time has come, retries that wait longer than any retry can, and pushes with a time in
    /// the wrong unit, which fail.
    /// - Returns: Whether there were any.
    @discardableResult
    private func lookForWaiting(_ app: AppName) async throws(ChatError) -> Bool {
        let now = database.now()
        guard let from = memory.index.withLock({ $0.beginScanOfWaiting(app, at: now) }) else { return false }
        let beyond = now + PushLifeCycle.longestWait
        do throws(ChatError) {
            var count = try await takeUp(app, isRepeat: false, from: from, upTo: now.milliseconds)
            count += try await takeUp(app, isRepeat: true, from: from, upTo: now.milliseconds)
            count += try await takeUp(app, isRepeat: true, from: beyond.milliseconds + 1, upTo: .max)
            count += try await takeUp(app, isRepeat: false, from: PushLifeCycle.latestNotBefore + 1, upTo: .max)
            let next = try await database.scan { db in
                try [0, 1].compactMap { isRepeat -> Int64? in
                    try db.value(Self.nextWaitingSQL, [app.text, isRepeat, now.milliseconds])
                }.min()
            }
            // Bounded by the longest wait of a retry: a later time means that the clock was set back.
            if let next {
                memory.index.withLock { $0.waits(until: min(Timestamp(milliseconds: next), beyond), app: app) }
            }
            return count > 0
        } catch {
            memory.index.withLock { $0.requestScanOfWaiting(atAll: true) }
            throw error
        }
    }

    /// - Returns: The number of runs of pushes that were taken up.
    private func takeUp(
        _ app: AppName, isRepeat: Bool, from: Int64, upTo: Int64
    ) async throws(ChatError) -> Int {
        var (count, from) = (0, Optional(from))
        while let start = from {
            let (runs, next) = try await database.scan { db -> ([DuePushes], Int64?) in
                var due = RunCollector()
                let rows = try RawStatement(db, Self.waitingSQL, app.text, Int64(isRepeat ? 1 : 0), start, upTo)
                while try rows.step() {
                    // End the query where the time changes: pushes with the same time are mostly neighbours, and form
                    // few runs.
                    if due.runs.count >= Self.waitingStep, rows.int(4) > start { return (due.runs, rows.int(4)) }
                    due.add(rows, app)
                }
                return (due.runs, nil)
            }
            memory.index.withLock { index in for run in runs { index.found(run) } }
            count += runs.count
            from = next
        }
        return count
    }

    // MARK: - Pauses

    private func isPaused(_ app: AppName) -> Bool { memory.paused.withLock { $0.contains(app) } }

    /// Reads which apps are paused. Runs on the writer's thread, so that the last call reads the last change.
    func readPauses() async throws(ChatError) {
        _ = try await database.writer.perform(.upkeep) { db in
            Set(try SQLiteTransaction(db).queuePauses().map(\.app))
        } committed: { [self] paused in
            let resumed = memory.paused.withLock { known in
                defer { known = paused }
                return known.subtracting(paused)
            }
            if !resumed.isEmpty { signal(resumed) }
        }
    }

    // MARK: - Outcomes

    package func settle(_ settlements: [Settlement], app: AppName) async throws(ChatError) -> [SettledPushes] {
        guard !settlements.isEmpty else { return [] }
        let noted = recognized.withLock { recognized in
            let noted = recognized.prefix(Self.recognizedStep).map { (id: $0.key, device: $0.value) }
            for row in noted { recognized[row.id] = nil }
            return noted
        }
        // Read before the pushes are settled, so it may be lower than necessary. The next settlement advances it.
        let mark = memory.index.withLock { $0.settledTo }
        do throws(ChatError) {
            let (settled, ended) = try await database.writer.perform(.upkeep) { [self] db in
                var writer = SettlementWriter(app: app, now: database.now(), db)
                let settled = try settlements.map { try writer.write($0) }
                try writer.finish(recognized: noted)
                if mark > memory.settledTo.load(ordering: .relaxed) {
                    try RawStatement(db, "UPDATE queue_state SET settled_to = ? WHERE settled_to < ?", mark, mark).run()
                }
                return (settled, writer.ended)
            } committed: { [memory] _, _ in
                if mark > memory.settledTo.load(ordering: .relaxed) {
                    memory.settledTo.store(mark, ordering: .relaxed)
                }
            }
            outcomes.add(ended)
            release(settlements, app)
            return settled
        } catch {
            recognized.withLock { recognized in
                for row in noted where recognized[row.id] == nil { recognized[row.id] = row.device }
            }
            throw error
        }
    }

    private func release(_ settlements: [Settlement], _ app: AppName) {
        let mustSignal = memory.index.withLock { index in
            var mustSignal = false
            for settlement in settlements {
                var lane: PushLane?
                switch settlement.transition.result {
                case .due(let next, _):
                    lane = next
                    mustSignal = true
                case .waiting(let time, _, _):
                    index.waits(until: time, app: app)
                    mustSignal = true
                case .sent, .failed, .expired, .cancelled: break
                }
                index.release(settlement.pushIDs, to: lane, app: app)
            }
            return mustSignal
        }
        if mustSignal { signal([app]) }
    }

    // MARK: - Inserts

    package func announceArrivals(of app: AppName, to signal: AsyncStream<Void>.Continuation) {
        signals.add(signal, of: app)
    }

    /// Signals that there may be pushes of the apps, or of any app if `apps` is `nil`.
    func signal(_ apps: Set<AppName>? = nil) { signals.send(apps) }

    /// Adds pushes that the relay has committed, in the order of their ids. Called on the writer's thread, right after
    /// the commit.
    ///
    /// Only posts without a key pass content: until their response, no caller knows the message's id. Other work of the
    /// same transaction may withdraw the content of any other message, and ``forgetContent()`` may run before this call.
    func inserted(_ rows: [DuePushes]) {
        guard !rows.isEmpty else { return }
        memory.index.withLock { index in
            for rows in rows { index.inserted(rows, at: .now) }
        }
        signal(Set(rows.map(\.app)))
    }

    /// Adds pushes about changes of messages, without their content.
    func inserted(_ updates: QueuedUpdates) {
        if let time = updates.notBefore {
            return insertedWaiting(updates.range, until: time, apps: Array(updates.counts.keys))
        }
        // Pushes of several apps are interleaved, so each app gets the same range.
        inserted(
            updates.counts.map { app, count in
                DuePushes(range: updates.range, count: count, lane: updates.isBulk ? .bulk : .normal, app: app)
            })
    }

    /// Adds pushes that wait for a time.
    func insertedWaiting(_ range: ClosedRange<Int64>, until time: Timestamp, apps: [AppName]) {
        memory.index.withLock { index in
            index.reaches(range.upperBound)
            for app in apps { index.waits(until: time, app: app) }
        }
        signal(Set(apps))
    }

    /// Takes up pushes of apps that an operator has made due at a time.
    func madeDue(at time: Timestamp, apps: [AppName]) {
        memory.index.withLock { index in
            for app in apps { index.waits(until: time, app: app) }
            // The commit may have taken longer than the index expects.
            if database.now() - .seconds(1) > time { index.requestScanOfWaiting(atAll: true) }
        }
        signal(Set(apps))
    }

    /// Discards cached content and reads that are under way, after a commit that withdrew pushes and before its response.
    /// No lease that ends later has their content.
    func forgetContent() {
        #if PLANTED_FAULTS
        if PlantedFault.contentKept.isPlanted { return }
        #endif
        memory.index.withLock { $0.forgetContent() }
    }

    /// The push ids of a range that are leased, in order.
    func inFlight(in range: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        memory.index.withLock { $0.inFlight(in: range) }
    }
}

/// The memory that the queue, its repair and its metrics share.
final class QueueMemory: Sendable {
    let index: Mutex<QueueIndex>
    /// The value of `queue_state.settled_to`. Only the writer changes it.
    let settledTo: Atomic<Int64>
    /// The highest push id when the process began. An earlier process may have sent pushes up to it.
    let highestAtStart: Int64
    /// The apps that an operator has paused.
    let paused: Mutex<Set<AppName>>

    init(_ db: Database) throws {
        paused = Mutex(Set(try SQLiteTransaction(db).queuePauses().map(\.app)))
        #if PLANTED_FAULTS
        if PlantedFault.pauseForgotten.isPlanted { paused.withLock { $0 = [] } }
        #endif
        let stored: Int64? = try db.value("SELECT settled_to FROM queue_state")
        let ids = QueueIndex.ids
        let settledTo = min(max(stored ?? ids.lowerBound, ids.lowerBound), ids.upperBound)
        self.settledTo = Atomic(settledTo)
        highestAtStart = try Self.highestNumber(db) ?? settledTo
        index = Mutex(QueueIndex(settledTo: settledTo, highest: highestAtStart))
    }

    /// The highest push id, not counting those above ``QueueIndex/highestKept``.
    static func highestNumber(_ db: Database) throws -> Int64? {
        try db.value("SELECT max(message_id) FROM push_queue WHERE message_id <= ?", [QueueIndex.highestKept])
    }
}
