import ChatDomain
import Synchronization

/// Topics and pushes in memory.
final class FakeUnifiedPush: UnifiedPushStore {
    struct State {
        var owners: [UnifiedPushTopic: UnifiedPushOwner] = [:]
        var rooms: Set<UnifiedPushTopic> = []
        var messages: [UnifiedPushTopic: [UnifiedPushMessage]] = [:]
        var confirmed: [MessageID] = []
        var isFull = false
        var last: MessageID = 0
    }

    let state = Mutex(State())

    func claim(
        _ topics: [UnifiedPushTopic], for owner: UnifiedPushOwner
    ) async throws(ChatError) -> [UnifiedPushTopic: UnifiedPushClaim] {
        state.withLock { state in
            Dictionary(
                uniqueKeysWithValues: topics.map { topic in
                    if state.rooms.contains(topic) { return (topic, .room) }
                    let known = state.owners[topic] ?? owner
                    state.owners[topic] = known
                    return (topic, known == owner ? .owned : .foreign)
                })
        }
    }

    func owned(
        _ topics: [UnifiedPushTopic], by owner: UnifiedPushOwner
    ) async throws(ChatError) -> Set<UnifiedPushTopic> {
        state.withLock { state in
            Set(topics.filter { state.owners[$0] == owner && !state.rooms.contains($0) })
        }
    }

    func post(_ body: [UInt8], to topic: UnifiedPushTopic) async throws(ChatError) -> UnifiedPushReceipt {
        state.withLock { state in
            guard state.owners[topic] != nil, !state.rooms.contains(topic) else { return .noOwner }
            if state.isFull { return .full }
            state.last += 1
            state.messages[topic, default: []].append(
                UnifiedPushMessage(id: state.last, body: body, sentAt: Timestamp(seconds: 1_800_000_000)))
            return .stored(state.last)
        }
    }

    func messages(
        in topic: UnifiedPushTopic, after: MessageID, limit: Int
    ) async throws(ChatError) -> [UnifiedPushMessage] {
        state.withLock { Array(($0.messages[topic] ?? []).filter { $0.id > after }.prefix(limit)) }
    }

    func lastID() async throws(ChatError) -> MessageID { state.withLock { $0.last } }

    func confirm(_ last: MessageID, in topics: [UnifiedPushTopic]) async throws(ChatError) {
        state.withLock { state in
            state.confirmed.append(last)
            for topic in topics { state.messages[topic]?.removeAll { $0.id <= last } }
        }
    }
}
