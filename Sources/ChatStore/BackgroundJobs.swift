import ChatDomain
import GRDB
import Logging
import Synchronization

/// What is left to do after an answer. How far it has come is kept with the message or notification, so that it goes on after
/// a crash.
enum BackgroundJob: Sendable, Hashable {
    /// Pushes of a message to queue.
    case message(MessageID)
    /// Pushes of a notification to queue, or to take back.
    case notification(NotificationID)

    /// What a step did.
    struct Step: Sendable {
        /// Rows that are in the queue now.
        var inserted: [DuePushes] = []
        /// Of those that wait for a time: their numbers, and the time.
        var scheduled: (range: ClosedRange<Int64>, until: Timestamp, apps: [AppName])?
        /// Pushes that reached a final state.
        var ended: [FinalStateCount] = []
        var hasMore = false
    }

    /// Does the next step of what the database says is left, which may be nothing.
    func step(
        now: Timestamp, _ settings: StoreSettings, inFlight: (ClosedRange<Int64>) -> [ClosedRange<Int64>] = { _ in [] },
        _ db: Database
    ) throws -> Step {
        switch self {
        case .message(let id):
            return try MessageFanout.step(of: id, now: now, settings, db) ?? Step()
        case .notification(let id):
            if var fanout = try NotificationFanout.unfinished(id, db) { return try fanout.step(now: now, settings, db) }
            return try NotificationCancellation.step(of: id, now: now, inFlight: inFlight, db) ?? Step()
        }
    }
}

/// Does the jobs in steps, one transaction each, so that other writes go between.
final class BackgroundJobs: Sendable {
    /// Jobs that are under way at once.
    private static let most = 1000

    private let database: SQLiteDatabase
    private let queue: SQLitePushQueue
    private let outcomes: OutcomeCounter
    private let settings: @Sendable () -> StoreSettings
    private let underWay = Mutex<Set<BackgroundJob>>([])
    /// There may be more than are under way; ``SQLiteUpkeep`` takes them up.
    private let hasMore = Atomic(false)

    init(
        database: SQLiteDatabase, queue: SQLitePushQueue, outcomes: OutcomeCounter,
        settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.queue = queue
        self.outcomes = outcomes
        self.settings = settings
    }

    /// Does the remaining steps of a job, unless that is under way. When one fails (the disk is full, say), ``resume()``
    /// takes it up again.
    func start(_ job: BackgroundJob) {
        let isNew = underWay.withLock { underWay in
            guard underWay.count < Self.most else {
                hasMore.store(true, ordering: .relaxed)
                return false
            }
            return underWay.insert(job).inserted
        }
        if isNew { nextStep(of: job) }
    }

    private func nextStep(of job: BackgroundJob) {
        let accepted = database.writer.enqueue(.background) { [self] db in
            let step = try job.step(now: database.now(), settings(), inFlight: queue.inFlight, db)
            return { [self] in
                committed(step)
                if step.hasMore { nextStep(of: job) } else { underWay.withLock { _ = $0.remove(job) } }
            }
        } onFailure: { [self] error in
            // What has failed waits for the next full scan.
            hasMore.store(false, ordering: .relaxed)
            underWay.withLock { _ = $0.remove(job) }
            database.logger.error(
                "background work was interrupted and goes on later",
                metadata: ["work": "\(job)", "error": "\(error)"])
        }
        if !accepted { underWay.withLock { _ = $0.remove(job) } }
    }

    /// To be called on the writer's thread, after the commit.
    func committed(_ step: BackgroundJob.Step) {
        outcomes.add(step.ended)
        queue.inserted(step.inserted)
        if let (range, time, apps) = step.scheduled { queue.insertedWaiting(range, until: time, apps: apps) }
    }

    /// None is under way any more, and some had no room among them.
    var mustResume: Bool { hasMore.load(ordering: .relaxed) && underWay.withLock(\.isEmpty) }

    /// Takes up what a crash or a full disk interrupted.
    func resume() async throws(ChatError) {
        // Before the look: what has no room from now on is found by the next one.
        hasMore.store(false, ordering: .relaxed)
        let open = try await database.read { db -> [BackgroundJob] in
            let messages: [Int64] = try db.values(
                "SELECT message_id FROM messages WHERE fanout_after IS NOT NULL ORDER BY message_id LIMIT ?",
                [Self.most])
            let notifications: [Int64] = try db.values(
                "SELECT notification_id FROM notifications WHERE work IS NOT NULL ORDER BY notification_id LIMIT ?",
                [Self.most])
            return messages.map(BackgroundJob.message) + notifications.map(BackgroundJob.notification)
        }
        if open.count >= Self.most { hasMore.store(true, ordering: .relaxed) }
        for job in open { start(job) }
    }
}
