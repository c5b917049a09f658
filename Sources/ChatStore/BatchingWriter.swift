import ChatDomain
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

    private struct Operation: Sendable {
        /// Runs inside the transaction; what it returns is called after the commit.
        let run: @Sendable (Database) throws -> @Sendable () -> Void
        let fail: @Sendable (ChatError) -> Void
    }

    private struct Waiting {
        var operations: [Operation] = []
        /// A drain is under way or scheduled on the writer's queue.
        var isScheduled = false
    }

    private let pool: DatabasePool
    private let waiting = Mutex(Waiting())

    init(pool: DatabasePool) {
        self.pool = pool
    }

    /// Returns once what `body` wrote is on disk.
    func perform<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(ChatError) -> Value {
        let result: Result<Value, ChatError> = await withCheckedContinuation { continuation in
            let accepted = enqueue { db in
                let value = try body(db)
                return { continuation.resume(returning: .success(value)) }
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
        _ run: @escaping @Sendable (Database) throws -> @Sendable () -> Void,
        onFailure: @escaping @Sendable (ChatError) -> Void
    ) -> Bool {
        let (accepted, mustSchedule) = waiting.withLock { waiting -> (Bool, Bool) in
            guard waiting.operations.count < Self.waitingLimit else { return (false, false) }
            waiting.operations.append(Operation(run: run, fail: onFailure))
            defer { waiting.isScheduled = true }
            return (true, !waiting.isScheduled)
        }
        if mustSchedule { schedule() }
        return accepted
    }

    private func schedule() {
        pool.asyncWriteWithoutTransaction { db in self.drain(db) }
    }

    /// One batch, then the queue is given up, so that other users of the writing connection get their turn.
    private func drain(_ db: Database) {
        let batch = waiting.withLock { waiting in
            let batch = Array(waiting.operations.prefix(Self.batchLimit))
            waiting.operations.removeFirst(batch.count)
            return batch
        }
        commit(batch, db)
        let mustContinue = waiting.withLock { waiting in
            waiting.isScheduled = !waiting.operations.isEmpty
            return waiting.isScheduled
        }
        if mustContinue { schedule() }
    }

    private func takeAll() -> [Operation] {
        waiting.withLock { waiting in
            defer { waiting.operations = [] }
            return waiting.operations
        }
    }

    private func commit(_ batch: [Operation], _ db: Database) {
        guard !batch.isEmpty else { return }
        do {
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
            if batch.count > 1, !error.isOfTheDisk {
                for operation in batch { commit([operation], db) }
                return
            }
            // Another process holds the lock: those in line have waited for it, too, and would do so again.
            let others = error.isOfALock ? takeAll() : []
            for operation in batch + others { operation.fail(ChatError(storing: error)) }
        }
    }
}
