package import ChatDomain
import Foundation
import GRDB
import Synchronization

/// How the store and its queue are doing.
package struct SQLiteFigures: RelayFigures {
    /// Due pushes of an app up to which they are counted in the rows: what is known of them in memory may be too many,
    /// after another program has changed some.
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
        let now = database.clock().milliseconds
        return try await database.read { db in
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
            return depths.values.filter { $0.due + $0.delayed + $0.written > 0 }.sorted { $0.app < $1.app }
        }
    }

    /// Apps with pushes that wait for their time.
    private static func waitingApps(_ db: Database) throws -> [AppName] {
        // The first of all names; others' rows may have it.
        var apps = [AppName("")]
        while let last = apps.last, let name: String = try db.value(nextAppSQL, [last.text]) {
            apps.append(AppName(name))
        }
        return apps
    }

    /// Apps for which pushes wait and that are not in the configuration: nobody sends them.
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
        SELECT min(app) FROM push_queue WHERE state = 'pending' AND not_before IS NOT NULL AND app > ?
        """
    static let delayedSQL = """
        SELECT count(*) FROM push_queue
        WHERE app = ? AND state = 'pending' AND not_before IS NOT NULL AND not_before > ?
        """

    package func totals() async throws(ChatError) -> StoreTotals {
        try await database.read { db in
            var totals = StoreTotals()
            totals.devices = try db.value("SELECT count(*) FROM devices") ?? 0
            let inactive: Int? = try db.value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL")
            totals.activeDevices = totals.devices - (inactive ?? 0)
            totals.members = try db.value("SELECT count(*) FROM active_users") ?? 0
            totals.rooms = try db.value("SELECT count(DISTINCT secret_code) FROM active_users") ?? 0
            totals.messages = try db.value("SELECT count(*) FROM messages") ?? 0
            totals.notifications = try db.value("SELECT count(*) FROM notifications") ?? 0
            return totals
        }
    }

    package func usage(since day: String) async throws(ChatError) -> [DeviceDay]? {
        guard settings().keepsUsage else { return nil }
        return try await database.read { db in
            try db.rows(
                """
                SELECT day, app, kind, value, devices FROM device_days WHERE day >= ? AND devices > 0
                ORDER BY day, app, kind, value
                """, [day]
            ).map(DeviceDay.init)
        }
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

/// So many pushes of an app have reached a final state, for one reason.
struct FinalStateCount: Sendable {
    let app: AppName
    let state: PushState
    let reason: String?
    var count = 1
}

/// Counts the final states of pushes, for all stores: since the process began, and in the last minute.
///
/// A push that silence made `sent` and the gateway then refused is counted twice: a count never falls.
final class OutcomeCounter: Sendable {
    /// Reasons of an app that are told apart. A gateway has some thirty.
    static let mostReasons = 64
    /// Seconds that the recent counts reach back.
    private static let window = 60

    private struct Key: Hashable {
        let app: AppName
        let state: PushState
        let reason: String?
    }

    /// A count, with a ring of its last seconds.
    private struct Count {
        var total = 0
        var seconds = [Int64](repeating: .min, count: OutcomeCounter.window)
        var counts = [Int](repeating: 0, count: OutcomeCounter.window)

        mutating func add(_ count: Int, at second: Int64) {
            total += count
            let index = Int(second.magnitude % UInt64(OutcomeCounter.window))
            if seconds[index] != second {
                seconds[index] = second
                counts[index] = 0
            }
            counts[index] += count
        }

        func recent(at second: Int64) -> Int {
            zip(seconds, counts).reduce(0) { sum, entry in
                entry.0 > second - Int64(OutcomeCounter.window) && entry.0 <= second ? sum + entry.1 : sum
            }
        }
    }

    private struct State {
        var counts: [Key: Count] = [:]
        var reasons: [AppName: BoundedNames] = [:]

        mutating func known(_ reason: String, of app: AppName) -> String {
            reasons[app, default: BoundedNames(most: OutcomeCounter.mostReasons)].known(reason)
        }
    }

    private let state = Mutex(State())
    private let clock: TimeSource

    init(clock: @escaping TimeSource) {
        self.clock = clock
    }

    /// To be called after the commit. What is still pending is left out.
    func add(_ pushes: [FinalStateCount]) {
        guard !pushes.isEmpty else { return }
        let second = clock().seconds
        state.withLock { state in
            for pushes in pushes where pushes.count > 0 && pushes.state != .pending {
                let reason = pushes.state == .sent ? nil : pushes.reason.map { state.known($0, of: pushes.app) }
                state.counts[Key(app: pushes.app, state: pushes.state, reason: reason), default: Count()]
                    .add(pushes.count, at: second)
            }
        }
    }

    /// In the order of app, state and reason.
    var outcomes: [OutcomeCount] {
        let second = clock().seconds
        return state.withLock(\.counts).map { key, count in
            OutcomeCount(
                app: key.app, state: key.state, reason: key.reason, total: count.total,
                lastMinute: count.recent(at: second))
        }
        .sorted { ($0.app, $0.state.rawValue, $0.reason ?? "") < ($1.app, $1.state.rawValue, $1.reason ?? "") }
    }
}
