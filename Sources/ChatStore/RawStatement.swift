import GRDB
import GRDBSQLite

/// A statement on SQLite's own interface, for the few that run with each message or push: they make no objects.
///
/// It is one of GRDB's cached statements, so it is prepared once a connection, and is free for the next use when this value
/// goes. Columns count from 0; what they point to is good until the next step.
struct RawStatement: ~Copyable {
    private let statement: SQLiteStatement

    /// - Parameter values: for the parameters, in their order, all of them.
    init<each Value: RawValue>(_ db: Database, _ sql: String, _ values: repeat each Value) throws {
        let statement = try db.cachedStatement(sql: sql).sqliteStatement
        try Self.bind(statement, repeat each values)
        self.statement = statement
    }

    deinit {
        sqlite3_reset(statement)
    }

    /// Starts again with other values.
    func bind<each Value: RawValue>(_ values: repeat each Value) throws {
        try Self.bind(statement, repeat each values)
    }

    private static func bind<each Value: RawValue>(
        _ statement: SQLiteStatement, _ values: repeat each Value
    ) throws {
        sqlite3_reset(statement)
        var position: Int32 = 0
        for value in repeat each values {
            position += 1
            let code = value.bind(to: statement, at: position)
            if code != SQLITE_OK { throw error(code, of: statement) }
        }
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

    func optionalInt(_ column: Int32) -> Int64? { isNull(column) ? nil : int(column) }

    func bool(_ column: Int32) -> Bool { int(column) != 0 }

    /// Of text or a blob; nil for NULL and for numbers.
    func bytes(_ column: Int32) -> UnsafeRawBufferPointer? {
        let type = sqlite3_column_type(statement, column)
        guard type == SQLITE_TEXT || type == SQLITE_BLOB else { return nil }
        // For text, too: it is stored as UTF-8. An empty blob has no address.
        return UnsafeRawBufferPointer(
            start: sqlite3_column_blob(statement, column), count: Int(sqlite3_column_bytes(statement, column)))
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
