package import ChatDomain
import GRDB
package import Logging

/// The SQLite file as the stores use it: connections that read, one writer, a clock. It knows no table.
package final class SQLiteDatabase: Sendable {
    let pool: DatabasePool
    private let scanner: DatabaseQueue
    let writer: BatchingWriter
    let clock: TimeSource
    let logger: Logger

    /// Opens or creates the file.
    /// - Throws: ``DatabaseFile/Unusable``, or ``ChatError`` when the disk is in the way just now.
    package init(file: DatabaseFile, clock: @escaping TimeSource = Timestamp.now, logger: Logger) throws {
        do {
            self.pool = try file.open()
            self.scanner = try file.openScanner()
        } catch  where error.isDiskProblem {
            throw ChatError(storing: error)
        }
        self.writer = BatchingWriter(pool: pool)
        self.clock = clock
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
        do {
            return try await scanner.read(body)
        } catch {
            throw ChatError(storing: error)
        }
    }

    /// Reads beside the writer, from the last commit.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        do {
            return try await pool.read(body)
        } catch {
            throw ChatError(storing: error)
        }
    }
}

extension ChatError {
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

    /// The disk or another process is in the way: it fails everything alike, and passes.
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

extension Row {
    /// A column with a time as SQLite's date functions write it; nil where another program wrote something else.
    func optionalTime(_ index: Int) -> Timestamp? {
        (self[index] as String?).flatMap(Timestamp.init(sqlText:))
    }

    func time(_ index: Int) -> Timestamp {
        optionalTime(index) ?? Timestamp(milliseconds: 0)
    }
}
