package import ChatDomain
import ChatSQL
import GRDB

/// Requested notifications: the tables `notifications` and `notification_counts`.
package struct SQLiteNotificationStore: SQLNotificationStore {
    package let database: SQLiteDatabase
    let queue: SQLitePushQueue
    let jobs: BackgroundJobs
    let settings: @Sendable () -> StoreSettings

    package var ids: APNSIDs { queue.ids }

    /// The number of devices whose pushes are queued before the response, for all notifications of a request together.
    private static let firstDevices = 2000

    package func send(
        _ requests: [NotificationRequest]
    ) async throws(ChatError) -> [Result<NotificationReceipt, ChatError>] {
        let requests = requests.map(\.distinct)
        let found = try await database.read { db in
            try requests.map { request in
                try Self.attempt { () -> (earlier: NotificationReceipt?, estimate: Int) in
                    if let earlier = try SQLiteTransaction(db).earlier(request, now: database.now()) {
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

    /// Inserts the notification and its first pushes. If the request's other notifications have used up `left`, all of
    /// its pushes follow later.
    /// - Parameter left: The number of devices that can still be served before the response.
    private func insert(
        _ request: NotificationRequest, estimate: Int, left: inout Int, _ db: Database
    ) throws -> (NotificationReceipt, BackgroundJob.Step) {
        let (now, transaction) = (database.now(), SQLiteTransaction(db))
        if let earlier = try transaction.earlier(request, now: now) { return (earlier, BackgroundJob.Step()) }
        let until = try NotificationFanout.end(of: request.audience, db)
        guard let id = try transaction.insert(request, devices: estimate, until: until, now: now) else {
            throw ChatError.unavailable(cause: "another request has inserted a notification with the same key")
        }
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

    package func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        let (status, step) = try await database.writer.perform { db in
            let now = database.now()
            var step: BackgroundJob.Step?
            if try NotificationCancellation.begin(id, now: now, db) {
                step = try NotificationCancellation.step(of: id, now: now, inFlight: queue.inFlight, db)
            }
            return (try SQLiteTransaction(db).status(of: id, now: now), step ?? BackgroundJob.Step())
        } committed: { _, step in
            jobs.committed(step)
        }
        if step.hasMore { jobs.start(.notification(id)) }
        return status
    }
}
