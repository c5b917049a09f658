package import ChatDomain
import ChatSQL

/// Requested notifications: the tables `notifications` and `notification_counts`.
package struct PostgresNotificationStore: NotificationStore {
    private let database: PostgresDatabase
    private let jobs: BackgroundJobs
    private let settings: @Sendable () -> StoreSettings
    private let ids: APNSIDs

    /// The number of devices whose pushes are queued before the response, for all notifications of a request together.
    private static let firstDevices = 2000

    init(database: PostgresDatabase, jobs: BackgroundJobs, settings: @escaping @Sendable () -> StoreSettings) {
        self.database = database
        self.jobs = jobs
        self.settings = settings
        ids = APNSIDs(key: database.idKey)
    }

    package func send(
        _ requests: [NotificationRequest]
    ) async throws(ChatError) -> [Result<NotificationReceipt, ChatError>] {
        let requests = requests.map(\.distinct)
        let found = try await database.read { [database] transaction in
            try requests.map { request in
                try Self.attempt { () -> (earlier: NotificationReceipt?, estimate: Int) in
                    if let earlier = try NotificationRecord.earlier(request, now: database.now(), transaction) {
                        return (earlier, 0)
                    }
                    return (nil, try AudienceItem.count(of: request, transaction))
                }
            }
        }
        // A repeated request writes nothing.
        let known = found.compactMap { try? $0.get().earlier }
        if known.count == requests.count { return known.map { .success($0) } }
        // With a key, a retry finds the same notification.
        let isRepeatable = requests.allSatisfy { $0.idempotencyKey != nil }
        let results = try await database.write(isRepeatable: isRepeatable) { transaction in
            var left = Self.firstDevices
            return try zip(requests, found).map {
                request, found -> Result<(NotificationReceipt, [FinalStateCount]), ChatError> in
                switch found {
                case .failure(let error): return .failure(error)
                case .success((let earlier?, _)): return .success((earlier, []))
                case .success((nil, let estimate)):
                    return try Self.attempt { try insert(request, estimate: estimate, left: &left, transaction) }
                }
            }
        }
        for result in results { if let ended = try? result.get().1 { jobs.committed(ended) } }
        return results.map { $0.map(\.0) }
    }

    /// A ``ChatError`` concerns one notification. Any other error fails the whole request.
    private static func attempt<Value>(_ body: () throws -> Value) throws -> Result<Value, ChatError> {
        do {
            return .success(try body())
        } catch let error as ChatError {
            return .failure(error)
        }
    }

    package func earlier(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt? {
        try await database.read { [database] transaction in
            try NotificationRecord.earlier(request.distinct, now: database.now(), transaction)
        }
    }

    /// Inserts the notification and its first pushes. If the request's other notifications have used up `left`, all of
    /// its pushes follow later.
    /// - Parameter left: The number of devices that can still be served before the response.
    private func insert(
        _ request: NotificationRequest, estimate: Int, left: inout Int, _ transaction: PostgresTransaction
    ) throws -> (NotificationReceipt, [FinalStateCount]) {
        let now = database.now()
        let until = try NotificationFanout.end(of: request.audience, transaction)
        let new = try NotificationRecord.insert(request, devices: estimate, until: until, now: now, transaction)
        guard let id = new else {
            // Another request had the same key at the same time.
            guard let earlier = try NotificationRecord.earlier(request, now: now, transaction) else {
                throw ChatError.unavailable(cause: "a notification with the same key was deleted meanwhile")
            }
            return (earlier, [])
        }
        guard left > 0 else {
            transaction.announcement.jobs = true
            return (NotificationReceipt(id: id, devices: estimate, isRepeat: false), [])
        }
        left -= max(1, min(estimate, NotificationFanout.step))
        var fanout = NotificationFanout(id: id, request: request, devices: estimate, until: until)
        let step = try fanout.step(now: now, settings(), transaction)
        if step.hasMore { transaction.announcement.jobs = true }
        let devices = step.hasMore ? max(estimate, step.queued) : step.queued
        transaction.pipeline(
            "UPDATE notifications SET devices = $1::bigint WHERE notification_id = $2::bigint",
            [.int(devices), .int(id)])
        return (NotificationReceipt(id: id, devices: devices, isRepeat: false), step.ended)
    }

    package func notifications(
        sentWith token: Int64?, before cursor: NotificationID?, limit: Int
    ) async throws(ChatError) -> Page<NotificationStatus> {
        try await database.read { [database] transaction in
            let most = token == nil ? limit + 1 : SQLPage.window + 1
            let page = try transaction.page(
                """
                SELECT notification_id, token FROM notifications WHERE notification_id < $1::bigint
                ORDER BY notification_id DESC LIMIT $2::bigint
                """, [.int(cursor ?? Int64.max), .int(most)], limit: limit
            ) { row in token == nil || (try? row.optionalInt(1)) == token }
            let now = database.now()
            return Page(
                items: try page.rows.map { row in try Self.status(of: row.int(0), now: now, transaction) },
                next: page.next)
        }
    }

    package func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        try await database.read { [database] transaction in
            try Self.status(of: id, now: database.now(), transaction)
        }
    }

    /// Reads the pushes between a notification's first and last one. Pushes of others are among them.
    package func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read { [ids] transaction in
            let ends = try transaction.row(
                "SELECT first_push, last_push FROM notifications WHERE notification_id = $1::bigint",
                [.int(notification)])
            guard let first = try ends?.optionalInt(0), let last = try ends?.optionalInt(1) else {
                return Page(items: [], next: nil)
            }
            let condition = Self.isOfNotification + (state == nil ? "" : " AND q.state = $4::text")
            let page = try transaction.page(
                Delivery.columns, key: "q.message_id", of: Self.between,
                [.int(max(first - 1, cursor ?? .min)), .int(last)],
                where: condition, [.int(notification)] + (state.map { [.text($0.rawValue)] } ?? []), limit: limit)
            return Page(items: try page.rows.map { try Delivery($0, ids) }, next: page.next)
        }
    }

    static let between = "push_queue q WHERE q.message_id > $1::bigint AND q.message_id <= $2::bigint"
    /// The addition keeps PostgreSQL from using another index than that of the push ids.
    static let isOfNotification = "q.notification + 0 = $3::bigint"

    package func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        let (status, ended) = try await database.write(isRepeatable: true) { [database] transaction in
            let now = database.now()
            var step: NotificationCancellation.Step?
            if try NotificationCancellation.begin(id, now: now, transaction) {
                step = try NotificationCancellation.step(of: id, now: now, transaction)
            }
            if step?.hasMore == true { transaction.announcement.jobs = true }
            return (try Self.status(of: id, now: now, transaction), step?.ended ?? [])
        }
        jobs.committed(ended)
        return status
    }

    // MARK: - Status

    /// The maximum number of rows in which a status counts the pending pushes. For larger notifications, the pending
    /// count is computed from the other counts.
    private static let countedRows: Int64 = 5000

    /// The notification has stored counts. For a small notification, pending pushes are counted in the rows, because
    /// scripts may have deleted some. Both are read in one statement, because a push that is settled between two
    /// statements would be in neither count.
    private static func status(
        of id: NotificationID, now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> NotificationStatus {
        let row = try transaction.row(statusSQL, [.int(id)])
        guard let row else { throw ChatError.notFound("notification") }
        var counts: [PushState: Int] = [:]
        for (index, state) in [PushState.sent, .failed, .expired, .cancelled].enumerated() {
            counts[state] = Int(try row.int(3 + index))
        }
        counts[.pending] = max(0, Int(try row.int(1)) - counts.values.reduce(0, +))
        if counts[.pending] != 0, let pending = try row.optionalInt(7) { counts[.pending] = Int(pending) }
        return try NotificationRecord(row, from: 8).status(
            isQueueing: row.bool(0), counts: counts, skipped: Int(row.int(2)), now: now)
    }

    static let statusSQL = """
        SELECT n.work IS NOT DISTINCT FROM 'queue', c.queued, c.skipped, c.sent, c.failed, c.expired, c.cancelled,
            CASE WHEN n.last_push - n.first_push < \(countedRows) THEN (
                SELECT count(*) FROM push_queue_due q
                WHERE q.message_id BETWEEN n.first_push AND n.last_push AND q.notification + 0 = n.notification_id
                    AND q.state = 'pending') END,
            \(NotificationRecord.columns)
        FROM notifications n JOIN notification_counts c USING (notification_id)
        WHERE notification_id = $1::bigint
        """
}

