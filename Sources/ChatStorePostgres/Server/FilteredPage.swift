import ChatDomain
import ChatSQL

/// The parameters of a statement that is assembled from parts.
struct PostgresParameters {
    private(set) var values: [SQLValue] = []

    /// - Returns: The placeholder of the value for the statement.
    mutating func add(_ value: SQLValue, _ type: String = "bigint") -> String {
        values.append(value)
        return "$\(values.count)::\(type)"
    }

    mutating func text(_ text: String?) -> String { add(.optional(text), "text") }
}

extension PostgresTransaction {
    /// The matching rows of a page, and the cursor of the next page. The cursor is `nil` on the last page. The server
    /// applies the condition, so that only matching rows are sent. Examines at most ``SQLPage/window`` candidates.
    /// - Parameters:
    ///   - columns: The columns to select. The first one has to be `key`.
    ///   - key: The column that defines the order, and serves as the cursor.
    ///   - candidates: The text between `FROM` and `ORDER BY`, with a `WHERE` clause. An index has to have the order of
    ///     `key`.
    ///   - condition: A condition for the candidates. `nil` for all. Its parameters follow those of the candidates.
    func page(
        _ columns: String, key: String, of candidates: String, _ values: [SQLValue], where condition: String?,
        _ more: [SQLValue], limit: Int
    ) throws -> (rows: [PostgresRow], next: Int64?) {
        let limit = max(1, min(limit, SQLPage.window))
        let end = "SELECT \(key) FROM \(candidates) ORDER BY \(key) OFFSET \(SQLPage.window - 1) LIMIT 1"
        let last = try condition == nil ? nil : row(end, values)?.int(0)
        let wanted = condition.map { "AND \($0) AND \(key) <= \(last ?? .max)" } ?? ""
        let rows = try rows(
            "SELECT \(columns) FROM \(candidates) \(wanted) ORDER BY \(key) LIMIT \(limit + 1)", values + more)
        if rows.count > limit { return (Array(rows.prefix(limit)), try rows[limit - 1].int(0)) }
        return (rows, last)
    }
}

extension PostgresRow {
    /// A column with a JSON array of texts.
    func texts(_ column: Int) throws -> [String] {
        let text = try text(column)
        if text == "[]" { return [] }
        guard let texts = (try? JSONValue(parsing: text))?.array?.compactMap(\.text) else {
            throw PostgresError.column(column, "array of texts")
        }
        return texts
    }
}
