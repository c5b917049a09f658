import ChatDomain
import Logging
import NIOCore
import ServiceLifecycle
import Synchronization

/// Brings what happens in rooms to the streams of their members.
///
/// A room's new messages are read once, whatever the number of its streams; each stream then takes them at its own speed,
/// from memory or, when it is far behind, from the store. So a slow reader costs no memory, and the connection of one that
/// accepts nothing is closed.
final class EventHub: Service {
    /// Messages that are read at a time.
    private static let page = 100
    /// Those that one stream reads for itself: about as many as go into one write.
    private static let ownPage = 25
    /// Between two runs of ``maintain()``.
    private static let interval = Duration.seconds(1)
    /// Time without an event after which a stream gets a comment: proxies close a connection after a silent minute.
    private static let heartbeat = Duration.seconds(15)
    /// Between two runs of ``EventRoom/forget()``: longer than a stream that is read needs for an event.
    private static let keptTime = Duration.seconds(10)
    /// Rooms of which the receipts are read in one run of ``maintain()``.
    private static let receiptsPerRun = 200
    /// How long after a message, and how often, its receipts are read though nobody has fetched it: its pushes are under way.
    private static let receiptTime = Duration.seconds(60)
    private static let receiptInterval = Duration.seconds(5)
    /// Of the streams whose member may have left the room, those that are checked in one run of ``maintain()``.
    private static let checksPerRun = 2000

    private struct State {
        var rooms: [SecretCode: EventRoom] = [:]
        var streams: [MemberID: [EventStream]] = [:]
        var count = 0
        /// Streams of each address.
        var addresses: [IPAddress: Int] = [:]
        /// Rooms with messages that are not read yet.
        var unread: Set<SecretCode> = []
        /// Rooms whose receipts are to be read.
        var receipts: Set<SecretCode> = []
        /// Until when a room's pushes may be under way.
        var sending: [SecretCode: Duration] = [:]
        var nextSending = Duration.zero
        /// Rooms whose members are to be counted.
        var uncounted: Set<SecretCode> = []
        /// Streams whose member may have left the room: they have just opened, or another process has written.
        var unchecked: Set<EventStream> = []
        /// All streams are to be checked again, after those in `unchecked`.
        var mustCheckAll = false
        /// When rooms forget what they hold next.
        var nextForgetting = Duration.zero

        mutating func takeReceipts(_ limit: Int, now: Duration) -> [(SecretCode, Set<EventStream>)] {
            // Not before all others have had their turn.
            if receipts.isEmpty, now >= nextSending {
                sending = sending.filter { $0.value > now && rooms[$0.key] != nil }
                receipts.formUnion(sending.keys)
                nextSending = now + EventHub.receiptInterval
            }
            let some = receipts.prefix(limit)
            receipts.subtract(some)
            return some.compactMap { code in rooms[code].map { (code, $0.streams) } }
        }

        mutating func takeUnchecked(_ limit: Int) -> [EventStream] {
            if mustCheckAll, unchecked.isEmpty {
                unchecked = Set(rooms.values.flatMap(\.streams))
                mustCheckAll = false
            }
            let some = Array(unchecked.prefix(limit))
            unchecked.subtract(some)
            return some
        }
    }

    private let feed: any RoomFeed
    private let maxStreams: Int
    private let time: ElapsedTime
    private let logger: Logger
    private let state = Mutex(State())
    /// There may be something to read; any number of signals before it is taken are one.
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// - Parameter maxStreams: streams that may be open at a time, of all members.
    init(feed: any RoomFeed, maxStreams: Int, time: ElapsedTime, logger: Logger) {
        self.feed = feed
        self.maxStreams = maxStreams
        self.time = time
        self.logger = logger
    }

    /// Streams that are open now.
    var count: Int { state.withLock { $0.count } }

    // MARK: - For the streams

