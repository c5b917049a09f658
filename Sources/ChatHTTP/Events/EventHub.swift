import ChatDomain
import Logging
import NIOCore
import ServiceLifecycle
import Synchronization

/// Delivers events in rooms to the streams of their members.
///
/// The hub reads a room's new messages and changes once, however many streams the room has. Each stream then writes them
/// at its own speed. It reads them from memory, or from the store if it is far behind. A slow reader therefore costs no
/// memory. The hub closes the connection of a client that accepts nothing.
final class EventHub: Service {
    /// The maximum number of messages to read or return at a time.
    private static let page = 100
    /// The maximum number of messages that a stream reads at a time while it is behind. About this many fit into one
    /// write.
    private static let ownPage = 25
    /// The time between two runs of ``maintain()``.
    private static let interval = Duration.seconds(1)
    /// The time between two runs of ``EventRoom/forget()``. Longer than a stream with an active reader needs to write
    /// an event.
    private static let keptTime = Duration.seconds(10)
    /// The time between two checks of the tokens and credentials of streams.
    private static let tokenCheck = Duration.seconds(5)
    /// The maximum number of streams for which one run of ``maintain()`` checks whether the member is still in the
    /// room.
    private static let checksPerRun = 2000

    private struct State {
        var rooms: [StreamSource: EventRoom] = [:]
        var streams: [MemberID: [EventStream]] = [:]
        var count = 0
        /// The number of streams of each address.
        var addresses: [IPAddress: Int] = [:]
        /// Sources with messages that have not been read.
        var unread: Set<StreamSource> = []
        /// Sources whose messages are being read.
        var reading: Set<StreamSource> = []
        /// ``RoomChanges/completeTo`` of the changes whose rooms were read.
        var completeTo: MessageID?
        var receipts = ReceiptSchedule()
        /// Rooms whose summary must be read.
        var uncounted: Set<SecretCode> = []
        /// Streams whose member may have left the room, because the stream has just opened or another process has
        /// written.
        var unchecked: Set<EventStream> = []
        /// Whether to check all streams again, after the streams in `unchecked`.
        var mustCheckAll = false
        /// Streams whose members were absent in the last run of ``EventHub/maintain()``. The store may still report the
        /// reason. The next run ends these streams.
        var gone: Set<EventStream> = []
        /// The time of the next check of tokens and credentials.
        var nextTokenCheck = Duration.zero
        /// The time at which rooms next drop old messages.
        var nextForgetting = Duration.zero

        /// Returns the rooms whose receipts are due, with their streams.
        mutating func takeReceipts(now: Duration) -> [(SecretCode, Set<EventStream>)] {
            let isOpen = { [rooms] (code: SecretCode) in rooms[.room(code)] != nil }
            return receipts.take(now: now, isOpen: isOpen).compactMap { code in
                rooms[.room(code)].map { (code, $0.streams) }
            }
        }

        /// The next writes of a stream: messages, and the room's summary. Without messages, the stream is behind, and
        /// `starts` has the message before the first one in memory, for each source.
        typealias Found = (events: ArraySlice<RoomEvent>?, summary: RoomSummary?, starts: [MessageID])

        func events(in source: StreamSource, after cursor: MessageID) -> Found {
            guard let room = rooms[source] else { return ([], nil, []) }
            let events = room.events(after: cursor, limit: EventHub.page)
            return (events, room.summary, events == nil ? [room.start] : [])
        }

        /// Merges the messages of a stream's sources in the order of their ids, because a client continues after the last
        /// one that it got. While a source is being read, the stream therefore waits. Messages wait if another source may
        /// have earlier ones.
        func events(for stream: EventStream, after cursors: [MessageID]) -> Found {
            guard unread.isDisjoint(with: stream.sources), reading.isDisjoint(with: stream.sources) else {
                return ([], nil, [])
            }
            let found = zip(stream.sources, cursors).map { events(in: $0, after: $1) }
            let pages = found.compactMap(\.events)
            guard pages.count == found.count else { return (nil, nil, found.map { $0.starts.first ?? 0 }) }
            let merged = RoomEvent.merge(pages, limit: EventHub.page)
            return (merged.prefix { $0.id <= completeTo ?? .max }, nil, [])
        }

