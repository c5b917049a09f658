import GRDB
import GRDBSQLite

/// A statement on SQLite's own interface, for the few that run with each message or push: they make no objects.
///
/// It is one of GRDB's cached statements, so it is prepared once a connection, and is free for the next use when this value
/// goes: two of the same SQL at a time would be one. Columns count from 0; what they point to is good until the next step.
struct RawStatement: ~Copyable {
    private let cached: Statement
    private var statement: SQLiteStatement { cached.sqliteStatement }

    /// - Parameter values: for the parameters, in their order, all of them.
    init<each Value: RawValue>(_ db: Database, _ sql: String, _ values: repeat each Value) throws {
        let cached = try db.cachedStatement(sql: sql)
        let statement = cached.sqliteStatement
        sqlite3_reset(statement)
        var position: Int32 = 0
        for value in repeat each values {
            position += 1
            let code = value.bind(to: statement, at: position)
            if code != SQLITE_OK { throw Self.error(code, of: statement) }
        }
        // Else a value of the last use would stand.
        precondition(position == sqlite3_bind_parameter_count(statement), sql)
        self.cached = cached
    }

    deinit {
        sqlite3_reset(cached.sqliteStatement)
    }

    /// Goes to the next row, or does what is to be done.
    /// - Returns: false when there is no row any more.
    func step() throws -> Bool {
        let code = sqlite3_step(statement)
        if code == SQLITE_ROW { return true }
        if code != SQLITE_DONE { throw Self.error(code, of: statement) }
        return false
    }

    /// For statements without rows.
    func run() throws {
        while try step() {}
    }

    private static func error(_ code: Int32, of statement: SQLiteStatement) -> DatabaseError {
        DatabaseError(
            resultCode: ResultCode(rawValue: code),
            message: sqlite3_db_handle(statement).map { String(cString: sqlite3_errmsg($0)) },
            sql: sqlite3_sql(statement).map { String(cString: $0) })
    }

    func isNull(_ column: Int32) -> Bool { sqlite3_column_type(statement, column) == SQLITE_NULL }

    /// 0 for NULL.
    func int(_ column: Int32) -> Int64 { sqlite3_column_int64(statement, column) }

    static let mostCounted: Int64 = 1_000_000

    /// A number of times, from 0 to ``mostCounted``: another program may have written anything.
    func count(_ column: Int32) -> Int { Int(min(max(int(column), 0), Self.mostCounted)) }

    func optionalInt(_ column: Int32) -> Int64? { isNull(column) ? nil : int(column) }

    func bool(_ column: Int32) -> Bool { int(column) != 0 }

    /// Of text, up to a NUL, or of a blob; nil for NULL and for numbers.
    func bytes(_ column: Int32) -> UnsafeRawBufferPointer? {
        let type = sqlite3_column_type(statement, column)
        guard type == SQLITE_TEXT || type == SQLITE_BLOB else { return nil }
        // For text, too: it is stored as UTF-8. An empty blob has no address.
        let bytes = UnsafeRawBufferPointer(
            start: sqlite3_column_blob(statement, column), count: Int(sqlite3_column_bytes(statement, column)))
        // A program in C may have stored the end of its string, too.
        guard type == SQLITE_TEXT, let end = bytes.firstIndex(of: 0) else { return bytes }
        return UnsafeRawBufferPointer(rebasing: bytes[..<end])
    }

    /// All bytes of text, also behind a NUL, or of a blob; of a number its text. Nil for NULL.
    func wholeBytes(_ column: Int32) -> UnsafeRawBufferPointer? {
        guard !isNull(column) else { return nil }
        // First the blob: it makes the text of a number.
        let start = sqlite3_column_blob(statement, column)
        return UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(statement, column)))
    }

    /// Nil for what is no text; what is no UTF-8 is repaired.
    func text(_ column: Int32) -> String? {
        guard sqlite3_column_type(statement, column) == SQLITE_TEXT else { return nil }
        return bytes(column).map { String(decoding: $0, as: UTF8.self) }
    }
}

/// What can stand for a parameter.
protocol RawValue {
    func bind(to statement: SQLiteStatement, at position: Int32) -> Int32
}

extension Int64: RawValue {
    func bind(to statement: SQLiteStatement, at position: Int32) -> Int32 {
        sqlite3_bind_int64(statement, position, self)
    }
}

extension String: RawValue {
    func bind(to statement: SQLiteStatement, at position: Int32) -> Int32 {
        // It makes a copy (`SQLITE_TRANSIENT`).
        let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        // No address at all would be NULL.
        if isEmpty { return sqlite3_bind_text(statement, position, "", 0, copied) }
        var text = self
        return text.withUTF8 { bytes in
            bytes.withMemoryRebound(to: CChar.self) {
                sqlite3_bind_text(statement, position, $0.baseAddress, Int32($0.count), copied)
            }
        }
    }
}

extension Optional: RawValue where Wrapped: RawValue {
    func bind(to statement: SQLiteStatement, at position: Int32) -> Int32 {
        guard let self else { return sqlite3_bind_null(statement, position) }
        return self.bind(to: statement, at: position)
    }
}
