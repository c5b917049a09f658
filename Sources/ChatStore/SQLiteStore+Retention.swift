package import ChatDomain
import GRDB

/// What retention took away.
package struct RetentionResult: Sendable, Hashable {
    package var messages = 0
    package var pushes = 0
    package var feedback = 0
}

extension SQLiteStore {
    /// Rows that one transaction deletes: few, so that a request never waits long behind it.
    private static let retentionStep = 500
    /// The oldest rows, of which those of a wrong clock or with work left may stay in the way.
    private static let retentionWindow = 2000
    /// Messages that one transaction deletes: each may have a large room's pushes, which then forget it.
    private static let messageStep = 10

    /// Deletes messages older than `messages`, and pushes and feedback that were settled longer ago than `queue`.
    /// What is not settled stays, however old.
    package func applyRetention(messages: Duration, queue: Duration) async throws(ChatError) -> RetentionResult {
        let now = clock()
        let oldest = (now - messages).sqlText
        let settled = (now - queue).sqlText
        var result = RetentionResult()
        result.pushes = try await deleteInSteps(
            of: Self.retentionStep,
            """
            DELETE FROM push_queue WHERE message_id IN (
                SELECT message_id FROM push_queue WHERE time_settled IS NOT NULL AND time_settled < ?2
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
        return result
    }

    private func deleteInSteps(of step: Int, _ sql: String, before time: String) async throws(ChatError) -> Int {
        var deleted = 0
        while true {
            let count = try await writer.perform { db in
                try db.cachedStatement(sql: sql).execute(arguments: [step, time])
                return db.changesCount
            }
            deleted += count
            if count < step { return deleted }
        }
    }
}
