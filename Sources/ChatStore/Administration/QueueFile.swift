package import ChatDomain
import ChatSQL
import Foundation
import GRDB

/// The queue in a database file, for the command line. Works with or without a running relay.
package struct QueueFile: QueueAdministration {
    /// The maximum number of pushes that one transaction changes.
    static let step = 1000

    let queue: DatabaseQueue
    private let ids: APNSIDs
    private let now: TimeSource

    /// Opens a file that exists and has the current schema. Never creates or upgrades one.
    /// - Throws: ``DatabaseFile/Unusable``.
    package init(path: String) throws {
        try self.init(path: path, now: Timestamp.now)
    }

    init(path: String, now: @escaping TimeSource) throws {
        let file = DatabaseFile(path: path)
        self.queue = try file.openExisting()
        self.now = now
        try queue.read(file.requireCurrent)
        ids = try queue.read(APNSIDs.load)
    }

    package func pushes(_ filter: QueueFilter, after cursor: Int64?, limit: Int) throws -> Page<Delivery> {
        try queue.read { db in
            let rows = try db.rows(
                """
                SELECT \(Delivery.columns) FROM push_queue q
                WHERE \(cursor == nil ? "TRUE" : "q.message_id > :after") AND \(filter.condition)
                ORDER BY q.message_id LIMIT :limit
                """, filter.arguments + ["after": cursor ?? Int64.min, "limit": limit + 1])
            let items = try rows.prefix(limit).map { try Delivery(SQLiteRow(row: $0), ids) }
            return Page(items: items, next: rows.count > limit ? items.last?.id : nil)
        }
    }

    package func push(_ id: Int64) throws -> PushRecord? {
        try queue.read { db in
            try db.row(
                """
                SELECT \(Delivery.columns), CAST(coalesce(n.payload, q.payload) AS BLOB), q.push_type, q.expires_at,
                    q.priority, q.collapse_id
                FROM push_queue q LEFT JOIN notifications n ON n.notification_id = q.notification
                WHERE q.message_id = ?
                """, [id]
            ).map { row in
                PushRecord(
                    delivery: try Delivery(SQLiteRow(row: row), ids),
                    payload: String(decoding: (row[14] as Data?) ?? Data(), as: UTF8.self), pushType: row[15],
                    expiration: row[16], priority: (row[17] as Int64?).map { UInt8(clamping: $0) }, collapseID: row[18])
            }
        }
    }

    /// Makes the pushes due from now on, by `not_before`. A relay finds them through its index, wherever they are in
    /// the queue.
    package func retry(_ selection: QueueSelection, progress: (Int) -> Void) throws -> Int {
        try change(
            selection,
            where: """
                (q.state IN ('failed', 'expired', 'cancelled')
                    OR (q.state = 'pending' AND q.not_before IS NOT NULL AND q.attempts > 0))
                AND NOT (q.state = 'cancelled' AND coalesce(q.reason, '')
                    IN ('\(PushLifeCycle.unregistered)', '\(PushLifeCycle.messageDeleted)'))
                AND NOT \(DeletedMessage.hasNoContent)
                AND NOT EXISTS (SELECT 1 FROM notifications n
                    WHERE n.notification_id = q.notification AND n.time_cancelled IS NOT NULL)
                """,
            """
            UPDATE push_queue AS q SET state = 'pending', attempts = 0, unanswered = 0, refused = 0, not_before = :time,
                time_settled = NULL, hint = NULL, expires_at = CASE WHEN state = 'expired' THEN NULL ELSE expires_at END
            """, ["time": now().milliseconds],
            // Only pushes that had reached a final state were counted.
            counting: { $0 == .pending ? nil : ($0, -1) }, progress)
    }

    package func cancel(_ selection: QueueSelection, progress: (Int) -> Void) throws -> Int {
        if let notification = selection.notification { return try cancel(notification, progress: progress) }
        return try change(
            selection, where: "q.state = 'pending'",
            "UPDATE push_queue AS q SET state = 'cancelled', reason = :reason, time_settled = :now",
            ["reason": PushLifeCycle.cancelled, "now": now().sqlText], counting: { _ in (.cancelled, 1) }, progress)
    }

    /// Works as in the admin API. A running relay does the same, and each finds the work that the other has done.
    private func cancel(_ notification: NotificationID, progress: (Int) -> Void) throws -> Int {
        _ = try queue.write { db in try NotificationCancellation.begin(notification, now: now(), db) }
        var cancelled = 0
        while true {
            let step = try queue.write { db in
                try NotificationCancellation.step(of: notification, now: now(), db)
            }
            cancelled += step?.ended.count ?? 0
            progress(cancelled)
            guard step?.hasMore == true else { return cancelled }
        }
    }

    package func purge(_ selection: QueueSelection, olderThan age: Duration?, progress: (Int) -> Void) throws -> Int {
        let now = self.now()
        return try change(
            selection,
            where: """
                q.state IN ('sent', 'failed', 'expired', 'cancelled')
                AND (:before IS NULL OR q.time_settled < :before)
                AND NOT EXISTS (SELECT 1 FROM notifications n
                    WHERE n.notification_id = q.notification AND n.work = 'queue')
                """, "DELETE FROM push_queue AS q", ["before": age.map { (now - $0).sqlText }],
            counting: { _ in nil }, progress)
    }

    /// Finds pushes in parallel with the relay's writes, and changes them step by step if they still match.
    /// - Parameter counting: Returns the change to a notification's counts for a push that had a state: the name of the
    ///   count and the difference.
    private func change(
        _ selection: QueueSelection, where condition: String, _ statement: String, _ arguments: StatementArguments,
        counting: (PushState) -> (count: PushState, by: Int)?, _ progress: (Int) -> Void
    ) throws -> Int {
        var changed = 0
        func change(_ pushIDs: [Int64]) throws {
            let rows = "q.message_id IN (SELECT value FROM json_each(:pushIDs)) AND (\(condition))"
            let arguments = arguments &+ ["pushIDs": JSONValue.array(pushIDs.map { .number($0) }).description]
            changed += try queue.write { db in
                let ofNotifications = try db.rows(
                    """
                    SELECT q.notification, q.state, count(*) FROM push_queue q
                    WHERE q.notification IS NOT NULL AND \(rows) GROUP BY q.notification, q.state
                    """, arguments)
                for row in ofNotifications {
                    guard let (count, number) = PushState(rawValue: row[1]).flatMap(counting) else { continue }
                    try db.run(
                        "UPDATE notification_counts SET \(count) = \(count) + ? WHERE notification_id = ?",
                        [number * (row[2] as Int), row[0] as Int64])
                }
                return try db.run("\(statement) WHERE \(rows)", arguments)
            }
            progress(changed)
        }
        switch selection {
        case .ids(let pushIDs):
            for start in stride(from: 0, to: pushIDs.count, by: Self.step) {
                try change(Array(pushIDs[start..<min(start + Self.step, pushIDs.count)]))
            }
        case .matching(let filter):
            // Ignores pushes that are queued after this.
            let last: Int64 = try queue.read { db in try db.value("SELECT max(message_id) FROM push_queue") } ?? 0
            var after = Int64.min
            while true {
                let found: [Int64] = try queue.read { db in
                    try db.values(
                        """
                        SELECT q.message_id FROM push_queue q
                        WHERE q.message_id > :after AND q.message_id <= :last AND \(filter.condition)
                            AND (\(condition))
                        ORDER BY q.message_id LIMIT :limit
                        """, arguments + filter.arguments + ["after": after, "last": last, "limit": Self.step])
                }
                guard let end = found.last else { break }
                try change(found)
                after = end
            }
        }
        return changed
    }
}

extension QueueFilter {
    /// Always in the order of the queue, so that no page has to be sorted: within the push ids of a notification, or
    /// along all rows. The unary plus keeps SQLite from using the indexes of states and apps.
    fileprivate var condition: String {
        var terms = ["TRUE"]
        if notification != nil {
            terms.append(
                """
                q.message_id BETWEEN (SELECT first_push FROM notifications WHERE notification_id = :notification)
                    AND (SELECT last_push FROM notifications WHERE notification_id = :notification)
                AND +q.notification = :notification
                """)
        }
        if app != nil { terms.append("+q.app = :app") }
        if states != nil { terms.append("+q.state IN (SELECT value FROM json_each(:states))") }
        if token != nil {
            terms.append("lower(replace(replace(replace(q.device_token, ' ', ''), '<', ''), '>', '')) = :token")
        }
        return terms.joined(separator: " AND ")
    }

    fileprivate var arguments: StatementArguments {
        [
            "notification": notification, "app": app?.text, "token": token?.description,
            "states": states.map { JSONValue.texts($0.map(\.rawValue)).description },
        ]
    }
}
