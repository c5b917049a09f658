package import ChatDomain
import Synchronization

/// A read whose cost grows with the history in the database, by the calls that make it.
package enum LongRead: Sendable {
    /// A search in a room's messages. Every member may search.
    case search
    /// The operator's and programs' lists.
    case administration
    /// The counts of the queue and the database, which the relay also needs for itself. Waiting lists cannot refuse them.
    case metrics

    /// Kinds in the same line together need one connection.
    fileprivate var line: Int { self == .search ? 0 : 1 }
}

/// Lines of long reads. One read of each line runs at a time, in the order of arrival. So most connections stay free for
/// the short reads of posts, streams, dispatchers and health checks, and a burst of searches delays no list.
package final class LongReads: Sendable {
    /// The maximum number of waiting reads of one kind. The last search waits for about two seconds, because each has
    /// ``MessageSearch/timeLimit``; other kinds have no such limit. If more arrive, the client should retry later.
    package static let waitingLimit = 32

    private struct Line {
        var isBusy = false
        /// First in, first out.
        var waiting: [(kind: LongRead, caller: CheckedContinuation<Bool, Never>)] = []
    }

    private let lines = Mutex([Line](repeating: Line(), count: 2))

    package init() {}

    /// The number of reads that wait.
    package func waiting(_ kind: LongRead) -> Int {
        lines.withLock { $0[kind.line].waiting.count { $0.kind == kind } }
    }

    fileprivate func enter(_ kind: LongRead) async throws(ChatError) {
        let hasEntered = await withCheckedContinuation { caller in
            // One lock for both decisions: reads that arrive together must not exceed the limit.
            let decision: Bool? = lines.withLock { lines in
                guard lines[kind.line].isBusy else {
                    lines[kind.line].isBusy = true
                    return true
                }
                guard lines[kind.line].waiting.count(where: { $0.kind == kind }) < Self.waitingLimit else {
                    return false
                }
                lines[kind.line].waiting.append((kind, caller))
                return nil
            }
            if let decision { caller.resume(returning: decision) }
        }
        guard hasEntered else { throw .unavailable(cause: "too many long reads wait") }
    }

    fileprivate func leave(_ kind: LongRead) {
        let next = lines.withLock { lines -> CheckedContinuation<Bool, Never>? in
            guard lines[kind.line].waiting.isEmpty else { return lines[kind.line].waiting.removeFirst().caller }
            lines[kind.line].isBusy = false
            return nil
        }
        next?.resume(returning: true)
    }
}

extension SQLDatabase {
    /// Reads like ``read(_:)``, after the earlier long reads of its line.
    ///
    /// - Throws: ``ChatError/Code/unavailable`` if too many wait.
    package func read<Value: Sendable>(
        _ kind: LongRead, _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(ChatError) -> Value {
        try await longReads.enter(kind)
        defer { longReads.leave(kind) }
        return try await read(body)
    }
}
