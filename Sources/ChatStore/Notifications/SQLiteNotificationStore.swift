package import ChatDomain
import ChatSQL
import GRDB

/// Requested notifications: the tables `notifications` and `notification_counts`.
package struct SQLiteNotificationStore: NotificationStore {
    let database: SQLiteDatabase
    let queue: SQLitePushQueue
    let jobs: BackgroundJobs
    let settings: @Sendable () -> StoreSettings

    /// The number of devices whose pushes are queued before the response, for all notifications of a request together.
    private static let firstDevices = 2000

    package func send(
        _ requests: [NotificationRequest]
    ) async throws(ChatError) -> [Result<NotificationReceipt, ChatError>] {
        let requests = requests.map(\.distinct)
        let found = try await database.read { db in
            try requests.map { request in
                try Self.attempt { () -> (earlier: NotificationReceipt?, estimate: Int) in
                    if let earlier = try NotificationRecord.earlier(request, now: database.now(), db) {
                        return (earlier, 0)
                    }
                    let devices = try AudienceItem.items(of: request.audience).reduce(0) { sum, item in
                        try sum + item.count(app: request.app, db)
                    }
                    return (nil, devices)
                }
            }
        }
        // A repeated request writes nothing.
        let known = found.compactMap { try? $0.get().earlier }
        if known.count == requests.count { return known.map { .success($0) } }
        let results = try await database.writer.perform { db in
            var left = Self.firstDevices
            return try zip(requests, found).map {
                request, found -> Result<(NotificationReceipt, BackgroundJob.Step), ChatError> in
                switch found {
                case .failure(let error): return .failure(error)
                case .success((let earlier?, _)): return .success((earlier, BackgroundJob.Step()))
                case .success((nil, let estimate)):
                    return try Self.attempt { try insert(request, estimate: estimate, left: &left, db) }
                }
            }
        } committed: { results in
            for result in results { if let step = try? result.get().1 { jobs.committed(step) } }
        }
        for result in results {
            if let (receipt, step) = try? result.get(), step.hasMore { jobs.start(.notification(receipt.id)) }
        }
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
        try await database.read { db in
            try NotificationRecord.earlier(request.distinct, now: database.now(), db)
        }
    }

    /// Inserts the notification and its first pushes. If the request's other notifications have used up `left`, all of
    /// its pushes follow later.
    /// - Parameter left: The number of devices that can still be served before the response.
    private func insert(
        _ request: NotificationRequest, estimate: Int, left: inout Int, _ db: Database
    ) throws -> (NotificationReceipt, BackgroundJob.Step) {
        let now = database.now()
        if let earlier = try NotificationRecord.earlier(request, now: now, db) {
            return (earlier, BackgroundJob.Step())
        }
        let until = try NotificationFanout.end(of: request.audience, db)
        let id = try NotificationRecord.insert(request, devices: estimate, until: until, now: now, db)
        guard left > 0 else {
            return (NotificationReceipt(id: id, devices: estimate, isRepeat: false), BackgroundJob.Step(hasMore: true))
        }
        left -= max(1, min(estimate, NotificationFanout.step))
        var fanout = NotificationFanout(id: id, request: request, until: until)
        let step = try fanout.step(now: now, settings(), db)
        let queued = try db.value("SELECT queued FROM notification_counts WHERE notification_id = ?", [id]) ?? 0
        let devices = step.hasMore ? max(estimate, queued) : queued
        try db.run("UPDATE notifications SET devices = ? WHERE notification_id = ?", [devices, id])
        return (NotificationReceipt(id: id, devices: devices, isRepeat: false), step)
    }

    package func notifications(
        sentWith token: Int64?, before cursor: NotificationID?, limit: Int
    ) async throws(ChatError) -> Page<NotificationStatus> {
        try await database.read { db in
            let page = try db.page(
                """
                SELECT notification_id, token FROM notifications WHERE notification_id < ?
                ORDER BY notification_id DESC LIMIT ?
                """, [cursor ?? Int64.max, token == nil ? limit + 1 : SQLPage.window + 1], limit: limit
            ) { row in token == nil || row[1] as Int64? == token }
            let now = database.now()
            return Page(
                items: try page.rows.map { row in try Self.status(of: row[0], now: now, db) }, next: page.next)
        }
    }

    package func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        try await database.read { db in try Self.status(of: id, now: database.now(), db) }
    }

    package func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read { db in
            let page = try db.page(
                Self.deliveriesSQL, [notification, cursor ?? Int64.min, SQLPage.window + 1], limit: limit
            ) { row in
                guard row[1] as Int64? == notification else { return false }
                return state.map { row[5] as String == $0.rawValue } != false
            }
            return Page(items: page.rows.map { Delivery($0, queue.ids) }, next: page.next)
        }
    }

    /// Selects the pushes between a notification's first and last one. Pushes of others are among them.
    static let deliveriesSQL = """
        SELECT \(Delivery.columns) FROM notifications n CROSS JOIN push_queue q
            ON q.message_id BETWEEN n.first_push AND n.last_push
        WHERE n.notification_id = ? AND q.message_id > ? ORDER BY q.message_id LIMIT ?
        """

    package func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        let (status, step) = try await database.writer.perform { db in
            let now = database.now()
            var step: BackgroundJob.Step?
            if try NotificationCancellation.begin(id, now: now, db) {
                step = try NotificationCancellation.step(of: id, now: now, inFlight: queue.inFlight, db)
            }
            return (try Self.status(of: id, now: now, db), step ?? BackgroundJob.Step())
        } committed: { _, step in
            jobs.committed(step)
        }
        if step.hasMore { jobs.start(.notification(id)) }
        return status
    }

    // MARK: - Status

    /// The maximum number of rows in which a status counts the pending pushes. For larger notifications, the pending
    /// count is computed from the other counts.
    private static let countedRows = 5000

    /// The notification has stored counts. For a small notification, pending pushes are counted in the rows, because
    /// scripts may have deleted some.
    private static func status(of id: NotificationID, now: Timestamp, _ db: Database) throws -> NotificationStatus {
        let row = try db.row(
            """
            SELECT n.work IS 'queue', c.queued, c.skipped, c.sent, c.failed, c.expired, c.cancelled,
                n.last_push - n.first_push < \(countedRows)
            FROM notifications n JOIN notification_counts c USING (notification_id)
            WHERE n.notification_id = ?
            """, [id])
        guard let row, let record = try NotificationRecord.find(id, db) else {
            throw ChatError.notFound("notification")
        }
        var counts: [PushState: Int] = [.sent: row[3], .failed: row[4], .expired: row[5], .cancelled: row[6]]
        counts[.pending] = max(0, (row[1] as Int) - counts.values.reduce(0, +))
        if counts[.pending] != 0, row[7] as Bool? == true {
            counts[.pending] = try db.value(pendingSQL, [id]) ?? 0
        }
        return record.status(isQueueing: row[0], counts: counts, skipped: row[2], now: now)
    }

    static let pendingSQL = """
        SELECT count(*) FROM notifications n CROSS JOIN push_queue q
            ON q.message_id BETWEEN n.first_push AND n.last_push
        WHERE n.notification_id = ? AND +q.notification = n.notification_id AND q.state = 'pending'
        """
}

