import ChatDomain

/// Cancels the pushes of a cancelled notification, except for those that are leased.
///
/// If a leased push is released later, it is cancelled when it is leased again.
enum NotificationCancellation {
    /// The number of pushes that one step examines.
    private static let step: Int64 = 500

    /// The result of a step.
    struct Step: Sendable {
        var looked = 0
        var ended: [FinalStateCount] = []
        var hasMore = false
    }

    /// - Returns: Whether there are pushes to cancel. If not, the notification stays as it is.
    static func begin(_ id: NotificationID, now: Timestamp, _ transaction: PostgresTransaction) throws -> Bool {
        // Wait for a step in progress, so that the counts are read after it.
        let isThere = try transaction.row(
            "SELECT 1 FROM notifications WHERE notification_id = $1::bigint FOR NO KEY UPDATE", [.int(id)])
        guard isThere != nil else { return false }
        return try transaction.run(
            """
            UPDATE notifications SET time_cancelled = at($1::bigint), work = 'cancel', work_item = 0, work_after = 0
            WHERE notification_id = $2::bigint AND time_cancelled IS NULL AND (work = 'queue' OR EXISTS (
                SELECT FROM notification_counts c WHERE c.notification_id = $2::bigint
                    AND c.queued > c.sent + c.failed + c.expired + c.cancelled))
            """, [.time(now), .int(id)]) > 0
    }

    /// Cancels the next pushes and records the progress. Returns `nil` if none are left. The caller has locked the
    /// notification's row.
    static func step(
        of id: NotificationID, now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> Step? {
        let work = try transaction.row(
            "SELECT work_after FROM notifications WHERE notification_id = $1::bigint AND work = 'cancel'", [.int(id)])
        guard let work else { return nil }
        let row = try transaction.row(
            cancelSQL, [.int(work.int(0)), .int(id), .int(step), .text(PushLifeCycle.cancelled), .time(now)])
        var result = Step()
        let upTo = try row?.optionalInt(1)
        if let row {
            result.looked = Int(try row.int(0))
            result.hasMore = result.looked == Int(step)
            result.ended = try row.texts(2).map {
                FinalStateCount(app: AppName($0), state: .cancelled, reason: PushLifeCycle.cancelled)
            }
            transaction.pipeline(
                "UPDATE notification_counts SET cancelled = cancelled + $1::bigint WHERE notification_id = $2::bigint",
                [.int(result.ended.count), .int(id)])
        }
        transaction.pipeline(
            """
            UPDATE notifications SET work = $1::text, work_after = coalesce($2::bigint, work_after)
            WHERE notification_id = $3::bigint
            """, [result.hasMore ? "cancel" : .null, .optional(upTo), .int(id)])
        return result
    }

    /// Cancels pending pushes that are not leased: those of the next devices, and first the few without a device.
    static let cancelSQL = """
        WITH c AS MATERIALIZED (
            SELECT message_id, device FROM push_queue_due
            WHERE notification = $2::bigint AND device > $1::bigint ORDER BY device LIMIT $3::bigint),
        changed AS (
            UPDATE push_queue_due q SET state = 'cancelled', reason = $4::text, time_settled = at($5::bigint)
            WHERE q.message_id IN (
                    SELECT message_id FROM c UNION ALL
                    SELECT message_id FROM push_queue_due
                    WHERE notification = $2::bigint AND device IS NULL AND $1::bigint = 0)
                AND q.state = 'pending' AND q.lease_start IS NULL
            RETURNING q.app)
        SELECT count(*), max(device), array_to_json(ARRAY(SELECT app FROM changed))::text FROM c
        """
}

/// The remaining work of notifications: pushes to queue or to cancel.
enum NotificationWork: BackgroundStep {
    static let claimSQL = """
        SELECT notification_id FROM notifications WHERE work IS NOT NULL AND notification_id > $1::bigint
        ORDER BY notification_id LIMIT $2::bigint FOR NO KEY UPDATE SKIP LOCKED
        """

    static func step(
        of ids: [Int64], now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction
    ) throws -> BackgroundProgress {
        var (progress, looked) = (BackgroundProgress(last: .min), 0)
        for id in ids where looked < NotificationFanout.step {
            progress.last = id
            if var fanout = try NotificationFanout.unfinished(id, transaction) {
                let step = try fanout.step(now: now, settings, transaction)
                looked += max(1, step.looked)
                progress.ended += step.ended
            } else if let step = try NotificationCancellation.step(of: id, now: now, transaction) {
                looked += max(1, step.looked)
                progress.ended += step.ended
            }
        }
        return progress
    }
}
