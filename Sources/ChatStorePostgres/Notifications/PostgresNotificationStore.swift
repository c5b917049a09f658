package import ChatDomain
import ChatSQL

/// Requested notifications: the tables `notifications` and `notification_counts`.
package struct PostgresNotificationStore: SQLNotificationStore {
    package let database: PostgresDatabase
    private let jobs: BackgroundJobs
    private let settings: @Sendable () -> StoreSettings
    package let ids: APNSIDs

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
                    if let earlier = try transaction.earlier(request, now: database.now()) {
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

    /// Inserts the notification and its first pushes. If the request's other notifications have used up `left`, all of
    /// its pushes follow later.
    /// - Parameter left: The number of devices that can still be served before the response.
    private func insert(
        _ request: NotificationRequest, estimate: Int, left: inout Int, _ transaction: PostgresTransaction
    ) throws -> (NotificationReceipt, [FinalStateCount]) {
        let now = database.now()
        let until = try NotificationFanout.end(of: request.audience, transaction)
        let new = try transaction.insert(request, devices: estimate, until: until, now: now)
        guard let id = new else {
            // Another request had the same key at the same time.
            guard let earlier = try transaction.earlier(request, now: now) else {
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

    package func cancel(_ id: NotificationID) async throws(ChatError) -> NotificationStatus {
        let (status, ended) = try await database.write(isRepeatable: true) { [database] transaction in
            let now = database.now()
            var step: NotificationCancellation.Step?
            if try NotificationCancellation.begin(id, now: now, transaction) {
                step = try NotificationCancellation.step(of: id, now: now, transaction)
            }
            if step?.hasMore == true { transaction.announcement.jobs = true }
            return (try transaction.status(of: id, now: now), step?.ended ?? [])
        }
        jobs.committed(ended)
        return status
    }
}
