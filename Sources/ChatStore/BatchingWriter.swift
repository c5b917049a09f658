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
    /// The part of its time that goes to work behind the answers while somebody waits for an answer: one in so many.
    private static let share = 8

    /// Who waits for an operation. Each has transactions of its own, so that no answer's commit carries another's work.
    enum Urgency: Sendable {
        /// Somebody waits for an answer.
        case answer
        /// The queue's own: leases, verdicts.
        case upkeep
        /// Nobody waits for it: it is done when nothing else is to be done, and in a small part of the time when there is. It
        /// takes milliseconds at the most.
        case behind
    }

    private struct Operation: Sendable {
        /// Whether what it writes has to be on the disk before its result is told.
        let isDurable: Bool
        /// Runs inside the transaction; what it returns is called after the commit.
        let run: @Sendable (Database) throws -> @Sendable () -> Void
        let fail: @Sendable (ChatError) -> Void
    }

    private struct Waiting {
        private var answers = Line()
        private var upkeep = Line()
        private var behind = Line()
        /// A drain is under way or scheduled on the writer's queue.
        var isScheduled = false
        /// A drain for what lies behind has been put off.
        var isPutOff = false

        subscript(urgency: Urgency) -> Line {
            get {
                switch urgency {
                case .answer: answers
                case .upkeep: upkeep
                case .behind: behind
                }
            }
            _modify {
                switch urgency {
                case .answer: yield &answers
                case .upkeep: yield &upkeep
                case .behind: yield &behind
                }
            }
        }

        /// What is to happen after a drain.
        /// - Parameter isPaused: nothing is done of what lies behind now.
        mutating func drained(isPaused: Bool) -> Continuation {
            isScheduled = answers.count + upkeep.count > 0 || (behind.count > 0 && !isPaused)
            if isScheduled { return .again }
            guard behind.count > 0, !isPutOff else { return .none }
            isPutOff = true
            return .later
        }

        /// To be called when a drain is wanted.
        /// - Returns: whether it has to be scheduled.
        mutating func schedule() -> Bool {
            defer { isScheduled = true }
            return !isScheduled
        }
    }

    private enum Continuation {
        case none, again, later
    }

    /// All of the time while nobody waits for an answer, and a share of it while somebody does: also in the moments between
    /// one batch and the next, which the same clients are about to fill.
    private struct Allowance {
        /// How long after a batch the next is expected.
        static let gap = Duration.milliseconds(10)
        /// How long after it somebody still counts as waiting.
        static let afterglow = Duration.milliseconds(100)

        private var lastBatch = ContinuousClock.now - afterglow
        /// Until then it has had its share.
        private var paidUntil = ContinuousClock.now
        /// What a step took lately.
        private var stepTime = Duration.milliseconds(4)

        /// Steps that fit into one transaction: few enough to keep others' wait short, more than one where they are small, so
        /// that they share its way to the disk.
        var steps: Int { max(1, min(16, Int(Duration.milliseconds(4) / max(stepTime, .microseconds(1))))) }

        /// - Returns: nil for now, or how long to wait.
        func wait(at now: ContinuousClock.Instant) -> Duration? {
            let end = min(paidUntil, lastBatch + Self.gap)
            return now >= end ? nil : end - now
        }

        /// Somebody waits for an answer, or did a moment ago.
        var isAnswering: Bool { ContinuousClock.now - lastBatch < Self.afterglow }

        mutating func hadBatch(at now: ContinuousClock.Instant) {
            lastBatch = now
        }

        mutating func hadSteps(
            _ count: Int, from begin: ContinuousClock.Instant, to end: ContinuousClock.Instant
        ) {
            paidUntil = end + (end - begin) * (BatchingWriter.share - 1)
            stepTime = (end - begin) / count
        }
    }

    /// First in, first out.
    private struct Line {
        private var operations: [Operation] = []
        private var start = 0

        var count: Int { operations.count - start }

        mutating func append(_ operation: Operation) {
            operations.append(operation)
        }

        mutating func next(_ most: Int) -> [Operation] {
            let taken = Array(operations[start...].prefix(most))
            start += taken.count
            if start == operations.count || start > 1000 {
                operations.removeFirst(start)
                start = 0
            }
            return taken
        }
    }

    private let pool: DatabasePool
    let checkpointer: Checkpointer
    private let waiting = Mutex(Waiting())
    /// What work behind the answers may take now. Of the writer's queue alone.
    private let allowance = Mutex(Allowance())
    /// What the writing connection is set to: as ``DatabaseFile`` opens it.
    private let isDurable = Mutex(true)

    init(pool: DatabasePool) {
        self.pool = pool
        let checkpointer = Checkpointer(path: pool.path)
        self.checkpointer = checkpointer
        pool.writeWithoutTransaction { db in checkpointer.serve(db) }
    }

    /// Whether somebody waits for an answer, or did a moment ago: what nobody waits for is done in small pieces then.
    var isAnswering: Bool { allowance.withLock { $0.isAnswering } }

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
        let (accepted, mustSchedule) = waiting.withLock { waiting -> (Bool, Bool) in
            guard waiting[urgency].count < Self.waitingLimit else { return (false, false) }
            waiting[urgency].append(Operation(isDurable: isDurable, run: run, fail: onFailure))
            return (true, waiting.schedule())
        }
        if mustSchedule { schedule() }
        return accepted
    }

    private func schedule() {
        pool.asyncWriteWithoutTransaction { db in self.drain(db) }
    }

    /// One batch of each line, then the queue is given up, so that other users of the writing connection get their turn.
    private func drain(_ db: Database) {
        let (pause, most) = allowance.withLock { ($0.wait(at: .now), $0.steps) }
        if commit(next(.answer, Self.batchLimit), db) { allowance.withLock { $0.hadBatch(at: .now) } }
        commit(next(.upkeep, Self.batchLimit), db)
        if pause == nil {
            let begin = ContinuousClock.now
            let steps = next(.behind, most)
            if commit(steps, db) { allowance.withLock { $0.hadSteps(steps.count, from: begin, to: .now) } }
        }
        switch waiting.withLock({ $0.drained(isPaused: pause != nil) }) {
        case .none: break
        case .again: schedule()
        case .later: schedule(after: pause ?? .zero)
        }
    }

    private func next(_ urgency: Urgency, _ most: Int) -> [Operation] {
        waiting.withLock { $0[urgency].next(most) }
    }

    private func schedule(after pause: Duration) {
        DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds(Int(pause / .nanoseconds(1)))) { [self] in
            let mustSchedule = waiting.withLock { waiting in
                waiting.isPutOff = false
                return waiting.schedule()
            }
            if mustSchedule { schedule() }
        }
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
    @discardableResult
    private func commit(_ batch: [Operation], _ db: Database) -> Bool {
        guard !batch.isEmpty else { return false }
        do {
            try setDurable(batch.contains(where: \.isDurable), db)
            var finish: [@Sendable () -> Void] = []
            finish.reserveCapacity(batch.count)
            try db.inTransaction(.immediate) {
                for operation in batch {
                    let changes = db.totalChangesCount
                    do {
                        finish.append(try operation.run(db))
                    } catch let error as ChatError where db.totalChangesCount == changes {
                        finish.append { operation.fail(error) }
                    }
                }
                return .commit
            }
            for call in finish { call() }
        } catch {
            if batch.count > 1, !error.isDiskProblem {
                for operation in batch { commit([operation], db) }
                return true
            }
            // Another process holds the lock: those in line have waited for it, too, and would do so again.
            let others = error.isLockProblem ? next(.answer, .max) + next(.upkeep, .max) : []
            for operation in batch + others { operation.fail(ChatError(storing: error)) }
        }
        return true
    }
}
