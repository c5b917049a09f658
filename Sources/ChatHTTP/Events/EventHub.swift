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
    /// Between two checks of the tokens of programs' streams.
    private static let tokenCheck = Duration.seconds(5)
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
        var receipts = ReceiptSchedule()
        /// Rooms whose members are to be counted.
        var uncounted: Set<SecretCode> = []
        /// Streams whose member may have left the room: they have just opened, or another process has written.
        var unchecked: Set<EventStream> = []
        /// All streams are to be checked again, after those in `unchecked`.
        var mustCheckAll = false
        /// Whose members were gone when the last run of ``EventHub/maintain()`` looked. Why may still be on its way from the
        /// store: the next run ends them.
        var gone: Set<EventStream> = []
        /// The time of the next check of the tokens of programs' streams.
        var nextTokenCheck = Duration.zero
        /// When rooms forget what they hold next.
        var nextForgetting = Duration.zero

        /// The rooms whose receipts are to be read now, with their streams.
        mutating func takeReceipts(now: Duration) -> [(SecretCode, Set<EventStream>)] {
            let isOpen = { [rooms] (code: SecretCode) in rooms[code] != nil }
            return receipts.take(now: now, isOpen: isOpen).compactMap { code in rooms[code].map { (code, $0.streams) } }
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

    private let feed: any RoomFeed
    private let tokens: any TokenStore
    private let maxStreams: Int
    private let clock: MonotonicTime
    private let now: TimeSource
    private let metrics: LimitMetrics
    private let logger: Logger
    private let state = Mutex(State())
    /// There may be something to read; any number of signals before it is taken are one.
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// - Parameters:
    ///   - maxStreams: streams that may be open at a time, of all members.
    ///   - now: the wall clock, by which sessions end.
    init(
        feed: any RoomFeed, tokens: any TokenStore, maxStreams: Int, clock: MonotonicTime,
        now: @escaping TimeSource = Timestamp.now,
        metrics: LimitMetrics = LimitMetrics(), logger: Logger
    ) {
        self.metrics = metrics
        self.feed = feed
        self.tokens = tokens
        self.maxStreams = maxStreams
        self.clock = clock
        self.now = now
        self.logger = logger
    }

    /// Streams that are open now.
    var count: Int { state.withLock { $0.count } }

    // MARK: - For the streams

    /// Opens a stream.
    ///
    /// - Parameters:
    ///   - address: the client's; this machine's own programs are not limited.
    ///   - admission: the reason for which the client may read the room.
    ///   - close: closes the connection.
    /// - Returns: what keeps the stream open for as long as somebody holds it.
    func open(
        _ member: MemberID, from address: IPAddress? = nil, at position: RoomPosition,
        admission: EventStream.Admission = .member(sessionEnd: nil), close: @escaping @Sendable () -> Void
    ) throws(ChatError) -> EventSubscription {
        let address = address.flatMap { $0.isLoopback ? nil : $0.rateKey }
        let stream = EventStream(
            member: member, admission: admission, address: address, room: position.code, clock: clock, close: close)
        let refusal = state.withLock { state -> ChatError? in
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
            state.rooms[position.code, default: EventRoom(last: position.last)].streams.insert(stream)
            // Changes between the look-up of the position and now, also that the member has left, were signalled before the
            // stream was known here.
            state.unread.insert(position.code)
            state.receipts.changed(in: [position.code])
            if stream.isOfMember { state.unchecked.insert(stream) }
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
        return clock.now() - stream.lastWrite.began >= Self.heartbeat ? .heartbeat : .nothing
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
                    while (try? await self.clock.sleep(Self.interval)) != nil { await self.maintain() }
                }
            }
        }
    }

    /// Reads the new messages of rooms that have streams, tells these what was deleted, and ends the streams of members who
    /// have left their room.
    func readChanges() async {
        let changes = await feed.takeRoomChanges()
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
            state.receipts.changed(in: changes.reads.filter { state.rooms[$0] != nil })
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
        await checkMembers(of: left, .left)
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
                    if state.rooms[code] != nil { state.receipts.posted(in: code, at: clock.now()) }
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

    /// The work of each second that is not urgent. Counts members, and checks some streams' members. Ends streams whose session
    /// or token has ended. Closes the connections of streams that accept nothing, and wakes streams that need a comment.
    func maintain() async {
        let now = clock.now()
        let (hasUnread, uncounted, streams, gone, unchecked, receipts) = state.withLock { state in
            defer { (state.uncounted, state.gone) = ([], []) }
            if now >= state.nextForgetting {
                for code in state.rooms.keys { state.rooms[code]?.forget() }
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
        await countMembers(of: uncounted)
        let wallTime = self.now()
        for stream in streams {
            let (began, isUnderWay) = stream.lastWrite
            if case .member(let end?) = stream.admission, wallTime >= end {
                stream.end(.reconnect, closesConnection: true)
            } else if isUnderWay, now - began >= HTTPLimits.streamWriteTime {
                stream.end(.reconnect, closesConnection: true)
            } else if !isUnderWay, now - began >= Self.heartbeat {
                stream.wake()
            }
        }
        await checkTokens(of: streams, now: now)
        await readReceipts(receipts)
    }

    /// Ends streams of programs whose token was revoked, has expired, or does not open the room any more. Each token is looked
    /// up once.
    private func checkTokens(of streams: [EventStream], now: Duration) async {
        var ofTokens: [String: [EventStream]] = [:]
        for stream in streams {
            if case .program(let secret) = stream.admission { ofTokens[secret, default: []].append(stream) }
        }
        guard !ofTokens.isEmpty, now >= state.withLock({ $0.nextTokenCheck }) else { return }
        state.withLock { $0.nextTokenCheck = now + Self.tokenCheck }
        for (secret, streams) in ofTokens {
            do throws(ChatError) {
                let grant = try await tokens.token(of: secret)?.grant
                for stream in streams where grant?.reads(stream.room) != true {
                    stream.end(.reconnect, closesConnection: true)
                }
            } catch {
                return warn("tokens", error)
            }
        }
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
                state.withLock { $0.receipts.changed(in: rooms.map(\.0)) }
                return warn("receipts", error)
            }
        }
    }

    /// Ends the streams of members who are not in their room any more, or whose room has a new code.
    /// - Parameter end: why; nil: nobody has said that they have gone.
    private func checkMembers(of streams: [EventStream], _ end: EventStream.End?) async {
        for stream in streams where stream.isOfMember {
            do throws(ChatError) {
                let code = try await feed.position(of: stream.member).code
                if code == stream.room { continue }
                // Only whoever is in the room under its new code learns that one.
                if try await feed.hasMoved(stream.room, to: code) {
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

    /// For what the next run of ``maintain()`` tries again.
    private func warn(_ what: String, _ error: ChatError) {
        logger.warning(
            "event streams: cannot read from the store",
            metadata: [LogKeys.reason: "\(what)", LogKeys.cause: "\(error)"])
    }
}
