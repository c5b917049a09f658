import ChatDomain
import GRDB
import Logging

/// Finds rows that other programs wrote, and repairs invalid ones. Also finds what an earlier process left.
struct QueueRepair: Sendable {
    /// Rows that one look at the table goes through: some milliseconds.
    private static let scanStep = 20_000
    /// Rows that one transaction changes.
    private static let changeStep = 1000

    let database: SQLiteDatabase
    let memory: QueueMemory
    let settings: @Sendable () -> StoreSettings

    /// Apps with due pushes.
    var dueApps: Set<AppName> {
        memory.index.withLock { index in Set(index.apps.filter { index.dueCount($0) > 0 }) }
    }

    /// The highest number is so close to the end of the range that the relay's own rows have none.
    var mustRepairNumbers: Bool { memory.index.withLock { $0.hasNumbersOutOfRange } }

    /// Looks at what other programs may have changed since the last call, and at what an earlier process left.
    /// - Parameter looks: how many of ``scanStep`` rows.
    func notice(looks: Int = .max) async throws(ChatError) {
        try await repairNumbers()
        try await assignAppToWaiting()
        try await scan(looks: looks)
    }

    // MARK: - Rows that are due

    /// Looks at rows that other programs may have inserted, and at those that an earlier process left.
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

    /// Looks for rows below all that was looked at, which another program made pending again, or inserted with a number of
    /// its own choice: so many rows at a time. Beginning with the first it also makes the next look at all that wait.
    /// - Parameter position: from which number on; nil at the end.
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

    /// Takes up the due rows of the first ``scanStep`` of a range.
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

    // MARK: - Rows that name no app

    /// Gives rows of the app named `default`, which is what an insert that names no app gets, to the default app of a
    /// configuration that calls it otherwise.
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

    /// The same for those that wait for their time.
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

    /// - Parameter change: changes at most ``changeStep`` rows, and says how many.
    /// - Returns: how many were changed.
    @discardableResult
    private func inSteps(_ change: @escaping @Sendable (Database) throws -> Int) async throws(ChatError) -> Int {
        var total = 0
        while true {
            let count = try await database.writer.perform(.upkeep, change)
            total += count
            if count < Self.changeStep { return total }
        }
    }

    // MARK: - Rows with bad numbers

    /// Puts right rows with numbers that leave little room for the next: those above get new ones, those below fail. What is
    /// with a gateway keeps its number until it has come back.
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
            "pushes had a message_id too close to the highest possible one, and were given another",
            metadata: ["renumbered": "\(total)"])
    }

    /// - Returns: how many have new numbers.
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
        // No number is given twice, not even that of a row that was deleted.
        let known = memory.index.withLock { $0.highest }
        let first = max(try QueueMemory.highestNumber(db) ?? 0, known <= high ? known : 0, 0) + 1
        for (row, number) in zip(rows, first...) {
            // A notification's pushes lie between its first and its last.
            try db.run(
                """
                UPDATE notifications SET first_push = min(first_push, ?1)
                WHERE notification_id = (SELECT notification FROM push_queue WHERE message_id = ?2)
                """, [number, row])
            try db.run("UPDATE push_queue SET message_id = ? WHERE message_id = ?", [number, row])
        }
        let last = first - 1 + Int64(rows.count)
        // It stays where it was when the row that raised it is deleted.
        try db.run("UPDATE sqlite_sequence SET seq = ? WHERE name = 'push_queue' AND seq > ?", [last, high])
        guard !rows.isEmpty else { return 0 }
        try db.run("UPDATE queue_state SET settled_to = min(settled_to, ?)", [first - 1])
        // What this transaction has not brought to the disk is found by the next start's sweep.
        memory.settledTo.store(min(memory.settledTo.load(ordering: .relaxed), first - 1), ordering: .relaxed)
        memory.index.withLock { $0.renumbered(from: first, to: last) }
        return rows.count
    }
}
