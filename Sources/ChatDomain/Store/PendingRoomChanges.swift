import Synchronization

/// The changes in rooms since the one listener of a ``RoomFeed`` last took them. Without a listener, no changes are
/// kept.
package final class PendingRoomChanges: Sendable {
    /// The maximum number of rooms or members to distinguish until the listener takes the changes. With more, the
    /// changes are reported as unknown.
    private static let maxChanges = 10_000

    private struct State {
        var changes = RoomChanges()
        /// The last message, if messages are noted in the order of their ids.
        var last: MessageID?
        var listener: AsyncStream<Void>.Continuation?
    }

    private let state: Mutex<State>

    /// - Parameter last: The last message before the first one that is noted. `nil` if messages are not noted in the order of their ids.
    package init(last: MessageID? = nil) {
        state = Mutex(State(last: last))
    }

    /// Starts keeping changes for the one listener.
    package func listen() -> (signals: AsyncStream<Void>, listener: AsyncStream<Void>.Continuation) {
        let (signals, listener) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        state.withLock { $0.listener = listener }
        return (signals, listener)
    }

    package func take() -> RoomChanges {
        state.withLock { state in
            defer { state.changes = RoomChanges() }
            state.changes.completeTo = state.last
            return state.changes
        }
    }

    /// Adds a new message. Callers add all messages in the order of their ids.
    package func note(_ message: MessageID, in room: SecretCode) {
        note(upTo: message) { $0.messages.insert(room) }
    }

    /// Adds the unknown changes of another process, among them messages up to this one.
    package func noteOthers(upTo message: MessageID) {
        note(upTo: message) { $0.isUnknown = true }
    }

    /// Adds to the changes that the listener takes next.
    package func note(_ change: (inout RoomChanges) -> Void) { note(upTo: nil, change) }

    /// Adds changes, among them messages up to this one.
    package func note(upTo message: MessageID?, _ change: (inout RoomChanges) -> Void) {
        let listener = state.withLock { state -> AsyncStream<Void>.Continuation? in
            if let message, let last = state.last { state.last = max(last, message) }
            guard let listener = state.listener else { return nil }
            change(&state.changes)
            let changes = state.changes
            let deleted = changes.deleted.values.reduce(0) { $0 + $1.count }
            // Reads matter only for receipts, and the next read corrects those.
            if changes.reads.count > Self.maxChanges { state.changes.reads = [] }
            let counts = [
                changes.messages.count, changes.topics.count, changes.memberships.count, changes.members.count, deleted,
            ]
            if counts.contains(where: { $0 > Self.maxChanges }) {
                state.changes = RoomChanges()
                state.changes.isUnknown = true
            }
            return listener
        }
        listener?.yield()
    }
}
