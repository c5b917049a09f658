package import ChatDomain
import Synchronization

/// Numbers the connections of a process, over all apps.
package final class ConnectionEpochs: Sendable {
    private let last: Atomic<Int64>

    package init(after last: ConnectionEpoch = ConnectionEpoch(0)) {
        self.last = Atomic(last.number)
    }

    func next() -> ConnectionEpoch {
        ConnectionEpoch(last.add(1, ordering: .relaxed).newValue)
    }
}