    /// Opens a stream.
    ///
    /// - Parameters:
    ///   - address: the client's; this machine's own programs are not limited.
    ///   - close: closes the connection.
    /// - Returns: what keeps the stream open for as long as somebody holds it.
    func open(
        _ member: MemberID, from address: IPAddress? = nil, at position: RoomPosition,
        close: @escaping @Sendable () -> Void
    ) throws(ChatError) -> EventSubscription {
        let address = address.flatMap { $0.isLoopback ? nil : $0.rateKey }
        let stream = EventStream(member: member, address: address, room: position.code, now: time.now, close: close)
        let refusal = state.withLock { state -> ChatError? in
            guard state.count < maxStreams else {
                return ChatError(.unavailable, "Too many streams are open", retryAfter: .seconds(30))
            }
            guard state.streams[member, default: []].count < HTTPLimits.streamsPerMember else {
                return ChatError(
                    .tooManyRequests, "This member has \(HTTPLimits.streamsPerMember) streams open already",
                    retryAfter: .seconds(30))
            }
            if let address {
                guard state.addresses[address, default: 0] < HTTPLimits.streamsPerAddress else {
                    return ChatError(
                        .tooManyRequests, "This address has \(HTTPLimits.streamsPerAddress) streams open already",
                        retryAfter: .seconds(30))
                }
                state.addresses[address, default: 0] += 1
            }
            state.count += 1
            state.streams[member, default: []].append(stream)
            state.rooms[position.code, default: EventRoom(last: position.last)].streams.insert(stream)
            // Changes between the look-up of the position and now, also that the member has left, were signalled before the
            // stream was known here.
            state.unread.insert(position.code)
            state.receipts.insert(position.code)
            state.unchecked.insert(stream)
            if state.rooms[position.code]?.members == nil { state.uncounted.insert(position.code) }
            return nil
        }
        if let refusal { throw refusal }
        signal.continuation.yield()
        return EventSubscription(stream: stream) { [self] in remove(stream) }
    }

    private func remove(_ stream: EventStream) {
        state.withLock { state in
            guard let index = state.streams[stream.member]?.firstIndex(of: stream) else { return }
            state.count -= 1
            if let address = stream.address, let count = state.addresses[address] {
                state.addresses[address] = count > 1 ? count - 1 : nil
            }
            state.unchecked.remove(stream)
            state.streams[stream.member]?.remove(at: index)
            if state.streams[stream.member]?.isEmpty == true { state.streams[stream.member] = nil }
            state.rooms[stream.room]?.streams.remove(stream)
            if state.rooms[stream.room]?.streams.isEmpty == true { state.rooms[stream.room] = nil }
        }
    }

    /// What a stream is to write next.
    enum Next {
        case events(ArraySlice<MessageEvent>)
        /// These were deleted.
        case deleted([MessageID])
        /// So far behind that ``older(for:after:)`` has to read from the store; where that has nothing, the next comes after
        /// this one.
        case behind(until: MessageID)
        /// How far the member's last message has come.
        case receipt(Receipt)
        /// The number of the room's members has changed.
        case members(Int)
        case heartbeat
        case nothing
    }

    /// - Parameter members: the number of members that the stream was told last.
    func next(for stream: EventStream, after cursor: MessageID, members: Int?) -> Next {
        if let deleted = stream.takeDeleted() { return .deleted(deleted) }
        let room = state.withLock { state in
            state.rooms[stream.room].map { ($0.events(after: cursor, limit: Self.page), $0.members, $0.start) }
        }
        guard let (events, count, start) = room else { return .nothing }
        guard let events else { return .behind(until: start) }
        if !events.isEmpty { return .events(events) }
        if let count, count != members { return .members(count) }
        if let receipt = stream.takeReceipt() { return .receipt(receipt) }
        return time.now() - stream.lastWrite.began >= Self.heartbeat ? .heartbeat : .nothing
    }

    /// The messages that a stream that is behind has to write next.
    func older(for stream: EventStream, after cursor: MessageID) async throws(ChatError) -> [MessageEvent] {
        try await feed.messages(in: stream.room, after: cursor, limit: Self.ownPage).map(MessageEvent.init)
    }

    // MARK: - The service

