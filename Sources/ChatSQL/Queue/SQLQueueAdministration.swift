package import ChatDomain

/// The parts of the queue's administration in which the databases differ, and in which a command differs from a relay.
package protocol QueueTable: Sendable {
    associatedtype Database: SQLDatabase
    /// A condition on a pending row `q` of `push_queue`: no relay has leased it.
    static var isUnleased: String { get }
    /// A condition on a pending row `q`: no relay that is alive has leased it.
    static var isFree: String { get }
    /// Further assignments of a retry, each with a comma before it.
    static var retryAssignments: String { get }

    var database: Database { get }

    /// Prepares a transaction that looks for pushes by id.
    func prepare(_ transaction: Database.Transaction) throws
    /// Gives new ids to the settled pushes that match `condition` and whose ids other pushes also have. Returns the new
    /// ids.
    func renumber(_ pushIDs: [Int64], where condition: String, _ transaction: Database.Transaction) throws -> [Int64]
    /// Adds to the counts of notifications, by final state. The last statement of a transaction.
    func add(_ counts: [NotificationID: [PushState: Int]], _ transaction: Database.Transaction) throws
    /// Begins or continues to cancel a whole notification.
    func cancel(
        _ notification: NotificationID, isFirst: Bool, at now: Timestamp, _ transaction: Database.Transaction
    ) throws -> CancelledPart
    /// The leased push ids of a range that only this process knows.
    func leased(in range: ClosedRange<Int64>) -> [ClosedRange<Int64>]
    /// Tells this process about a change, after its commit.
    func changed(_ change: QueueChange, _ changed: ChangedPushes)
    /// Tells this process that an app was paused or resumed, after the commit.
    func pausesChanged(of app: AppName) async throws(ChatError)
}

extension QueueTable {
    /// Push ids are unique in SQLite.
    package func renumber(
        _ pushIDs: [Int64], where condition: String, _ transaction: Database.Transaction
    ) throws -> [Int64] { [] }
}

/// A part of a notification's cancellation.
package struct CancelledPart: Sendable {
    package let ended: [FinalStateCount]
    package let hasMore: Bool

    package init(ended: [FinalStateCount] = [], hasMore: Bool = false) {
        self.ended = ended
        self.hasMore = hasMore
    }
}

/// The pushes that one transaction changed.
package struct ChangedPushes: Sendable {
    package var count = 0
    /// The number of changed pushes by app.
    package var apps: [AppName: Int] = [:]
    /// The time that the transaction recorded.
    package let time: Timestamp
}

