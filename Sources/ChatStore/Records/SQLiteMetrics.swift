package import ChatDomain
import ChatSQL
import Foundation
import GRDB

/// The metrics of the store and its queue. The depth of the queue comes from the index in memory, which PostgreSQL lacks.
package struct SQLiteMetrics: RelayMetrics {
    /// If an app's runs cover at most ten times this number of rows, its due pushes are counted in the database. The
    /// count in memory may be too high after another program has changed some.
    private static let countedRows = 5000

    let database: SQLiteDatabase
    let memory: QueueMemory
    let outcomeCounter: OutcomeCounter
    let settings: @Sendable () -> StoreSettings

    package func queueDepths() async throws(ChatError) -> [QueueDepth] {
        let parts = memory.index.withLock { index in
            index.apps.map { app in
                (
                    depth: QueueDepth(app: app, due: index.dueCount(app), written: index.inFlightCount(app)),
                    runs: index.runs(app)
                )
            }
        }
        let now = database.now().milliseconds
        return try await database.read(.metrics) { transaction in
            let db = transaction.db
            var depths: [AppName: QueueDepth] = [:]
            for (depth, lanes) in parts {
                var depth = depth
                depth.oldest = try lanes.compactMap(\.first).compactMap { run in
                    (try db.value(
                        """
                        SELECT time_queued FROM push_queue
                        WHERE message_id BETWEEN ? AND ? AND app = ? AND state = 'pending' ORDER BY message_id LIMIT 1
                        """, [run.lowerBound, run.upperBound, depth.app.text]) as String?)
                        .flatMap(Timestamp.init(sqlText:))
                }.min()
                if lanes.joined().reduce(0, { $0 + $1.count }) <= 10 * Self.countedRows {
                    depth.due = try lanes.joined().reduce(0) { sum, run in
                        try sum + (db.value(Self.dueSQL, [run.lowerBound, run.upperBound, depth.app.text, now]) ?? 0)
                    }
                }
                depths[depth.app] = depth
            }
            for app in try Self.waitingApps(db) {
                depths[app, default: QueueDepth(app: app)].delayed =
                    try db.value(Self.delayedSQL, [app.text, now]) ?? 0
            }
            return QueueDepth.list(depths.values, try transaction.queuePauses())
        }
    }

    /// The maximum number of apps in the result. Rows of other programs may have many names.
    private static let mostApps = 10_000

    /// The apps with pushes that wait for a time.
    private static func waitingApps(_ db: Database) throws -> [AppName] {
        // The lowest of all names. Rows of other programs may have it.
        var apps = [AppName("")]
        // Bytes, because a name of another program may contain a zero byte or invalid UTF-8.
        var last = Data()
        while apps.count < mostApps, let next: Data = try db.value(nextAppSQL, [last]) {
            apps.append(AppName(String(decoding: next, as: UTF8.self)))
            last = next
        }
        return apps
    }

    /// Apps with waiting pushes that no dispatcher sends, because the apps are not configured.
    func unconfiguredApps(_ configured: Set<AppName>) async throws(ChatError) -> Set<AppName> {
        let known = memory.index.withLock { index in index.apps.filter { index.dueCount($0) > 0 } }
        let waiting = try await database.read { db in
            try Self.waitingApps(db).filter { app in
                try !configured.contains(app) && db.row(Self.firstWaitingSQL, [app.text]) != nil
            }
        }
        return Set(known + waiting).subtracting(configured)
    }

    static let firstWaitingSQL = """
        SELECT 1 FROM push_queue WHERE app = ? AND state = 'pending' AND not_before IS NOT NULL LIMIT 1
        """
    static let dueSQL = """
        SELECT count(*) FROM push_queue
        WHERE message_id BETWEEN ? AND ? AND app = ? AND state = 'pending' AND (not_before IS NULL OR not_before <= ?)
        """
    static let nextAppSQL = """
        SELECT CAST(min(app) AS BLOB) FROM push_queue
        WHERE state = 'pending' AND not_before IS NOT NULL AND app > CAST(? AS TEXT)
        """
    static let delayedSQL = """
        SELECT count(*) FROM push_queue
        WHERE app = ? AND state = 'pending' AND not_before IS NOT NULL AND not_before > ?
        """

    package func totals() async throws(ChatError) -> StoreTotals {
        try await database.read(.metrics) { try $0.totals() }
    }

    package func usage(since day: String) async throws(ChatError) -> [DeviceDay]? {
        guard settings().keepsUsage else { return nil }
        return try await database.read(.administration) { try $0.usage(since: day) }
    }

    package func outcomes() -> [OutcomeCount] { outcomeCounter.outcomes }

    package func work() -> StoreWork {
        var work = database.writer.work
        work.files = [("database", ""), ("log", "-wal")].compactMap { name, suffix in
            var status = stat()
            guard stat(database.pool.path + suffix, &status) == 0 else { return nil }
            return (name, Int64(status.st_size))
        }
        work.freeBytes = DatabaseCopy.freeSpace(database.pool.path)
        return work
    }
}
