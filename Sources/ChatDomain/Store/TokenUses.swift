import Synchronization

/// When tokens were used last, and from where, until a store writes it down some seconds later. A crash loses some seconds of it.
package final class TokenUses: Sendable {
    /// Tokens of which something may wait to be written down. Of a further one nothing is noted until there is room.
    private static let most = 10_000

    package struct Use: Sendable {
        package let id: Int64
        package let time: Timestamp
        /// Nil where it is not known.
        package let address: String?
    }

    private let uses = Mutex<[Int64: Use]>([:])

    package init() {}

    package func add(_ id: Int64, at time: Timestamp, from address: String?) {
        uses.withLock { uses in
            if uses.count < Self.most || uses[id] != nil { uses[id] = Use(id: id, time: time, address: address) }
        }
    }

    /// What waits, in the order of ids; it waits no longer. What cannot be written is forgotten: the next use says more.
    package func take() -> [Use] {
        uses.withLock { uses in
            defer { uses = [:] }
            return uses.values.sorted { $0.id < $1.id }
        }
    }
}
