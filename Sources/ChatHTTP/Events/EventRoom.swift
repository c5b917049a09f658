import ChatDomain
import NIOCore

/// The last messages of a room that has streams, so that each is read from the store once for all of them.
struct EventRoom: Sendable {
    /// Messages, and their bytes, that are kept for streams that are a little behind. Others read from the store.
    private static let maxEvents = 256
    private static let maxBytes = 128 * 1024

    var streams: Set<EventStream> = []
    /// Nil until they were counted.
    var members: Int?
    private var events: [MessageEvent] = []
    private var size = 0
    /// The message before the first that is kept.
    private(set) var start: MessageID
    /// The last message that was read.
    private(set) var last: MessageID
    /// ``last`` when ``forget()`` was called last.
    private var forgotten: MessageID

    init(last: MessageID) {
        start = last
        self.last = last
        forgotten = last
    }

    /// Drops what was there when it was called last. So rooms hold the messages of some seconds together, however many they are.
    mutating func forget() {
        let old = events.prefix { $0.id <= forgotten }
        size -= old.reduce(0) { $0 + $1.size }
        // Not emptied alone: its memory is given up.
        events = old.count == events.count ? [] : Array(events.dropFirst(old.count))
        start = max(start, forgotten)
        forgotten = last
    }

    mutating func forgetAll() {
        forgotten = last
        forget()
    }

    mutating func remove(_ messages: Set<MessageID>) {
        events.removeAll { messages.contains($0.id) }
        size = events.reduce(0) { $0 + $1.size }
    }

    mutating func append(_ new: [MessageEvent]) {
        for event in new where event.id > last {
            events.append(event)
            size += event.size
            last = event.id
        }
        var surplus = 0
        while events.count - surplus > 1, events.count - surplus > Self.maxEvents || size > Self.maxBytes {
            size -= events[surplus].size
            start = events[surplus].id
            surplus += 1
        }
        events.removeFirst(surplus)
    }

    /// The messages after one, at most `limit`; nil if they are not kept any more.
    func events(after cursor: MessageID, limit: Int) -> ArraySlice<MessageEvent>? {
        guard cursor >= start else { return nil }
        let first = events.indices.partitioningIndex { events[$0].id > cursor }
        return events[first...].prefix(limit)
    }
}

/// A message as a stream writes it: the same bytes for everyone but its sender.
struct MessageEvent: Sendable {
    let id: MessageID
    private let sender: MemberID
    private let others: ByteBuffer
    private let own: ByteBuffer

    init(_ message: Message) {
        id = message.id
        sender = message.sender
        others = Self.bytes(message, isOwn: false)
        own = Self.bytes(message, isOwn: true)
    }

    func bytes(for member: MemberID) -> ByteBuffer { member == sender ? own : others }

    /// The bytes of the first of some events, as many as go into one write, and the last of these; nil for none.
    static func write(_ events: ArraySlice<Self>, for member: MemberID) -> (bytes: ByteBuffer, last: MessageID)? {
        guard let first = events.first else { return nil }
        // Those of a single event are not copied: all streams of the room share them.
        var (bytes, last) = (first.bytes(for: member), first.id)
        for event in events.dropFirst() {
            var more = event.bytes(for: member)
            guard bytes.readableBytes + more.readableBytes <= HTTPLimits.streamWrite else { break }
            bytes.writeBuffer(&more)
            last = event.id
        }
        return (bytes, last)
    }

    /// Bytes that it takes in memory.
    var size: Int { others.readableBytes + own.readableBytes }

    private static func bytes(_ message: Message, isOwn: Bool) -> ByteBuffer {
        var text = "event: message\nid: \(message.id)\ndata: "
        message.writeJSON(isOwn: isOwn, to: &text)
        return ByteBuffer(string: text + "\n\n")
    }
}
