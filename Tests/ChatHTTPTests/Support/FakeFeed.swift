import ChatDomain
import Synchronization

/// Rooms in memory, in which the test makes things happen.
final class FakeFeed: RoomFeed {
    private struct State {
        var places: [MemberID: SecretCode] = [:]
        var messages: [SecretCode: [Message]] = [:]
        var fetched: [MemberID: MessageID] = [:]
        var next: MessageID = 1
        var changes = RoomChanges()
        var isBroken = false
        /// Messages that were read, and reads that failed.
        var read = 0
        /// Members that were looked up.
        var lookups = 0
        var failures = 0
    }

    private let state = Mutex(State())
    private let bell = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    var read: Int { state.withLock { $0.read } }
    var lookups: Int { state.withLock { $0.lookups } }
    var failures: Int { state.withLock { $0.failures } }

    func enter(_ member: MemberID, _ code: SecretCode) {
        change { state in
            let old = state.places.updateValue(code, forKey: member)
            state.changes.members.insert(member)
            state.changes.memberships.formUnion([code] + (old.map { [$0] } ?? []))
        }
    }

    func leave(_ member: MemberID) {
        change { state in
            guard let code = state.places.removeValue(forKey: member) else { return }
            state.changes.members.insert(member)
            state.changes.memberships.insert(code)
        }
    }

    /// - Parameter isTold: whether this process has written it.
    func say(_ text: String, by member: MemberID, isTold: Bool = true) {
        change { state in
            guard let code = state.places[member] else { return }
            state.messages[code, default: []].append(
                Message(
                    id: state.next, sender: member, nickname: "n", text: text, sentAt: Timestamp(seconds: 1_780_000_000)
                ))
            state.next += 1
            if isTold { state.changes.messages.insert(code) } else { state.changes.isUnknown = true }
        }
    }

    /// Until it is mended, nothing can be read.
    func setBroken(_ isBroken: Bool) {
        state.withLock { $0.isBroken = isBroken }
    }

    private func change(_ body: (inout State) -> Void) {
        state.withLock { body(&$0) }
        bell.continuation.yield()
    }

    func position(of member: MemberID) async throws(ChatError) -> RoomPosition {
        let place = state.withLock { state -> (SecretCode, MessageID)? in
            state.lookups += 1
            return state.places[member].map { ($0, state.messages[$0]?.last?.id ?? 0) }
        }
        guard let place else { throw .notJoined() }
        return RoomPosition(code: place.0, historyFrom: 0, last: place.1)
    }

    func messages(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [Message] {
        let found = state.withLock { state -> [Message]? in
            guard !state.isBroken else {
                state.failures += 1
                return nil
            }
            let found = Array((state.messages[room] ?? []).filter { $0.id > after }.prefix(limit))
            state.read += found.count
            return found
        }
        guard let found else { throw .unavailable(cause: "broken") }
        return found
    }

    func handedOut(_ message: MessageID, to member: MemberID) {
        state.withLock { $0.fetched[member] = message }
    }

    var fetched: [MemberID: MessageID] { state.withLock { $0.fetched } }

    func memberCount(of room: SecretCode) async throws(ChatError) -> Int {
        state.withLock { state in state.places.values.count { $0 == room } }
    }

    func roomChanges() -> AsyncStream<Void> { bell.stream }

    func takeRoomChanges() -> RoomChanges {
        state.withLock { state in
            defer { state.changes = RoomChanges() }
            return state.changes
        }
    }
}
