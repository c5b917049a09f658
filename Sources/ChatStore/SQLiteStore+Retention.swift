package import ChatDomain
import GRDB

/// What retention took away.
package struct RetentionResult: Sendable, Hashable {
    package var messages = 0
    package var pushes = 0
    package var feedback = 0
    package var notifications = 0
}

extension SQLiteStore {
    /// Rows that one transaction deletes: few, so that a request never waits long behind it.
    private static let retentionStep = 500
    /// The oldest rows, of which those of a wrong clock or with work left may stay in the way.
    private static let retentionWindow = 2000
    /// Messages that one transaction deletes: each may have a large room's pushes, which then forget it.
    private static let messageStep = 10

    /// Deletes messages older than `messages`, pushes and feedback that were settled longer ago than `queue`, and
    /// notifications older than that of which no push is left. What is not settled stays, however old.
    package func applyRetention(messages: Duration, queue: Duration) async throws(ChatError) -> RetentionResult {
        let now = clock()
        let oldest = (now - messages).sqlText
        let settled = (now - queue).sqlText
        var result = RetentionResult()
        result.pushes = try await deleteInSteps(
            of: Self.retentionStep,
            """
            DELETE FROM push_queue WHERE message_id IN (
                SELECT message_id FROM push_queue q WHERE time_settled IS NOT NULL AND time_settled < ?2
                    -- What is there keeps a notification that is still being queued from going to a device twice.
                    AND NOT EXISTS (SELECT 1 FROM notifications n
                        WHERE n.notification_id = q.notification AND n.work = 'queue')
                ORDER BY time_settled LIMIT ?1)
            """, before: settled)
        // Ids grow with time, so the oldest stand first and no index on the time is needed.
        result.messages = try await deleteInSteps(
            of: Self.messageStep,
            """
            DELETE FROM messages WHERE message_id IN (
                SELECT message_id FROM (SELECT * FROM messages ORDER BY message_id LIMIT \(Self.retentionWindow))
                WHERE fanout_after IS NULL AND time_sent < ?2 LIMIT ?1)
            """, before: oldest)
        result.feedback = try await deleteInSteps(
            of: Self.retentionStep,
            """
            DELETE FROM feedback WHERE feedback_id IN (
                SELECT feedback_id FROM (SELECT * FROM feedback ORDER BY feedback_id LIMIT \(Self.retentionWindow))
                WHERE result IS NOT NULL AND time_received < ?2 LIMIT ?1)
            """, before: settled)
        result.notifications = try await deleteNotifications(before: settled)
        return result
    }

    /// Ids grow with time, so it ends at the first that is not old; of the old, those with pushes stay in the way and are
    /// passed.
    private func deleteNotifications(before time: String) async throws(ChatError) -> Int {
        var (deleted, after): (Int, Int64) = (0, 0)
        while true {
            let (count, last) = try await writer.perform(.upkeep) { [after] db in
                let candidates = try Row.fetchAll(
                    db.cachedStatement(
                        sql: """
                            SELECT notification_id, time_created < ?,
                                work IS NULL AND NOT EXISTS (
                                    SELECT 1 FROM push_queue q WHERE q.notification = n.notification_id)
                            FROM notifications n WHERE notification_id > ? ORDER BY notification_id LIMIT ?
                            """), arguments: [time, after, Self.retentionStep])
                let old = candidates.prefix { $0[1] }
                let ended = old.filter { $0[2] }
                for row in ended {
                    try db.cachedStatement(sql: "DELETE FROM notifications WHERE notification_id = ?")
                        .execute(arguments: [row[0] as Int64])
                }
                return (ended.count, old.count < Self.retentionStep ? nil : old.last?[0] as Int64?)
            }
            deleted += count
            guard let last else { return deleted }
            after = last
        }
    }

    private func deleteInSteps(of step: Int, _ sql: String, before time: String) async throws(ChatError) -> Int {
        var deleted = 0
        while true {
            let count = try await writer.perform(.upkeep) { db in
                try db.cachedStatement(sql: sql).execute(arguments: [step, time])
                return db.changesCount
            }
            deleted += count
            if count < step { return deleted }
        }
    }
}
