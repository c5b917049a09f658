package import ChatDomain

/// Deletes old rows in steps.
///
/// Any relay does it, by its own wall clock, because the relays' wall clocks also set the times. Two relays can do it
/// at the same time.
package struct SQLRetention: Sendable {
    /// Messages with an open key stay, and so do recently changed ones.
    package let messages: AgedRows
    /// States of messages that are gone. Ids do not follow the times of changes.
    private let states = AgedRows(
        "message_states", key: "message_id",
        where: """
            (NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = r.message_id)
                AND (r.time_changed IS NULL OR r.time_changed < at($1)))
            """, isPassed: "(at($1) IS NOT NULL)")
    /// Numbers of scheduled messages whose message is gone.
    private let schedules = AgedRows(
        "posted_schedules", key: "scheduled_id",
        where: """
            (at($1) IS NOT NULL AND NOT EXISTS (SELECT 1 FROM message_states s WHERE s.message_id = r.message_id))
            """, isPassed: "(at($1) IS NOT NULL)")
    package let addresses: AgedRows
    package let feedback = AgedRows(
        "feedback", key: "feedback_id", where: "(r.result IS NOT NULL AND r.time_received < at($1))")
    package let notifications: AgedRows
    /// A ban without an end is never deleted.
    package let bans = AgedRows("bans", key: "ban_id", where: "(r.time_ends < at($1))")
    package let records: AgedRows

    package init(_ dialect: SQLDialect) {
        // PostgreSQL looks for a push in every day's partition.
        let window = dialect == .sqlite ? 2000 : 500
        // In SQLite, a message may have the pushes of a large room, and the foreign key clears `chat_message` in each.
        // In PostgreSQL, the pushes stay, with the ids of messages that no longer exist.
        messages = AgedRows(
            "messages", key: "message_id",
            where: """
                (r.fanout_after IS NULL AND r.time_sent < at($1) AND NOT EXISTS (
                    SELECT 1 FROM message_states s WHERE s.message_id = r.message_id
                        AND (s.is_open OR s.push_due IS NOT NULL OR s.time_changed >= at($1))))
                """, isPassed: "(r.fanout_after IS NULL AND r.time_sent < at($1))",
            step: dialect == .sqlite ? 10 : 500)
        addresses = AgedRows(
            "messages", key: "message_id",
            where: "(r.ip_address IS NOT NULL AND r.fanout_after IS NULL AND r.time_sent < at($1))",
            change: "ip_address = NULL", window: dialect == .sqlite ? 10_000 : 2000)
        // Keeps notifications that still have pushes, and continues past them.
        notifications = AgedRows(
            "notifications", key: "notification_id",
            where: """
                (CASE WHEN r.time_created < at($1) AND r.work IS NULL THEN \(dialect.hasNoPushes) ELSE false END)
                """, isPassed: "(r.time_created < at($1))", window: window)
        // A record cancels pushes up to its `last_push` (see the queues' readers). It is kept as long as there is any
        // of them, because a retry may make one pending again.
        records = AgedRows(
            "moderation", key: "moderation_id",
            where: """
                (CASE WHEN r.time_done < at($1) THEN r.last_push IS NULL OR NOT EXISTS (
                    SELECT 1 FROM push_queue q WHERE q.message_id <= r.last_push) ELSE false END)
                """, window: window)
    }

    /// - Parameter pushes: Deletes the pushes that were settled before a time, and returns their number.
    package func apply(
        _ ages: RetentionAges, _ database: some SQLDatabase,
        pushes: (_ before: Timestamp) async throws(ChatError) -> Int
    ) async throws(ChatError) -> RetentionResult {
        let now = database.now()
        var (result, failure) = (RetentionResult(), FirstError())
        await failure.collect { () throws(ChatError) in result.pushes = try await pushes(now - ages.queue) }
        await failure.collect { () throws(ChatError) in
            try await database.changeInSteps(Self.keysSQL(database.dialect), [.time(now - ages.messages)])
        }
        await failure.collect { () throws(ChatError) in
            result.messages = try await messages.apply(before: now - ages.messages, database)
            // All messages that these past members had read are deleted by now.
            try await database.changeInSteps(
                """
                DELETE FROM past_members WHERE member_id IN (
                    SELECT member_id FROM past_members WHERE time_left < at($1) LIMIT $2)
                """, [.time(now - ages.messages)])
        }
        await failure.collect { () throws(ChatError) in
            _ = try await states.apply(before: now - ages.messages, database)
            _ = try await schedules.apply(before: now - ages.messages, database)
            try await database.changeInSteps(
                """
                DELETE FROM message_retries WHERE (author, idempotency_key) IN (
                    SELECT author, idempotency_key FROM message_retries WHERE time_used < at($1) LIMIT $2)
                """, [.time(now - ages.messages)])
        }
        await failure.collect { () throws(ChatError) in
            _ = try await addresses.apply(before: now - RetentionAges.addresses, database)
        }
        for (count, rows, age) in [
            (\.feedback, feedback, ages.queue), (\.notifications, notifications, ages.queue),
            (\.moderation, bans, ages.moderation), (\.moderation, records, ages.moderation),
        ] as [(WritableKeyPath<RetentionResult, Int>, AgedRows, Duration)] {
            await failure.collect { () throws(ChatError) in
                result[keyPath: count] += try await rows.apply(before: now - age, database)
            }
        }
        await failure.collect { () throws(ChatError) in
            _ = try await database.write(as: .upkeep) { transaction in
                try transaction.run(
                    "DELETE FROM device_days WHERE day < $1", [.text((now - .seconds(DeviceDay.kept * 86_400)).day)])
            }
        }
        await failure.collect { () throws(ChatError) in try await RoomRow.deleteUnused(database) }
        // Subscriptions of browsers without a device. A browser that has just stored its subscription registers a
        // moment later.
        await failure.collect { () throws(ChatError) in
            try await database.changeInSteps(Self.subscriptionsSQL(database.dialect), [.time(now - .seconds(86_400))])
        }
        try failure.rethrow()
        return result
    }

    /// Ends keys that no program can use: of tokens that were revoked or have expired, and in rooms that were closed
    /// without an end. Retention would keep their messages otherwise.
    static func keysSQL(_ dialect: SQLDialect) -> String {
        """
        UPDATE message_states SET is_open = false WHERE message_id IN (
            SELECT s.message_id FROM message_states s
            WHERE s.is_open AND (
                s.author LIKE 'token:%' AND s.author NOT IN (
                    SELECT 'token:' || t.token_id FROM api_tokens t
                    WHERE t.time_expires IS NULL OR t.time_expires >= at($1))
                OR s.secret_code IN (
                    SELECT b.secret_code FROM bans b
                    WHERE b.udid IS NULL AND b.device_token IS NULL AND b.address IS NULL
                        AND b.secret_code IS NOT NULL AND b.time_ends IS NULL))
            LIMIT $2 \(dialect.lockedOrSkipped("s")))
        """
    }

    static func subscriptionsSQL(_ dialect: SQLDialect) -> String {
        """
        DELETE FROM subscriptions WHERE device_token IN (
            SELECT s.device_token FROM subscriptions s WHERE s.time_kept < at($1) AND NOT EXISTS (
                SELECT 1 FROM devices d WHERE d.device_token = s.device_token)
            LIMIT $2 \(dialect.lockedOrSkipped("s")))
        """
    }
}

