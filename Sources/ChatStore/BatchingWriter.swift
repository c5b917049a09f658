import ChatDomain
import Dispatch
import GRDB
import Synchronization

/// The one place through which everything is written: many operations, one transaction, one fsync (group commit).
///
/// Operations that arrive while a transaction runs wait and share the next one. Each is told of its own result, after
/// the commit. An operation reports a ``ChatError`` before it has written anything; any other error, or one after a
/// write, rolls the transaction back and the operations are run again one by one, so that only the faulty one fails.
final class BatchingWriter: Sendable {
    /// Operations in one transaction: enough to make the fsync cheap, few enough to keep the others' wait short.
    static let batchLimit = 512
    /// Operations that may wait; more means that the disk does not keep up, and the client should come later.
    static let waitingLimit = 16_384

    /// Who waits for an operation. Each has transactions of its own, so that no answer's commit carries another's work.
    enum Urgency: Int, Sendable, CaseIterable {
        /// Somebody waits for an answer.
        case answer
        /// The queue's own: outcomes, repair, retention.
        case upkeep
        /// Nobody waits for it: it is done when nothing else is to be done, and within ``BackgroundBudget`` when there is. It
        /// takes milliseconds at the most.
        case background
    }

    private struct Operation: Sendable {
        /// Whether what it writes has to be on the disk before its result is told.
        let isDurable: Bool
        /// Runs inside the transaction; what it returns is called after the commit.
        let run: @Sendable (Database) throws -> @Sendable () -> Void
        let fail: @Sendable (ChatError) -> Void
    }

    private struct Waiting {
        /// By urgency; first in, first out.
        private var operations = [[Operation]](repeating: [], count: Urgency.allCases.count)
        /// A drain is under way or scheduled on the writer's queue.
        private var isScheduled = false
        /// A drain for background work will be scheduled later.
        private var isDelayed = false

        /// - Returns: whether it was accepted, and whether a drain has to be scheduled.
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

        /// - Returns: whether a drain has to be scheduled.
        mutating func schedule() -> Bool {
            defer { isScheduled = true }
            return !isScheduled
        }

        mutating func scheduleDelayed() -> Bool {
            isDelayed = false
            return schedule()
        }

        /// A drain has ended.
        /// - Parameter pause: how long background work has to wait; nil: it may go on.
        /// - Returns: after how long the next is to be scheduled; nil for none.
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
    /// Why nothing can be written now; asked before each transaction.
    private let obstacle: @Sendable () -> ChatError?
    private let clock: @Sendable () -> ContinuousClock.Instant
    private let waiting = Mutex(Waiting())
    /// Of the writer's queue alone.
    private let budget: Mutex<BackgroundBudget>
    /// What the writing connection is set to: as ``DatabaseFile`` opens it.
    private let isDurable = Mutex(true)
    /// By urgency.
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

    /// Returns once what `body` wrote is on disk.
    /// - Parameter durably: false for what a power cut may undo: it is in the file, and goes to the disk with the next commit
    ///   that has to.
    /// - Parameter committed: called on the writer's thread as soon as it is on disk; quick, and before the caller goes on.
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

    /// Puts an operation in line without waiting for it. False, with nothing done, when the line is full.
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

    /// What it has done so far.
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

    /// One batch of each urgency, then the queue is given up, so that other users of the writing connection get their turn.
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

    /// Whether the next commit is to wait for the disk.
    private func setDurable(_ isDurable: Bool, _ db: Database) throws {
        try self.isDurable.withLock { now in
            guard now != isDurable else { return }
            try db.execute(sql: "PRAGMA synchronous = \(isDurable ? "FULL" : "NORMAL")")
            now = isDurable
        }
    }

    /// - Returns: whether there was anything to do.
    private func measured(_ batch: [Operation], _ urgency: Urgency, _ db: Database) -> Bool {
        guard !batch.isEmpty else { return false }
        let begin = clock()
        let answers = commit(batch, db)
        measures[urgency.rawValue].seconds.record(clock() - begin)
        measures[urgency.rawValue].sizes.record(Double(batch.count))
        for answer in answers { answer() }
        return true
    }

    /// - Returns: what tells the callers how it ended.
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
            // Another process holds the lock: those in line have waited for it, too, and would do so again.
            let others = error.isLockProblem ? next(.answer, .max) + next(.upkeep, .max) : []
            return (batch + others).map { operation in { operation.fail(ChatError(storing: error)) } }
        }
    }
}

/// The writer's time for background work: all of it while nobody waits for an answer, and one part in ``share`` while
/// somebody does. The moments after a batch of answers count as such, because the same clients are about to send the next.
struct BackgroundBudget: Sendable {
    static let share = 8
    /// How long after a batch of answers the next is expected.
    static let gap = Duration.milliseconds(10)
    /// What the steps of one transaction take together: others wait for no more than that.
    static let transaction = Duration.milliseconds(4)

    private var lastResponses: ContinuousClock.Instant
    /// Until then its share is spent.
    private var spentUntil: ContinuousClock.Instant
    /// What a step took lately.
    private var stepTime = Self.transaction

    init(now: ContinuousClock.Instant) {
        lastResponses = now - Self.gap
        spentUntil = now
    }

    /// Steps that share one transaction, and its sync to the disk.
    var steps: Int { max(1, min(16, Int(Self.transaction / max(stepTime, .microseconds(1))))) }

    /// How long nothing is to be done; nil for no pause.
    func pause(at now: ContinuousClock.Instant) -> Duration? {
        let end = min(spentUntil, lastResponses + Self.gap)
        return now >= end ? nil : end - now
    }

    mutating func answered(at now: ContinuousClock.Instant) {
        lastResponses = now
    }

    /// So many steps were done.
    mutating func spent(_ count: Int, from begin: ContinuousClock.Instant, to end: ContinuousClock.Instant) {
        spentUntil = end + (end - begin) * (Self.share - 1)
        stepTime = (end - begin) / count
    }
}