    func run() async throws {
        let changes = feed.roomChanges()
        await cancelWhenGracefulShutdown {
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    for await _ in changes { self.signal.continuation.yield() }
                }
                group.addTask {
                    for await _ in self.signal.stream { await self.readChanges() }
                }
                group.addTask {
                    while (try? await self.time.sleep(Self.interval)) != nil { await self.maintain() }
                }
            }
        }
    }

    /// Reads the new messages of rooms that have streams, tells these what was deleted, and ends the streams of members who
    /// have left their room.
    func readChanges() async {
        let changes = feed.takeRoomChanges()
        var (left, removed, deleted) = ([EventStream](), [EventStream](), [(Set<EventStream>, [MessageID])]())
        let unread = state.withLock { state in
            if changes.isUnknown {
                state.mustCheckAll = true
                state.uncounted.formUnion(state.rooms.keys)
                state.unread.formUnion(state.rooms.keys)
                // Some of what is kept here may be deleted there.
                for code in state.rooms.keys { state.rooms[code]?.forgetAll() }
            }
            for (code, messages) in changes.deleted {
                state.rooms[code]?.remove(Set(messages))
                deleted.append((state.rooms[code]?.streams ?? [], messages))
            }
            for member in changes.members {
                let streams = state.streams[member] ?? []
                if changes.removed.contains(member) { removed += streams } else { left += streams }
            }
            state.receipts.formUnion(changes.reads.filter { state.rooms[$0] != nil })
            for code in changes.closed { removed += state.rooms[code]?.streams ?? [] }
            state.uncounted.formUnion(changes.memberships.union(changes.closed).filter { state.rooms[$0] != nil })
            let unread = state.unread.union(changes.messages)
            state.unread = []
            return unread.compactMap { code in state.rooms[code].map { (code, $0.last) } }
        }
        for (streams, messages) in deleted {
            for stream in streams { stream.noteDeleted(messages) }
        }
        await checkMembers(of: removed, .removed)
        await checkMembers(of: left)
        for (code, last) in unread { await read(code, after: last) }
    }

    private func read(_ code: SecretCode, after last: MessageID) async {
        var last = last
        do throws(ChatError) {
            while true {
                let events = try await feed.messages(in: code, after: last, limit: Self.page).map(MessageEvent.init)
                guard let newest = events.last?.id else { return }
                last = newest
                let streams = state.withLock { state in
                    state.rooms[code]?.append(events)
                    if state.rooms[code] != nil {
                        state.receipts.insert(code)
                        state.sending[code] = time.now() + Self.receiptTime
                    }
                    return state.rooms[code]?.streams ?? []
                }
                for stream in streams { stream.wake() }
                if events.count < Self.page { return }
            }
        } catch {
            state.withLock { state in
                if state.rooms[code] != nil { state.unread.insert(code) }
            }
            warn("messages", error)
        }
    }

    /// Once a second, what is not urgent: counts members, checks some streams' members, closes the connections of streams
    /// that accept nothing, wakes streams that need a comment.
    func maintain() async {
        let now = time.now()
        let (hasUnread, uncounted, streams, unchecked, receipts) = state.withLock { state in
            defer { state.uncounted = [] }
            if now >= state.nextForgetting {
                for code in state.rooms.keys { state.rooms[code]?.forget() }
                state.nextForgetting = now + Self.keptTime
            }
            return (
                !state.unread.isEmpty, state.uncounted, state.streams.values.flatMap { $0 },
                state.takeUnchecked(Self.checksPerRun), state.takeReceipts(Self.receiptsPerRun, now: now)
            )
        }
        if hasUnread { signal.continuation.yield() }
        await checkMembers(of: unchecked)
        await countMembers(of: uncounted)
        for stream in streams {
            let (began, isUnderWay) = stream.lastWrite
            if isUnderWay, now - began >= HTTPLimits.streamWriteTime {
                stream.end(.reconnect, closesConnection: true)
            } else if !isUnderWay, now - began >= Self.heartbeat {
                stream.wake()
            }
        }
        await readReceipts(receipts)
    }

    private func countMembers(of rooms: Set<SecretCode>) async {
        var uncounted = rooms
        for code in rooms {
            let count: Int
            do throws(ChatError) {
                count = try await feed.memberCount(of: code)
            } catch {
                state.withLock { $0.uncounted.formUnion(uncounted) }
                return warn("members", error)
            }
            uncounted.remove(code)
            let streams = state.withLock { state -> Set<EventStream> in
                guard state.rooms[code] != nil, state.rooms[code]?.members != count else { return [] }
                state.rooms[code]?.members = count
                return state.rooms[code]?.streams ?? []
            }
            for stream in streams { stream.wake() }
        }
    }

    /// Tells each stream how far its member's last message has come.
    private func readReceipts(_ rooms: [(SecretCode, Set<EventStream>)]) async {
        for (code, streams) in rooms {
            do throws(ChatError) {
                let receipts = try await feed.receipts(in: code, for: Set(streams.map(\.member)))
                for stream in streams {
                    if let receipt = receipts[stream.member] { stream.note(receipt) }
                }
            } catch {
                state.withLock { $0.receipts.formUnion(rooms.map(\.0)) }
                return warn("receipts", error)
            }
        }
    }

    /// Ends the streams of members who are not in their room any more.
    /// - Parameter end: why they are not, as far as it is known.
    private func checkMembers(of streams: [EventStream], _ end: EventStream.End = .left) async {
        for stream in streams {
            do throws(ChatError) {
                if try await feed.position(of: stream.member).code != stream.room { stream.end(end) }
            } catch  where error.code == .notJoined {
                stream.end(end)
            } catch {
                state.withLock { $0.mustCheckAll = true }
                return warn("positions", error)
            }
        }
    }

    /// For what the next run of ``maintain()`` tries again.
    private func warn(_ what: String, _ error: ChatError) {
        logger.warning(
            "event streams: cannot read from the store",
            metadata: [LogKeys.reason: "\(what)", LogKeys.cause: "\(error)"])
    }
}

