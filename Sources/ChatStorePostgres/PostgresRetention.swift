#if PostgreSQL
import ChatDomain

/// Deletes rows by their age, in steps; pushes excepted, of which ``QueueUpkeep`` drops whole days.
///
/// Any relay does it, by its own clock: that also wrote the times. Two at the same time do no harm.
struct PostgresRetention: Sendable {
    /// Rows that one transaction deletes: few, so that nobody waits long behind it.
    private static let step = 500
    /// How long ended starts are kept, for people.
    private static let startsKept = Duration.seconds(30 * 86_400)

    private let database: PostgresDatabase

    init(database: PostgresDatabase) {
        self.database = database
    }

    // MARK: - Tables

    /// Their pushes stay, with the numbers of messages that are gone.
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
    /// Those with pushes stay, and are passed. The orders make the planner use the indexes of a notification's devices.
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
    /// A ban without an end never lapses.
    let bans = AgedRows(table: "bans", key: "ban_id", condition: "(coalesce(r.time_ends < at($3::bigint), false))")
    /// A record takes back pushes up to its `last_push` (``QueueReader``) for as long as there is any of them: a retry may make
    /// it wait again.
    let records = AgedRows(
        table: "moderation", key: "moderation_id",
        condition: """
            (CASE WHEN r.time_done >= at($3::bigint) THEN false WHEN r.last_push IS NULL THEN true ELSE
                NOT EXISTS (SELECT FROM push_queue q WHERE q.message_id <= r.last_push) END)
            """)

    // MARK: - A run

    func apply(_ ages: RetentionAges, _ queue: QueueUpkeep) async throws(ChatError) -> RetentionResult {
        let now = database.now()
        var (result, failure) = (RetentionResult(), ChatError?.none)
        // What fails of one kind keeps no other.
        func apply(_ work: () async throws(ChatError) -> Void) async {
            do throws(ChatError) {
                try await work()
            } catch {
                failure = failure ?? error
            }
        }
        await apply { () throws(ChatError) in result.pushes = try await queue.applyRetention(keeping: ages.queue) }
        for (count, rows, age) in [
            (\.messages, messages, ages.messages), (\.feedback, feedback, ages.queue),
            (\.notifications, notifications, ages.queue), (\.moderation, bans, ages.moderation),
            (\.moderation, records, ages.moderation),
        ] as [(WritableKeyPath<RetentionResult, Int>, AgedRows, Duration)] {
            await apply { () throws(ChatError) in
                result[keyPath: count] += try await rows.apply(before: now - age, database)
            }
        }
        await apply { () throws(ChatError) in
            _ = try await addresses.apply(before: now - RetentionAges.addresses, database)
        }
        await apply { () throws(ChatError) in try await applyToTheRest(ages, now) }
        if let failure { throw failure }
        return result
    }

    private func applyToTheRest(_ ages: RetentionAges, _ now: Timestamp) async throws(ChatError) {
        try await RoomRow.deleteUnused(database)
        // Of those who left so long ago every message is deleted that they had read.
        try await deleteInSteps(
            """
            DELETE FROM past_members WHERE member_id IN (
                SELECT member_id FROM past_members WHERE time_left < at($2::bigint) LIMIT $1::bigint)
            """, before: now - ages.messages)
        // Of browsers that nobody knows any more. One that was just brought is registered in the next moment.
        try await deleteInSteps(
            """
            DELETE FROM subscriptions WHERE device_token IN (
                SELECT s.device_token FROM subscriptions s WHERE s.time_kept < at($2::bigint) AND NOT EXISTS (
                    SELECT 1 FROM devices d WHERE d.device_token = s.device_token)
                LIMIT $1::bigint FOR UPDATE SKIP LOCKED)
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

    private func deleteInSteps(_ sql: String, before time: Timestamp) async throws(ChatError) {
        while try await database.write(
            .upkeep, isRepeatable: true, { transaction in try transaction.run(sql, [.int(Self.step), .time(time)]) })
            == Self.step
        {}
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
#endif
