#if PostgreSQL
import ChatDomain
import Synchronization

/// What transactions that write cost, and what went wrong with the server, since the process began.
final class TransactionMeasures: Sendable {
    /// What the server or the way to it did.
    private enum Trouble: String, CaseIterable {
        case lost, inDoubt = "in_doubt", collision, refused
    }

    /// By kind.
    private let measures = PostgresDatabase.Kind.allCases.map { _ in
        (seconds: Histogram(Histogram.moments), sizes: Histogram(Histogram.sizes))
    }
    private let failed = Atomic(0)
    private let refused = Atomic(0)
    private let troubles = Mutex<[Trouble: Int]>([:])

    /// A transaction was committed or taken back.
    /// - Parameter operations: how many callers shared it.
    func ended(_ kind: PostgresDatabase.Kind, operations: Int, after duration: Duration) {
        measures[kind.rawValue].seconds.record(duration)
        measures[kind.rawValue].sizes.record(Double(operations))
    }

    /// Also where the transaction is done again. What a row has that its reader does not expect is not the server's.
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

    /// A transaction that writes was given up because of the server.
    func gaveUp() { failed.add(1, ordering: .relaxed) }

    /// Calls that write were not even begun: too many wait.
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
#endif
