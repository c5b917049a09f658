import ChatDomain
import ChatSQL

/// Deletes old rows in steps, except for pushes: ``QueueUpkeep`` drops whole days of them.
///
/// Any relay does it, by its own wall clock, because the relays' wall clocks also set the times. Two relays can do it
/// at the same time.
struct PostgresRetention: Sendable {
    /// The time for which ended starts are kept for the operator.
    private static let startsKept = Duration.seconds(30 * 86_400)

    private let database: PostgresDatabase

    init(database: PostgresDatabase) {
        self.database = database
    }

    // MARK: - Tables

    /// The messages' pushes stay, with the ids of messages that no longer exist.
    let messages = AgedRows(
        table: "messages", key: "message_id",
        condition: "(r.fanout_after IS NULL AND r.time_sent < at($3::bigint))")
    let addresses = AgedRows(
        table: "messages", key: "message_id",
        condition: "(r.ip_address IS NOT NULL AND r.fanout_after IS NULL AND r.time_sent < at($3::bigint))",
        change: "ip_address = NULL", window: 2000)
    let feedback = AgedRows(
        table: "feedback", key: "feedback_id",
        condition: "(r.result IS NOT NULL AND r.time_received < at($3::bigint))")
    /// Keeps notifications that still have pushes, and continues past them. The `ORDER BY` clauses make the planner use
    /// the indexes of a notification's devices.
    let notifications = AgedRows(
        table: "notifications", key: "notification_id",
        condition: """
            (CASE WHEN r.time_created < at($3::bigint) AND r.work IS NULL THEN
                (SELECT 1 FROM push_queue q WHERE q.notification = r.notification_id AND q.device IS NOT NULL
                    ORDER BY q.device LIMIT 1) IS NULL
                AND (SELECT 1 FROM push_queue q WHERE q.notification = r.notification_id AND q.device IS NULL
                    ORDER BY q.app, q.device_token LIMIT 1) IS NULL
            ELSE false END)
            """, isPassed: "(r.time_created < at($3::bigint))")
    /// A ban without an end is never deleted.
    let bans = AgedRows(table: "bans", key: "ban_id", condition: "(coalesce(r.time_ends < at($3::bigint), false))")
    /// A record cancels pushes up to its `last_push` (``QueueReader``). It is kept as long as there is any of them,
    /// because a retry may make one pending again.
    let records = AgedRows(
        table: "moderation", key: "moderation_id",
        condition: """
            (CASE WHEN r.time_done >= at($3::bigint) THEN false WHEN r.last_push IS NULL THEN true ELSE
                NOT EXISTS (SELECT FROM push_queue q WHERE q.message_id <= r.last_push) END)
            """)

    // MARK: - Applying

    func apply(_ ages: RetentionAges, _ queue: QueueUpkeep) async throws(ChatError) -> RetentionResult {
        let now = database.now()
        var (result, failure) = (RetentionResult(), FirstError())
        await failure.collect { () throws(ChatError) in
            result.pushes = try await queue.applyRetention(keeping: ages.queue)
        }
        for (count, rows, age) in [
            (\.messages, messages, ages.messages), (\.feedback, feedback, ages.queue),
            (\.notifications, notifications, ages.queue), (\.moderation, bans, ages.moderation),
            (\.moderation, records, ages.moderation),
        ] as [(WritableKeyPath<RetentionResult, Int>, AgedRows, Duration)] {
            await failure.collect { () throws(ChatError) in
                result[keyPath: count] += try await rows.apply(before: now - age, database)
            }
        }
        await failure.collect { () throws(ChatError) in
            _ = try await addresses.apply(before: now - RetentionAges.addresses, database)
        }
        await failure.collect { () throws(ChatError) in try await applyToTheRest(ages, now) }
        try failure.rethrow()
        return result
    }

    private func applyToTheRest(_ ages: RetentionAges, _ now: Timestamp) async throws(ChatError) {
        try await RoomRow.deleteUnused(database)
        // All messages that these past members had read are deleted by now.
        try await database.deleteInSteps(
            """
            DELETE FROM past_members WHERE member_id IN (
                SELECT member_id FROM past_members WHERE time_left < at($1) LIMIT $2)
            """, before: now - ages.messages)
        // Subscriptions of browsers without a device. A browser that has just stored its subscription registers a
        // moment later.
        try await database.deleteInSteps(
            """
            DELETE FROM subscriptions WHERE device_token IN (
                SELECT s.device_token FROM subscriptions s WHERE s.time_kept < at($1) AND NOT EXISTS (
                    SELECT 1 FROM devices d WHERE d.device_token = s.device_token)
                LIMIT $2 FOR UPDATE SKIP LOCKED)
            """, before: now - .seconds(86_400))
        try await database.write(.upkeep, isRepeatable: true) { transaction in
            try transaction.run(
                "DELETE FROM device_days WHERE day < $1::text",
                [.text((now - .seconds(DeviceDay.kept * 86_400)).day)])
            try transaction.run(
                "DELETE FROM relay_starts WHERE time_ended < now() - $1::bigint * interval '1 ms'",
                [.int(Self.startsKept.milliseconds)])
        }
    }

    // MARK: - The clock

    static let evidenceSQL = [("messages", "time_sent"), ("push_queue", "time_queued")].map { table, column in
        "SELECT message_id, ms(\(column)) FROM \(table) WHERE message_id <= $1::bigint ORDER BY message_id DESC LIMIT 1"
    }

    func clockEvidence(upTo limit: Timestamp) async throws(ChatError) -> ClockEvidence {
        try await database.read { transaction in
            transaction.pipeline("SET LOCAL enable_seqscan = off")
            let times = try Self.evidenceSQL.compactMap { sql in
                try ClockEvidence.newest(upTo: limit) { id in
                    try transaction.row(sql, [.int(id)]).map { (id: try $0.int(0), time: try $0.optionalTime(1)) }
                }
            }
            let server = try transaction.row("SELECT ms(clock_timestamp())")?.optionalTime(0)
            return ClockEvidence(newest: times.max(), server: server)
        }
    }
}
