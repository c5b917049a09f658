package import ChatDomain
import GRDB

/// How the store and its queue are doing.
package final class SQLiteFigures: RelayFigures {
    private let database: SQLiteDatabase
    private let queue: SQLitePushQueue
    private let outcomeCounter: OutcomeCounter

    init(database: SQLiteDatabase, queue: SQLitePushQueue, outcomes: OutcomeCounter) {
        self.database = database
        self.queue = queue
        outcomeCounter = outcomes
    }

    package func queueDepths() async throws(ChatError) -> [QueueDepth] {
        try await queue.depths()
    }

    package func totals() async throws(ChatError) -> StoreTotals {
        try await database.read { db in
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

    package func outcomes() -> [OutcomeCount] { outcomeCounter.outcomes }
}
