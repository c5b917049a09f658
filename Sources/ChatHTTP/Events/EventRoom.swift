import ChatDomain

/// The latest messages and changes of a room, or of a topic, that has streams. They are read from the store once for
/// all streams.
struct EventRoom: Sendable {
    /// The maximum number of messages and changes, and of their bytes, to keep for streams that are slightly behind.
    /// Other streams read from the store.
    private static let maxEvents = 256
    private static let maxBytes = 128 * 1024

    var streams: Set<EventStream> = []
    /// `nil` until the members have been counted, and for a topic.
    var summary: RoomSummary?
    private var events: [RoomEvent] = []
    /// The message or change before the first one in memory.
    private(set) var start: MessageID
    /// The last message or change that was read.
    private(set) var last: MessageID
    /// The value of ``last`` at the last call of ``forget()``.
    private var forgotten: MessageID

    init(last: MessageID) {
        start = last
        self.last = last
        forgotten = last
    }

    /// Drops the messages and changes that were already in memory at the previous call. Each thus stays in memory for
    /// one to two intervals between calls.
    mutating func forget() {
        let old = events.prefix { $0.id <= forgotten }
        // Assign a new array, because emptying the old one would keep its memory.
        events = old.count == events.count ? [] : Array(events.dropFirst(old.count))
        start = max(start, forgotten)
        forgotten = last
    }

    mutating func forgetAll() {
        forgotten = last
        forget()
    }

    /// Removes deleted messages. The event of a deletion stays: it may have been read before the deletion was reported, and
    /// is not read again.
    mutating func remove(_ messages: Set<MessageID>) {
        events.removeAll { $0.entry.message != nil && messages.contains($0.messageID) }
    }

    mutating func append(_ new: [RoomEvent]) {
        for event in new where event.id > last {
            if !event.isMessage { apply(event) }
            events.append(event)
            last = event.id
        }
        // Since the last call, streams may have made more bytes of the earlier messages.
        var size = events.reduce(0) { $0 + $1.size }
        var surplus = 0
        while events.count - surplus > 1, events.count - surplus > Self.maxEvents || size > Self.maxBytes {
            size -= events[surplus].size
            start = events[surplus].id
            surplus += 1
        }
        events.removeFirst(surplus)
    }

    /// Gives the changed message its newest form, and drops its earlier changes.
    private mutating func apply(_ change: RoomEvent) {
        for index in events.indices.reversed() where events[index].messageID == change.messageID {
            if let message = change.entry.message, events[index].isMessage {
                events[index] = RoomEvent(.message(message), in: change.source)
            } else {
                events.remove(at: index)
            }
        }
    }

    /// Returns up to `limit` messages and changes after `cursor`. `nil` if some of them are no longer in memory.
    func events(after cursor: MessageID, limit: Int) -> ArraySlice<RoomEvent>? {
        guard cursor >= start else { return nil }
        let first = events.indices.partitioningIndex { events[$0].id > cursor }
        return events[first...].prefix(limit)
    }
}
