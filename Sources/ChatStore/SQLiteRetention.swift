import ChatDomain
import GRDB

/// Deletes rows by their age, in steps.
struct SQLiteRetention: Sendable {
    /// Rows of one table that are deleted, or lose something, when they are old.
    struct Aged: Sendable {
        let table: String
        let key: String
        /// Which rows, as `r`, are old enough and may go; `:time` is the limit.
        let condition: String
        /// Which rows show that old ones may follow, though they stay themselves; `nil`: those of the condition.
        var isPassed: String?
        /// What is done with them.
        var statement: String { change.map { "UPDATE \(table) AS r SET \($0)" } ?? "DELETE FROM \(table) AS r" }
        /// `nil`: they are deleted.
        var change: String?
        /// Rows that one look goes through.
        var window = 2000
        /// Rows that one transaction changes: few, so that a request never waits long behind it.
        var step = 500
        /// Whether each step waits for the disk.
        var isDurable = true

        let walk = RetentionWalk()

        var windowSQL: String {
            """
            SELECT max(id), count(*), coalesce(sum(old), 0) FROM (
                SELECT \(key) AS id, \(isPassed ?? condition) AS old FROM \(table) r
                WHERE \(key) > :after ORDER BY \(key) LIMIT \(window))
            """
        }
        var oldSQL: String {
            "SELECT \(key) FROM \(table) r WHERE \(key) > :after AND \(key) <= :last AND \(condition) ORDER BY \(key)"
        }
        var stepSQL: String { "\(statement) WHERE \(key) BETWEEN :first AND :last AND \(condition)" }
    }

    private let database: SQLiteDatabase

    init(database: SQLiteDatabase) {
        self.database = database
    }

    // MARK: - Tables

    /// Each message may have a large room's pushes, which then forget it.
    let messages = Aged(
        table: "messages", key: "message_id", condition: "(r.fanout_after IS NULL AND r.time_sent < :time)", step: 10)
    let addresses = Aged(
        table: "messages", key: "message_id",
        condition: "(r.ip_address IS NOT NULL AND r.fanout_after IS NULL AND r.time_sent < :time)",
        change: "ip_address = NULL", window: 10_000)
    /// What is not settled, or was settled late, is passed. Pushes of a notification that is still being queued stay: they keep
    /// it from going to a device twice.
    let pushes = Aged(
        table: "push_queue", key: "message_id",
        condition: """
            (r.time_settled < :time AND r.state <> 'pending' AND NOT EXISTS (
                SELECT 1 FROM notifications n WHERE n.notification_id = r.notification AND n.work = 'queue'))
            """, isPassed: "(r.time_queued < :time)", window: 5000, isDurable: false)
    let feedback = Aged(
        table: "feedback", key: "feedback_id", condition: "(r.result IS NOT NULL AND r.time_received < :time)")
    /// Those with pushes stay, and are passed.
    let notifications = Aged(
        table: "notifications", key: "notification_id",
        condition: """
            (r.time_created < :time AND r.work IS NULL AND NOT EXISTS (
                SELECT 1 FROM push_queue q
                WHERE q.message_id BETWEEN r.first_push AND r.last_push AND +q.notification = r.notification_id))
            """, isPassed: "(r.time_created < :time)")
    /// A ban without an end never lapses.
    let bans = Aged(table: "bans", key: "ban_id", condition: "(r.time_ends < :time)")
    /// A record takes back pushes up to its `last_push` (``QueueReader``) for as long as there is any of them: a retry may make
    /// it wait again.
    let records = Aged(
        table: "moderation", key: "moderation_id",
        condition: """
            (r.time_done < :time AND (r.last_push IS NULL OR NOT EXISTS (
                SELECT 1 FROM push_queue q WHERE q.message_id <= r.last_push)))
            """)

    // MARK: - A run

    func apply(_ ages: RetentionAges) async throws(ChatError) -> RetentionResult {
        let now = database.now()
        var result = RetentionResult()
        result.pushes = try await delete(pushes, before: now - ages.queue)
        result.messages = try await delete(messages, before: now - ages.messages)
        _ = try await delete(addresses, before: now - RetentionAges.addresses)
        result.feedback = try await delete(feedback, before: now - ages.queue)
        // Of those who left so long ago every message is deleted that they had read.
        try await deleteInSteps(
            "DELETE FROM past_members WHERE member_id IN (SELECT member_id FROM past_members WHERE time_left < ?2 LIMIT ?1)",
            before: now - ages.messages)
        _ = try await database.writer.perform(.upkeep) { db in
            try db.run("DELETE FROM device_days WHERE day < ?", [(now - .seconds(DeviceDay.kept * 86_400)).day])
        }
        result.notifications = try await delete(notifications, before: now - ages.queue)
        result.moderation = try await delete(bans, before: now - ages.moderation)
        result.moderation += try await delete(records, before: now - ages.moderation)
        try await RoomRow.deleteUnused(database)
        // Of browsers that nobody knows any more. One that was just brought is registered in the next moment.
        try await deleteInSteps(
            """
            DELETE FROM subscriptions WHERE device_token IN (
                SELECT s.device_token FROM subscriptions s WHERE s.time_kept < ?2 AND NOT EXISTS (
                    SELECT 1 FROM devices d WHERE d.device_token = s.device_token) LIMIT ?1)
            """, before: now - .seconds(86_400))
        return result
    }

    /// Looks beside the writer, which then changes a window's rows in small steps.
    private func delete(_ rows: Aged, before time: Timestamp) async throws(ChatError) -> Int {
        try await rows.walk.run { after throws(ChatError) in
            let arguments: StatementArguments = ["after": after, "time": time.sqlText]
            let found = try await database.read { db -> (last: Int64, count: Int, isOld: Bool, old: [Int64])? in
                guard let row = try db.row(rows.windowSQL, arguments), let last = row[0] as Int64? else { return nil }
                let old: [Int64] = try db.values(rows.oldSQL, arguments &+ ["last": last])
                return (last, row[1], row[2] as Int > 0, old)
            }
            guard let found else { return RetentionWalk.Window(deleted: 0, hasOld: false, last: nil) }
            var deleted = 0
            for start in stride(from: 0, to: found.old.count, by: rows.step) {
                let range: StatementArguments = [
                    "first": found.old[start], "last": found.old[min(start + rows.step, found.old.count) - 1],
                    "time": time.sqlText,
                ]
                deleted += try await database.writer.perform(durably: rows.isDurable, .upkeep) { db in
                    try db.run(rows.stepSQL, range)
                }
            }
            return RetentionWalk.Window(
                deleted: deleted, hasOld: found.isOld, last: found.count < rows.window ? nil : found.last)
        }
    }

    /// - Parameter sql: goes by an index, with the number of rows as its first value and the limit as its second.
    private func deleteInSteps(_ sql: String, before time: Timestamp) async throws(ChatError) {
        let step = 500
        while try await database.writer.perform(.upkeep, { db in try db.run(sql, [step, time.sqlText]) }) == step {}
    }

    // MARK: - The clock

    func clockEvidence(upTo limit: Timestamp) async throws(ChatError) -> ClockEvidence {
        let times = try await database.read { db in
            try [("messages", "time_sent"), ("push_queue", "time_queued")].compactMap { table, column in
                let sql = """
                    SELECT message_id, \(column) FROM \(table) WHERE message_id <= ? ORDER BY message_id DESC LIMIT 1
                    """
                return try ClockEvidence.newest(upTo: limit) { id in
                    try db.row(sql, [id]).map { (id: $0[0], time: $0.optionalTime(1)) }
                }
            }
        }
        return ClockEvidence(newest: times.max())
    }
}
