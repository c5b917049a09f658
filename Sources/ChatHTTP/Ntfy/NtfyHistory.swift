import ChatDomain

/// Reads the messages of several rooms, the oldest first. Holds only a few of each room.
struct NtfyHistory: Sendable {
    private struct Source {
        let room: SecretCode
        var cursor: MessageID
        var messages: ArraySlice<Message> = []
        var isAtEnd = false
    }

    /// The maximum number of messages to read at a time.
    private static let page = 25

    private var sources: [Source]
    private let last: MessageID
    private let feed: any RoomFeed

    /// - Parameter last: The last message to read.
    init(_ rooms: [StreamRoom], upTo last: MessageID, feed: any RoomFeed) {
        sources = rooms.map { Source(room: $0.position.code, cursor: $0.start) }
        self.last = last
        self.feed = feed
    }

    /// Reads the next messages of the rooms that have none in memory.
    mutating func fill() async throws(ChatError) {
        for index in sources.indices where sources[index].messages.isEmpty && !sources[index].isAtEnd {
            let (room, cursor) = (sources[index].room, sources[index].cursor)
            let found =
                cursor < last ? try await feed.messages(in: room, after: cursor, limit: Self.page) : []
            sources[index].messages = found.prefix { $0.id <= last }
            sources[index].isAtEnd = found.count < Self.page || sources[index].messages.count < found.count
            sources[index].cursor = found.last?.id ?? cursor
        }
    }

    /// Returns the next message. `nil` at the end.
    mutating func next() async throws(ChatError) -> (message: Message, room: SecretCode)? {
        try await fill()
        let heads = sources.indices.compactMap { index in sources[index].messages.first.map { ($0.id, index) } }
        guard let (_, index) = heads.min(by: { $0.0 < $1.0 }) else { return nil }
        return (sources[index].messages.removeFirst(), sources[index].room)
    }
}
