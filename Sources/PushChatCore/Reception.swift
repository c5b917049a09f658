/// Decides how a member receives a room: which call to make, and which changes are new. A pure value.
///
/// Reports every message and every change once, in the order of their numbers. Pages of the history and the stream both
/// start after the last one that was reported, and those at or below its number are dropped.
package struct Reception: Sendable {
    /// The next call.
    package enum Call: Sendable, Hashable {
        case join
        case page(after: Int64)
        case stream(after: Int64)
    }

    /// The reaction to a failure.
    package enum Reaction: Sendable, Hashable {
        /// Wait, then make ``call``.
        case retry(after: Duration)
        case end(PushChatError)
    }

    /// The maximum number of messages in a page of the history. This is also the relay's limit.
    package static let page = 500

    package private(set) var call: Call
    /// The last message or change that was reported or skipped.
    package private(set) var cursor: Int64
    /// Whether the history was read up to its end.
    package private(set) var historyIsRead = false
    /// The message after which the stream was requested. The cursor may have moved on since, because a page can arrive
    /// before the stream.
    private var streamStart: Int64 = 0
    private var members: Int?
    /// The room's code. `nil` until the relay has named it.
    private var code: String?
    private var backoff = RetryDelay(first: .milliseconds(300), longest: .seconds(10))
    /// Whether an outage was reported that has not ended.
    private var isDisconnected = false

    /// Creates the state of a member.
    ///
    /// - Parameters:
    ///   - cursor: The last message that the app has.
    ///   - joins: Whether to begin with `join`. A member who is in the room already need not join again.
    package init(after cursor: Int64 = 0, joins: Bool = true) {
        self.cursor = cursor
        call = joins ? .join : .page(after: cursor)
    }

    package mutating func joined() {
        backoff.reset()
        call = .page(after: cursor)
    }

    /// Processes a page of the history.
    package mutating func received(_ page: ChatPage) -> [ReceivedEvent] {
        var events: [ReceivedEvent] = []
        if let code = page.code { events += moved(to: code) }
        let ids = Set(page.messages.map(\.id))
        var entries: [(id: Int64, event: ChatEvent?)] = page.messages.map { ($0.id, .message($0)) }
        // A message of the page has its newest form already.
        entries += (page.changes ?? []).map { ($0.id, ids.contains($0.message) ? nil : $0.event) }
        for entry in entries.sorted(by: { $0.id < $1.id }) { events += take(entry.event, at: entry.id) }
        // A page without messages names the position at which the member's history begins.
        if entries.isEmpty { cursor = max(cursor, page.next) }
        if entries.count < Self.page {
            call = .stream(after: cursor)
            historyIsRead = true
        } else {
            call = .page(after: cursor)
        }
        return events
    }

    /// Records that the stream is open.
    ///
    /// - Parameter start: The message after which the stream was requested.
    package mutating func opened(after start: Int64) -> [ReceivedEvent] {
        streamStart = start
        defer { isDisconnected = false }
        return isDisconnected ? [ReceivedEvent(.connected)] : []
    }

    /// Processes an event of the stream.
    package mutating func received(_ event: RoomStreamEvent) throws(PushChatError) -> [ReceivedEvent] {
        switch event {
        case .began(let start):
            // The start is earlier than requested if the relay's database has never had the requested message.
            guard start < streamStart else { return [] }
            cursor = start
            call = .stream(after: start)
            return [ReceivedEvent(.databaseReplaced)]
        case .message(let message):
            backoff.reset()
            return take(.message(message), at: message.id)
        case .changed(let message, let kind, let number):
            backoff.reset()
            return take(ChatEvent(kind, of: message), at: number)
        case .members(let count):
            // This event follows soon after the stream opens. A stream that opens and ends at once must not reset the
            // pauses.
            backoff.reset()
            guard count != members else { return [] }
            members = count
            return [ReceivedEvent(.members(count))]
        case .deleted(let id, let number?): return take(.deleted(id), at: number)
        case .deleted(let id, nil): return id <= cursor ? [ReceivedEvent(.deleted(id))] : []
        case .receipt(let receipt): return [ReceivedEvent(.receipt(receipt))]
        case .moved(let code): return moved(to: code)
        case .left(let wasRemoved): throw .left(wasRemoved: wasRemoved)
        // Ignore events of newer relays.
        case .unknown: return []
        }
    }

    private mutating func moved(to new: String) -> [ReceivedEvent] {
        guard new != code else { return [] }
        defer { code = new }
        // The first page names the room that was joined, so that is not a change.
        return code == nil ? [] : [ReceivedEvent(.code(new))]
    }

    /// - Parameter event: `nil` if there is nothing to report.
    private mutating func take(_ event: ChatEvent?, at position: Int64) -> [ReceivedEvent] {
        guard position > cursor else { return [] }
        cursor = position
        if case .stream = call { call = .stream(after: cursor) }
        return event.map { [ReceivedEvent($0, at: position)] } ?? []
    }

    /// Decides what to do after a call has failed, or the stream has ended.
    ///
    /// - Parameter random: A random number from 0 to 1, which spreads the reconnects of many clients.
    package mutating func failed(_ error: PushChatError, random: Double) -> ([ReceivedEvent], Reaction) {
        // Before the member has joined, the address may be that of another server.
        guard error.isTemporary || call != .join && error.isFromElsewhere else {
            if case .rejected(let rejection) = error, rejection.code == "not_joined" {
                return ([], .end(.left(wasRemoved: false)))
            }
            return ([], .end(error))
        }
        defer { isDisconnected = true }
        var delay = backoff.delay(random: random)
        if case .rejected(let rejection) = error { delay = max(delay, rejection.retryAfter ?? .zero) }
        // An outage is reported once.
        return (isDisconnected ? [] : [ReceivedEvent(.disconnected(error))], .retry(after: delay))
    }
}
