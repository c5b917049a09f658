#if PostgreSQL
package import ChatDomain
import Synchronization

/// How the store and its queue are doing: of the database as a whole, but for outcomes, which are this relay's.
package final class PostgresFigures: RelayFigures {
    /// Counting takes no more of the time than one part in so many.
    private static let share = 20
    /// The shortest time for which what was counted is told again.
    private static let shortestAge = Duration.milliseconds(200)

    private let database: PostgresDatabase
    private let outcomeCounter: OutcomeCounter
    private let settings: @Sendable () -> StoreSettings
    private let depths = Mutex<Counted<[QueueDepth]>?>(nil)
    private let counted = Mutex<Counted<StoreTotals>?>(nil)

    /// What was counted, and until when that is told.
    private struct Counted<Value: Sendable>: Sendable {
        let value: Value
        let end: ContinuousClock.Instant
        let time: Timestamp
    }

    init(
        database: PostgresDatabase, outcomeCounter: OutcomeCounter, settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.outcomeCounter = outcomeCounter
        self.settings = settings
    }

    package func queueDepths() async throws(ChatError) -> [QueueDepth] {
        let now = database.clock()
        if let known = depths.withLock({ $0 }), known.end > .now, known.time == now { return known.value }
        let began = ContinuousClock.now
        let found = try await database.read { transaction in
            try transaction.rows(Self.depthsSQL, [.time(now)]).map { row in
                QueueDepth(
                    app: AppName(try row.text(0)), due: Int(try row.int(1)), delayed: Int(try row.int(2)),
                    written: Int(try row.int(3)), oldest: try row.optionalTime(4))
            }
        }
        .filter { $0.due + $0.delayed + $0.written > 0 }.sorted { $0.app < $1.app }
        depths.withLock { $0 = Self.counted(found, since: began, now) }
        return found
    }

    static let depthsSQL = """
        SELECT app, count(*) FILTER (WHERE lease_start IS NULL AND coalesce(not_before, 0) <= $1::bigint),
            count(*) FILTER (WHERE lease_start IS NULL AND not_before > $1::bigint),
            count(*) FILTER (WHERE lease_start IS NOT NULL),
            ms(min(time_queued) FILTER (WHERE lease_start IS NULL AND coalesce(not_before, 0) <= $1::bigint))
        FROM push_queue_due WHERE state = 'pending' GROUP BY app
        """

    private static func counted<Value>(
        _ value: Value, since began: ContinuousClock.Instant, _ time: Timestamp
    ) -> Counted<Value> {
        Counted(value: value, end: .now + max(shortestAge, (.now - began) * share), time: time)
    }

    package func totals() async throws(ChatError) -> StoreTotals {
        let now = database.clock()
        if let known = counted.withLock({ $0 }), known.end > .now { return known.value }
        let began = ContinuousClock.now
        let totals = try await database.read { transaction in
            let row = try transaction.row(
                """
                SELECT (SELECT count(*) FROM devices),
                    (SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL),
                    (SELECT count(*) FROM active_users),
                    (WITH RECURSIVE rooms (code) AS (
                        (SELECT secret_code FROM active_users ORDER BY secret_code LIMIT 1)
                        UNION ALL
                        SELECT (SELECT secret_code FROM active_users WHERE secret_code > r.code
                            ORDER BY secret_code LIMIT 1) FROM rooms r WHERE r.code IS NOT NULL)
                     SELECT count(code) FROM rooms),
                    (SELECT count(*) FROM messages), (SELECT count(*) FROM notifications)
                """)
            var totals = StoreTotals()
            guard let row else { return totals }
            totals.devices = Int(try row.int(0))
            totals.activeDevices = totals.devices - Int(try row.int(1))
            totals.members = Int(try row.int(2))
            totals.rooms = Int(try row.int(3))
            totals.messages = Int(try row.int(4))
            totals.notifications = Int(try row.int(5))
            return totals
        }
        counted.withLock { $0 = Self.counted(totals, since: began, now) }
        return totals
    }

    package func usage(since day: String) async throws(ChatError) -> [DeviceDay]? {
        guard settings().keepsUsage else { return nil }
        return try await database.read { transaction in
            try transaction.rows(
                """
                SELECT day, app, kind, value, devices FROM device_days WHERE day >= $1::text AND devices > 0
                ORDER BY day, app, kind, value
                """, [.text(day)]
            ).map { row in
                DeviceDay(
                    day: try row.text(0), app: try row.text(1), kind: try row.text(2), stored: try row.text(3),
                    devices: Int(try row.int(4)))
            }
        }
    }

    package func outcomes() -> [OutcomeCount] { outcomeCounter.outcomes }

    package func work() -> StoreWork { database.work }
}
#endif
