package import ChatDomain

/// The part of a notification store that is the same in both databases: requested notifications, in the tables
/// `notifications` and `notification_counts`. Queueing and cancelling their pushes is part of each database's queue.
package protocol SQLNotificationStore: NotificationStore {
    associatedtype Database: SQLDatabase
    var database: Database { get }
    var ids: APNSIDs { get }
}

extension SQLNotificationStore {
    package func earlier(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt? {
        try await database.read { [database] transaction in
            try transaction.earlier(request.distinct, now: database.now())
        }
    }

    package func notifications(
        sentWith token: Int64?, before cursor: NotificationID?, limit: Int
    ) async throws(ChatError) -> Page<NotificationStatus> {
        try await database.read(.administration) { [database] transaction in
            let page = try transaction.page(
                """
                SELECT notification_id, token FROM notifications WHERE notification_id < $1
                ORDER BY notification_id DESC LIMIT $2
                """, [.int(cursor ?? Int64.max), .int(token == nil ? limit + 1 : SQLPage.window + 1)], limit: limit
            ) { row in try token == nil || row.optionalInt(1) == token }
            let now = database.now()
            return Page(
                items: try page.rows.map { row in try transaction.status(of: row.int(0), now: now) }, next: page.next)
        }
    }

    package func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        try await database.read { [database] transaction in try transaction.status(of: id, now: database.now()) }
    }

    /// Reads the pushes between a notification's first and last one. Other notifications have pushes in this range as well.
    package func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read(.administration) { [ids] transaction in
            let ends = try transaction.row(
                "SELECT first_push, last_push FROM notifications WHERE notification_id = $1", [.int(notification)])
            guard let first = try ends?.optionalInt(0), let last = try ends?.optionalInt(1) else {
                return Page(items: [], next: nil)
            }
            let page = try transaction.page(
                Delivery.columns, key: "q.message_id", of: "push_queue q WHERE q.message_id > $1",
                [.int(max(first - 1, cursor ?? .min))], upTo: last,
                where: NotificationRecord.isOfNotification + (state == nil ? "" : " AND q.state = $3"),
                [.int(notification)] + (state.map { [.text($0.rawValue)] } ?? []), limit: limit)
            return Page(items: try page.rows.map { try Delivery($0, ids) }, next: page.next)
        }
    }
}

extension SQLTransaction {
    /// The notification has stored counts. For a small notification, pending pushes are counted in the rows, because
    /// scripts may have deleted some. Both are read in one statement, because a push that is settled between two
    /// statements would be in neither count.
    package func status(of id: NotificationID, now: Timestamp) throws -> NotificationStatus {
        let row = try row(NotificationRecord.statusSQL(dialect), [.int(id)])
        guard let row else { throw ChatError.notFound("notification") }
        var counts: [PushState: Int] = [:]
        for (index, state) in [PushState.sent, .failed, .expired, .cancelled].enumerated() {
            counts[state] = Int(try row.int(3 + index))
        }
        counts[.pending] = max(0, Int(try row.int(1)) - counts.values.reduce(0, +))
        if let pending = try row.optionalInt(7) { counts[.pending] = Int(pending) }
        return try NotificationRecord(row, from: 8).status(
            isQueueing: row.bool(0), counts: counts, skipped: Int(row.int(2)), now: now)
    }

    /// The response to an earlier request with the same key. `nil` if there was none, or if the request has no key.
    /// - Throws: ``ChatError/Code/idempotencyConflict`` if the earlier request was different.
    package func earlier(_ request: NotificationRequest, now: Timestamp) throws -> NotificationReceipt? {
        guard let key = request.idempotencyKey else { return nil }
        let row = try row(
            "SELECT \(NotificationRecord.columns) FROM notifications WHERE idempotency_key = $1", [.text(key)])
        return try row.map { try NotificationRecord($0) }?.receipt(repeating: request, now: now)
    }

    /// Inserts a notification whose pushes have to be queued, for devices or members up to `until`.
    /// - Parameter devices: The current number of devices.
    /// - Returns: `nil` if there is a notification with the same key.
    package func insert(
        _ request: NotificationRequest, devices: Int, until: Int64, now: Timestamp
    ) throws -> NotificationID? {
        let row = try row(
            """
            INSERT INTO notifications (app, push_type, expires_at, priority, collapse_id, not_before, skip_unchanged,
                idempotency_key, devices, time_created, work, work_until, payload, audience, token)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, at($10), 'queue', $11, $12, $13, $14)
            ON CONFLICT (idempotency_key) DO NOTHING RETURNING notification_id
            """,
            [
                .optional(request.app?.text), .text(request.pushType), .optional(request.expiration),
                .int(request.priority.map { Int($0) }), .optional(request.collapseID),
                .optional(request.notBefore?.milliseconds), .bool(request.skipsUnchanged),
                .optional(request.idempotencyKey), .int(devices), .time(now), .int(until), .text(request.payload),
                .text(request.audience.json.description), .optional(request.token),
            ])
        guard let id = try row?.int(0) else { return nil }
        try pipeline("INSERT INTO notification_counts (notification_id) VALUES ($1)", [.int(id)])
        return id
    }
}

/// Rows of `notifications`.
extension NotificationRecord {
    /// The maximum number of rows in which a status counts the pending pushes. For larger notifications, the pending
    /// count is computed from the other counts.
    private static let countedRows: Int64 = 5000

    package static func statusSQL(_ dialect: SQLDialect) -> String {
        """
        SELECT coalesce(n.work, '') = 'queue', c.queued, c.skipped, c.sent, c.failed, c.expired, c.cancelled,
            CASE WHEN n.last_push - n.first_push < \(countedRows)
                AND c.queued > c.sent + c.failed + c.expired + c.cancelled
            THEN (
                SELECT count(*) FROM \(dialect.unsettled) q
                WHERE q.message_id BETWEEN n.first_push AND n.last_push AND q.notification + 0 = n.notification_id
                    AND q.state = 'pending') END,
            \(columns)
        FROM notifications n JOIN notification_counts c USING (notification_id)
        WHERE notification_id = $1
        """
    }

    /// The addition keeps the databases from using another index than that of the push ids.
    package static let isOfNotification = "q.notification + 0 = $2"

    package static let columns = """
        notification_id, app, push_type, expires_at, priority, collapse_id, not_before, skip_unchanged, idempotency_key,
        devices, ms(time_created), ms(time_cancelled), payload, audience, token
        """

    /// - Parameter start: The index of the first of ``columns``.
    package init(_ row: some SQLRow, from start: Int = 0) throws {
        self.init(
            id: try row.int(start),
            request: NotificationRequest(
                audience: Audience(stored: try row.text(start + 13)),
                app: row.optionalText(start + 1).map(AppName.init), payload: try row.text(start + 12),
                pushType: try row.text(start + 2), expiration: try row.optionalInt(start + 3),
                priority: try row.optionalInt(start + 4).map(UInt8.init(clamping:)),
                collapseID: row.optionalText(start + 5),
                notBefore: try row.optionalInt(start + 6).map(Timestamp.init(milliseconds:)),
                skipsUnchanged: try row.bool(start + 7), idempotencyKey: row.optionalText(start + 8),
                token: try row.optionalInt(start + 14)),
            devices: Int(try row.int(start + 9)), createdAt: try row.time(start + 10),
            cancelledAt: try row.optionalTime(start + 11))
    }
}
