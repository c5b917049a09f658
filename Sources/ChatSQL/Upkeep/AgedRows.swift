package import ChatDomain

/// Old rows of one table that retention deletes or changes, in the order of their ids.
package struct AgedRows: Sendable {
    let table: String
    let key: String
    /// A condition on `r` for rows that are old enough to be deleted or changed. `$1` is the limit.
    let condition: String
    /// A condition for rows after which old ones may follow, even if they stay themselves. `nil` for ``condition``.
    let isPassed: String?
    /// The statement that deletes or changes the rows.
    let statement: String
    /// The number of rows that one query examines.
    let window: Int
    /// The maximum number of rows that one transaction changes. It is small, so that no request waits long.
    let step: Int
    /// The terms of each step.
    let terms: WriteTerms
    private let walk = RetentionWalk()

    /// - Parameter change: The assignments that change a row. `nil` to delete it.
    package init(
        _ table: String, key: String, where condition: String, isPassed: String? = nil, change: String? = nil,
        window: Int = 2000, step: Int = 500, terms: WriteTerms = .upkeep
    ) {
        self.table = table
        self.key = key
        self.condition = condition
        self.isPassed = isPassed
        statement = change.map { "UPDATE \(table) AS r SET \($0)" } ?? "DELETE FROM \(table) AS r"
        self.window = window
        self.step = step
        self.terms = terms
    }

    /// Looks at the next rows after `$2`.
    package var windowSQL: String {
        """
        SELECT max(id), count(*), count(CASE WHEN is_old THEN 1 END) FROM (
            SELECT \(key) AS id, \(isPassed ?? condition) AS is_old FROM \(table) r
            WHERE \(key) > $2 ORDER BY \(key) LIMIT \(window)) AS w
        """
    }

    package var oldSQL: String {
        "SELECT \(key) FROM \(table) r WHERE \(key) > $2 AND \(key) <= $3 AND \(condition) ORDER BY \(key)"
    }

    package var stepSQL: String { "\(statement) WHERE \(key) BETWEEN $2 AND $3 AND \(condition)" }

    /// Queries in parallel with writers, and then changes the rows of a window in small steps.
    /// - Returns: The number of rows that it deleted or changed.
    package func apply(before time: Timestamp, _ database: some SQLDatabase) async throws(ChatError) -> Int {
        try await walk.run { after throws(ChatError) in
            let found = try await database.read {
                transaction -> (last: Int64, count: Int, isOld: Bool, old: [Int64])? in
                let row = try transaction.row(windowSQL, [.time(time), .int(after)])
                guard let row, let last = try row.optionalInt(0) else { return nil }
                let isOld = try row.int(2) > 0
                let old =
                    isOld || isPassed != nil
                    ? try transaction.rows(oldSQL, [.time(time), .int(after), .int(last)]) : []
                return (last, Int(try row.int(1)), isOld, try old.map { try $0.int(0) })
            }
            guard let found else { return RetentionWalk.Window(deleted: 0, hasOld: false, last: nil) }
            var deleted = 0
            for start in stride(from: 0, to: found.old.count, by: step) {
                let (first, last) = (found.old[start], found.old[min(start + step, found.old.count) - 1])
                deleted += try await database.write(as: terms) { transaction in
                    try transaction.run(stepSQL, [.time(time), .int(first), .int(last)])
                }
            }
            return RetentionWalk.Window(
                deleted: deleted, hasOld: found.isOld, last: found.count < window ? nil : found.last)
        }
    }
}
