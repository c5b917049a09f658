import Dispatch
import GRDB
import GRDBSQLite
import Synchronization

/// Moves what the write-ahead log holds into the database file, on a connection of its own, so that no answer waits for that:
/// it is thousands of pages, and two ways to the disk.
///
/// While writing goes on without a pause the log never comes to an end that is moved, and cannot begin anew; so above
/// ``limit`` the writer moves the rest itself, which is little then.
final class Checkpointer: Sendable {
    /// Pages that are new in the log until it is worth the while: four megabytes.
    static let step = 1000
    /// Pages in the log at the most, but for what one transaction adds: ``DatabaseFile/journalSize``.
    static let limit = DatabaseFile.journalSize / 4096

    private let path: String
    private let queue = DispatchQueue(label: "pushchat.checkpoint")
    private let isUnderWay = Atomic(false)
    /// Pages of the log that have been moved.
    private let moved = Atomic(0)
    /// Opened when it is needed first.
    private let connection = Mutex<DatabaseQueue?>(nil)

    init(path: String) {
        self.path = path
    }

    /// Takes the place of SQLite's own checkpoints after the commits of a connection, for which this object has to stay.
    func serve(_ db: Database) {
        let context = Unmanaged.passUnretained(self).toOpaque()
        sqlite3_wal_hook(
            db.sqliteConnection,
            { context, connection, _, pages in
                if let context, let connection {
                    Unmanaged<Checkpointer>.fromOpaque(context).takeUnretainedValue()
                        .committed(Int(pages), connection)
                }
                return SQLITE_OK
            }, context)
    }

    /// - Parameter pages: that the log has now.
    private func committed(_ pages: Int, _ writer: OpaquePointer) {
        // It has begun anew.
        if pages < moved.load(ordering: .relaxed) { moved.store(0, ordering: .relaxed) }
        if pages >= Self.limit {
            // Should that fail, it is tried again after the next commit.
            sqlite3_wal_checkpoint_v2(writer, nil, SQLITE_CHECKPOINT_PASSIVE, nil, nil)
        } else if pages - moved.load(ordering: .relaxed) >= Self.step,
            !isUnderWay.exchange(true, ordering: .relaxed)
        {
            queue.async { [self] in
                // A full disk, say: the log stays as it is, and it is tried again after the next commit.
                if let pages = try? move() { moved.store(pages, ordering: .relaxed) }
                isUnderWay.store(false, ordering: .relaxed)
            }
        }
    }

    /// - Returns: how many pages of the log have been moved.
    private func move() throws -> Int {
        try connection.withLock { connection in
            if connection == nil { connection = try DatabaseQueue(path: path) }
            return try connection?.writeWithoutTransaction { db in
                try db.checkpoint(.passive).checkpointedFrameCount
            } ?? 0
        }
    }

    /// Waits for what is under way. There are no commits any more.
    func close() throws {
        try queue.sync { try connection.withLock { try $0?.close() } }
    }
}
