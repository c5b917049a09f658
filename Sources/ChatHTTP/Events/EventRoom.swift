import ChatDomain
import NIOCore

/// A message as a stream shows it: the same bytes for everyone but its writer.
struct MessageEvent: Sendable {
    let id: MessageID
    let sender: MemberID
    private let others: ByteBuffer
    private let own: ByteBuffer

    init(_ message: Message) {
        id = message.id
        sender = message.sender
        others = Self.bytes(message, isOwn: false)
        own = Self.bytes(message, isOwn: true)
    }

    func bytes(for member: MemberID) -> ByteBuffer { member == sender ? own : others }

    /// Bytes that it takes in memory.
    var size: Int { others.readableBytes + own.readableBytes }

    private static func bytes(_ message: Message, isOwn: Bool) -> ByteBuffer {
        var json = JSONText()
        json.raw("event: message\nid: \(message.id)\ndata: ")
        json.message(message, isOwn: isOwn)
        json.raw("\n\n")
        return json.buffer
    }
}

/// The last messages of a room that somebody follows, so that each is read from the store once for all its streams.
struct EventRoom: Sendable {
    /// Messages, and their bytes, that are kept: for streams that are a little behind. Others read from the store.
    private static let mostEvents = 256
    private static let mostBytes = 128 * 1024

    private(set) var streams: Set<EventStream> = []
    private var events: [MessageEvent] = []
    private var size = 0
    /// The message before the first that is kept, and the last that was read.
    private(set) var start: MessageID
    private(set) var last: MessageID
    /// Nil until it was counted.
    var members: Int?

    init(last: MessageID) {
        start = last
        self.last = last
    }

    mutating func enter(_ stream: EventStream) {
        streams.insert(stream)
    }

    mutating func leave(_ stream: EventStream) {
        streams.remove(stream)
    }

    mutating func append(_ new: [MessageEvent]) {
        for event in new where event.id > last {
            events.append(event)
            size += event.size
            last = event.id
        }
        var surplus = 0
        while events.count - surplus > 1, events.count - surplus > Self.mostEvents || size > Self.mostBytes {
            size -= events[surplus].size
            start = events[surplus].id
            surplus += 1
        }
        events.removeFirst(surplus)
    }

    /// What comes after a message, up to a size; nil where that is not kept any more.
    func events(after cursor: MessageID, limit: Int) -> ArraySlice<MessageEvent>? {
        guard cursor >= start else { return nil }
        var low = 0
        var high = events.count
        while low < high {
            let middle = (low + high) / 2
            if events[middle].id <= cursor { low = middle + 1 } else { high = middle }
        }
        return events[low...].prefix(limit)
    }
}
