import Synchronization

/// The times at which tokens were last used, and the clients' addresses, until a store records them a few seconds
/// later. A crash loses these seconds.
package final class TokenUses: Sendable {
    /// The maximum number of tokens with a pending use. Uses of further tokens are dropped.
    private static let maxTokens = 10_000

    package struct Use: Sendable {
        package let id: Int64
        package let time: Timestamp
        /// `nil` if the address is not known.
        package let address: String?
    }

    private let uses = Mutex<[Int64: Use]>([:])

    package init() {}

    package func add(_ id: Int64, at time: Timestamp, from address: String?) {
        uses.withLock { uses in
            if uses.count < Self.maxTokens || uses[id] != nil { uses[id] = Use(id: id, time: time, address: address) }
        }
    }

    /// Removes and returns the pending uses, in the order of ids. Uses that a store cannot record are lost, because the
    /// next use replaces them.
    package func take() -> [Use] {
        uses.withLock { uses in
            defer { uses = [:] }
            return uses.values.sorted { $0.id < $1.id }
        }
    }
}
