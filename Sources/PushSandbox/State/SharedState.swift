import Foundation
import Logging
import PushWire
import Synchronization

/// The one ``SandboxState`` that all listeners share, behind a lock.
///
/// The lock is held for at most one batch of notifications, and never across a wait.
final class SharedState: Sendable {
    /// The maximum number of clients that may wait for notifications at the same time.
    static let waitLimit = 100

    private struct Shared {
        var state: SandboxState
        /// The number of clients that wait for notifications, asleep or not.
        var waiters = 0
        /// The waiting clients that sleep until something arrives.
        var sleepers: [Int: CheckedContinuation<Void, Never>] = [:]
        var lastSleeper = 0
    }

    let now: @Sendable () -> Date
    private let shared: Mutex<Shared>

    init(_ configuration: SandboxConfiguration) {
        shared = Mutex(Shared(state: SandboxState(configuration: configuration)))
        now = configuration.now
    }

    func withLock<Result: Sendable, Failure: Error>(
        _ body: (inout SandboxState) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try shared.withLock { (shared) throws(Failure) in
            let before = shared.state.inbox.lastID
            defer {
                if !shared.sleepers.isEmpty, shared.state.inbox.lastID != before {
                    for sleeper in shared.sleepers.values { sleeper.resume() }
                    shared.sleepers = [:]
                }
            }
            return try body(&shared.state)
        }
    }

    /// The number of clients that wait for notifications.
    var waiters: Int { shared.withLock(\.waiters) }

    /// Waits until the inbox has `count` matching notifications with an id above `since`, or the task is cancelled.
    /// - Throws: ``LimitReached`` if too many clients are waiting.
    func wait(for count: Int, since: Int, filter: InboxFilter) async throws(LimitReached) {
        let mayWait = shared.withLock { shared in
            guard shared.waiters < Self.waitLimit else { return false }
            shared.waiters += 1
            return true
        }
        guard mayWait else {
            throw LimitReached(text: "wait: \(Self.waitLimit) clients are waiting already; try again later")
        }
        defer { shared.withLock { $0.waiters -= 1 } }
        // Count only notifications that arrived since the last look, because the inbox may be large.
        var (counted, seen) = (0, since)
        while !Task.isCancelled {
            withLock { state in
                counted += state.inbox.count(since: seen, filter: filter)
                seen = max(seen, state.inbox.lastID)
                // Some of them may have been deleted or dropped since they were counted.
                if counted >= count { counted = state.inbox.count(since: since, filter: filter) }
            }
            if counted >= count { return }
            await arrival(after: seen)
        }
    }

    /// Returns when the inbox has had a notification with an id above `id`, or the task is cancelled.
    private func arrival(after id: Int) async {
        let number = shared.withLock { shared in
            shared.lastSleeper += 1
            return shared.lastSleeper
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isOver = shared.withLock { shared in
                    if shared.state.inbox.lastID > id || Task.isCancelled { return true }
                    shared.sleepers[number] = continuation
                    return false
                }
                if isOver { continuation.resume() }
            }
        } onCancel: {
            shared.withLock { $0.sleepers.removeValue(forKey: number) }?.resume()
        }
    }

    /// Calls `body` under the lock, and logs each notification that it records, at level debug.
    func decide<Decision: Sendable>(_ logger: Logger, _ body: (inout SandboxState, Date) -> Decision) -> Decision {
        let now = self.now()
        let isLogged = logger.logLevel <= .debug
        let (decision, entries) = withLock { state in
            let before = state.inbox.lastID
            let decision = body(&state, now)
            return (decision, isLogged ? state.inbox.page(since: before).entries : [])
        }
        for entry in entries {
            var metadata: Logger.Metadata = [
                "id": "\(entry.id)", "token": "\(entry.token.hex.prefix(8))…", "answer": "\(entry.answer.name)",
            ]
            let id = entry.details.logID
            metadata[id.key] = "\(id.text)"
            logger.debug("Notification", metadata: metadata)
        }
        return decision
    }
}
