import ChatDomain
import Logging
import NIOCore
import ServiceLifecycle
import Synchronization

/// Brings what happens in rooms to the streams of their members.
///
/// A room's new messages are read once, whatever the number of its streams; each stream then takes them at its own pace,
/// from memory or, when it is far behind, from the store. So a slow reader costs no memory, and is cut off when it does not
/// move at all.
final class EventHub: Service {
    /// Streams of one member, and of all.
    static let maxStreamsPerMember = 8
    private let most: Int
    /// Messages that are read at a time.
    static let page = 100
    /// Between looks at the streams: who is slow, who needs a sign of life, how many members there are.
    private static let tick = Duration.seconds(1)
    /// Silence after which a stream gets a sign of life: proxies close what is silent for a minute.
    private static let heartbeat = Duration.seconds(15)
    /// Of the streams whose member may have gone, those that are looked at in one tick.
    private static let checksATick = 2000

    private struct State {
        var rooms: [SecretCode: EventRoom] = [:]
        var members: [MemberID: [EventStream]] = [:]
        var count = 0
        /// Rooms that are to be read.
        var unread: Set<SecretCode> = []
        /// Rooms whose members are to be counted.
        var uncounted: Set<SecretCode> = []
        /// Streams whose member has joined or left something.
        var changed: Set<EventStream> = []
        /// Streams whose member may have gone: they have just opened, or another process has written.
        var unchecked: Set<EventStream> = []
        /// All of them may, again, once these have been looked at.
        var mustCheckAll = false

        mutating func takeChanged() -> [EventStream] {
            defer { changed = [] }
            return Array(changed)
        }

        mutating func takeUnchecked(_ most: Int) -> [EventStream] {
            if mustCheckAll, unchecked.isEmpty {
                unchecked = Set(rooms.values.flatMap(\.streams))
                mustCheckAll = false
            }
            let some = Array(unchecked.prefix(most))
            unchecked.subtract(some)
            return some
        }
    }

    /// What a stream is to write next.
    enum Next {
        case events(ArraySlice<MessageEvent>)
        /// So far behind that the store has to be asked.
        case behind
        /// The room's members, where that is news.
        case members(Int)
        case heartbeat
        case nothing
    }

    private let feed: any RoomFeed
    private let patience: Duration
    private let logger: Logger
    private let state = Mutex(State())
    private let bell = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// - Parameters:
    ///   - most: streams that may be open.
    ///   - patience: how long a client may take nothing.
    init(feed: any RoomFeed, most: Int, patience: Duration = .seconds(20), logger: Logger) {
        self.feed = feed
        self.most = most
        self.patience = patience
        self.logger = logger
    }

    /// Streams that are open now.
    var count: Int { state.withLock { $0.count } }

    // MARK: - For the streams

    /// - Parameter close: closes the connection.
    /// - Returns: what keeps the stream in the hub for as long as somebody holds it.
    func enter(
        _ member: MemberID, _ place: RoomPosition, close: @escaping @Sendable () -> Void
    ) throws(ChatError) -> EventTicket {
        let stream = EventStream(member: member, room: place.code, close: close)
        let refusal = state.withLock { state -> ChatError? in
            guard state.count < most else {
                return ChatError(.unavailable, "Too many streams are open", retryAfter: .seconds(30))
            }
            guard state.members[member, default: []].count < Self.maxStreamsPerMember else {
                return ChatError(
                    .tooManyRequests, "This member has \(Self.maxStreamsPerMember) streams open already",
                    retryAfter: .seconds(30))
            }
            state.count += 1
            state.members[member, default: []].append(stream)
            state.rooms[place.code, default: EventRoom(last: place.last)].enter(stream)
            // What has come between the look-up of the place and now was announced too early, also that the member has left.
            state.unread.insert(place.code)
            state.unchecked.insert(stream)
            if state.rooms[place.code]?.members == nil { state.uncounted.insert(place.code) }
            return nil
        }
        if let refusal { throw refusal }
        bell.continuation.yield()
        return EventTicket(stream: stream, hub: self)
    }

    fileprivate func leave(_ stream: EventStream) {
        state.withLock { state in
            guard let index = state.members[stream.member]?.firstIndex(of: stream) else { return }
            state.count -= 1
            state.changed.remove(stream)
            state.unchecked.remove(stream)
            state.members[stream.member]?.remove(at: index)
            if state.members[stream.member]?.isEmpty == true { state.members[stream.member] = nil }
            state.rooms[stream.room]?.leave(stream)
            if state.rooms[stream.room]?.streams.isEmpty == true { state.rooms[stream.room] = nil }
        }
    }

