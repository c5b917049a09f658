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
                UPDATE notifications SET time_cancelled = ?1, work = 'cancel', work_item = 0,
                    work_after = coalesce(first_push, 1) - 1, work_until = coalesce(last_push, 0)
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

    /// - Parameter inFlight: what of a range is with a gateway, in order.
    func step(
        now: Timestamp, inFlight: (ClosedRange<Int64>) -> [ClosedRange<Int64>] = { _ in [] }, _ db: Database
    ) throws -> BackgroundJob.Step {
        let row = try Row.fetchOne(
            db.cachedStatement(sql: "SELECT count(*), max(message_id) FROM (\(Self.candidatesSQL))"),
            arguments: [after, until, id, Self.step])
        var result = BackgroundJob.Step()
        if let upTo = row?[1] as Int64? {
            result.hasMore = row?[0] == Self.step && upTo < until
            var first = after + 1
            for held in inFlight(first...upTo) + [upTo + 1...upTo + 1] {
                if first < held.lowerBound {
                    result.endings += try takeBack(first...held.lowerBound - 1, now: now, db)
                }
                first = held.upperBound + 1
            }
            try db.cachedStatement(sql: "UPDATE notifications SET work_after = ? WHERE notification_id = ?")
                .execute(arguments: [upTo, id])
            try db.cachedStatement(
                sql: "UPDATE notification_counts SET cancelled = cancelled + ? WHERE notification_id = ?"
            ).execute(arguments: [result.endings.count, id])
        }
        if !result.hasMore {
            try db.cachedStatement(sql: "UPDATE notifications SET work = NULL WHERE notification_id = ?")
                .execute(arguments: [id])
        }
        return result
    }

    private func takeBack(_ range: ClosedRange<Int64>, now: Timestamp, _ db: Database) throws -> [Ending] {
        try String.fetchAll(
            db.cachedStatement(sql: Self.sweepSQL),
            arguments: [PushLifeCycle.cancelled, now.sqlText, range.lowerBound, range.upperBound, id]
        ).map { Ending(app: AppName($0), state: .cancelled, reason: PushLifeCycle.cancelled) }
    }

    static let candidatesSQL = """
        SELECT message_id FROM push_queue WHERE message_id > ? AND message_id <= ? AND +notification = ?
        ORDER BY message_id LIMIT ?
        """
    static let sweepSQL = """
        UPDATE push_queue SET state = 'cancelled', reason = ?, time_settled = ?
        WHERE message_id BETWEEN ? AND ? AND +notification = ? AND state = 'pending' RETURNING app
        """
}
