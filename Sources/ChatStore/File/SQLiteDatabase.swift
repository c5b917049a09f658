package import ChatDomain
package import ChatSQL
import GRDB
package import Logging

/// The SQLite file as the stores use it: connections for reading, one writer, a clock. It does not know any table.
package final class SQLiteDatabase: Sendable {
    let pool: DatabasePool
    private let scanner: DatabaseQueue
    let writer: BatchingWriter
    let files: FileIdentityCheck
    package let now: TimeSource
    package let longReads = LongReads()
    let listeners = AnnouncementListeners()
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

extension DatabaseError {
    /// The problem, for the operator. SQLite itself does not name a full disk if it has no room for the `-shm` file
    /// ("disk I/O error") or for a copy ("not an error").
    var reason: String {
        resultCode == .SQLITE_FULL || extendedResultCode == .SQLITE_IOERR_SHMSIZE ? "the disk is full" : "\(self)"
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
