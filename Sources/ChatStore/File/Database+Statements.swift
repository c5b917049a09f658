import ChatDomain
import ChatSQL
import GRDB

/// Each statement is prepared once per connection.
extension Database {
    /// - Returns: The number of rows that it changed.
    @discardableResult
    func run(_ sql: String, _ arguments: StatementArguments = []) throws -> Int {
        try cachedStatement(sql: sql).execute(arguments: arguments)
        return changesCount
    }

    func rows(_ sql: String, _ arguments: StatementArguments = []) throws -> [Row] {
        try Row.fetchAll(cachedStatement(sql: sql), arguments: arguments)
    }

    func row(_ sql: String, _ arguments: StatementArguments = []) throws -> Row? {
        try Row.fetchOne(cachedStatement(sql: sql), arguments: arguments)
    }

    /// The first column of the first row. `nil` if there is no row or the value is NULL.
    func value<Value: DatabaseValueConvertible & StatementColumnConvertible>(
        _ sql: String, _ arguments: StatementArguments = []
    ) throws -> Value? {
        try Value.fetchOne(cachedStatement(sql: sql), arguments: arguments)
    }

    /// The first column of all rows.
    func values<Value: DatabaseValueConvertible & StatementColumnConvertible>(
        _ sql: String, _ arguments: StatementArguments = []
    ) throws -> [Value] {
        try Value.fetchAll(cachedStatement(sql: sql), arguments: arguments)
    }

    /// The matching rows of a page, and the cursor of the next page. The cursor is `nil` on the last page.
    /// - Parameters:
    ///   - sql: Selects candidates in the order of the list. It has to return at least one more than `limit` or
    ///     ``SQLPage/window``, if the table has that many. The first column is the cursor.
    func page(
        _ sql: String, _ arguments: StatementArguments, limit: Int, where isWanted: (Row) -> Bool = { _ in true }
    ) throws -> (rows: [Row], next: Int64?) {
        let candidates = try Row.fetchCursor(cachedStatement(sql: sql), arguments: arguments)
        var (page, rows) = (SQLPage(limit: limit), [Row]())
        while let row = try candidates.next(), page.examines(row[0], found: rows.count) {
            if isWanted(row) { rows.append(row.copy()) }
        }
        return (rows, page.next)
    }
}

extension Row {
    /// A column with a time in the format of SQLite's date functions. `nil` if another program wrote a different
    /// format.
    func optionalTime(_ index: Int) -> Timestamp? {
        (self[index] as String?).flatMap(Timestamp.init(sqlText:))
    }

    func time(_ index: Int) -> Timestamp {
        optionalTime(index) ?? Timestamp(milliseconds: 0)
    }
}
