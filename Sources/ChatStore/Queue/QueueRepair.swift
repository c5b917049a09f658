import ChatDomain
import GRDB
import Logging

/// Finds pushes that other programs inserted, and repairs invalid ones. Also finds the unsettled pushes of an earlier
/// process.
struct QueueRepair: Sendable {
    /// The number of rows to read in one scan step, a few milliseconds.
    private static let scanStep = 20_000
    /// The number of rows to change in one transaction.
    private static let changeStep = 1000

    let database: SQLiteDatabase
    let memory: QueueMemory
    let settings: @Sendable () -> StoreSettings

    /// Apps with due pushes.
    var dueApps: Set<AppName> {
        memory.index.withLock { index in Set(index.apps.filter { index.dueCount($0) > 0 }) }
    }

    /// Whether the highest push id is so close to the end of the range that the relay's own pushes get invalid ids.
    var mustRepairNumbers: Bool { memory.index.withLock { $0.hasNumbersOutOfRange } }

    /// Scans for changes that other programs made since the last call, and for pushes of an earlier process.
    /// - Parameter looks: The maximum number of steps of ``scanStep`` rows.
    func notice(looks: Int = .max) async throws(ChatError) {
        try await repairNumbers()
        try await assignAppToWaiting()
        try await scan(looks: looks)
    }

    // MARK: - Due pushes

    /// Scans rows that other programs may have inserted, and rows of an earlier process.
    func scan(looks: Int = .max) async throws(ChatError) {
        let highest = try await database.scan { db in try QueueMemory.highestNumber(db) }
        memory.index.withLock { index in
            if let highest { index.reaches(highest) }
            index.requestScanOfWaiting()
        }
        for _ in 0..<looks {
            guard let range = memory.index.withLock({ $0.unscanned.ranges.first }) else { return }
            let end = try await look(range)
            memory.index.withLock { $0.scanned(range.lowerBound...end.upTo) }
        }
    }

    /// Scans all rows from the beginning, a limited number per call. Finds pushes that another program made pending
    /// again, or inserted with an id of its own choice. The first call also makes the next scan of waiting pushes
    /// include all of them.
    /// - Parameter position: The push id to start with.
    /// - Returns: The push id for the next call, and whether due pushes were found. `next` is `nil` at the end.
    func sweep(from position: Int64) async throws(ChatError) -> (next: Int64?, found: Bool) {
        let end = memory.index.withLock { index in
            if position == QueueIndex.ids.lowerBound { index.requestScanOfWaiting(atAll: true) }
            return index.highest
        }
        guard position <= end else { return (nil, false) }
        let look = try await look(position...end)
        return (look.upTo < end ? look.upTo + 1 : nil, look.found)
    }

    static let scanSQL = """
        SELECT \(RunCollector.columns), app FROM push_queue
        WHERE message_id BETWEEN ? AND ? AND state = 'pending' AND not_before IS NULL ORDER BY message_id
        """

    /// Takes up the due pushes among the first ``scanStep`` rows of a range.
    private func look(_ range: ClosedRange<Int64>) async throws(ChatError) -> (upTo: Int64, found: Bool) {
        let app = settings().defaultApp
        let (due, rowsWithoutApp, upTo) = try await database.scan { db in
            let boundary: Int64? = try db.value(
                "SELECT message_id FROM push_queue WHERE message_id BETWEEN ? AND ? ORDER BY message_id LIMIT 1 OFFSET ?",
                [range.lowerBound, range.upperBound, Self.scanStep - 1])
            let upTo = boundary ?? range.upperBound
            var due = RunCollector()
            var rowsWithoutApp: [Int64] = []
            var name = AppName("")
            let rows = try RawStatement(db, Self.scanSQL, range.lowerBound, upTo)
            while try rows.step() {
                let text = rows.text(4) ?? ""
                if text != name.text { name = AppName(text) }
                let isStray = app != .default && name == .default
                if isStray { rowsWithoutApp.append(rows.int(0)) }
                due.add(rows, isStray ? app : name)
            }
            return (due.runs, rowsWithoutApp, upTo)
        }
        if !rowsWithoutApp.isEmpty { try await assignApp(rowsWithoutApp, app) }
        memory.index.withLock { index in for run in due { index.found(run) } }
        return (upTo, !due.isEmpty)
    }

    // MARK: - Pushes without an app

