package import ChatDomain
import Foundation
import GRDB
import GRDBSQLite

/// A SQLite file that `pushchat migrate` reads or creates. Use it only on the thread that runs `body`.
package struct SQLiteMigration: MigrationTarget {
    /// Columns that are not copied, with their values in a new file. `settled_to` is one of them, because the relay
    /// determines it again.
    private static let own = ["queue_state": (column: "settled_to", value: "-4611686018427387904")]
    package static let leftOut = Set(own.map { "\($0.key).\($0.value.column)" })

    private let db: Database
    private let path: String

    // MARK: - Files

    /// Reads a file with the current schema version that no relay serves. Other programs cannot write to it at the same
    /// time.
    /// - Throws: ``DatabaseFile/Unusable``, and the errors of `body`.
    package static func read<Result>(
        _ path: String, _ body: (SQLiteMigration) throws -> Result
    ) throws -> Result {
        // The lock would create the file.
        guard access(path, F_OK) == 0 else { throw DatabaseFile.Unusable(description: "\(path) does not exist") }
        return try FileRights(reading: path).perform {
            let lock = try DatabaseLock(path: path)
            let result = try describingErrors(of: path) {
                let file = DatabaseFile(path: path, isArgument: true)
                let queue = try file.openExisting()
                try queue.read(file.requireCurrent)
                // Other writers wait, and then get an error that the file is busy.
                return try transaction(queue, .immediate) { try body(SQLiteMigration(db: $0, path: path)) }
            }
            // Keeps the lock until here.
            _ = consume lock
            return result
        }
    }

    /// Creates a file and lets `body` fill it. The file gets its name after `body` has returned and all data is on
    /// disk. A relay that tries to serve it before is refused.
    /// - Parameter interrupted: Called if an earlier migration did not finish. It starts again from the beginning.
    /// - Throws: ``DatabaseFile/Unusable``, and the errors of `body`. There is no such file then.
    package static func write<Result>(
        _ path: String, interrupted: () -> Void = {}, _ body: (SQLiteMigration) throws -> Result
    ) throws -> Result {
        let file = DatabaseFile.resolved(path)
        return try FileRights(changing: path).perform { try write(path, file, interrupted, body) }
    }

    private static func write<Result>(
        _ path: String, _ file: String, _ interrupted: () -> Void, _ body: (SQLiteMigration) throws -> Result
    ) throws -> Result {
        var status = stat()
        let isMissing = stat(file, &status) != 0
        func requireEmpty() throws {
            // A process that was killed leaves an empty file.
            guard stat(file, &status) != 0 || (status.st_mode & S_IFMT == S_IFREG && status.st_size == 0) else {
                throw DatabaseFile.Unusable(description: "\(path) exists already; name a file that does not")
            }
        }
        try requireEmpty()
        try DatabaseCopy.requireNoLog(file)
        let lock = try DatabaseLock(path: path)
        let draft = file + ".migrating"
        func removeDraft() { for suffix in ["", "-journal", "-wal", "-shm"] { unlink(draft + suffix) } }
        let result: Result
        do {
            if access(draft, F_OK) == 0 { interrupted() }
            removeDraft()
            defer { removeDraft() }
            result = try make(draft, for: path, body)
            try DatabaseCopy.sync(draft)
            try DatabaseCopy.giveToOwner(of: file, isMissing: isMissing, draft, lock)
            try requireEmpty()
            guard rename(draft, file) == 0 else { throw DatabaseFile.unusable("\(path) cannot be created") }
        } catch {
            // The lock has created the file.
            if isMissing, stat(file, &status) == 0, status.st_size == 0 { unlink(file) }
            throw error
        }
        try DatabaseCopy.sync(DatabaseFile.folder(of: file))
        _ = consume lock
        return result
    }

    /// The page cache while a file is filled, in kilobytes.
    private static let cache = 32_000

    private static func make<Result>(
        _ draft: String, for path: String, _ body: (SQLiteMigration) throws -> Result
    ) throws -> Result {
        let descriptor = Foundation.open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw DatabaseFile.unusable("\(path) cannot be written") }
        close(descriptor)
        var configuration = DatabaseFile.configuration("pushchat migrate")
        // An unfinished draft is deleted. It needs no journal, and is synced once at the end.
        configuration.prepareDatabase { db in
            try db.execute(
                sql: """
                    PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;
                    PRAGMA cache_size = -\(cache)
                    """)
        }
        return try describingErrors(of: path) {
            let queue = try DatabaseQueue(path: draft, configuration: configuration)
            return try transaction(queue, .exclusive) { db in
                try Schema.current.bringUpToDate(db, path: path)
                return try body(SQLiteMigration(db: db, path: path))
            }
        }
    }

    /// Runs a transaction and closes the connection.
    private static func transaction<Result>(
        _ queue: DatabaseQueue, _ kind: Database.TransactionKind, _ body: (Database) throws -> Result
    ) throws -> Result {
        var result: Result?
        try queue.inTransaction(kind) { db in
            result = try body(db)
            return .commit
        }
        try queue.close()
        guard let result else { throw DatabaseFile.Unusable(description: "\(queue.path) cannot be used") }
        return result
    }

    private static func describingErrors<Result>(of path: String, _ work: () throws -> Result) throws -> Result {
        do {
            return try work()
        } catch let error as DatabaseError {
            let problem = error.isLockProblem ? "is in use by another program; close that first" : "cannot be used"
            throw DatabaseFile.Unusable(description: "\(path) \(problem) (\(error.reason))")
        }
    }

    // MARK: - Rows

    package func read(_ table: MigratedTable, _ row: (UnsafeRawBufferPointer) throws -> Void) throws {
        let columns = table.columns.map(\.source).joined(separator: ", ")
        let keys = table.columns.prefix(table.keys).map { "\(table.name).\($0.name)" }.joined(separator: ", ")
        let rows = try RawStatement(db, "SELECT \(columns) FROM \(table.rows) ORDER BY \(keys)")
        let kinds = table.columns.map(\.kind)
        var line = RowWriter()
        while try rows.step() {
            line.begin()
            for (index, kind) in kinds.enumerated() {
                do throws(RowWriter.Problem) {
                    try Self.add(rows, Int32(index), kind, to: &line)
                } catch {
                    throw unusable(table, rows, "\(table.columns[index].name) \(error)")
                }
            }
            line.end()
            try line.bytes.withUnsafeBytes(row)
        }
    }

    private static func add(
        _ rows: borrowing RawStatement, _ column: Int32, _ kind: MigratedTable.Column.Kind, to line: inout RowWriter
    ) throws(RowWriter.Problem) {
        guard !rows.isNull(column) else { return line.addNull() }
        switch kind {
        case .number: line.add(number: rows.int(column))
        case .flag: line.add(flag: rows.bool(column))
        case .text: if let text = rows.wholeBytes(column) { try line.add(text: text) }
        case .time: if let text = rows.wholeBytes(column) { try line.add(time: text) }
        case .bytes: if let bytes = rows.wholeBytes(column) { line.add(bytes: bytes) }
        }
    }

    /// The error for a row, which names the row by its key.
    private func unusable(
        _ table: MigratedTable, _ rows: borrowing RawStatement, _ problem: String
    ) -> DatabaseFile.Unusable {
        var key: [String] = []
        for (index, column) in table.columns.prefix(table.keys).enumerated() {
            let value = rows.wholeBytes(Int32(index)).map { String(decoding: $0, as: UTF8.self) } ?? "NULL"
            key.append("\(column.name) \(value)")
        }
        return DatabaseFile.Unusable(
            description: """
                \(path), table \(table.name), \(key.joined(separator: ", ")): \(problem); change it or delete the row, and \
                run it again
                """)
    }

    package func write(
        _ table: MigratedTable, _ rows: (_ row: (UnsafeRawBufferPointer) throws -> Void) throws -> Void
    ) throws {
        try db.execute(sql: "DELETE FROM \(table.name)")
        let own = Self.own[table.name]
        let names = table.columns.map(\.name) + (own.map { [$0.column] } ?? [])
        let values = table.columns.map { _ in "?" } + (own.map { [$0.value] } ?? [])
        let statement = try db.makeStatement(
            sql: """
                INSERT INTO \(table.name) (\(names.joined(separator: ", "))) VALUES (\(values.joined(separator: ", ")))
                """)
        // Keep the statement alive as long as its SQLite handle is in use.
        defer { withExtendedLifetime(statement) {} }
        let insert = statement.sqliteStatement
        let columns = table.columns
        var reader = RowReader()
        try rows { row in
            try reader.read(row) { index, bytes in
                guard index < columns.count, Self.bind(bytes, columns[index].kind, to: insert, Int32(index + 1)) else {
                    throw DatabaseFile.Unusable(
                        description: """
                            table \(table.name), \(columns[min(index, columns.count - 1)].name) has a value that \
                            SQLite cannot store, in the row: \(String(decoding: row.prefix(200), as: UTF8.self))
                            """)
                }
            }
            let code = sqlite3_step(insert)
            guard code == SQLITE_DONE else {
                throw DatabaseFile.Unusable(
                    description: """
                        table \(table.name): \(String(cString: sqlite3_errmsg(db.sqliteConnection))), with the row: \
                        \(String(decoding: row.prefix(200), as: UTF8.self))
                        """)
            }
            sqlite3_reset(insert)
        }
        guard table.name == "notifications" else { return }
        // In a SQLite file, a cancellation progresses by push id.
        try db.execute(
            sql: """
                UPDATE notifications SET work_after = coalesce(first_push, 1) - 1, work_until = coalesce(last_push, 0)
                WHERE work = 'cancel'
                """)
    }

    /// - Returns: Whether the bytes are a valid value for the column.
    private static func bind(
        _ bytes: UnsafeRawBufferPointer?, _ kind: MigratedTable.Column.Kind, to statement: SQLiteStatement,
        _ position: Int32
    ) -> Bool {
        guard let bytes else { return sqlite3_bind_null(statement, position) == SQLITE_OK }
        // `SQLITE_TRANSIENT`: SQLite makes a copy.
        let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        switch kind {
        case .number:
            guard let number = Int64(String(decoding: bytes, as: UTF8.self)) else { return false }
            return sqlite3_bind_int64(statement, position, number) == SQLITE_OK
        case .flag:
            return sqlite3_bind_int64(statement, position, bytes.first == UInt8(ascii: "t") ? 1 : 0) == SQLITE_OK
        case .time where bytes.count != 23 || Timestamp(sqlText: bytes) == nil:
            return false
        case .text, .time:
            let text = bytes.bindMemory(to: CChar.self).baseAddress
            return sqlite3_bind_text(statement, position, text, Int32(bytes.count), copied) == SQLITE_OK
        case .bytes:
            guard bytes.starts(with: "\\x".utf8),
                let value = Hex.bytes(UnsafeRawBufferPointer(rebasing: bytes.dropFirst(2)))
            else { return false }
            return sqlite3_bind_blob(statement, position, value, Int32(value.count), copied) == SQLITE_OK
        }
    }

    package func highestNumber(of table: MigratedTable) throws -> Int64 {
        try Int64.fetchOne(
            db,
            sql: """
                SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '\(table.name)'), 0),
                    coalesce((SELECT max(\(table.columns[0].name)) FROM \(table.name)), 0))
                """) ?? 0
    }

    package func setHighestNumber(of table: MigratedTable, _ number: Int64) throws {
        try db.execute(sql: "DELETE FROM sqlite_sequence WHERE name = ?", arguments: [table.name])
        try db.execute(
            sql: "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", arguments: [table.name, number])
    }

    package func unknown() throws -> [String] {
        let columns = try Row.fetchAll(
            db,
            sql: """
                SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
                WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY t.name, c.cid
                """)
        let others = try String.fetchAll(
            db, sql: "SELECT type || ' ' || name FROM sqlite_schema WHERE type IN ('view', 'trigger') ORDER BY 1")
        return MigratedTable.unknown(among: columns.map { ($0[0], $0[1]) }, leftOut: Self.leftOut) + others
    }
}