extension SQLDialect {
    /// A condition: the notification `r` has no pushes. The `ORDER BY` clauses make PostgreSQL's planner use the
    /// indexes of a notification's devices.
    fileprivate var hasNoPushes: String {
        self == .sqlite
            ? """
            NOT EXISTS (
                SELECT 1 FROM push_queue q
                WHERE q.message_id BETWEEN r.first_push AND r.last_push AND +q.notification = r.notification_id)
            """
            : """
            (SELECT 1 FROM push_queue q WHERE q.notification = r.notification_id AND q.device IS NOT NULL
                ORDER BY q.device LIMIT 1) IS NULL
            AND (SELECT 1 FROM push_queue q WHERE q.notification = r.notification_id AND q.device IS NULL
                ORDER BY q.app, q.device_token LIMIT 1) IS NULL
            """
    }
}

// MARK: - The clock

extension ClockEvidence {
    /// The newest stored time up to a limit, of messages and pushes.
    package static func newest(upTo limit: Timestamp, _ transaction: some SQLTransaction) throws -> Timestamp? {
        try rowSQL.compactMap { sql in
            try newest(upTo: limit) { id in
                try transaction.row(sql, [.int(id)]).map { (id: try $0.int(0), time: try $0.optionalTime(1)) }
            }
        }.max()
    }

    /// A time that another program wrote in another format is 0 milliseconds, and not a time.
    package static let rowSQL = [("messages", "time_sent"), ("push_queue", "time_queued")].map { table, column in
        """
        SELECT message_id, nullif(ms(\(column)), 0) FROM \(table) WHERE message_id <= $1
        ORDER BY message_id DESC LIMIT 1
        """
    }
}