    /// Assigns pushes to the configured default app, if it has another name than `default`. An insert that names no app
    /// gets the app `default`.
    private func assignApp(_ pushIDs: [Int64], _ app: AppName) async throws(ChatError) {
        let list = JSONValue.array(pushIDs.map { .number($0) }).description
        try await database.writer.perform(.upkeep) { db in
            _ = try db.run(
                """
                UPDATE OR IGNORE push_queue SET app = ? WHERE app = 'default' AND state = 'pending'
                    AND message_id IN (SELECT value FROM json_each(?))
                """, [app.text, list])
        }
    }

    /// Does the same for pushes that wait for a time.
    private func assignAppToWaiting() async throws(ChatError) {
        let app = settings().defaultApp
        guard app != .default else { return }
        try await inSteps { db in
            try db.run(
                """
                UPDATE OR IGNORE push_queue SET app = ? WHERE message_id IN (
                    SELECT message_id FROM push_queue
                    WHERE app = 'default' AND state = 'pending' AND not_before IS NOT NULL LIMIT ?)
                """, [app.text, Self.changeStep])
        }
    }

    /// - Parameter change: Changes at most ``changeStep`` rows and returns their number.
    /// - Returns: The number of rows that were changed.
    @discardableResult
    private func inSteps(_ change: @escaping @Sendable (Database) throws -> Int) async throws(ChatError) -> Int {
        var total = 0
        while true {
            let count = try await database.writer.perform(.upkeep, change)
            total += count
            if count < Self.changeStep { return total }
        }
    }

    // MARK: - Push ids out of range

    /// Repairs push ids that leave little room for the next id: those above the range get new ids, and those below it
    /// fail. Leased pushes keep their ids until they are released.
    private func repairNumbers() async throws(ChatError) {
        let isNeeded = try await database.read { db in
            try db.value(
                """
                SELECT EXISTS (SELECT 1 FROM push_queue WHERE message_id > ?1)
                    OR EXISTS (SELECT 1 FROM push_queue WHERE message_id < ?2 AND state = 'pending')
                    OR EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'push_queue' AND seq > ?1)
                """, [QueueIndex.highestKept, QueueIndex.ids.lowerBound]) ?? false
        }
        let total = isNeeded ? try await inSteps(repairSomeNumbers) : 0
        memory.index.withLock { $0.hasNumbersOutOfRange = false }
        guard total > 0 else { return }
        database.logger.warning(
            "pushes had a message_id too close to the highest possible one, and got new ones",
            metadata: ["renumbered": "\(total)"])
    }

    /// - Returns: The number of pushes that have new ids.
    private func repairSomeNumbers(_ db: Database) throws -> Int {
        try db.run(
            """
            UPDATE push_queue SET state = 'failed', reason = 'InvalidMessageID', time_settled = ?
            WHERE message_id < ? AND state = 'pending'
            """, [database.now().sqlText, QueueIndex.ids.lowerBound])
        let high = QueueIndex.highestKept
        let held = IDRanges(memory.index.withLock { $0.inFlight(in: high...Int64.max - 1) })
        let found: [Int64] = try db.values(
            "SELECT message_id FROM push_queue WHERE message_id > ? ORDER BY message_id LIMIT ?",
            [high, Self.changeStep])
        let rows = found.filter { !held.contains($0) }
        // Ids are never reused, not even those of deleted pushes.
        let known = memory.index.withLock { $0.highest }
        let first = max(try QueueMemory.highestNumber(db) ?? 0, known <= high ? known : 0, 0) + 1
        for (row, number) in zip(rows, first...) {
            // All pushes of a notification lie between its first and its last one.
            try db.run(
                """
                UPDATE notifications SET first_push = min(first_push, ?1)
                WHERE notification_id = (SELECT notification FROM push_queue WHERE message_id = ?2)
                """, [number, row])
            try db.run("UPDATE push_queue SET message_id = ? WHERE message_id = ?", [number, row])
        }
        let last = first - 1 + Int64(rows.count)
        // The sequence would stay too high, even after the row that raised it is deleted.
        try db.run("UPDATE sqlite_sequence SET seq = ? WHERE name = 'push_queue' AND seq > ?", [last, high])
        // A record that was made with such an id would cancel all later pushes.
        if found.count < Self.changeStep {
            try db.run("UPDATE moderation SET last_push = ? WHERE last_push > ?", [last, high])
        }
        guard !rows.isEmpty else { return 0 }
        try db.run("UPDATE queue_state SET settled_to = min(settled_to, ?)", [first - 1])
        // If a power cut undoes this transaction, the sweep after the next start finds these pushes.
        memory.settledTo.store(min(memory.settledTo.load(ordering: .relaxed), first - 1), ordering: .relaxed)
        memory.index.withLock { $0.renumbered(from: first, to: last) }
        return rows.count
    }
}