/// Rows of `notifications`.
extension NotificationRecord {
    private static let columns = """
        notification_id, app, push_type, expires_at, priority, collapse_id, not_before, skip_unchanged, idempotency_key,
        devices, time_created, time_cancelled, payload, audience, token
        """

    private init(_ row: Row) {
        self.init(
            id: row[0],
            request: NotificationRequest(
                audience: Audience(stored: row[13]), app: (row[1] as String?).map(AppName.init), payload: row[12],
                pushType: row[2], expiration: row[3], priority: (row[4] as Int64?).map(UInt8.init(clamping:)),
                collapseID: row[5], notBefore: (row[6] as Int64?).map(Timestamp.init(milliseconds:)),
                skipsUnchanged: row[7], idempotencyKey: row[8], token: row[14]),
            devices: row[9], createdAt: row.time(10), cancelledAt: row.optionalTime(11))
    }

    static func find(_ id: NotificationID, _ db: Database) throws -> NotificationRecord? {
        try db.row("SELECT \(columns) FROM notifications WHERE notification_id = ?", [id]).map(NotificationRecord.init)
    }

    /// The response to an earlier request with the same key. `nil` if there was none, or if the request has no key.
    /// - Throws: ``ChatError/Code/idempotencyConflict`` if the earlier request was different.
    static func earlier(_ request: NotificationRequest, now: Timestamp, _ db: Database) throws -> NotificationReceipt? {
        guard let key = request.idempotencyKey else { return nil }
        let row = try db.row("SELECT \(columns) FROM notifications WHERE idempotency_key = ?", [key])
        return try row.map(NotificationRecord.init)?.receipt(repeating: request, now: now)
    }

    /// Inserts a notification whose pushes have to be queued, for devices or members up to `until`.
    /// - Parameter devices: The current number of devices.
    static func insert(
        _ request: NotificationRequest, devices: Int, until: Int64, now: Timestamp, _ db: Database
    ) throws -> NotificationID {
        try db.run(
            """
            INSERT INTO notifications (app, push_type, expires_at, priority, collapse_id, not_before, skip_unchanged,
                idempotency_key, devices, time_created, work, work_until, payload, audience, token)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queue', ?, ?, ?, ?)
            """,
            [
                request.app?.text, request.pushType, request.expiration, request.priority.map { Int64($0) },
                request.collapseID, request.notBefore?.milliseconds, request.skipsUnchanged, request.idempotencyKey,
                devices, now.sqlText, until, request.payload, request.audience.json.description,
                request.token,
            ])
        let id = db.lastInsertedRowID
        try db.run("INSERT INTO notification_counts (notification_id) VALUES (?)", [id])
        return id
    }
}