        mutating func takeUnchecked(_ limit: Int) -> [EventStream] {
            if mustCheckAll, unchecked.isEmpty {
                unchecked = Set(rooms.values.flatMap(\.streams).filter(\.isOfMember))
                mustCheckAll = false
            }
            let some = Array(unchecked.prefix(limit))
            unchecked.subtract(some)
            return some
        }
    }

    private let stores: Stores
    private let maxStreams: Int
    private let clocks: Clocks
    private let metrics: LimitMetrics
    private let logger: Logger
    private let state = Mutex(State())
    /// Signals that there may be changes to read. Merges all signals until one is consumed.
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// Creates a hub without streams.
    ///
    /// - Parameters:
    ///   - maxStreams: The maximum number of open streams, of all members.
    init(
        stores: Stores, maxStreams: Int, clocks: Clocks, metrics: LimitMetrics = LimitMetrics(), logger: Logger
    ) {
        self.metrics = metrics
        self.stores = stores
        self.maxStreams = maxStreams
        self.clocks = clocks
        self.logger = logger
    }

    private var feed: any RoomFeed { stores.feed }

    /// The number of open streams.
    var count: Int { state.withLock { $0.count } }

    // MARK: - For the streams

    /// Opens a stream.
    ///
    /// - Parameters:
    ///   - address: The client's address. Programs on this machine are not limited.
    ///   - starts: The sources, each once.
    ///   - admission: The client's right to read the sources.
    ///   - heartbeat: The time without an event after which the stream writes a heartbeat.
    ///   - close: Closes the connection.
    /// - Returns: The subscription. The stream stays open until it is released.
    func open(
        _ member: MemberID, from address: IPAddress? = nil, at starts: [StreamStart],
        admission: EventStream.Admission = .member(sessionEnd: nil),
        heartbeat: Duration = .seconds(15), close: @escaping @Sendable () -> Void
    ) throws(ChatError) -> EventSubscription {
        guard (1...HTTPLimits.streamRooms).contains(starts.count) else {
            throw ChatError(.tooLarge, "A stream has at most \(HTTPLimits.streamRooms) rooms")
        }
        let address = address.flatMap { $0.isLoopback ? nil : $0.rateKey }
        let stream = EventStream(
            member: member, admission: admission, address: address, sources: starts.map(\.source),
            histories: starts.map(\.historyFrom), start: starts.map(\.last).min() ?? 0, heartbeat: heartbeat,
            clock: clocks.monotonic, close: close)
        let rejection = state.withLock { state -> ChatError? in
            guard state.count < maxStreams else {
                metrics.hit(.streams)
                return ChatError(.unavailable, "Too many streams are open", retryAfter: .seconds(30))
            }
            guard state.streams[member, default: []].count < HTTPLimits.streamsPerMember else {
                metrics.hit(.streamsPerMember)
                return ChatError(
                    .tooManyRequests, "This member or token has \(HTTPLimits.streamsPerMember) streams open already",
                    retryAfter: .seconds(30))
            }
            if let address {
                guard state.addresses[address, default: 0] < HTTPLimits.streamsPerAddress else {
                    metrics.hit(.streamsPerAddress)
                    return ChatError(
                        .tooManyRequests, "This address has \(HTTPLimits.streamsPerAddress) streams open already",
                        retryAfter: .seconds(30))
                }
                state.addresses[address, default: 0] += 1
            }
            state.count += 1
            state.streams[member, default: []].append(stream)
            for start in starts {
                state.rooms[start.source, default: EventRoom(last: start.last)].streams.insert(stream)
                if let code = start.source.room, state.rooms[start.source]?.summary == nil {
                    state.uncounted.insert(code)
                }
            }
            // Signals that came before this do not cover the stream: a room may have changed since its position was
            // looked up, and the member may have left.
            state.unread.formUnion(stream.sources)
            state.receipts.changed(in: stream.rooms)
            if stream.isOfMember { state.unchecked.insert(stream) }
            return nil
        }
        if let rejection { throw rejection }
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
            for source in stream.sources {
                state.rooms[source]?.streams.remove(stream)
                if state.rooms[source]?.streams.isEmpty == true { state.rooms[source] = nil }
            }
        }
    }

    /// The next thing for a stream to write.
    enum Next {
        case events(ArraySlice<RoomEvent>)
        /// The stream is far behind and must read from the store with ``older(for:after:)``. If the store has nothing,
        /// continue in each source after this message.
        case behind(until: [MessageID])
        /// The delivery state of the member's last message.
        case receipt(Receipt)
        /// The number of the room's members or its title changed.
        case room(RoomSummary)
        case heartbeat
        case nothing
    }

    /// Returns the next thing for a stream to write.
    ///
    /// - Parameters:
    ///   - cursors: The last message that was written to the stream, for each of its sources.
    ///   - summary: The last summary of the room that was written to the stream.
    func next(for stream: EventStream, after cursors: [MessageID], summary: RoomSummary?) -> Next {
        let (events, found, starts) = state.withLock { state in
            stream.hasSeveralSources
                ? state.events(for: stream, after: cursors)
                : state.events(in: stream.sources[0], after: cursors[0])
        }
        guard let events else { return .behind(until: starts) }
        if !events.isEmpty { return .events(events) }
        if let found, found != summary { return .room(found) }
        if let receipt = stream.takeReceipt() { return .receipt(receipt) }
        return clocks.monotonic.now() - stream.lastWrite.began >= stream.heartbeat ? .heartbeat : .nothing
    }

    /// Returns the next messages for a stream that is behind, in the order of their ids. `nil` if all of them must wait,
    /// because another source may have earlier ones.
    func older(for stream: EventStream, after cursors: [MessageID]) async throws(ChatError) -> [RoomEvent]? {
        let completeTo = state.withLock { state in state.completeTo.map { max($0, stream.start) } } ?? .max
        var pages: [[RoomEvent]] = []
        for (source, cursor) in zip(stream.sources, cursors) {
            pages.append(try await events(in: source, after: cursor, limit: Self.ownPage))
        }
        if pages.count == 1 { return pages[0] }
        let merged = RoomEvent.merge(pages, limit: Self.ownPage)
        let ready = Array(merged.prefix { $0.id <= completeTo })
        return ready.isEmpty && !merged.isEmpty ? nil : ready
    }

    /// Records that a stream's reader got the messages up to `last`, unless it is a program.
    func handedOut(_ last: MessageID, to stream: EventStream) {
        guard !stream.member.isProgram, stream.sources.contains(where: { $0.room != nil }) else { return }
        feed.handedOut(last, to: stream.member)
    }

    private func events(
        in source: StreamSource, after: MessageID, limit: Int
    ) async throws(ChatError) -> [RoomEvent] {
        try await stores.entries(in: source, after: after, limit: limit).map { RoomEvent($0, in: source) }
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
                    while (try? await self.clocks.monotonic.sleep(Self.interval)) != nil { await self.maintain() }
                }
                await group.next()
                group.cancelAll()
            }
        }
    }

    /// Reads the new messages and changes of rooms and topics that have streams. Ends the streams of members who have
    /// left their room, and of topics whose name a room has taken.
    func readChanges() async {
        let changes = await feed.takeRoomChanges()
        var (left, removed) = ([EventStream](), [EventStream]())
        var overtaken: Set<EventStream> = []
        let unread = state.withLock { state in
            if changes.isUnknown {
                state.mustCheckAll = true
                state.uncounted.formUnion(state.rooms.keys.compactMap(\.room))
                state.unread.formUnion(state.rooms.keys)
                // The other process may have deleted messages that are in memory here.
                for source in state.rooms.keys { state.rooms[source]?.forgetAll() }
            }
            for (code, messages) in changes.deleted { state.rooms[.room(code)]?.remove(Set(messages)) }
            for member in changes.members {
                let streams = state.streams[member] ?? []
                if changes.removed.contains(member) { removed += streams } else { left += streams }
            }
            state.receipts.changed(in: changes.reads.filter { state.rooms[.room($0)] != nil })
            for code in changes.closed { removed += state.rooms[.room(code)]?.streams ?? [] }
            state.uncounted.formUnion(
                changes.memberships.union(changes.closed).filter { state.rooms[.room($0)] != nil })
            for code in changes.memberships.union(changes.messages) {
                guard let topic = UnifiedPushTopic(code.text) else { continue }
                overtaken.formUnion(state.rooms[.topic(topic)]?.streams ?? [])
            }
            let unread = state.unread.union(changes.messages.map(StreamSource.room))
                .union(changes.topics.map(StreamSource.topic))
            (state.unread, state.reading) = ([], unread)
            return unread.compactMap { source in state.rooms[source].map { (source, $0.last) } }
        }
        await checkMembers(of: removed, .removed)
        await checkMembers(of: left, .left)
        // Before new messages are read: a member's credential ends with its membership.
        await checkTokens(of: removed + left + overtaken)
        for (source, last) in unread { await read(source, after: last) }
        let waiting = state.withLock { state in
            defer { state.reading = [] }
            if let known = changes.completeTo { state.completeTo = max(state.completeTo ?? 0, known) }
            return state.reading.flatMap { state.rooms[$0]?.streams.filter(\.hasSeveralSources) ?? [] }
        }
        for stream in waiting { stream.wake() }
    }

    private func read(_ source: StreamSource, after last: MessageID) async {
        var last = last
        do throws(ChatError) {
            while true {
                let events = try await self.events(in: source, after: last, limit: Self.page)
                guard let newest = events.last?.id else { return }
                last = newest
                let streams = state.withLock { state in
                    state.rooms[source]?.append(events)
                    if let code = source.room, state.rooms[source] != nil, events.contains(where: \.isMessage) {
                        state.receipts.posted(in: code, at: clocks.monotonic.now())
                    }
                    return state.rooms[source]?.streams ?? []
                }
                for stream in streams where !stream.hasSeveralSources { stream.wake() }
                if events.count < Self.page { return }
            }
        } catch {
            state.withLock { state in
                if state.rooms[source] != nil { state.unread.insert(source) }
            }
            warn("messages", error)
        }
    }

    /// Does the less urgent work, once per second. Counts members, checks some streams' members, and ends streams whose
    /// session or token has ended. Closes the connections of streams that accept nothing, and wakes streams that need a
    /// heartbeat.
    func maintain() async {
        let now = clocks.monotonic.now()
        let (hasUnread, uncounted, streams, gone, unchecked, receipts) = state.withLock { state in
            defer { (state.uncounted, state.gone) = ([], []) }
            if now >= state.nextForgetting {
                for source in state.rooms.keys { state.rooms[source]?.forget() }
                state.nextForgetting = now + Self.keptTime
            }
            return (
                !state.unread.isEmpty, state.uncounted, state.streams.values.flatMap { $0 },
                Array(state.gone), state.takeUnchecked(Self.checksPerRun), state.takeReceipts(now: now)
            )
        }
        if hasUnread { signal.continuation.yield() }
        await checkMembers(of: gone, .left)
        await checkMembers(of: unchecked, nil)
        await summarize(uncounted)
        let wallTime = clocks.now()
        for stream in streams {
            let (began, isInProgress) = stream.lastWrite
            if case .member(let end?) = stream.admission, wallTime >= end {
                stream.end(.reconnect, closesConnection: true)
            } else if stream.isDead(at: now) || isInProgress && now - began >= HTTPLimits.streamWriteTime {
                stream.end(.reconnect, closesConnection: true)
            } else if !isInProgress, now - began >= stream.heartbeat {
                stream.wake()
            }
        }
        if now >= state.withLock({ $0.nextTokenCheck }) {
            state.withLock { $0.nextTokenCheck = now + Self.tokenCheck }
            await checkTokens(of: streams)
        }
        await readReceipts(receipts)
    }

    /// Ends the streams whose token or credential was revoked, has expired, or no longer grants access to all sources of
    /// the stream. Looks up each secret once.
    private func checkTokens(of streams: [EventStream]) async {
        var bySecret: [String: [EventStream]] = [:]
        for stream in streams {
            if case .program(let secret) = stream.admission { bySecret[secret, default: []].append(stream) }
        }
        for (secret, streams) in bySecret {
            do throws(ChatError) {
                let caller = try await caller(with: secret)
                let owned = try await topics(of: streams, ownedBy: caller)
                for stream in streams where !stream.isOpen(to: caller, owning: owned) {
                    stream.end(.reconnect, closesConnection: true)
                }
            } catch {
                return warn("tokens", error)
            }
        }
    }

    private func caller(with secret: String) async throws(ChatError) -> Caller? {
        guard secret.hasPrefix(Credential.prefix) else {
            return try await stores.tokens.token(of: secret).map { .token($0) }
        }
        return try await stores.clients.credential(of: secret).map { .credential($0) }
    }

    private func topics(
        of streams: [EventStream], ownedBy caller: Caller?
    ) async throws(ChatError) -> Set<UnifiedPushTopic> {
        let topics = Set(streams.flatMap(\.topics))
        guard !topics.isEmpty, let owner = caller?.pushOwner else { return [] }
        return try await stores.unifiedPush.owned(Array(topics), by: owner)
    }

    private func summarize(_ rooms: Set<SecretCode>) async {
        var uncounted = rooms
        for code in rooms {
            let summary: RoomSummary
            do throws(ChatError) {
                summary = try await feed.summary(of: code)
            } catch {
                state.withLock { $0.uncounted.formUnion(uncounted) }
                return warn("members", error)
            }
            uncounted.remove(code)
            let streams = state.withLock { state -> Set<EventStream> in
                guard let room = state.rooms[.room(code)], room.summary != summary else { return [] }
                state.rooms[.room(code)]?.summary = summary
                return room.streams
            }
            for stream in streams { stream.wake() }
        }
    }

    /// Passes to each stream the receipt of its member's last message.
    private func readReceipts(_ rooms: [(SecretCode, Set<EventStream>)]) async {
        for (code, streams) in rooms {
            do throws(ChatError) {
                let receipts = try await feed.receipts(in: code, for: Set(streams.map(\.member)))
                for stream in streams {
                    if let receipt = receipts[stream.member] { stream.note(receipt) }
                }
            } catch {
                state.withLock { $0.receipts.changed(in: rooms.map(\.0)) }
                return warn("receipts", error)
            }
        }
    }

    /// Ends the streams of members who are no longer in the room, or whose room has a new code.
    ///
    /// - Parameter end: The reason, if the store reported the departure. `nil` for a routine check: the next run of
    ///   ``maintain()`` then ends the stream.
    private func checkMembers(of streams: [EventStream], _ end: EventStream.End?) async {
        for stream in streams where stream.isOfMember {
            do throws(ChatError) {
                let code = try await feed.position(of: stream.member).code
                guard let room = stream.sources[0].room, room != code else { continue }
                // Only members of the room under its new code may learn that code.
                if try await feed.hasMoved(room, to: code) {
                    stream.end(.moved(code))
                } else {
                    found(stream, end)
                }
            } catch  where error.code == .notJoined {
                found(stream, end)
            } catch {
                state.withLock { $0.mustCheckAll = true }
                return warn("positions", error)
            }
        }
    }

    private func found(_ gone: EventStream, _ end: EventStream.End?) {
        if let end { gone.end(end) } else { state.withLock { _ = $0.gone.insert(gone) } }
    }

    /// Logs a failed read. The next run of ``maintain()`` retries it.
    private func warn(_ what: String, _ error: ChatError) {
        logger.warning(
            "event streams: cannot read from the store",
            metadata: [LogKeys.reason: "\(what)", LogKeys.cause: "\(error)"])
    }
}
