import ChatDomain

/// Reads the messages and changes of several sources, the oldest first. Holds only a few of each.
struct NtfyHistory: Sendable {
    private struct Reader {
        let source: StreamSource
        let historyFrom: MessageID
        var cursor: MessageID
        var entries: ArraySlice<RoomEntry> = []
        var isAtEnd = false
    }

    /// The maximum number of entries to read at a time.
    private static let page = 25

    private var readers: [Reader]
    private let last: MessageID
    private let stores: Stores

    /// - Parameter last: The last entry to read.
    init(_ starts: [StreamStart], upTo last: MessageID, _ stores: Stores) {
        readers = starts.map { Reader(source: $0.source, historyFrom: $0.historyFrom, cursor: $0.start) }
        self.last = last
        self.stores = stores
    }

    /// Reads the next entries of the sources that have none in memory.
    mutating func fill() async throws(ChatError) {
        for index in readers.indices {
            // A whole page may be changes of messages that the reader may not read.
            while readers[index].entries.isEmpty, !readers[index].isAtEnd {
                let reader = readers[index]
                let found =
                    reader.cursor < last
                    ? try await stores.entries(in: reader.source, after: reader.cursor, limit: Self.page) : []
                let read = found.prefix { $0.id <= last }
                readers[index].entries = read.filter { Self.messageID(of: $0) > reader.historyFrom }[...]
                readers[index].isAtEnd = found.count < Self.page || read.count < found.count
                readers[index].cursor = found.last?.id ?? reader.cursor
            }
        }
    }

    private static func messageID(of entry: RoomEntry) -> MessageID {
        if case .change(let change, _) = entry { change.message } else { entry.id }
    }

    /// Returns the next entry. `nil` at the end.
    mutating func next() async throws(ChatError) -> (entry: RoomEntry, source: StreamSource)? {
        try await fill()
        let heads = readers.indices.compactMap { index in readers[index].entries.first.map { ($0.id, index) } }
        guard let (_, index) = heads.min(by: { $0.0 < $1.0 }) else { return nil }
        return (readers[index].entries.removeFirst(), readers[index].source)
    }
}