/// The queue for an operator, in either database, for commands and inside a relay.
package struct SQLQueueAdministration<Table: QueueTable>: QueueAdministration {
    package typealias Transaction = Table.Database.Transaction

    /// The maximum number of pushes that one transaction changes.
    private static var step: Int { 1000 }

    package let table: Table
    private let ids: APNSIDs
    private var database: Table.Database { table.database }

    package init(table: Table, ids: APNSIDs) {
        self.table = table
        self.ids = ids
    }

    // MARK: - Reading

    package func pushes(_ filter: QueueFilter, after cursor: Int64?, limit: Int) async throws -> Page<Delivery> {
        try await database.read(.administration) { [ids] transaction in
            let page = try transaction.page(Delivery.columns, filter, after: cursor ?? .min, upTo: .max, limit: limit)
            return Page(items: try page.rows.map { try Delivery($0, ids) }, next: page.next)
        }
    }

    package func push(_ id: Int64) async throws -> PushRecord? {
        try await database.read { [ids] transaction in
            try transaction.row(
                """
                SELECT \(Delivery.columns), \(transaction.dialect.utf8("coalesce(n.payload, q.payload)")), q.push_type,
                    q.expires_at, q.priority, q.collapse_id
                FROM push_queue q LEFT JOIN notifications n ON n.notification_id = q.notification
                WHERE q.message_id = $1 LIMIT 1
                """, [.int(id)]
            ).map { row in
                PushRecord(
                    delivery: try Delivery(row, ids), payload: String(decoding: try row.bytes(14), as: UTF8.self),
                    pushType: row.optionalText(15), expiration: try row.optionalInt(16),
                    priority: try row.optionalInt(17).map(UInt8.init(clamping:)), collapseID: row.optionalText(18))
            }
        }
    }

    package func newestID() async throws -> Int64 {
        try await database.read { try $0.row("SELECT max(message_id) FROM push_queue")?.optionalInt(0) ?? 0 }
    }

    // MARK: - Changing

    /// The statement of a change.
    private struct Statement: Sendable {
        /// A condition on a row `q`, without parameters.
        let condition: String
        /// Changes rows `q`. The ids are `$1`.
        let sql: String
        let values: [SQLValue]
        /// Returns the change to a notification's counts for a push that had a state: the name of the count and the
        /// difference.
        let counting: @Sendable (PushState) -> (count: PushState, by: Int)?
        /// Whether relays have to look for due pushes afterwards.
        var makesDue = false
    }

    private static func statement(of change: QueueChange, at now: Timestamp) -> Statement {
        switch change {
        case .retry:
            Statement(
                condition: """
                    (q.state IN ('failed', 'expired', 'cancelled') OR (q.state = 'pending' AND q.not_before IS NOT NULL
                        AND q.attempts > 0 AND \(Table.isUnleased)))
                    AND NOT (q.state = 'cancelled' AND coalesce(q.reason, '')
                        IN ('\(PushLifeCycle.unregistered)', '\(PushLifeCycle.messageDeleted)'))
                    AND NOT \(DeletedMessage.hasNoContent)
                    AND NOT EXISTS (SELECT 1 FROM notifications n
                        WHERE n.notification_id = q.notification AND n.time_cancelled IS NOT NULL)
                    """,
                // Relays find pushes with a time wherever they are in the queue.
                sql: """
                    UPDATE push_queue AS q SET state = 'pending', attempts = 0, unanswered = 0, refused = 0,
                        not_before = CAST($2 AS bigint), time_settled = NULL, hint = NULL\(Table.retryAssignments),
                        expires_at = CASE WHEN state = 'expired' THEN NULL ELSE expires_at END
                    """,
                values: [.time(now)],
                // Only pushes that had reached a final state were counted.
                counting: { $0 == .pending ? nil : ($0, -1) }, makesDue: true)
        case .cancel:
            Statement(
                condition: "q.state = 'pending' AND \(Table.isFree)",
                sql: """
                    UPDATE push_queue AS q
                    SET state = 'cancelled', reason = CAST($2 AS text), time_settled = at(CAST($3 AS bigint))
                    """,
                values: [.text(PushLifeCycle.cancelled), .time(now)], counting: { _ in (.cancelled, 1) })
        case .purge(let age):
            Statement(
                condition: """
                    q.state IN ('sent', 'failed', 'expired', 'cancelled')
                    \(age.map { "AND q.time_settled < at(\((now - $0).milliseconds))" } ?? "")
                    AND NOT EXISTS (SELECT 1 FROM notifications n
                        WHERE n.notification_id = q.notification AND n.work = 'queue')
                    """, sql: "DELETE FROM push_queue AS q", values: [], counting: { _ in nil })
        }
    }

    package func change(
        _ change: QueueChange, _ selection: QueueSelection, after cursor: Int64?, upTo last: Int64, isDryRun: Bool
    ) async throws -> QueuePart {
        if change == .cancel, !isDryRun, let notification = selection.notification {
            return try await cancel(notification, isFirst: cursor == nil)
        }
        let condition = Self.statement(of: change, at: database.now()).condition
        let (found, next) = try await database.read(.administration) { [table] transaction in
            try table.prepare(transaction)
            let page = try transaction.page(
                "q.message_id", selection.filter, where: condition, after: cursor ?? .min, upTo: last,
                limit: isDryRun ? SQLPage.window : Self.step)
            return (try page.rows.map { try $0.int(0) }, page.next)
        }
        if isDryRun || found.isEmpty { return QueuePart(count: found.count, next: next) }
        let changed = try await database.write(as: .job) { [table] transaction in
            try Self.perform(change, found, table, transaction)
        }
        table.changed(change, changed)
        return QueuePart(count: changed.count, next: next)
    }

    /// Changes the pushes that still match. In PostgreSQL, waits for other transactions that have locked a row, in the
    /// order of the push ids.
    private static func perform(
        _ change: QueueChange, _ pushIDs: [Int64], _ table: Table, _ transaction: Transaction
    ) throws -> ChangedPushes {
        let now = table.database.now()
        let statement = statement(of: change, at: now)
        var changed = ChangedPushes(time: now)
        let leased = pushIDs.first.map { first in table.leased(in: first...max(first, pushIDs.last ?? first)) } ?? []
        let held = IDRanges(leased)
        var free = leased.isEmpty ? pushIDs : pushIDs.filter { !held.contains($0) }
        try table.prepare(transaction)
        if statement.makesDue { free += try table.renumber(free, where: statement.condition, transaction) }
        let isChosen = transaction.dialect.isAny("q.message_id", of: "$1", "bigint")
        let rows = try transaction.rows(
            """
            SELECT q.message_id, q.notification, q.state, q.app FROM push_queue q
            WHERE \(isChosen) AND (\(statement.condition)) ORDER BY q.message_id
            \(transaction.dialect.lockedToDelete("q"))
            """, [.ints(free)])
        guard !rows.isEmpty else { return changed }
        changed.count = try transaction.run(
            "\(statement.sql) WHERE \(isChosen) AND (\(statement.condition))",
            [.ints(try rows.map { try $0.int(0) })] + statement.values)
        var counts: [NotificationID: [PushState: Int]] = [:]
        for row in rows {
            changed.apps[AppName(try row.text(3)), default: 0] += 1
            guard let notification = try row.optionalInt(1) else { continue }
            guard let (count, number) = PushState(rawValue: try row.text(2)).flatMap(statement.counting) else {
                continue
            }
            counts[notification, default: [:]][count, default: 0] += number
        }
        if statement.makesDue { transaction.announcement.apps.formUnion(changed.apps.keys.map(\.text)) }
        if !counts.isEmpty { try table.add(counts, transaction) }
        return changed
    }

    /// Works as in the admin API. Running relays do the same, and each finds the work that the others have done.
    private func cancel(_ notification: NotificationID, isFirst: Bool) async throws -> QueuePart {
        let now = database.now()
        let part = try await database.write(as: .job) { [table] transaction in
            try table.cancel(notification, isFirst: isFirst, at: now, transaction)
        }
        var changed = ChangedPushes(time: now)
        for end in part.ended {
            changed.count += end.count
            changed.apps[end.app, default: 0] += end.count
        }
        table.changed(.cancel, changed)
        return QueuePart(count: changed.count, next: part.hasMore ? 0 : nil)
    }

    // MARK: - Records

    package func record(
        _ action: ModerationRecord.Action, _ subject: String, by moderator: Moderator
    ) async throws -> Int64 {
        try await database.write(as: .answerOnce) { [database] transaction in
            try ModerationRecord.write(action, subject, by: moderator, at: database.now(), transaction)
        }
    }

    package func amend(record id: Int64, _ subject: String?) async throws {
        try await database.write(as: .answer) { transaction in
            guard let subject else {
                return try transaction.pipeline("DELETE FROM moderation WHERE moderation_id = $1", [.int(id)])
            }
            try transaction.pipeline(
                "UPDATE moderation SET subject = $1 WHERE moderation_id = $2", [.text(subject), .int(id)])
        }
    }

    // MARK: - Pauses

    package func pause(_ app: AppName, reason: String?, by moderator: Moderator) async throws -> QueuePause {
        let pause = try await database.write(as: .answer) { [database] transaction in
            let now = database.now()
            let row = try transaction.row(
                """
                INSERT INTO queue_pauses (app, reason, actor, time_paused) VALUES ($1, $2, $3, at($4))
                ON CONFLICT (app) DO UPDATE SET reason = excluded.reason, actor = excluded.actor
                RETURNING \(QueuePause.columns)
                """, [.text(app.text), .optional(reason), .text(moderator.name), .time(now)])
            _ = try ModerationRecord.write(
                .pause, "app \(app)" + (reason.map { ": \($0)" } ?? ""), by: moderator, at: now, transaction)
            transaction.announcement.apps.insert(app.text)
            return try row.map { try QueuePause($0) }
                ?? QueuePause(app: app, reason: reason, actor: moderator.name, since: now)
        }
        try await table.pausesChanged(of: app)
        return pause
    }

    package func resume(_ app: AppName, by moderator: Moderator) async throws -> QueuePause? {
        let pause = try await database.write(as: .answer) { [database] transaction -> QueuePause? in
            let row = try transaction.row(
                "DELETE FROM queue_pauses WHERE app = $1 RETURNING \(QueuePause.columns)", [.text(app.text)])
            guard let row else { return nil }
            _ = try ModerationRecord.write(.resume, "app \(app)", by: moderator, at: database.now(), transaction)
            transaction.announcement.apps.insert(app.text)
            return try QueuePause(row)
        }
        if pause != nil { try await table.pausesChanged(of: app) }
        return pause
    }

    package func pauses() async throws -> [QueuePause] { try await database.read { try $0.queuePauses() } }
}
