package import ChatDomain
import GRDB

extension SQLiteStore: RelayFigures {
    /// Counts entries that can go or wait from indexes alone; what is in flight is little.
    package func queueDepths() async throws(ChatError) -> [QueueDepth] {
        try await read { db in
            var depths: [String: QueueDepth] = [:]
            for app in try Self.apps(where: Self.isDue, db) {
                var depth = QueueDepth(app: AppName(app))
                depth.due = try Self.count(Self.isDue, app, db)
                depth.oldest = try Self.oldest(app, db)
                depths[app] = depth
            }
            for app in try Self.apps(where: Self.isWaiting, db) {
                depths[app, default: QueueDepth(app: AppName(app))].delayed = try Self.count(Self.isWaiting, app, db)
            }
            let written = try Row.fetchAll(
                db.cachedStatement(
                    sql: """
                        SELECT app, count(*) FROM push_queue INDEXED BY push_queue_written WHERE state = 'written'
                        GROUP BY app
                        """))
            for row in written {
                depths[row[0], default: QueueDepth(app: AppName(row[0]))].written = row[1]
            }
            return depths.values.sorted { $0.app < $1.app }
        }
    }

    static let isDue = "state = 'pending' AND not_before IS NULL"
    static let isWaiting = "state = 'pending' AND not_before IS NOT NULL"

    /// The apps of an index of the queue: one step into the index for each.
    static func apps(where condition: String, _ db: Database) throws -> [String] {
        let next = try db.cachedStatement(sql: "SELECT min(app) FROM push_queue WHERE \(condition) AND app > ?")
        var apps: [String] = []
        while let app = try String.fetchOne(next, arguments: [apps.last ?? ""]) { apps.append(app) }
        return apps
    }

    private static func count(_ condition: String, _ app: String, _ db: Database) throws -> Int {
        try Int.fetchOne(
            db.cachedStatement(sql: "SELECT count(*) FROM push_queue WHERE app = ? AND \(condition)"),
            arguments: [app]) ?? 0
    }

    /// Of those that can go: the first of each lane.
    private static func oldest(_ app: String, _ db: Database) throws -> Timestamp? {
        try Lane.allCases.compactMap { lane in
            try String.fetchOne(
                db.cachedStatement(
                    sql: """
                        SELECT time_queued FROM push_queue
                        WHERE app = ? AND \(Lane.sql) = ? AND \(isDue) ORDER BY message_id LIMIT 1
                        """), arguments: [app, lane.rawValue]
            ).flatMap(Timestamp.init(sqlText:))
        }.min()
    }

    package func totals() async throws(ChatError) -> StoreTotals {
        try await read { db in
            func count(_ sql: String) throws -> Int { try Int.fetchOne(db.cachedStatement(sql: sql)) ?? 0 }
            var totals = StoreTotals()
            totals.devices = try count("SELECT count(*) FROM devices")
            totals.activeDevices =
                totals.devices - (try count("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL"))
            totals.members = try count("SELECT count(*) FROM active_users")
            totals.rooms = try count("SELECT count(DISTINCT secret_code) FROM active_users")
            totals.messages = try count("SELECT count(*) FROM messages")
            totals.notifications = try count("SELECT count(*) FROM notifications")
            return totals
        }
    }

    package func outcomes() -> [OutcomeCount] {
        tally.withLock { $0.outcomes(at: clock()) }
    }

    /// To be called after the commit.
    func count(_ endings: [Ending]) {
        guard !endings.isEmpty else { return }
        let now = clock()
        tally.withLock { tally in
            for ending in endings { tally.add(ending, at: now) }
        }
    }
}
