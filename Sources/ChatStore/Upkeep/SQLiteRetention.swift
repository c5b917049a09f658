import ChatDomain
import ChatSQL
import GRDB

/// Deletes old rows in steps.
struct SQLiteRetention: Sendable {
    /// Old rows of one table that retention deletes or changes.
    struct Aged: Sendable {
        let table: String
        let key: String
        /// A condition on `r` for rows that are old enough to be deleted or changed. `:time` is the limit.
        let condition: String
        /// A condition for rows after which old ones may follow, even if they stay themselves. `nil` for ``condition``.
        var isPassed: String?
        /// The statement that deletes or changes the rows.
        var statement: String { change.map { "UPDATE \(table) AS r SET \($0)" } ?? "DELETE FROM \(table) AS r" }
        /// The assignments that change a row. `nil` to delete it.
        var change: String?
        /// The number of rows that one query examines.
        var window = 2000
        /// The maximum number of rows that one transaction changes. It is small, so that no request waits long.
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

    /// Small steps: a message may have the pushes of a large room, and the foreign key clears `chat_message` in each.
    let messages = Aged(
        table: "messages", key: "message_id", condition: "(r.fanout_after IS NULL AND r.time_sent < :time)", step: 10)
    let addresses = Aged(
        table: "messages", key: "message_id",
        condition: "(r.ip_address IS NOT NULL AND r.fanout_after IS NULL AND r.time_sent < :time)",
        change: "ip_address = NULL", window: 10_000)
    /// Continues past pushes that are unsettled or were settled late. Keeps pushes of a notification that is still
    /// being queued, because they prevent a second push for their device.
    let pushes = Aged(
        table: "push_queue", key: "message_id",
        condition: """
            (r.time_settled < :time AND r.state <> 'pending' AND NOT EXISTS (
                SELECT 1 FROM notifications n WHERE n.notification_id = r.notification AND n.work = 'queue'))
            """, isPassed: "(r.time_queued < :time)", window: 5000, isDurable: false)
    let feedback = Aged(
        table: "feedback", key: "feedback_id", condition: "(r.result IS NOT NULL AND r.time_received < :time)")
    /// Keeps notifications that still have pushes, and continues past them.
    let notifications = Aged(
        table: "notifications", key: "notification_id",
        condition: """
            (r.time_created < :time AND r.work IS NULL AND NOT EXISTS (
                SELECT 1 FROM push_queue q
                WHERE q.message_id BETWEEN r.first_push AND r.last_push AND +q.notification = r.notification_id))
            """, isPassed: "(r.time_created < :time)")
    /// A ban without an end is never deleted.
    let bans = Aged(table: "bans", key: "ban_id", condition: "(r.time_ends < :time)")
    /// A record cancels pushes up to its `last_push` (``QueueReader``). It is kept as long as there is any of them,
    /// because a retry may make one pending again.
    let records = Aged(
        table: "moderation", key: "moderation_id",
        condition: """
            (r.time_done < :time AND (r.last_push IS NULL OR NOT EXISTS (
                SELECT 1 FROM push_queue q WHERE q.message_id <= r.last_push)))
            """)

    // MARK: - Applying

    func apply(_ ages: RetentionAges) async throws(ChatError) -> RetentionResult {
        let now = database.now()
        var result = RetentionResult()
        result.pushes = try await delete(pushes, before: now - ages.queue)
        result.messages = try await delete(messages, before: now - ages.messages)
        _ = try await delete(addresses, before: now - RetentionAges.addresses)
        result.feedback = try await delete(feedback, before: now - ages.queue)
        // All messages that these past members had read are deleted by now.
        try await database.deleteInSteps(
            "DELETE FROM past_members WHERE member_id IN (SELECT member_id FROM past_members WHERE time_left < at($1) LIMIT $2)",
            before: now - ages.messages)
        _ = try await database.writer.perform(.upkeep) { db in
            try db.run("DELETE FROM device_days WHERE day < ?", [(now - .seconds(DeviceDay.kept * 86_400)).day])
        }
        result.notifications = try await delete(notifications, before: now - ages.queue)
        result.moderation = try await delete(bans, before: now - ages.moderation)
        result.moderation += try await delete(records, before: now - ages.moderation)
        try await RoomRow.deleteUnused(database)
        // Subscriptions of browsers without a device. A browser that has just stored its subscription registers a
        // moment later.
        try await database.deleteInSteps(
            """
            DELETE FROM subscriptions WHERE device_token IN (
                SELECT s.device_token FROM subscriptions s WHERE s.time_kept < at($1) AND NOT EXISTS (
                    SELECT 1 FROM devices d WHERE d.device_token = s.device_token) LIMIT $2)
            """, before: now - .seconds(86_400))
        return result
    }

    /// Queries in parallel with the writer, which then changes the rows of a window in small steps.
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
