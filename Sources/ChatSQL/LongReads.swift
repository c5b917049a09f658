package import ChatDomain
import Synchronization

/// A read whose cost grows with the history in the database, by the calls that make it.
package enum LongRead: Int, Sendable, CaseIterable {
    /// A search in a room's messages. Every member may search.
    case search
    /// The metrics, and the operator's and programs' lists.
    case administration
}

/// Lines of long reads. One read of each kind runs at a time, in the order of arrival. So most connections stay free for
/// the short reads of posts, streams, dispatchers and health checks, and a burst of searches delays no list.
package final class LongReads: Sendable {
    /// The maximum number of waiting reads of one kind. The last one waits for about two seconds, because each search has
    /// ``MessageSearch/timeLimit``. If more arrive, the client should retry later.
    package static let waitingLimit = 32

    private struct Line {
        var isBusy = false
        /// First in, first out.
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let lines = Mutex([Line](repeating: Line(), count: LongRead.allCases.count))

    package init() {}

    fileprivate func enter(_ kind: LongRead) async throws(ChatError) {
        let isFull = lines.withLock { $0[kind.rawValue].waiting.count >= Self.waitingLimit }
        guard !isFull else { throw .unavailable(cause: "too many long reads wait") }
        await withCheckedContinuation { caller in
            let isFree = lines.withLock { lines in
                defer { lines[kind.rawValue].isBusy = true }
                if lines[kind.rawValue].isBusy { lines[kind.rawValue].waiting.append(caller) }
                return !lines[kind.rawValue].isBusy
            }
            if isFree { caller.resume() }
        }
    }

    fileprivate func leave(_ kind: LongRead) {
        let next = lines.withLock { lines -> CheckedContinuation<Void, Never>? in
            guard lines[kind.rawValue].waiting.isEmpty else { return lines[kind.rawValue].waiting.removeFirst() }
            lines[kind.rawValue].isBusy = false
            return nil
        }
        next?.resume()
    }
}

extension SQLDatabase {
    /// Reads like ``read(_:)``, after the earlier long reads of its kind.
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
