import ChatDomain

/// Reads the messages of several sources, the oldest first. Holds only a few of each.
struct NtfyHistory: Sendable {
    private struct Reader {
        let source: StreamSource
        var cursor: MessageID
        var messages: ArraySlice<Message> = []
        var isAtEnd = false
    }

    /// The maximum number of messages to read at a time.
    private static let page = 25

    private var readers: [Reader]
    private let last: MessageID
    private let stores: Stores

    /// - Parameter last: The last message to read.
    init(_ starts: [StreamStart], upTo last: MessageID, _ stores: Stores) {
        readers = starts.map { Reader(source: $0.source, cursor: $0.start) }
        self.last = last
        self.stores = stores
    }

    /// Reads the next messages of the sources that have none in memory.
    mutating func fill() async throws(ChatError) {
        for index in readers.indices where readers[index].messages.isEmpty && !readers[index].isAtEnd {
            let (source, cursor) = (readers[index].source, readers[index].cursor)
            let found =
                cursor < last ? try await stores.messages(in: source, after: cursor, limit: Self.page) : []
            readers[index].messages = found.prefix { $0.id <= last }
            readers[index].isAtEnd = found.count < Self.page || readers[index].messages.count < found.count
            readers[index].cursor = found.last?.id ?? cursor
        }
    }

    /// Returns the next message. `nil` at the end.
    mutating func next() async throws(ChatError) -> (message: Message, source: StreamSource)? {
        try await fill()
        let heads = readers.indices.compactMap { index in readers[index].messages.first.map { ($0.id, index) } }
        guard let (_, index) = heads.min(by: { $0.0 < $1.0 }) else { return nil }
        return (readers[index].messages.removeFirst(), readers[index].source)
    }
}
