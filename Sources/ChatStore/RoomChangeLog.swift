import ChatDomain
import Synchronization

/// Collects what happens in rooms for one listener; costs nothing while there is none.
final class RoomChangeLog: Sendable {
    /// Rooms that are told apart; with more it is anything, anywhere.
    private static let most = 10_000

    private struct State {
        var changes = RoomChanges()
        var bell: AsyncStream<Void>.Continuation?
    }

    private let state = Mutex(State())

    func listen() -> AsyncStream<Void> {
        let (stream, bell) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        state.withLock { $0.bell = bell }
        return stream
    }

    func take() -> RoomChanges {
        state.withLock { state in
            defer { state.changes = RoomChanges() }
            return state.changes
        }
    }

    func message(in room: SecretCode) {
        note { $0.messages.insert(room) }
    }

    func membership(of member: MemberID, _ rooms: [SecretCode]) {
        note { changes in
            changes.members.insert(member)
            changes.memberships.formUnion(rooms)
        }
    }

    func anything() {
        note { $0.isUnknown = true }
    }

    private func note(_ change: (inout RoomChanges) -> Void) {
        let bell = state.withLock { state -> AsyncStream<Void>.Continuation? in
            guard let bell = state.bell else { return nil }
            change(&state.changes)
            if max(state.changes.messages.count, state.changes.members.count) > Self.most {
                state.changes = RoomChanges()
                state.changes.isUnknown = true
            }
            return bell
        }
        bell?.yield()
    }
}
