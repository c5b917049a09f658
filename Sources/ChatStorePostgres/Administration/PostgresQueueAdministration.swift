package import ChatDomain
package import ChatSQL
import Logging

/// The queue in a PostgreSQL database, for the command line and inside a relay.
///
/// It does not change pushes that a relay has leased. It announces due pushes as relays do. Relays move the pushes that
/// it cancels into the partition of their day.
package typealias PostgresQueueAdministration = SQLQueueAdministration<PostgresQueueTable>

extension SQLQueueAdministration where Table == PostgresQueueTable {
    /// Connects to a database with the current schema version. Never creates or upgrades tables. Blocks for a few
    /// seconds at most.
    /// - Throws: ``PostgresConfiguration/Unusable``, or ``ChatError`` if the server is unavailable at the moment.
    package init(configuration: PostgresConfiguration) throws {
        try self.init(configuration: configuration, now: Timestamp.now)
    }

    init(configuration: PostgresConfiguration, now: @escaping TimeSource) throws {
        var configuration = configuration
        configuration.connections = PostgresConfiguration.fewestConnections
        let database = try PostgresDatabase(
            configuration: configuration, now: now, logger: Logger(label: "queue") { _ in SwiftLogNoOpLogHandler() },
            makesTables: false)
        self.init(database: database, outcomes: nil)
    }

    /// - Parameter outcomes: Counts the relay's cancelled pushes. `nil` in a command.
    init(database: PostgresDatabase, outcomes: OutcomeCounter?) {
        self.init(
            table: PostgresQueueTable(database: database, outcomes: outcomes), ids: APNSIDs(key: database.idKey))
    }

    /// Closes the connections. Calls after this one fail.
    package func close() { table.database.close() }
}

/// The queue's table, with the leases of all relays.
package struct PostgresQueueTable: QueueTable {
    package let database: PostgresDatabase
    let outcomes: OutcomeCounter?

    package static var isUnleased: String { "q.lease_start IS NULL" }

    /// A push is free if no relay has leased it, or only one whose last heartbeat is older than
    /// ``RelayHeartbeat/limit``. The row keeps the lease, so that such a relay can still record that it has sent the
    /// push if it comes back.
    package static var isFree: String {
        """
        (q.lease_start IS NULL OR NOT EXISTS (SELECT FROM relay_starts s
            WHERE s.start_id = q.lease_start AND s.time_ended IS NULL
                AND s.time_seen > now() - \(RelayHeartbeat.limit.milliseconds) * interval '1 ms'))
        """
    }

    /// The lease is cleared, so that a late outcome from the relay that held the push does not count for the new
    /// attempt.
    package static var retryAssignments: String { ", lease_start = NULL, settled_on = NULL" }

    /// Uses the index on the push id, whatever the server believes about the table's size.
    package func prepare(_ transaction: PostgresTransaction) {
        transaction.pipeline("SET LOCAL enable_seqscan = off")
    }

    /// A push id is unique only within a partition, and a retry moves pushes out of several partitions into one.
    package func renumber(
        _ pushIDs: [Int64], where condition: String, _ transaction: PostgresTransaction
    ) throws -> [Int64] {
        let isDouble = """
            (\(condition)) AND EXISTS (
                SELECT FROM push_queue o WHERE o.message_id = q.message_id AND o.settled_on IS DISTINCT FROM q.settled_on)
            """
        return try QueuePartitions.renumber(pushIDs, where: isDouble, transaction)
    }

    package func add(_ counts: [NotificationID: [PushState: Int]], _ transaction: PostgresTransaction) {
        SettlementWriter.add(counts, transaction)
    }

    package func cancel(
        _ notification: NotificationID, isFirst: Bool, at now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> CancelledPart {
        if isFirst { _ = try NotificationCancellation.begin(notification, now: now, transaction) }
        transaction.pipeline(
            "SELECT FROM notifications WHERE notification_id = $1::bigint FOR NO KEY UPDATE", [.int(notification)])
        let step = try NotificationCancellation.step(of: notification, now: now, transaction)
        return step.map { CancelledPart(ended: $0.ended, hasMore: $0.hasMore) } ?? CancelledPart()
    }

    package func leased(in range: ClosedRange<Int64>) -> [ClosedRange<Int64>] { [] }

    package func changed(_ change: QueueChange, _ changed: ChangedPushes) {
        guard change == .cancel else { return }
        outcomes?.add(
            changed.apps.map {
                FinalStateCount(app: $0.key, state: .cancelled, reason: PushLifeCycle.cancelled, count: $0.value)
            })
    }

    /// The announcement wakes the dispatchers of all relays, this one included.
    package func pausesChanged(of app: AppName) {}
}
