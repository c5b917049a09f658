#if PostgreSQL
import ChatDomain

/// Rows of one table that retention deletes, or takes something from, when they are old: the next ones by id in one statement.
struct AgedRows: Sendable {
    let table: String
    let key: String
    /// Which rows, as `r`, are old enough and may go; `$3` is the limit.
    let condition: String
    /// Which rows show that old ones may follow, though they stay themselves; `nil`: those of the condition.
    var isPassed: String?
    /// What changes of them; `nil`: they are deleted.
    var change: String?
    /// Rows that one transaction looks at: few, so that nobody waits long behind it.
    var window = 500

    let walk = RetentionWalk()

    /// Of rows after `$1` the next `$2`.
    var sql: String {
        """
        WITH looked AS MATERIALIZED (
            SELECT \(key) AS id, \(condition) AS is_old, \(isPassed ?? condition) AS is_passed FROM \(table) r
            WHERE \(key) > $1::bigint ORDER BY \(key) LIMIT $2::bigint),
        done AS (
            \(change.map { "UPDATE \(table) SET \($0)" } ?? "DELETE FROM \(table)")
            WHERE \(key) = ANY (ARRAY(SELECT id FROM looked WHERE is_old)) RETURNING \(key))
        SELECT (SELECT count(*) FROM done), (SELECT count(*) FROM looked WHERE is_passed), (SELECT count(*) FROM looked),
            (SELECT max(id) FROM looked)
        """
    }

    /// - Returns: how many rows it deleted or changed.
    func apply(before time: Timestamp, _ database: PostgresDatabase) async throws(ChatError) -> Int {
        try await walk.run { after throws(ChatError) in
            try await database.write(.upkeep, isRepeatable: true) { transaction in
                let row = try transaction.row(sql, [.int(after), .int(window), .time(time)])
                guard let row else { return RetentionWalk.Window(deleted: 0, hasOld: false, last: nil) }
                return RetentionWalk.Window(
                    deleted: Int(try row.int(0)), hasOld: try row.int(1) > 0,
                    last: try row.int(2) < window ? nil : try row.optionalInt(3))
            }
        }
    }
}
#endif
