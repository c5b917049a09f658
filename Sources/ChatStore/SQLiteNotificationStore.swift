package import ChatDomain
import GRDB

/// Notifications to devices on request: the tables `notifications` and `notification_counts`.
package final class SQLiteNotificationStore: NotificationStore {
    private let database: SQLiteDatabase
    private let queue: SQLitePushQueue
    private let jobs: BackgroundJobs
    private let settings: @Sendable () -> StoreSettings

    init(
        database: SQLiteDatabase, queue: SQLitePushQueue, jobs: BackgroundJobs,
        settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.queue = queue
        self.jobs = jobs
        self.settings = settings
    }

    package func send(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt {
        var request = request
        request.audience = request.audience.distinct
        let wanted = request
        let (earlier, estimate) = try await database.read { [database] db -> (NotificationReceipt?, Int) in
            if let earlier = try NotificationRecord.earlier(wanted, now: database.clock(), db) { return (earlier, 0) }
            let devices = try AudienceItem.items(of: wanted.audience).reduce(0) { sum, item in
                try sum + item.count(app: wanted.app, db)
            }
            return (nil, devices)
        }
        if let earlier { return earlier }
        let (receipt, step) = try await database.writer.perform { [self] db in
            try insert(wanted, estimate: estimate, db)
        } committed: { [self] _, step in
            jobs.committed(step)
        }
        if step.hasMore { jobs.start(.notification(receipt.id)) }
        return receipt
    }

    package func earlier(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt? {
        var request = request
        request.audience = request.audience.distinct
        let wanted = request
        return try await database.read { [database] db in
            try NotificationRecord.earlier(wanted, now: database.clock(), db)
        }
    }

    /// The notification and its first pushes.
    private func insert(
        _ request: NotificationRequest, estimate: Int, _ db: Database
    ) throws -> (NotificationReceipt, BackgroundJob.Step) {
        let now = database.clock()
        if let earlier = try NotificationRecord.earlier(request, now: now, db) {
            return (earlier, BackgroundJob.Step())
        }
        let until = try NotificationFanout.end(of: request.audience, db)
        let id = try NotificationRecord.insert(request, devices: estimate, until: until, now: now, db)
        var fanout = NotificationFanout(id: id, request: request, until: until)
        let step = try fanout.step(now: now, settings(), db)
        let queued = try Int.fetchOne(
            db.cachedStatement(sql: "SELECT queued FROM notification_counts WHERE notification_id = ?"), arguments: [id]
        )
        let devices = step.hasMore ? max(estimate, queued ?? 0) : queued ?? 0
        try db.cachedStatement(sql: "UPDATE notifications SET devices = ? WHERE notification_id = ?")
            .execute(arguments: [devices, id])
        return (NotificationReceipt(id: id, devices: devices, isRepeat: false), step)
    }

    package func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        try await database.read { [database] db in try Self.status(of: id, now: database.clock(), db) }
    }

    package func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read { [queue] db in
            let rows = try Row.fetchCursor(
                db.cachedStatement(sql: Self.deliveriesSQL),
                arguments: [notification, cursor ?? Int64.min, PageScan.window + 1])
            let scan = try PageScan(rows, limit: limit) { row in
                guard row[1] as Int64? == notification else { return false }
                return state.map { row[5] as String == $0.rawValue } != false
            }
            return Page(items: scan.rows.map { DeliveryRow.delivery($0, queue.ids) }, next: scan.next)
        }
    }

    /// The rows between a notification's first and its last: others' lie among them.
    static let deliveriesSQL = """
        SELECT \(DeliveryRow.columns) FROM notifications n CROSS JOIN push_queue q
            ON q.message_id BETWEEN n.first_push AND n.last_push
        WHERE n.notification_id = ? AND q.message_id > ? ORDER BY q.message_id LIMIT ?
        """

    package func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        let (status, step) = try await database.writer.perform { [database, queue] db in
            let now = database.clock()
            var step = BackgroundJob.Step()
            if try NotificationCancellation.begin(id, now: now, db),
                let cancellation = try NotificationCancellation.unfinished(id, db)
            {
                step = try cancellation.step(now: now, inFlight: queue.inFlight, db)
            }
            return (try Self.status(of: id, now: now, db), step)
        } committed: { [jobs] _, step in
            jobs.committed(step)
        }
        if step.hasMore { jobs.start(.notification(id)) }
        return status
    }

    // MARK: - Status

    /// Rows that a status looks at to count what is still pending; with more, what has not been counted as ended is.
    private static let countedRows = 5000

    /// Counts are kept with the notification. What is still pending is counted in the rows where these are few, because
    /// scripts may have taken some away.
    private static func status(of id: NotificationID, now: Timestamp, _ db: Database) throws -> NotificationStatus {
        let row = try Row.fetchOne(
            db.cachedStatement(
                sql: """
                    SELECT n.work IS 'queue', c.queued, c.skipped, c.sent, c.failed, c.expired, c.cancelled,
                        n.last_push - n.first_push < \(countedRows)
                    FROM notifications n JOIN notification_counts c USING (notification_id)
                    WHERE n.notification_id = ?
                    """), arguments: [id])
        guard let row, let record = try NotificationRecord.find(id, db) else {
            throw ChatError.notFound("notification")
        }
        var counts: [PushState: Int] = [.sent: row[3], .failed: row[4], .expired: row[5], .cancelled: row[6]]
        counts[.pending] = max(0, (row[1] as Int) - counts.values.reduce(0, +))
        if counts[.pending] != 0, row[7] as Bool? == true {
            counts[.pending] = try Int.fetchOne(db.cachedStatement(sql: pendingSQL), arguments: [id]) ?? 0
        }
        return NotificationStatus(
            id: id, request: record.request, createdAt: record.createdAt, cancelledAt: record.cancelledAt,
            state: state(of: record, isQueueing: row[0], counts, now: now), counts: counts, skipped: row[2],
            devices: record.devices)
    }

    static let pendingSQL = """
        SELECT count(*) FROM notifications n CROSS JOIN push_queue q
            ON q.message_id BETWEEN n.first_push AND n.last_push
        WHERE n.notification_id = ? AND +q.notification = n.notification_id AND q.state = 'pending'
        """

    private static func state(
        of record: NotificationRecord, isQueueing: Bool, _ counts: [PushState: Int], now: Timestamp
    ) -> NotificationStatus.State {
        if record.cancelledAt != nil { return .cancelled }
        if isQueueing { return .queueing }
        if counts[.pending, default: 0] == 0 { return .done }
        if let time = record.request.notBefore, time > now, counts[.sent, default: 0] == 0 { return .scheduled }
        return .sending
    }
}
