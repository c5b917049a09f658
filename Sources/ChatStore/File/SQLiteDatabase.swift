package import ChatDomain
import GRDB
package import Logging

/// The SQLite file as the stores use it: connections for reading, one writer, a clock. It does not know any table.
package final class SQLiteDatabase: Sendable {
    let pool: DatabasePool
    private let scanner: DatabaseQueue
    let writer: BatchingWriter
    let files: FileIdentityCheck
    let now: TimeSource
    let logger: Logger

    /// Opens or creates the file.
    /// - Throws: ``DatabaseFile/Unusable``, or ``ChatError`` if the disk is full or another process has locked the
    ///   file.
    package init(file: DatabaseFile, now: @escaping TimeSource = Timestamp.now, logger: Logger) throws {
        do {
            let (pool, upgrade) = try file.open()
            self.pool = pool
            if let upgrade {
                logger.notice(
                    "the database was upgraded",
                    metadata: ["from": "\(upgrade.from)", "to": "\(file.schema.version)", "copy": "\(upgrade.copy)"])
            }
            self.scanner = try file.openScanner()
        } catch  where error.isDiskProblem {
            throw ChatError(storing: error)
        }
        let files = FileIdentityCheck(of: file.path)
        self.files = files
        self.writer = BatchingWriter(pool: pool, obstacle: { files.missing.map(ChatError.moved) })
        self.now = now
        self.logger = logger
    }

    /// Closes the connections, after moving everything into the main file. Calls after this one fail.
    package func close() throws {
        try scanner.close()
        do {
            try pool.writeWithoutTransaction { db in
                try writer.checkpointer.end(db)
                _ = try db.checkpoint(.truncate)
            }
        } catch {
            // Another process is reading. The data is just as durable in the write-ahead log.
            logger.debug("the write-ahead log stays", metadata: ["error": "\(error)"])
        }
        try pool.close()
    }

    /// Reads the queue on a connection of its own. The queue's reads and the API's reads thus do not wait for each
    /// other, and do not evict each other's cached pages.
    func scan<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        try await read(scanner, body)
    }

    /// Reads the state of the last commit, in parallel with the writer.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        try await read(pool, body)
    }

    private func read<Value: Sendable>(
        _ reader: some DatabaseReader, _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        // A connection opened now would belong to a different file.
        if let file = files.missing { throw .moved(file) }
        do {
            return try await reader.read(body)
        } catch {
            throw ChatError(storing: error)
        }
    }
}

extension ChatError {
    /// A file of ``FileIdentityCheck`` was deleted, moved or replaced.
    static func moved(_ file: String) -> ChatError {
        .unavailable(cause: "\(file) was deleted, moved or replaced")
    }

    /// Maps a failed database call to an error for the client: unavailable if a retry can help, internal error
    /// otherwise.
    init(storing error: any Error) {
        switch error {
        case let error as ChatError:
            self = error
        case let error as DatabaseError where error.isDiskProblem:
            self = .unavailable(cause: String(describing: error))
        default:
            self = ChatError(
                .internalError, "The server made a mistake; nothing was accepted", cause: String(describing: error))
        }
    }
}

extension Error {
    /// Whether another process kept the database locked for ``DatabaseFile/busyTimeout``.
    var isLockProblem: Bool {
        guard let error = self as? DatabaseError else { return false }
        return error.resultCode == .SQLITE_BUSY || error.resultCode == .SQLITE_LOCKED
    }

    /// Whether the cause is the disk or another process. The problem is then temporary, and every operation fails in
    /// the same way.
    var isDiskProblem: Bool {
        guard let error = self as? DatabaseError else { return false }
        switch error.resultCode {
        case .SQLITE_FULL, .SQLITE_IOERR, .SQLITE_BUSY, .SQLITE_LOCKED, .SQLITE_READONLY, .SQLITE_CANTOPEN,
            .SQLITE_NOMEM, .SQLITE_PROTOCOL:
            return true
        default:
            return false
        }
    }
}

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

    /// The number of candidates to examine for one page, which takes a few milliseconds. It bounds the cost of a page,
    /// even if the table has many rows and few of them match.
    static let pageWindow = 5000

    /// The matching rows of a page, and the cursor of the next page. The cursor is `nil` on the last page.
    /// - Parameters:
    ///   - sql: Selects candidates in the order of the list. It has to return at least one more than `limit` or
    ///     ``pageWindow``, if the table has that many. The first column is the cursor.
    func page(
        _ sql: String, _ arguments: StatementArguments, limit: Int, where isWanted: (Row) -> Bool = { _ in true }
    ) throws -> (rows: [Row], next: Int64?) {
        let candidates = try Row.fetchCursor(cachedStatement(sql: sql), arguments: arguments)
        var (rows, looked, last) = ([Row](), 0, Int64?.none)
        while let row = try candidates.next() {
            guard rows.count < limit, looked < Self.pageWindow else { return (rows, last) }
            looked += 1
            last = row[0]
            if isWanted(row) { rows.append(row.copy()) }
        }
        return (rows, nil)
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
