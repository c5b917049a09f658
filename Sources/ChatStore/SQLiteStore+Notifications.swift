package import ChatDomain
import GRDB

extension SQLiteStore: NotificationStore {
    package func send(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt {
        var request = request
        request.audience = request.audience.distinct
        let wanted = request
        let (earlier, estimate) = try await read { [clock] db -> (NotificationReceipt?, Int) in
            if let earlier = try NotificationRecord.earlier(wanted, now: clock(), db) { return (earlier, 0) }
            let devices = try AudienceItem.items(of: wanted.audience).reduce(0) { sum, item in
                try sum + item.count(app: wanted.app, db)
            }
            return (nil, devices)
        }
        if let earlier { return earlier }
        let (receipt, step) = try await writer.perform { [self] db in try insert(wanted, estimate: estimate, db) }
        finished(step)
        if step.hasMore { continueWork(.notification(receipt.id)) }
        return receipt
    }

    package func earlier(_ request: NotificationRequest) async throws(ChatError) -> NotificationReceipt? {
        var request = request
        request.audience = request.audience.distinct
        let wanted = request
        return try await read { [clock] db in try NotificationRecord.earlier(wanted, now: clock(), db) }
    }

    /// The notification and its first pushes.
    private func insert(
        _ request: NotificationRequest, estimate: Int, _ db: Database
    ) throws -> (NotificationReceipt, LeftWork.Step) {
        let now = clock()
        if let earlier = try NotificationRecord.earlier(request, now: now, db) { return (earlier, LeftWork.Step()) }
        let until = try NotificationFanout.end(of: request.audience, db)
        let id = try NotificationRecord.insert(request, until: until, now: now, db)
        var fanout = NotificationFanout(id: id, request: request, until: until)
        let step = try fanout.step(now: now, settings(), db)
        let devices = step.hasMore ? max(estimate, step.queued) : step.queued
        try db.cachedStatement(sql: "UPDATE notifications SET devices = ? WHERE notification_id = ?")
            .execute(arguments: [devices, id])
        return (NotificationReceipt(id: id, devices: devices, isRepeat: false), step)
    }

    package func notification(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        try await read { [clock] db in try Self.status(of: id, now: clock(), db) }
    }

    package func deliveries(
        of notification: NotificationID, in state: PushState?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await read { db in
            let rows = try Row.fetchCursor(
                db.cachedStatement(sql: Self.deliveriesSQL),
                arguments: [notification, cursor ?? 0, PageScan.window + 1])
            let scan = try PageScan(rows, limit: limit) { row in
                state.map { row[5] as String == $0.rawValue } != false
            }
            return Page(items: scan.rows.map(DeliveryRow.delivery), next: scan.next)
        }
    }

    static let deliveriesSQL = """
        SELECT \(DeliveryRow.columns) FROM push_queue q WHERE q.notification = ? AND q.message_id > ?
        ORDER BY q.message_id LIMIT ?
        """

    package func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        let (status, step) = try await writer.perform { [clock] db in
            let now = clock()
            var step = LeftWork.Step()
            if try NotificationCancellation.begin(id, now: now, db),
                let cancellation = try NotificationCancellation.unfinished(id, db)
            {
                step = try cancellation.step(now: now, db)
            }
            return (try Self.status(of: id, now: now, db), step)
        }
        finished(step)
        if step.hasMore { continueWork(.notification(id)) }
        return status
    }

    // MARK: - Status

    /// Counts are kept with the notification; only what is in flight is counted here.
    private static func status(of id: NotificationID, now: Timestamp, _ db: Database) throws -> NotificationStatus {
        let row = try Row.fetchOne(
            db.cachedStatement(
                sql: """
                    SELECT n.work IS 'queue', c.queued, c.skipped, c.sent, c.failed, c.expired, c.cancelled
                    FROM notifications n JOIN notification_counts c USING (notification_id)
                    WHERE n.notification_id = ?
                    """), arguments: [id])
        guard let row, let record = try NotificationRecord.find(id, db) else {
            throw ChatError.notFound("notification")
        }
        let written = try Int.fetchOne(db.cachedStatement(sql: writtenSQL), arguments: [id]) ?? 0
        var counts: [PushState: Int] = [
            .written: written, .sent: row[3], .failed: row[4], .expired: row[5], .cancelled: row[6],
        ]
        counts[.pending] = max(0, (row[1] as Int) - counts.values.reduce(0, +))
        return NotificationStatus(
            id: id, request: record.request, createdAt: record.createdAt, cancelledAt: record.cancelledAt,
            state: state(of: record, isQueueing: row[0], counts, now: now), counts: counts, skipped: row[2],
            devices: record.devices)
    }

    /// Little is in flight, and a notification can have a million pushes.
    static let writtenSQL = """
        SELECT count(*) FROM push_queue INDEXED BY push_queue_written WHERE state = 'written' AND notification = ?
        """

    private static func state(
        of record: NotificationRecord, isQueueing: Bool, _ counts: [PushState: Int], now: Timestamp
    ) -> NotificationStatus.State {
        func count(_ state: PushState) -> Int { counts[state, default: 0] }
        if record.cancelledAt != nil { return .cancelled }
        if isQueueing { return .queueing }
        if count(.pending) + count(.written) == 0 { return .done }
        if let time = record.request.notBefore, time > now, count(.written) + count(.sent) == 0 { return .scheduled }
        return .sending
    }
}
