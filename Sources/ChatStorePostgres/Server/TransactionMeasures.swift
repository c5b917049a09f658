import ChatDomain
import Synchronization

/// The cost of writing transactions, and the server's problems, since the process began.
final class TransactionMeasures: Sendable {
    /// A problem of the server or the network.
    private enum Trouble: String, CaseIterable {
        case lost, inDoubt = "in_doubt", collision, refused
    }

    /// Indexed by kind.
    private let measures = PostgresDatabase.Kind.allCases.map { _ in
        (seconds: Histogram(Histogram.moments), sizes: Histogram(Histogram.sizes))
    }
    private let failed = Atomic(0)
    private let refused = Atomic(0)
    private let troubles = Mutex<[Trouble: Int]>([:])

    /// Records a transaction that was committed or rolled back.
    /// - Parameter operations: The number of callers that shared it.
    func ended(_ kind: PostgresDatabase.Kind, operations: Int, after duration: Duration) {
        measures[kind.rawValue].seconds.record(duration)
        measures[kind.rawValue].sizes.record(Double(operations))
    }

    /// Counts an error, even if the transaction is retried. A row with an unexpected form is not counted, because it is
    /// not the server's problem.
    func met(_ error: PostgresError) {
        let trouble: Trouble
        switch error.kind {
        case .lost: trouble = .lost
        case .inDoubt: trouble = .inDoubt
        case .refused: trouble = error.isCollision ? .collision : .refused
        case .unexpected: return
        }
        troubles.withLock { $0[trouble, default: 0] += 1 }
    }

    /// Counts a writing transaction that failed because of the server.
    func gaveUp() { failed.add(1, ordering: .relaxed) }

    /// Counts writing calls that were refused because too many were waiting.
    func refuse(_ operations: Int) { refused.add(operations, ordering: .relaxed) }

    var work: StoreWork {
        var work = StoreWork()
        work.batches = zip(PostgresDatabase.Kind.allCases, measures).map { kind, measures in
            StoreWork.Batches(kind: "\(kind)", seconds: measures.seconds.snapshot, sizes: measures.sizes.snapshot)
        }
        work.failedBatches = failed.load(ordering: .relaxed)
        work.refusedOperations = refused.load(ordering: .relaxed)
        let troubles = troubles.withLock { $0 }
        work.errors = Trouble.allCases.map { ($0.rawValue, troubles[$0, default: 0]) }
        return work
    }
}
