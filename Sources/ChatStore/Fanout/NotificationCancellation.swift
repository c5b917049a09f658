import ChatDomain
import GRDB

/// Cancels the pushes of a cancelled notification, except for those that are leased.
///
/// If a leased push is released later, it is cancelled when it is leased again.
enum NotificationCancellation {
    /// The number of pushes that one step examines.
    private static let step = 500

    /// - Returns: Whether there are pushes to cancel. If not, the notification stays as it is.
    static func begin(_ id: NotificationID, now: Timestamp, _ db: Database) throws -> Bool {
        try db.run(
            """
            UPDATE notifications SET time_cancelled = ?1, work = 'cancel', work_item = 0,
                work_after = coalesce(first_push, 1) - 1, work_until = coalesce(last_push, 0)
            WHERE notification_id = ?2 AND time_cancelled IS NULL AND (work = 'queue' OR EXISTS (
                SELECT 1 FROM notification_counts c WHERE c.notification_id = ?2
                    AND c.queued > c.sent + c.failed + c.expired + c.cancelled))
            """, [now.sqlText, id]) > 0
    }

    /// Cancels the next pushes and records the progress. Returns `nil` if none are left.
    /// - Parameter inFlight: Returns the leased push ids of a range, in order.
    static func step(
        of id: NotificationID, now: Timestamp,
        inFlight: (ClosedRange<Int64>) -> [ClosedRange<Int64>] = { _ in [] }, _ db: Database
    ) throws -> BackgroundJob.Step? {
        let work = try db.row(
            "SELECT work_after, work_until FROM notifications WHERE notification_id = ? AND work = 'cancel'", [id])
        guard let work else { return nil }
        let (after, until): (Int64, Int64) = (work[0], work[1])
        let found = try db.row(
            "SELECT count(*), max(message_id) FROM (\(candidatesSQL))", [after, until, id, step])
        var result = BackgroundJob.Step()
        if let upTo = found?[1] as Int64? {
            result.hasMore = found?[0] == step && upTo < until
            var first = after + 1
            for held in inFlight(first...upTo) + [upTo + 1...upTo + 1] {
                if first < held.lowerBound {
                    let apps: [String] = try db.values(
                        cancelSQL, [PushLifeCycle.cancelled, now.sqlText, first, held.lowerBound - 1, id])
                    result.ended += apps.map {
                        FinalStateCount(app: AppName($0), state: .cancelled, reason: PushLifeCycle.cancelled)
                    }
                }
                first = held.upperBound + 1
            }
            try db.run("UPDATE notifications SET work_after = ? WHERE notification_id = ?", [upTo, id])
            try db.run(
                "UPDATE notification_counts SET cancelled = cancelled + ? WHERE notification_id = ?",
                [result.ended.count, id])
        }
        if !result.hasMore { try db.run("UPDATE notifications SET work = NULL WHERE notification_id = ?", [id]) }
        return result
    }

    static let candidatesSQL = """
        SELECT message_id FROM push_queue WHERE message_id > ? AND message_id <= ? AND +notification = ?
        ORDER BY message_id LIMIT ?
        """
    static let cancelSQL = """
        UPDATE push_queue SET state = 'cancelled', reason = ?, time_settled = ?
        WHERE message_id BETWEEN ? AND ? AND +notification = ? AND state = 'pending' RETURNING app
        """
}
