import ChatDomain
import Dispatch
import GRDB
import Synchronization

/// Performs all writes. It combines many operations into one transaction with one fsync (group commit).
///
/// Operations that arrive while a transaction runs wait and share the next one. Each caller gets the result of its own
/// operation after the commit. An operation throws a ``ChatError`` before it has written anything. Any other error, or
/// an error after a write, rolls the transaction back. The writer then runs the operations one by one, so that only the
/// faulty one fails.
final class BatchingWriter: Sendable {
    /// The maximum number of operations in one transaction: enough to make the fsync cheap, few enough to keep the wait
    /// short.
    static let batchLimit = 512
    /// The maximum number of waiting operations. If more arrive, the disk cannot keep up, and the client should retry
    /// later.
    static let waitingLimit = 16_384

    /// The priority of an operation. Each priority has its own transactions, so that a commit that a client waits for
    /// carries no other work.
    enum Urgency: Int, Sendable, CaseIterable {
        /// A caller waits for the response.
        case answer
        /// The queue's own work: outcomes, repair, retention.
        case upkeep
        /// No caller waits. The work runs when the writer is idle, and within ``BackgroundBudget`` otherwise. Each
        /// operation takes at most a few milliseconds.
        case background
    }

    private struct Operation: Sendable {
        /// Whether its writes must be on disk before the caller gets the result.
        let isDurable: Bool
        /// Runs inside the transaction. The closure that it returns is called after the commit.
        let run: @Sendable (Database) throws -> @Sendable () -> Void
        let fail: @Sendable (ChatError) -> Void
    }

    private struct Waiting {
        /// Indexed by urgency; first in, first out.
        private var operations = [[Operation]](repeating: [], count: Urgency.allCases.count)
        /// Whether a drain is running, or scheduled on the writer's queue.
        private var isScheduled = false
        /// Whether a timer is set that will schedule a drain for background work.
        private var isDelayed = false

        /// - Returns: Whether the operation was accepted, and whether the caller has to schedule a drain.
        mutating func add(_ operation: Operation, _ urgency: Urgency) -> (isAccepted: Bool, mustSchedule: Bool) {
            guard operations[urgency.rawValue].count < BatchingWriter.waitingLimit else { return (false, false) }
            operations[urgency.rawValue].append(operation)
            return (true, schedule())
        }

        mutating func next(_ urgency: Urgency, _ most: Int) -> [Operation] {
            let taken = Array(operations[urgency.rawValue].prefix(most))
            operations[urgency.rawValue].removeFirst(taken.count)
            return taken
        }

        /// - Returns: Whether the caller has to schedule a drain.
        mutating func schedule() -> Bool {
            defer { isScheduled = true }
            return !isScheduled
        }

        mutating func scheduleDelayed() -> Bool {
            isDelayed = false
            return schedule()
        }

        /// Records the end of a drain.
        /// - Parameter pause: The time that background work has to wait. `nil` if it may continue.
        /// - Returns: The delay before the next drain. `nil` if none has to be scheduled.
        mutating func drained(_ pause: Duration?) -> Duration? {
            func isWaiting(_ urgency: Urgency) -> Bool { !operations[urgency.rawValue].isEmpty }
            isScheduled = isWaiting(.answer) || isWaiting(.upkeep) || (isWaiting(.background) && pause == nil)
            if isScheduled { return .zero }
            guard isWaiting(.background), !isDelayed else { return nil }
            isDelayed = true
            return pause
        }
    }

    private let pool: DatabasePool
    let checkpointer: Checkpointer
    /// The reason why writes are impossible at the moment. Checked before each transaction.
    private let obstacle: @Sendable () -> ChatError?
    private let clock: @Sendable () -> ContinuousClock.Instant
    private let waiting = Mutex(Waiting())
    /// Used only on the writer's queue.
    private let budget: Mutex<BackgroundBudget>
    /// The current setting of the writing connection. ``DatabaseFile`` opens it with `FULL`.
    private let isDurable = Mutex(true)
    /// Indexed by urgency.
    private let measures = Urgency.allCases.map { _ in
        (seconds: Histogram(Histogram.moments), sizes: Histogram(Histogram.sizes))
    }
    private let failed = Atomic(0)
    private let refused = Atomic(0)

