import ChatDomain
import Dispatch
import Foundation
import GRDB
import GRDBSQLite
import Synchronization

/// Copies the pages of the write-ahead log into the database file (a checkpoint), on a connection of its own. A
/// checkpoint is thousands of pages and two syncs, and no response should wait for it.
///
/// SQLite starts the log from the beginning only after all of its pages were copied. That never happens while writes
/// continue without a pause. So above ``limit`` pages, the writer copies the remaining pages itself as soon as they are
/// few.
final class Checkpointer: Sendable {
    /// The number of new pages in the log that make a checkpoint worthwhile: four megabytes.
    static let step = 1000
    /// The number of pages in the log above which the writer copies the remaining ones.
    static let limit = DatabaseFile.journalSize / 4096
    /// The number of pages above which the writer waits and copies all pages, because this connection cannot keep up.
    static let extreme = 2 * limit

    private let path: String
    private let queue = DispatchQueue(label: "pushchat.checkpoint")
    private let isUnderWay = Atomic(false)
    /// The number of pages of the log that have been copied.
    private let copied = Atomic(0)
    /// Opened on first use. Used only on the queue.
    private let connection = Mutex<DatabaseQueue?>(nil)
    private let times = (beside: Histogram(Histogram.moments), writing: Histogram(Histogram.moments))

    init(path: String) {
        self.path = path
    }

    /// The durations of checkpoints, by the connection that made them.
    var seconds: [(by: String, seconds: Histogram.Snapshot)] {
        [("checkpointer", times.beside.snapshot), ("writer", times.writing.snapshot)]
    }

    /// Replaces SQLite's automatic checkpoints after the commits of a connection. This object must exist until the
    /// connection is closed, or until ``end(_:)``.
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

    /// Restores SQLite's automatic checkpoints, and waits for a running one.
    func end(_ db: Database) throws {
        sqlite3_wal_autocheckpoint(db.sqliteConnection, Int32(Self.step))
        try queue.sync {
            try connection.withLock { connection in
                try connection?.close()
                connection = nil
            }
        }
    }

    /// - Parameter pages: The number of pages in the log.
    private func committed(_ pages: Int, _ writer: OpaquePointer) {
        // SQLite has started the log from the beginning.
        if pages < copied.load(ordering: .relaxed) { copied.store(0, ordering: .relaxed) }
        let rest = pages - copied.load(ordering: .relaxed)
        if pages >= Self.limit, rest < 4 * Self.step || pages >= Self.extreme {
            let begin = ContinuousClock.now
            // Wait for the other checkpoint: while it runs, this one would copy nothing, and the log would continue to
            // grow.
            if pages >= Self.extreme { queue.sync {} }
            // If this fails, the next commit retries it.
            sqlite3_wal_checkpoint_v2(writer, nil, SQLITE_CHECKPOINT_PASSIVE, nil, nil)
            times.writing.record(ContinuousClock.now - begin)
        } else if rest >= Self.step, !isUnderWay.exchange(true, ordering: .relaxed) {
            queue.async { [self] in
                // If this fails (because the disk is full, for example), the log stays as it is, and the next commit
                // retries it.
                let begin = ContinuousClock.now
                if let pages = try? checkpoint() { copied.store(pages, ordering: .relaxed) }
                times.beside.record(ContinuousClock.now - begin)
                isUnderWay.store(false, ordering: .relaxed)
            }
        }
    }

    /// - Returns: The number of pages of the log that have been copied.
    private func checkpoint() throws -> Int {
        try connection.withLock { connection in
            if connection == nil {
                // Opening a missing file would create a new one.
                guard access(path, F_OK) == 0 else { return 0 }
                connection = try DatabaseQueue(path: path)
            }
            return try connection?.writeWithoutTransaction { db in
                try db.checkpoint(.passive).checkpointedFrameCount
            } ?? 0
        }
    }
}