    /// - Parameter members: the number of members that the stream was told last.
    func next(for stream: EventStream, after cursor: MessageID, members: Int?) -> Next {
        let (events, count, isKnown) = state.withLock { state in
            let room = state.rooms[stream.room]
            return (room?.events(after: cursor, limit: Self.page), room?.members, room != nil)
        }
        guard isKnown else { return .nothing }
        guard let events else { return .behind }
        if !events.isEmpty { return .events(events) }
        if let count, count != members { return .members(count) }
        return ContinuousClock.now - stream.writing.since >= Self.heartbeat ? .heartbeat : .nothing
    }

    /// For one that is behind.
    func older(for stream: EventStream, after cursor: MessageID) async throws(ChatError) -> [MessageEvent] {
        try await feed.messages(in: stream.room, after: cursor, limit: Self.page).map(MessageEvent.init)
    }

    // MARK: - The service

    func run() async throws {
        let changes = feed.roomChanges()
        await cancelWhenGracefulShutdown {
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    for await _ in changes { self.bell.continuation.yield() }
                }
                group.addTask {
                    for await _ in self.bell.stream { await self.read() }
                }
                group.addTask {
                    while !Task.isCancelled {
                        try? await Task.sleep(for: Self.tick)
                        await self.look()
                    }
                }
            }
        }
    }

    /// Reads what is new in rooms that somebody follows.
    private func read() async {
        let changes = feed.takeRoomChanges()
        let rooms = state.withLock { state -> [(SecretCode, MessageID)] in
            state.uncounted.formUnion(
                changes.isUnknown ? Set(state.rooms.keys) : changes.memberships.filter { state.rooms[$0] != nil })
            if changes.isUnknown {
                state.mustCheckAll = true
            } else {
                state.changed.formUnion(changes.members.flatMap { state.members[$0] ?? [] })
            }
            let unread = state.unread.union(changes.isUnknown ? Set(state.rooms.keys) : changes.messages)
            state.unread = []
            return unread.compactMap { code in state.rooms[code].map { (code, $0.last) } }
        }
        await checkMembers(state.withLock { $0.takeChanged() })
        for (code, last) in rooms { await read(code, after: last) }
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
                    return state.rooms[code]?.streams ?? []
                }
                for stream in streams { stream.wake() }
                if events.count < Self.page { return }
            }
        } catch {
            // The next tick tries again.
            state.withLock { state in
                if state.rooms[code] != nil { state.unread.insert(code) }
            }
            logger.warning("a room's messages could not be read", metadata: [LogKeys.cause: "\(error)"])
        }
    }

    /// Once a second: what needs no hurry.
    private func look() async {
        let (uncounted, streams, hasUnread) = state.withLock { state in
            defer { state.uncounted = [] }
            return (state.uncounted, state.members.values.flatMap { $0 }, !state.unread.isEmpty)
        }
        if hasUnread { bell.continuation.yield() }
        await checkMembers(state.withLock { $0.takeChanged() + $0.takeUnchecked(Self.checksATick) })
        for code in uncounted {
            let count: Int
            do throws(ChatError) {
                count = try await feed.memberCount(of: code)
            } catch {
                state.withLock { _ = $0.uncounted.insert(code) }
                continue
            }
            let listeners = state.withLock { state -> Set<EventStream> in
                guard state.rooms[code] != nil, state.rooms[code]?.members != count else { return [] }
                state.rooms[code]?.members = count
                return state.rooms[code]?.streams ?? []
            }
            for stream in listeners { stream.wake() }
        }
        let now = ContinuousClock.now
        for stream in streams {
            let (isUnderWay, since) = stream.writing
            if isUnderWay, now - since >= patience {
                stream.end(.comeAgain, cutsOff: true)
            } else if !isUnderWay, now - since >= Self.heartbeat {
                stream.wake()
            }
        }
    }

    /// Ends the streams of who is not in their room any more.
    private func checkMembers(_ streams: [EventStream]) async {
        for stream in streams {
            do throws(ChatError) {
                if try await feed.position(of: stream.member).code != stream.room { stream.end(.left) }
            } catch {
                if error.code == .notJoined {
                    stream.end(.left)
                } else {
                    state.withLock { $0.mustCheckAll = true }
                    return
                }
            }
        }
    }
}

/// A stream's place in the hub, which ends with it: also where an answer is made and never written.
final class EventTicket: Sendable {
    let stream: EventStream
    private let hub: EventHub

    fileprivate init(stream: EventStream, hub: EventHub) {
        self.stream = stream
        self.hub = hub
    }

    deinit {
        hub.leave(stream)
    }
}
