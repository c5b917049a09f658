#if PostgreSQL
import ChatDomain

/// Deletes old notifications of which no push is left, in steps.
struct NotificationRetention: Sendable {
    /// Rows that one transaction looks at.
    private static let step = 500

    let database: PostgresDatabase

    /// Ids grow with time, so it ends at the first that is not old; of the old, those with pushes stay in the way and are
    /// passed. The orders make the planner use the indexes of a notification's devices.
    static let oldSQL = """
        SELECT n.notification_id, n.time_created < at($1::bigint), n.work IS NULL
            AND (SELECT 1 FROM push_queue q WHERE q.notification = n.notification_id AND q.device IS NOT NULL
                ORDER BY q.device LIMIT 1) IS NULL
            AND (SELECT 1 FROM push_queue q WHERE q.notification = n.notification_id AND q.device IS NULL
                ORDER BY q.app, q.device_token LIMIT 1) IS NULL
        FROM notifications n WHERE n.notification_id > $2::bigint ORDER BY n.notification_id LIMIT $3::bigint
        """

    /// - Returns: how many were deleted.
    func apply(before time: Timestamp) async throws(ChatError) -> Int {
        var (deleted, after): (Int, Int64) = (0, 0)
        while true {
            let (count, last) = try await database.write(.upkeep, isRepeatable: true) {
                [after] transaction -> (Int, Int64?) in
                let rows = try transaction.rows(Self.oldSQL, [.time(time), .int(after), .int(Self.step)])
                let old = try rows.prefix { try $0.bool(1) }
                let ended = try old.filter { try $0.bool(2) }.map { try $0.int(0) }
                if !ended.isEmpty {
                    transaction.later(
                        "DELETE FROM notifications WHERE notification_id = ANY ($1::bigint[])", [.ints(ended)])
                }
                return (ended.count, old.count < Self.step ? nil : try old.last?.int(0))
            }
            deleted += count
            guard let last else { return deleted }
            after = last
        }
    }
}
#endif
