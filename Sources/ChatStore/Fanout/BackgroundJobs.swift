import ChatDomain
import GRDB
import Logging
import Synchronization

/// Work that remains after a response. The row of the message or notification stores the progress, so that the work
/// resumes after a crash.
enum BackgroundJob: Sendable, Hashable {
    /// A message whose pushes have to be queued.
    case message(MessageID)
    /// A notification whose pushes have to be queued or cancelled.
    case notification(NotificationID)

    /// The result of a step.
    struct Step: Sendable {
        /// Pushes that the step inserted into the queue.
        var inserted: [DuePushes] = []
        /// The ids of inserted pushes that wait for a time, that time, and the apps.
        var scheduled: (range: ClosedRange<Int64>, until: Timestamp, apps: [AppName])?
        /// Pushes that reached a final state.
        var ended: [FinalStateCount] = []
        var hasMore = false
    }

    /// Performs the next step of the work that the database still records. There may be none.
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

/// Performs the jobs in steps of one transaction each, so that other writes can run in between.
final class BackgroundJobs: Sendable {
    /// The maximum number of jobs in progress.
    private static let most = 1000

    private let database: SQLiteDatabase
    private let queue: SQLitePushQueue
    private let outcomes: OutcomeCounter
    private let settings: @Sendable () -> StoreSettings
    private let underWay = Mutex<Set<BackgroundJob>>([])
    /// Whether there may be more jobs than those in progress. ``SQLiteUpkeep`` resumes them.
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

    /// Performs the remaining steps of a job, unless the job is in progress already. If a step fails (because the disk
    /// is full, for example), ``resume()`` continues it later.
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
            // A job that has failed waits for the next full scan.
            hasMore.store(false, ordering: .relaxed)
            underWay.withLock { _ = $0.remove(job) }
            database.logger.error(
                "background work was interrupted and goes on later",
                metadata: ["work": "\(job)", "error": "\(error)"])
        }
        if !accepted { underWay.withLock { _ = $0.remove(job) } }
    }

    /// Must be called on the writer's thread, after the commit.
    func committed(_ step: BackgroundJob.Step) {
        outcomes.add(step.ended)
        queue.inserted(step.inserted)
        if let (range, time, apps) = step.scheduled { queue.insertedWaiting(range, until: time, apps: apps) }
    }

    /// Whether no job is in progress and some did not fit among them.
    var mustResume: Bool { hasMore.load(ordering: .relaxed) && underWay.withLock(\.isEmpty) }

    /// Resumes the jobs that a crash or a full disk interrupted.
    func resume() async throws(ChatError) {
        #if PLANTED_FAULTS
        if PlantedFault.fanoutNotResumed.isPlanted { return }
        #endif
        // Before the query: jobs that do not fit from now on are found by the next query.
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