    init(
        pool: DatabasePool, clock: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        obstacle: @escaping @Sendable () -> ChatError? = { nil }
    ) {
        self.pool = pool
        self.obstacle = obstacle
        self.clock = clock
        budget = Mutex(BackgroundBudget(now: clock()))
        let checkpointer = Checkpointer(path: pool.path)
        self.checkpointer = checkpointer
        pool.writeWithoutTransaction { db in checkpointer.serve(db) }
    }

    /// Runs `body` in a transaction and returns after its writes are on disk.
    /// - Parameter durably: False if a power cut may undo the writes. They are then in the file, and reach the disk
    ///   with the next durable commit.
    /// - Parameter committed: Called on the writer's thread right after the commit, before the caller resumes. It has
    ///   to be quick.
    func perform<Value: Sendable>(
        durably isDurable: Bool = true, _ urgency: Urgency = .answer,
        _ body: @escaping @Sendable (Database) throws -> Value,
        committed: @escaping @Sendable (Value) -> Void = { _ in }
    ) async throws(ChatError) -> Value {
        let result: Result<Value, ChatError> = await withCheckedContinuation { continuation in
            let accepted = enqueue(durably: isDurable, urgency) { db in
                let value = try body(db)
                return {
                    committed(value)
                    continuation.resume(returning: .success(value))
                }
            } onFailure: {
                continuation.resume(returning: .failure($0))
            }
            if !accepted {
                continuation.resume(returning: .failure(.unavailable(cause: "too many writes are waiting")))
            }
        }
        return try result.get()
    }

    /// Enqueues an operation without waiting for it. Returns false, without any effect, if too many operations wait.
    func enqueue(
        durably isDurable: Bool = true, _ urgency: Urgency = .answer,
        _ run: @escaping @Sendable (Database) throws -> @Sendable () -> Void,
        onFailure: @escaping @Sendable (ChatError) -> Void
    ) -> Bool {
        let (isAccepted, mustSchedule) = waiting.withLock { waiting in
            waiting.add(Operation(isDurable: isDurable, run: run, fail: onFailure), urgency)
        }
        if mustSchedule { schedule() }
        if !isAccepted { refused.add(1, ordering: .relaxed) }
        return isAccepted
    }

    /// The work done so far.
    var work: StoreWork {
        var work = StoreWork()
        work.batches = zip(Urgency.allCases, measures).map { urgency, measures in
            StoreWork.Batches(kind: "\(urgency)", seconds: measures.seconds.snapshot, sizes: measures.sizes.snapshot)
        }
        work.failedBatches = failed.load(ordering: .relaxed)
        work.refusedOperations = refused.load(ordering: .relaxed)
        work.checkpoints = checkpointer.seconds
        return work
    }

    private func schedule() {
        pool.asyncWriteWithoutTransaction { db in self.drain(db) }
    }

