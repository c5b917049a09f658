import ChatDomain

/// Old rows of one table that retention deletes or changes, a number of rows per statement, in the order of their ids.
struct AgedRows: Sendable {
    let table: String
    let key: String
    /// A condition on `r` for rows that are old enough to be deleted or changed. `$3` is the limit.
    let condition: String
    /// A condition for rows after which old ones may follow, even if they stay themselves. `nil` for ``condition``.
    var isPassed: String?
    /// The assignments that change a row. `nil` to delete it.
    var change: String?
    /// The number of rows that one transaction examines. It is small, so that no other transaction waits long.
    var window = 500

    let walk = RetentionWalk()

    /// Processes the next `$2` rows after `$1`.
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

    /// - Returns: The number of rows that it deleted or changed.
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