/// Rows of `notifications`.
extension NotificationRecord {
    static let columns = """
        notification_id, app, push_type, expires_at, priority, collapse_id, not_before, skip_unchanged, idempotency_key,
        devices, ms(time_created), ms(time_cancelled), payload, audience, token
        """

    /// - Parameter start: The index of the first of ``columns``.
    init(_ row: PostgresRow, from start: Int = 0) throws {
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

    /// The response to an earlier request with the same key. `nil` if there was none, or if the request has no key.
    /// - Throws: ``ChatError/Code/idempotencyConflict`` if the earlier request was different.
    static func earlier(
        _ request: NotificationRequest, now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> NotificationReceipt? {
        guard let key = request.idempotencyKey else { return nil }
        let row = try transaction.row(
            "SELECT \(columns) FROM notifications WHERE idempotency_key = $1::text", [.text(key)])
        return try row.map { try NotificationRecord($0) }?.receipt(repeating: request, now: now)
    }

    /// Inserts a notification whose pushes have to be queued, for devices or members up to `until`.
    /// - Parameter devices: The current number of devices.
    /// - Returns: `nil` if there is a notification with the same key.
    static func insert(
        _ request: NotificationRequest, devices: Int, until: Int64, now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> NotificationID? {
        let row = try transaction.row(
            """
            INSERT INTO notifications (app, push_type, expires_at, priority, collapse_id, not_before, skip_unchanged,
                idempotency_key, devices, time_created, work, work_until, payload, audience, token)
            VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::text, $6::bigint, $7::boolean, $8::text, $9::bigint,
                at($10::bigint), 'queue', $11::bigint, $12::text, $13::text, $14::bigint)
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
        transaction.pipeline(
            "INSERT INTO notification_counts (notification_id) VALUES ($1::bigint)", [.int(id)])
        return id
    }
}
