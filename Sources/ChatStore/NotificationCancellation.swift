import ChatDomain
import GRDB

/// A notification on its way out of the queue: its pushes that were not handed to a gateway are taken back.
///
/// What is handed out now and comes back later is taken back when its turn comes again.
struct NotificationCancellation {
    /// Pushes that one step looks at.
    static let step = 500

    let id: NotificationID
    /// Pushes up to this one are done.
    let after: Int64
    let until: Int64

    /// - Returns: whether there is anything to take back. If not, the notification stays what it is.
    static func begin(_ id: NotificationID, now: Timestamp, _ db: Database) throws -> Bool {
        try db.cachedStatement(
            sql: """
                UPDATE notifications SET time_cancelled = ?1, work = 'cancel', work_item = 0, work_after = 0,
                    work_until = (SELECT coalesce(max(message_id), 0) FROM push_queue WHERE notification = ?2)
                WHERE notification_id = ?2 AND time_cancelled IS NULL AND (work = 'queue' OR EXISTS (
                    SELECT 1 FROM notification_counts c WHERE c.notification_id = ?2
                        AND c.queued > c.sent + c.failed + c.expired + c.cancelled))
                """
        ).execute(arguments: [now.sqlText, id])
        return db.changesCount > 0
    }

    static func unfinished(_ id: NotificationID, _ db: Database) throws -> NotificationCancellation? {
        try Row.fetchOne(
            db.cachedStatement(
                sql: "SELECT work_after, work_until FROM notifications WHERE notification_id = ? AND work = 'cancel'"),
            arguments: [id]
        ).map { NotificationCancellation(id: id, after: $0[0], until: $0[1]) }
    }

    func step(now: Timestamp, _ db: Database) throws -> LeftWork.Step {
        let row = try Row.fetchOne(
            db.cachedStatement(sql: "SELECT count(*), max(message_id) FROM (\(Self.candidatesSQL))"),
            arguments: [id, after, until, Self.step])
        var result = LeftWork.Step()
        if let upTo = row?[1] as Int64? {
            result.hasMore = row?[0] == Self.step && upTo < until
            result.endings = try String.fetchAll(
                db.cachedStatement(sql: Self.sweepSQL),
                arguments: [LeftWork.cancelled, now.sqlText, id, after, upTo]
            ).map { Ending(app: AppName($0), state: .cancelled, reason: LeftWork.cancelled) }
            try db.cachedStatement(sql: "UPDATE notifications SET work_after = ? WHERE notification_id = ?")
                .execute(arguments: [upTo, id])
        }
        if !result.hasMore {
            try db.cachedStatement(sql: "UPDATE notifications SET work = NULL WHERE notification_id = ?")
                .execute(arguments: [id])
        }
        return result
    }

    static let candidatesSQL = """
        SELECT message_id FROM push_queue WHERE notification = ? AND message_id > ? AND message_id <= ?
        ORDER BY message_id LIMIT ?
        """
    static let sweepSQL = """
        UPDATE push_queue INDEXED BY push_queue_of_notification
        SET state = 'cancelled', reason = ?, time_settled = ?
        WHERE notification = ? AND message_id > ? AND message_id <= ? AND state = 'pending' RETURNING app
        """
}