    /// Runs one batch of each urgency, then leaves the queue, so that other users of the writing connection get their
    /// turn.
    private func drain(_ db: Database) {
        let (pause, steps) = budget.withLock { ($0.pause(at: clock()), $0.steps) }
        if measured(next(.answer, Self.batchLimit), .answer, db) { budget.withLock { $0.answered(at: clock()) } }
        _ = measured(next(.upkeep, Self.batchLimit), .upkeep, db)
        if pause == nil {
            let begin = clock()
            let batch = next(.background, steps)
            if measured(batch, .background, db) { budget.withLock { $0.spent(batch.count, from: begin, to: clock()) } }
        }
        guard let delay = waiting.withLock({ $0.drained(pause) }) else { return }
        if delay == .zero { return schedule() }
        DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds(Int(delay / .nanoseconds(1)))) { [self] in
            if waiting.withLock({ $0.scheduleDelayed() }) { schedule() }
        }
    }

    private func next(_ urgency: Urgency, _ most: Int) -> [Operation] {
        waiting.withLock { $0.next(urgency, most) }
    }

    /// Sets whether the next commit waits for the disk.
    private func setDurable(_ isDurable: Bool, _ db: Database) throws {
        try self.isDurable.withLock { now in
            guard now != isDurable else { return }
            #if PLANTED_FAULTS
            if PlantedFault.unsyncedCommits.isPlanted, isDurable { return }
            #endif
            try db.execute(sql: "PRAGMA synchronous = \(isDurable ? "FULL" : "NORMAL")")
            now = isDurable
        }
    }

    /// - Returns: Whether the batch contained any operation.
    private func measured(_ batch: [Operation], _ urgency: Urgency, _ db: Database) -> Bool {
        guard !batch.isEmpty else { return false }
        let begin = clock()
        let answers = commit(batch, db)
        measures[urgency.rawValue].seconds.record(clock() - begin)
        measures[urgency.rawValue].sizes.record(Double(batch.count))
        for answer in answers { answer() }
        return true
    }

    /// - Returns: Closures that report the results to the callers.
    private func commit(_ batch: [Operation], _ db: Database) -> [@Sendable () -> Void] {
        if let obstacle = obstacle() {
            failed.add(1, ordering: .relaxed)
            return batch.map { operation in { operation.fail(obstacle) } }
        }
        do {
            try setDurable(batch.contains(where: \.isDurable), db)
            var answers: [@Sendable () -> Void] = []
            answers.reserveCapacity(batch.count)
            try db.inTransaction(.immediate) {
                for operation in batch {
                    let changes = db.totalChangesCount
                    do {
                        answers.append(try operation.run(db))
                    } catch let error as ChatError where db.totalChangesCount == changes {
                        answers.append { operation.fail(error) }
                    }
                }
                return .commit
            }
            return answers
        } catch {
            if batch.count > 1, !error.isDiskProblem { return batch.flatMap { commit([$0], db) } }
            if error.isDiskProblem { failed.add(1, ordering: .relaxed) }
            // Another process holds the lock. The waiting operations have waited for it as well, and would only wait
            // again.
            let others = error.isLockProblem ? next(.answer, .max) + next(.upkeep, .max) : []
            return (batch + others).map { operation in { operation.fail(ChatError(storing: error)) } }
        }
    }
}

/// Limits the writer's time for background work. Background work may use all of the time while no caller waits for a
/// response, and one part in ``share`` otherwise. The moments after a batch of responses count as busy, because the
/// same clients are about to send their next requests.
struct BackgroundBudget: Sendable {
    static let share = 8
    /// The time within which the next batch of responses is expected.
    static let gap = Duration.milliseconds(10)
    /// The target duration of one transaction of background work. Other operations wait no longer than this.
    static let transaction = Duration.milliseconds(4)

    private var lastResponses: ContinuousClock.Instant
    /// Until this time, the share for background work is used up.
    private var spentUntil: ContinuousClock.Instant
    /// The average duration of a step in the latest transaction.
    private var stepTime = Self.transaction

    init(now: ContinuousClock.Instant) {
        lastResponses = now - Self.gap
        spentUntil = now
    }

    /// The number of steps that share one transaction and its fsync.
    var steps: Int { max(1, min(16, Int(Self.transaction / max(stepTime, .microseconds(1))))) }

    /// The time to wait before more background work may run. `nil` if it may run now.
    func pause(at now: ContinuousClock.Instant) -> Duration? {
        let end = min(spentUntil, lastResponses + Self.gap)
        return now >= end ? nil : end - now
    }

    mutating func answered(at now: ContinuousClock.Instant) {
        lastResponses = now
    }

    /// Records that a transaction ran `count` steps.
    mutating func spent(_ count: Int, from begin: ContinuousClock.Instant, to end: ContinuousClock.Instant) {
        spentUntil = end + (end - begin) * (Self.share - 1)
        stepTime = (end - begin) / count
    }
}
