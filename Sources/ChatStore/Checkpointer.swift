import ChatDomain
import Dispatch
import Foundation
import GRDB
import GRDBSQLite
import Synchronization

/// Copies the pages of the write-ahead log into the database file (a checkpoint), on a connection of its own, so that no answer
/// waits for that: it is thousands of pages, and two syncs.
///
/// SQLite writes to the log's start again only when all of its pages were copied. While writing goes on without a pause that
/// never happens; so above ``limit`` pages the writer copies the rest itself as soon as that is little.
final class Checkpointer: Sendable {
    /// New pages in the log from which on a checkpoint pays: four megabytes.
    static let step = 1000
    /// Pages in the log from which on the writer copies the rest.
    static let limit = DatabaseFile.journalSize / 4096
    /// Pages from which on the writer waits, and copies what there is, because this connection cannot keep up.
    static let extreme = 2 * limit

    private let path: String
    private let queue = DispatchQueue(label: "pushchat.checkpoint")
    private let isUnderWay = Atomic(false)
    /// Pages of the log that have been copied.
    private let copied = Atomic(0)
    /// Opened when it is needed first. Of the queue alone.
    private let connection = Mutex<DatabaseQueue?>(nil)
    private let times = (beside: Histogram(Histogram.moments), writing: Histogram(Histogram.moments))

    init(path: String) {
        self.path = path
    }

    /// Of each checkpoint, by who has made it.
    var seconds: [(by: String, seconds: Histogram.Snapshot)] {
        [("checkpointer", times.beside.snapshot), ("writer", times.writing.snapshot)]
    }

    /// Takes the place of SQLite's own checkpoints after the commits of a connection, for which this object has to stay until
    /// the connection is closed, or ``end(_:)``.
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

    /// Leaves it to SQLite again, and waits for what is under way.
    func end(_ db: Database) throws {
        sqlite3_wal_autocheckpoint(db.sqliteConnection, Int32(Self.step))
        try queue.sync {
            try connection.withLock { connection in
                try connection?.close()
                connection = nil
            }
        }
    }

    /// - Parameter pages: that the log has now.
    private func committed(_ pages: Int, _ writer: OpaquePointer) {
        // SQLite writes to its start again.
        if pages < copied.load(ordering: .relaxed) { copied.store(0, ordering: .relaxed) }
        let rest = pages - copied.load(ordering: .relaxed)
        if pages >= Self.limit, rest < 4 * Self.step || pages >= Self.extreme {
            let begin = ContinuousClock.now
            // One at a time: while the other copies, this would copy nothing, and the log would go on to grow.
            if pages >= Self.extreme { queue.sync {} }
            // Should that fail, it is tried again after the next commit.
            sqlite3_wal_checkpoint_v2(writer, nil, SQLITE_CHECKPOINT_PASSIVE, nil, nil)
            times.writing.record(ContinuousClock.now - begin)
        } else if rest >= Self.step, !isUnderWay.exchange(true, ordering: .relaxed) {
            queue.async { [self] in
                // A full disk, say: the log stays as it is, and it is tried again after the next commit.
                let begin = ContinuousClock.now
                if let pages = try? checkpoint() { copied.store(pages, ordering: .relaxed) }
                times.beside.record(ContinuousClock.now - begin)
                isUnderWay.store(false, ordering: .relaxed)
            }
        }
    }

    /// - Returns: how many pages of the log have been copied.
    private func checkpoint() throws -> Int {
        try connection.withLock { connection in
            if connection == nil {
                // Opening would make a new one.
                guard access(path, F_OK) == 0 else { return 0 }
                connection = try DatabaseQueue(path: path)
            }
            return try connection?.writeWithoutTransaction { db in
                try db.checkpoint(.passive).checkpointedFrameCount
            } ?? 0
        }
    }
}