/// A stream that is open until this is released, also where an answer is made and never written.
final class EventSubscription: Sendable {
    let stream: EventStream
    private let onRelease: @Sendable () -> Void

    fileprivate init(stream: EventStream, onRelease: @escaping @Sendable () -> Void) {
        self.stream = stream
        self.onRelease = onRelease
    }

    deinit { onRelease() }
}

/// One client's stream of its room.
final class EventStream: Sendable, Hashable {
    /// Why it ends.
    enum End: Sendable, Equatable {
        /// The member is not in the room any more.
        case left
        /// As ``left``, and not by the member itself.
        case removed
        /// The client is too slow, or the process stops: the client has to connect again.
        case reconnect
        /// The client has closed the connection.
        case disconnected
    }

    private struct State {
        /// ``wake()`` was called after the last ``wait()``.
        var isWoken = false
        var waiter: CheckedContinuation<Void, Never>?
        var end: End?
        /// To be told; see ``mostDeleted``.
        var deleted: [MessageID] = []
        /// The last one that was noted, and whether it is still to be told.
        var receipt: (last: Receipt, isNew: Bool)?
        var lastWrite: (began: Duration, isUnderWay: Bool)
    }

    let member: MemberID
    /// By which it is counted; nil for this machine's own programs.
    let address: IPAddress?
    let room: SecretCode
    private let now: @Sendable () -> Duration
    private let close: @Sendable () -> Void
    private let state: Mutex<State>

    fileprivate init(
        member: MemberID, address: IPAddress?, room: SecretCode, now: @escaping @Sendable () -> Duration,
        close: @escaping @Sendable () -> Void
    ) {
        self.member = member
        self.address = address
        self.room = room
        self.now = now
        self.close = close
        state = Mutex(State(lastWrite: (now(), false)))
    }

    static func == (left: EventStream, right: EventStream) -> Bool { left === right }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ObjectIdentifier(self))
    }

    /// Nil while it is open.
    var end: End? { state.withLock { $0.end } }

    /// When the last write began, in ``ElapsedTime``, and whether it is still under way.
    var lastWrite: (began: Duration, isUnderWay: Bool) { state.withLock { $0.lastWrite } }

    /// Messages that were deleted and are still to be told: a stream that nobody reads keeps the newest of them.
    private static let mostDeleted = 256

    func noteDeleted(_ messages: [MessageID]) {
        state.withLock { state in
            state.deleted = (state.deleted + messages).suffix(Self.mostDeleted)
        }
        wake()
    }

    /// One that says nothing yet is not told, and none is told twice.
    func note(_ receipt: Receipt) {
        let isNew = state.withLock { state in
            guard receipt != state.receipt?.last, receipt.reached + receipt.fetched > 0 else { return false }
            state.receipt = (receipt, true)
            return true
        }
        if isNew { wake() }
    }

    func takeReceipt() -> Receipt? {
        state.withLock { state in
            guard let receipt = state.receipt, receipt.isNew else { return nil }
            state.receipt?.isNew = false
            return receipt.last
        }
    }

    /// Nil if there are none.
    func takeDeleted() -> [MessageID]? {
        state.withLock { state in
            defer { state.deleted = [] }
            return state.deleted.isEmpty ? nil : state.deleted
        }
    }

    func wake() {
        let waiter = state.withLock { state in
            state.isWoken = true
            defer { state.waiter = nil }
            return state.waiter
        }
        waiter?.resume()
    }

    /// The first end counts.
    ///
    /// - Parameter closesConnection: whether a write that is under way is aborted, with its connection.
    func end(_ end: End, closesConnection: Bool = false) {
        let isWriting = state.withLock { state in
            state.end = state.end ?? end
            return state.lastWrite.isUnderWay
        }
        if closesConnection, isWriting { close() }
        wake()
    }

    /// Waits for the next ``wake()``; returns at once if there was one since the last wait.
    func wait() async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    if state.isWoken || Task.isCancelled { return true }
                    state.waiter = continuation
                    return false
                }
                if isReady { continuation.resume() }
            }
        } onCancel: {
            wake()
        }
        state.withLock { $0.isWoken = false }
    }

    func beginWrite() {
        state.withLock { $0.lastWrite = (now(), true) }
    }

    func endWrite() {
        state.withLock { $0.lastWrite.isUnderWay = false }
    }
}

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
        var low = 0
        var high = events.count
        while low < high {
            let middle = (low + high) / 2
            if events[middle].id <= cursor { low = middle + 1 } else { high = middle }
        }
        return events[low...].prefix(limit)
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
