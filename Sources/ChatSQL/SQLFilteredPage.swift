import ChatDomain

/// The parameters of a statement that is assembled from parts.
package struct SQLParameters {
    package private(set) var values: [SQLValue] = []

    package init() {}

    /// - Returns: The placeholder of the value for the statement.
    package mutating func add(_ value: SQLValue, _ type: String = "bigint") -> String {
        values.append(value)
        return "CAST($\(values.count) AS \(type))"
    }

    package mutating func text(_ text: String?) -> String { add(.optional(text), "text") }
}

extension SQLTransaction {
    /// The matching rows of a page, and the cursor of the next page. The cursor is `nil` on the last page. The database
    /// applies the condition, so that only matching rows are read. Examines at most ``SQLPage/window`` candidates.
    /// - Parameters:
    ///   - columns: The columns to select. The first one has to be `key`.
    ///   - key: The column that defines the order, and serves as the cursor.
    ///   - candidates: The text between `FROM` and `ORDER BY`, with a `WHERE` clause. An index has to have the order of
    ///     `key`.
    ///   - condition: A condition for the candidates. `nil` for all. Its parameters follow those of the candidates.
    package func page(
        _ columns: String, key: String, of candidates: String, _ values: [SQLValue], where condition: String?,
        _ more: [SQLValue], limit: Int
    ) throws -> (rows: [Row], next: Int64?) {
        let limit = max(1, min(limit, SQLPage.window))
        let end = "SELECT \(key) FROM \(candidates) ORDER BY \(key) LIMIT 1 OFFSET \(SQLPage.window - 1)"
        let last = try condition == nil ? nil : row(end, values)?.int(0)
        let wanted = condition.map { "AND \($0) AND \(key) <= \(last ?? .max)" } ?? ""
        let rows = try rows(
            "SELECT \(columns) FROM \(candidates) \(wanted) ORDER BY \(key) LIMIT \(limit + 1)", values + more)
        if rows.count > limit { return (Array(rows.prefix(limit)), try rows[limit - 1].int(0)) }
        return (rows, last)
    }
}

extension SQLRow {
    /// A column with a JSON array of texts.
    package func texts(_ column: Int) throws -> [String] {
        let text = try text(column)
        if text == "[]" { return [] }
        guard let texts = (try? JSONValue(parsing: text))?.array?.compactMap(\.text) else {
            throw UnexpectedColumn(column: column)
        }
        return texts
    }
}
