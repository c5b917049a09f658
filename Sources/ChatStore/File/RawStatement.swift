import GRDB
import GRDBSQLite

/// A statement on SQLite's own interface, for the few statements that run for each message or push. It creates no
/// objects.
///
/// It uses GRDB's statement cache, so a statement is prepared once per connection. The statement is free for the next
/// use when this value ends. Never use two values with the same SQL at the same time: they would share one statement.
/// Columns count from 0. Pointers to their content are valid until the next step.
struct RawStatement: ~Copyable {
    private let cached: Statement
    private var statement: SQLiteStatement { cached.sqliteStatement }

    /// - Parameter values: The values of all parameters, in order.
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
        // A parameter without a value would keep that of the previous use.
        precondition(position == sqlite3_bind_parameter_count(statement), sql)
        self.cached = cached
    }

    deinit {
        sqlite3_reset(cached.sqliteStatement)
    }

    /// Moves to the next row, or executes the statement.
    /// - Returns: False if there is no further row.
    func step() throws -> Bool {
        let code = sqlite3_step(statement)
        if code == SQLITE_ROW { return true }
        if code != SQLITE_DONE { throw Self.error(code, of: statement) }
        return false
    }

    /// Executes a statement that returns no rows.
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

    /// A count between 0 and ``mostCounted``, because other programs can write any value.
    func count(_ column: Int32) -> Int { Int(min(max(int(column), 0), Self.mostCounted)) }

    func optionalInt(_ column: Int32) -> Int64? { isNull(column) ? nil : int(column) }

    func bool(_ column: Int32) -> Bool { int(column) != 0 }

    /// The bytes of a text up to the first NUL, or of a blob. `nil` for NULL and for numbers.
    func bytes(_ column: Int32) -> UnsafeRawBufferPointer? {
        let type = sqlite3_column_type(statement, column)
        guard type == SQLITE_TEXT || type == SQLITE_BLOB else { return nil }
        // Works for text as well, which is stored as UTF-8. An empty blob has no address.
        let bytes = UnsafeRawBufferPointer(
            start: sqlite3_column_blob(statement, column), count: Int(sqlite3_column_bytes(statement, column)))
        // A program in C may have stored the terminating NUL as well.
        guard type == SQLITE_TEXT, let end = bytes.firstIndex(of: 0) else { return bytes }
        return UnsafeRawBufferPointer(rebasing: bytes[..<end])
    }

    /// All bytes of a text, even after a NUL, or of a blob. For a number, the bytes of its text. `nil` for NULL.
    func wholeBytes(_ column: Int32) -> UnsafeRawBufferPointer? {
        guard !isNull(column) else { return nil }
        // Call `sqlite3_column_blob` first, because it converts a number to text.
        let start = sqlite3_column_blob(statement, column)
        return UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(statement, column)))
    }

    /// The text of a column. `nil` if the column is not a text. Invalid UTF-8 is repaired.
    func text(_ column: Int32) -> String? {
        guard sqlite3_column_type(statement, column) == SQLITE_TEXT else { return nil }
        return bytes(column).map { String(decoding: $0, as: UTF8.self) }
    }
}

/// A value that can be bound to a parameter.
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
        // `SQLITE_TRANSIENT`: SQLite makes a copy.
        let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        // A null pointer would bind NULL.
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
