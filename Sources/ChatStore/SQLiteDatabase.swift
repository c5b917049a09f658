package import ChatDomain
import GRDB
package import Logging

/// The SQLite file as the stores use it: connections that read, one writer, a clock. It knows no table.
package final class SQLiteDatabase: Sendable {
    let pool: DatabasePool
    private let scanner: DatabaseQueue
    let writer: BatchingWriter
    let files: FileIdentityCheck
    let now: TimeSource
    let logger: Logger

    /// Opens or creates the file.
    /// - Throws: ``DatabaseFile/Unusable``, or ``ChatError`` when the disk is full or the file is locked just now.
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

    /// Closes the connections, with everything in the one file. Calls after it fail.
    package func close() throws {
        try scanner.close()
        do {
            try pool.writeWithoutTransaction { db in
                try writer.checkpointer.end(db)
                _ = try db.checkpoint(.truncate)
            }
        } catch {
            // Somebody reads: what is in the write-ahead log is as durable there.
            logger.debug("the write-ahead log stays", metadata: ["error": "\(error)"])
        }
        try pool.close()
    }

    /// Reads the queue, apart from what callers of the API read: neither waits for the other, nor takes its memory.
    func scan<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        try await read(scanner, body)
    }

    /// Reads beside the writer, from the last commit.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        try await read(pool, body)
    }

    private func read<Value: Sendable>(
        _ reader: some DatabaseReader, _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        // A connection that is opened now would be one to another file.
        if let file = files.missing { throw .moved(file) }
        do {
            return try await reader.read(body)
        } catch {
            throw ChatError(storing: error)
        }
    }
}

extension ChatError {
    /// One of ``FileIdentityCheck`` is not where it was.
    static func moved(_ file: String) -> ChatError {
        .unavailable(cause: "\(file) was deleted, moved or replaced")
    }

    /// What a failed database call means for the user: come later, or a fault of ours.
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
    /// Another process holds the database, and did so for ``DatabaseFile/busyTimeout``.
    var isLockProblem: Bool {
        guard let error = self as? DatabaseError else { return false }
        return error.resultCode == .SQLITE_BUSY || error.resultCode == .SQLITE_LOCKED
    }

    /// Of the disk or of another process: temporary, and every operation fails alike.
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

/// Statements that are prepared once a connection.
extension Database {
    /// - Returns: how many rows it changed.
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

    /// The first column of the first row; nil where there is no row, or NULL.
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

    /// Candidates for a page that are looked at: some milliseconds. So a page costs the same however many rows there are and
    /// however few of them are wanted.
    static let pageWindow = 5000

    /// The wanted rows of a page, and the cursor of the next page; nil at the end.
    /// - Parameters:
    ///   - sql: candidates in the order of the list, at least one more than `limit` or ``pageWindow``, where there are so
    ///     many. The first column is what the cursor counts by.
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
    /// A column with a time as SQLite's date functions write it; nil where another program wrote something else.
    func optionalTime(_ index: Int) -> Timestamp? {
        (self[index] as String?).flatMap(Timestamp.init(sqlText:))
    }

    func time(_ index: Int) -> Timestamp {
        optionalTime(index) ?? Timestamp(milliseconds: 0)
    }
}
