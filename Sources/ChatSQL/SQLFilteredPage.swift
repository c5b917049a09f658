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

    /// - Returns: The placeholder of a list, for ``SQLDialect/isAny(_:of:_:)``.
    package mutating func list(_ value: SQLValue) -> String {
        values.append(value)
        return "$\(values.count)"
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
    ///     `key`. No condition may limit `key` from above: SQLite would use that limit and ignore the window's.
    ///   - upTo: The highest `key`.
    ///   - condition: A condition for the candidates. `nil` for all. Its parameters follow those of the candidates.
    package func page(
        _ columns: String, key: String, of candidates: String, _ values: [SQLValue], upTo: Int64 = .max,
        where condition: String?, _ more: [SQLValue], limit: Int
    ) throws -> (rows: [Row], next: Int64?) {
        let limit = max(1, min(limit, SQLPage.window))
        /// Returns a statement for the candidates up to a key, which is the parameter after `count` others.
        func select(_ columns: String, _ condition: String?, after count: Int, _ rest: String) -> String {
            """
            SELECT \(columns) FROM \(candidates) \(condition.map { "AND \($0)" } ?? "")
                AND \(key) <= CAST($\(count + 1) AS bigint) ORDER BY \(key) LIMIT \(rest)
            """
        }
        var last: Int64?
        if condition != nil {
            let end = select(key, nil, after: values.count, "1 OFFSET \(SQLPage.window - 1)")
            last = try row(end, values + [.int(upTo)])?.int(0)
        }
        let all = values + more
        let rows = try rows(
            select(columns, condition, after: all.count, "\(limit + 1)"), all + [.int(last ?? upTo)])
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
