import ChatDomain

/// The sources of a subscription, and the messages or changes at which it begins and ends.
struct NtfySubscription: Sendable {
    /// The maximum number of messages of a subscription that begins at a time. After an id, it is complete.
    static let most = 1000
    /// The number of messages of a room to look at together.
    private static let page = 50

    private(set) var starts: [StreamStart] = []
    /// The last message or change of a poll.
    private(set) var end: MessageID

    init(
        _ since: NtfySince, of topics: NtfyTopics, _ filter: NtfyFilter, _ caller: Caller, _ stores: Stores
    ) async throws(ChatError) {
        let (clients, feed) = (stores.clients, stores.feed)
        // A source's messages and changes appear in the order of their ids. Those of different sources need not.
        var positions: [RoomPosition] = []
        var pushes: [UnifiedPushTopic: [UnifiedPushMessage]] = [:]
        for topic in topics.all {
            switch topic.source {
            case .topic(let topic):
                pushes[topic] = try await stores.unifiedPush.messages(
                    in: topic, after: 0, limit: UnifiedPushLimits.messagesPerTopic)
            case .room(let code):
                let position =
                    if let member = caller.member {
                        try await feed.position(of: member.member)
                    } else {
                        RoomPosition(code: code, historyFrom: 0, last: try await feed.lastEntry(in: code))
                    }
                positions.append(position)
            }
        }
        let newestPush = pushes.mapValues { $0.last?.id ?? 0 }
        end = max(positions.map(\.last).max() ?? 0, newestPush.values.max() ?? 0)
        var start: @Sendable (RoomPosition) -> MessageID = { $0.last }
        var pushStart: @Sendable (UnifiedPushTopic) -> MessageID = { newestPush[$0] ?? 0 }
        if let id = filter.id.flatMap(NtfyMessageID.message) {
            // No other message meets the condition.
            (start, pushStart) = ({ _ in id - 1 }, { _ in id - 1 })
            end = min(end, id)
        } else {
            switch since {
            case .none: break
            case .latest:
                var before: [SecretCode: MessageID] = [:]
                for position in positions { before[position.code] = try await feed.lastEntry(in: position.code) - 1 }
                start = { [before] in before[$0.code] ?? 0 }
                pushStart = { (newestPush[$0] ?? 0) - 1 }
            case .message(let id):
                // An id after the last message comes from another database.
                var isKnown = id <= end
                if !isKnown { isKnown = try await id <= stores.unifiedPush.lastID() }
                guard isKnown else { fallthrough }
                (start, pushStart) = ({ _ in id }, { _ in id })
                // The client has all earlier pushes.
                if pushes.values.contains(where: { $0.contains { $0.id <= id } }) {
                    try await stores.unifiedPush.confirm(id, in: Array(pushes.keys))
                }
            case .all, .time:
                let time = since.time
                let last = try await Self.last(of: positions, before: time, clients)
                start = { _ in last }
                pushStart = { [pushes] topic in
                    let wanted = pushes[topic]?.first { push in time.map { push.sentAt >= $0 } ?? true }
                    return wanted.map { $0.id - 1 } ?? newestPush[topic] ?? 0
                }
            }
        }
        starts =
            positions.map { StreamStart($0, start: max($0.historyFrom, start($0))) }
            + pushes.keys.map { StreamStart(.topic($0), last: newestPush[$0] ?? 0, start: pushStart($0)) }
        // A message that is changed during a poll is only in its change, which comes after the others. With several
        // sources, a client would miss messages that are stored before that one and appear later.
        if starts.count == 1, filter.id == nil, end > 0 { end += MessageID(Self.most) }
    }

    /// Returns the message after which the newest ``most`` messages since a time come, with the changes of earlier ones.
    private static func last(
        of positions: [RoomPosition], before time: Timestamp?, _ clients: any ClientStore
    ) async throws(ChatError) -> MessageID {
        var unread: [[(id: MessageID, sentAt: Timestamp)]] = positions.map { _ in [] }
        var cursors: [MessageID?] = positions.map { $0.last + 1 }
        var first: MessageID = 1
        for _ in 0..<most {
            for index in positions.indices where unread[index].isEmpty {
                guard let cursor = cursors[index] else { continue }
                let found = try await clients.messages(
                    ClientReading(room: positions[index].code, after: positions[index].historyFrom, client: ""),
                    before: cursor, limit: page)
                // The newest is the last, which is cheap to remove.
                unread[index] = found.reversed().map { ($0.message.id, $0.message.sentAt) }
                cursors[index] = found.count < page ? nil : found.last?.message.id
            }
            let heads = positions.indices.compactMap { index in unread[index].last.map { ($0, index) } }
            guard let (newest, index) = heads.max(by: { $0.0.id < $1.0.id }) else { return 0 }
            if let time, newest.sentAt < time { return newest.id }
            first = newest.id
            unread[index].removeLast()
        }
        return first - 1
    }
}
