package import ChatDomain
import ChatSQL
import Logging

/// The queue in a PostgreSQL database, for the command line. Works with or without running relays.
///
/// It does not change pushes that a relay has leased. It announces due pushes as relays do. Relays move the pushes that
/// it cancels into the partition of their day.
package struct PostgresQueueAdministration: QueueAdministration {
    /// The maximum number of pushes that one transaction changes.
    private static let step = 1000

    private let database: PostgresDatabase
    private let ids: APNSIDs

    /// Connects to a database with the current schema version. Never creates or upgrades tables. Blocks for a few
    /// seconds at most.
    /// - Throws: ``PostgresConfiguration/Unusable``, or ``ChatError`` if the server is unavailable at the moment.
    package init(configuration: PostgresConfiguration) throws {
        try self.init(configuration: configuration, now: Timestamp.now)
    }

    init(configuration: PostgresConfiguration, now: @escaping TimeSource) throws {
        var configuration = configuration
        configuration.connections = PostgresConfiguration.fewestConnections
        database = try PostgresDatabase(
            configuration: configuration, now: now, logger: Logger(label: "queue") { _ in SwiftLogNoOpLogHandler() },
            makesTables: false)
        ids = APNSIDs(key: database.idKey)
    }

    /// Closes the connections. Calls after this one fail.
    package func close() { database.close() }

    // MARK: - Reading

    package func pushes(_ filter: QueueFilter, after cursor: Int64?, limit: Int) async throws -> Page<Delivery> {
        try await database.read { [ids] transaction in
            let page = try Self.page(
                Delivery.columns, filter, after: cursor ?? .min, upTo: .max, limit: limit, transaction)
            return Page(items: try page.rows.map { try Delivery($0, ids) }, next: page.next)
        }
    }

    /// Reads pushes in the order of the queue that match the filter and the condition.
    private static func page(
        _ columns: String, _ filter: QueueFilter, where condition: String? = nil, after: Int64, upTo last: Int64,
        limit: Int, _ transaction: PostgresTransaction
    ) throws -> (rows: [PostgresRow], next: Int64?) {
        var (after, last) = (after, last)
        if let notification = filter.notification {
            let ends = try transaction.row(
                "SELECT first_push, last_push FROM notifications WHERE notification_id = $1::bigint",
                [.int(notification)])
            guard let first = try ends?.optionalInt(0), let end = try ends?.optionalInt(1) else { return ([], nil) }
            (after, last) = (max(after, first - 1), min(last, end))
        }
        var parameters = SQLParameters()
        let candidates = """
            push_queue q WHERE q.message_id > \(parameters.add(.int(after)))
                AND q.message_id <= \(parameters.add(.int(last)))
            """
        let ends = parameters.values
        let conditions = filter.conditions(&parameters) + (condition.map { ["(\($0))"] } ?? [])
        return try transaction.page(
            columns, key: "q.message_id", of: candidates, ends,
            where: conditions.isEmpty ? nil : conditions.joined(separator: " AND "),
            Array(parameters.values[ends.count...]), limit: limit)
    }

    package func push(_ id: Int64) async throws -> PushRecord? {
        try await database.read { [ids] transaction in
            try transaction.row(
                """
                SELECT \(Delivery.columns), coalesce(n.payload, q.payload), q.push_type, q.expires_at, q.priority,
                    q.collapse_id
                FROM push_queue q LEFT JOIN notifications n ON n.notification_id = q.notification
                WHERE q.message_id = $1::bigint LIMIT 1
                """, [.int(id)]
            ).map { row in
                PushRecord(
                    delivery: try Delivery(row, ids), payload: try row.text(14), pushType: row.optionalText(15),
                    expiration: try row.optionalInt(16),
                    priority: try row.optionalInt(17).map(UInt8.init(clamping:)), collapseID: row.optionalText(18))
            }
        }
    }

    // MARK: - Changing

    /// A change to pushes: those that may be changed, and how.
    private struct Change: Sendable {
        /// A condition on a row `q` of `push_queue`, without parameters.
        let condition: String
        /// Changes the rows `q` with the push ids `$1`; the condition follows. Another program may have used an id
        /// twice.
        let sql: String
        let values: [SQLValue]
        /// Returns the change to a notification's counts for a push that had a state: the name of the count and the
        /// difference.
        let counting: @Sendable (PushState) -> (count: PushState, by: Int)?
        /// Whether relays have to look for due pushes afterwards.
        var makesDue = false
    }

    /// Makes the pushes due from now on, by `not_before`. Relays read pushes with a time from an earlier position.
    package func retry(_ selection: QueueSelection, progress: (Int) -> Void) async throws -> Int {
        let retry = Change(
            condition: """
                (q.state IN ('failed', 'expired', 'cancelled') OR (q.state = 'pending' AND q.not_before IS NOT NULL
                    AND q.attempts > 0 AND q.lease_start IS NULL))
                AND NOT (q.state = 'cancelled' AND coalesce(q.reason, '')
                    IN ('\(PushLifeCycle.unregistered)', '\(PushLifeCycle.messageDeleted)'))
                AND NOT \(DeletedMessage.hasNoContent)
                AND NOT EXISTS (SELECT FROM notifications n
                    WHERE n.notification_id = q.notification AND n.time_cancelled IS NOT NULL)
                """,
            // The lease is cleared, so that a late outcome from the relay that held the push does not count for the new
            // attempt.
            sql: """
                UPDATE push_queue q SET state = 'pending', attempts = 0, unanswered = 0, refused = 0,
                    not_before = $2::bigint, time_settled = NULL, hint = NULL, lease_start = NULL, settled_on = NULL,
                    expires_at = CASE WHEN state = 'expired' THEN NULL ELSE expires_at END
                WHERE message_id = ANY ($1::bigint[])
                """,
            values: [.time(database.now())],
            // Only pushes that had reached a final state were counted.
            counting: { $0 == .pending ? nil : ($0, -1) }, makesDue: true)
        return try await apply(retry, to: selection, progress)
    }

    /// A push is free if no relay has leased it, or only one whose last heartbeat is older than
    /// ``RelayHeartbeat/limit``. The row keeps the lease, so that such a relay can still record that it has sent the
    /// push if it comes back.
    private static let isFree = """
        (q.lease_start IS NULL OR NOT EXISTS (SELECT FROM relay_starts s
            WHERE s.start_id = q.lease_start AND s.time_ended IS NULL
                AND s.time_seen > now() - \(RelayHeartbeat.limit.milliseconds) * interval '1 ms'))
        """

    package func cancel(_ selection: QueueSelection, progress: (Int) -> Void) async throws -> Int {
        if let notification = selection.notification { return try await cancel(notification, progress) }
        let cancellation = Change(
            condition: "q.state = 'pending' AND \(Self.isFree)",
            sql: """
                UPDATE push_queue q SET state = 'cancelled', reason = $2::text, time_settled = at($3::bigint)
                WHERE message_id = ANY ($1::bigint[])
                """,
            values: [.text(PushLifeCycle.cancelled), .time(database.now())], counting: { _ in (.cancelled, 1) })
        return try await apply(cancellation, to: selection, progress)
    }

    /// Works as in the admin API. Running relays do the same, and each finds the work that the others have done.
    private func cancel(_ notification: NotificationID, _ progress: (Int) -> Void) async throws -> Int {
        let now = database.now()
        _ = try await database.write(.background, isRepeatable: true) { transaction in
            try NotificationCancellation.begin(notification, now: now, transaction)
        }
        var cancelled = 0
        while true {
            let step = try await database.write(.background) { transaction in
                transaction.pipeline(
                    "SELECT FROM notifications WHERE notification_id = $1::bigint FOR NO KEY UPDATE",
                    [.int(notification)])
                return try NotificationCancellation.step(of: notification, now: now, transaction)
            }
            cancelled += step?.ended.count ?? 0
            progress(cancelled)
            guard step?.hasMore == true else { return cancelled }
        }
    }

    package func purge(
        _ selection: QueueSelection, olderThan age: Duration?, progress: (Int) -> Void
    ) async throws -> Int {
        let isOld = age.map { "AND q.time_settled < at(\((database.now() - $0).milliseconds))" } ?? ""
        let purge = Change(
            condition: """
                q.state IN ('sent', 'failed', 'expired', 'cancelled') \(isOld)
                AND NOT EXISTS (SELECT FROM notifications n
                    WHERE n.notification_id = q.notification AND n.work = 'queue')
                """,
            sql: "DELETE FROM push_queue q WHERE message_id = ANY ($1::bigint[])", values: [], counting: { _ in nil })
        return try await apply(purge, to: selection, progress)
    }

    /// Finds pushes and changes them step by step, if they still match.
    private func apply(
        _ change: Change, to selection: QueueSelection, _ progress: (Int) -> Void
    ) async throws -> Int {
        var changed = 0
        func perform(_ pushIDs: [Int64]) async throws {
            guard !pushIDs.isEmpty else { return }
            changed += try await database.write(.background) { try Self.perform(change, pushIDs, $0) }
            progress(changed)
        }
        switch selection {
        case .ids(let pushIDs):
            for start in stride(from: 0, to: pushIDs.count, by: Self.step) {
                try await perform(Array(pushIDs[start..<min(start + Self.step, pushIDs.count)]))
            }
        case .matching(let filter):
            // Ignores pushes that are queued after this.
            let last = try await database.read { transaction in
                try transaction.row("SELECT max(message_id) FROM push_queue")?.optionalInt(0) ?? 0
            }
            var after: Int64? = .min
            while let start = after {
                let (found, next) = try await database.read { transaction in
                    let page = try Self.page(
                        "q.message_id", filter, where: change.condition, after: start, upTo: last, limit: Self.step,
                        transaction)
                    return (try page.rows.map { try $0.int(0) }, page.next)
                }
                try await perform(found)
                after = next
            }
        }
        return changed
    }

    /// Waits for other transactions that have locked a row, in the order of the push ids. Counts are written last, as
    /// in all transactions.
    /// - Returns: The number of pushes that were changed.
    private static func perform(
        _ change: Change, _ pushIDs: [Int64], _ transaction: PostgresTransaction
    ) throws -> Int {
        // Use the index on the push id, whatever the server believes about the table's size.
        transaction.pipeline("SET LOCAL enable_seqscan = off")
        let rows = try transaction.rows(
            """
            SELECT q.message_id, q.notification, q.state, q.app FROM push_queue q
            WHERE q.message_id = ANY ($1::bigint[]) AND (\(change.condition)) ORDER BY q.message_id FOR UPDATE OF q
            """, [.ints(pushIDs)])
        guard !rows.isEmpty else { return 0 }
        let changed = try transaction.run(
            "\(change.sql) AND (\(change.condition))", [.ints(rows.map { try $0.int(0) })] + change.values)
        var counts: [NotificationID: [PushState: Int]] = [:]
        for row in rows {
            guard let notification = try row.optionalInt(1) else { continue }
            guard let (count, number) = PushState(rawValue: try row.text(2)).flatMap(change.counting) else { continue }
            counts[notification, default: [:]][count, default: 0] += number
        }
        SettlementWriter.add(counts, transaction)
        if change.makesDue { transaction.announcement.apps = Set(try rows.map { try $0.text(3) }) }
        return changed
    }
}

extension QueueFilter {
    /// Conditions on a row `q` of `push_queue`, in addition to the range of ids.
    fileprivate func conditions(_ parameters: inout SQLParameters) -> [String] {
        var conditions: [String] = []
        // The additions to columns keep PostgreSQL from using their indexes. Rows then come in the order of the queue,
        // and no page has to be sorted.
        if let notification { conditions.append("q.notification + 0 = \(parameters.add(.int(notification)))") }
        if let app { conditions.append("q.app = \(parameters.text(app.text))") }
        if let states {
            conditions.append("q.state || '' = ANY (\(parameters.add(.texts(states.map(\.rawValue)), "text[]")))")
        }
        if let token {
            conditions.append("lower(translate(q.device_token, ' <>', '')) = \(parameters.text(token.description))")
        }
        return conditions
    }
}
