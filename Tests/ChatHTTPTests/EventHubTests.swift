import ChatDomain
import Synchronization
import TestSupport
import Testing

@testable import ChatHTTP

/// Tests the hub without sockets. Nothing runs in the background: the test makes the calls of the service.
@Suite("Event hub", .timeLimit(.minutes(1)))
struct EventHubTests {
    private let room = SecretCode(stored: "kitchen")
    private let member = MemberID(stored: String(repeating: "0", count: 39) + "1")
    private let other = MemberID(stored: "0002")
    private let feed = FakeFeed()
    private let tokens = FakeTokens()
    private let real: RealStore
    private var pushes: any UnifiedPushStore { real.ports.unifiedPush }
    private let clock = TestClock()

    init() throws { real = try RealStore() }

    /// Creates a hub with both members in the room.
    private func hub(maxStreams: Int = 10) -> EventHub {
        feed.join(member, room)
        feed.join(other, room)
        _ = feed.takeRoomChanges()
        var stores = real.ports
        (stores.feed, stores.tokens) = (feed, tokens)
        return EventHub(
            stores: stores, maxStreams: maxStreams, clocks: Clocks(monotonic: clock), logger: LogRecorder().logger)
    }

    private func open(
        _ hub: EventHub, _ member: MemberID, close: @escaping @Sendable () -> Void = { Issue.record("closed") }
    ) async throws -> EventSubscription {
        try hub.open(member, at: [StreamStart(try await feed.position(of: member))], close: close)
    }

    private func next(_ hub: EventHub, _ stream: EventStream, after: MessageID = 0, members: Int? = 2) -> String {
        switch hub.next(for: stream, after: [after], summary: members.map { RoomSummary(members: $0) }) {
        case .events(let events): "events \(events.map(\.id))"
        case .behind: "behind"
        case .receipt(let receipt): "receipt \(receipt.message) \(receipt.reached) \(receipt.fetched)"
        case .room(let summary): "members \(summary.members)" + (summary.title.map { " \($0.text)" } ?? "")
        case .heartbeat: "heartbeat"
        case .nothing: "nothing"
        }
    }

    @Test("The service ends when the store announces no more changes, because streams would stay silent")
    func feedEnds() async throws {
        feed.endChanges()
        try await hub().run()
    }

    @Test("A connection whose client reads nothing for 20 seconds is closed; one with nothing to read is not")
    func slow() async throws {
        let hub = hub()
        try await confirmation { closes in
            let slow = try await open(hub, member) { closes() }
            let idle = try await open(hub, member)
            slow.stream.beginWrite()
            clock.advance(by: .seconds(19))
            await hub.maintain()
            #expect(slow.stream.end == nil)
            clock.advance(by: .seconds(1))
            await hub.maintain()
            #expect(slow.stream.end == .reconnect && idle.stream.end == nil)
            #expect(hub.count == 2)
        }
        #expect(hub.count == 0)
    }

    @Test("A stream without an event for 15 seconds is woken to write a comment")
    func heartbeat() async throws {
        let hub = hub()
        let stream = try await open(hub, member)
        await hub.readChanges()
        clock.advance(by: .seconds(14))
        #expect(next(hub, stream.stream) == "nothing")
        clock.advance(by: .seconds(1))
        await hub.maintain()
        await stream.stream.wait()
        #expect(next(hub, stream.stream) == "heartbeat")
        stream.stream.beginWrite()
        stream.stream.endWrite()
        #expect(next(hub, stream.stream) == "nothing")
    }

    @Test("A stream gets the number of members at the beginning and when a member joins or leaves")
    func members() async throws {
        let hub = hub()
        let third = MemberID(stored: "0003")
        let stream = try await open(hub, member)
        await hub.maintain()
        #expect(next(hub, stream.stream, members: nil) == "members 2")
        feed.join(third, room)
        await hub.readChanges()
        #expect(next(hub, stream.stream) == "nothing")
        await hub.maintain()
        #expect(next(hub, stream.stream) == "members 3")
        feed.leave(third)
        await hub.readChanges()
        await hub.maintain()
        #expect(next(hub, stream.stream, members: 3) == "members 2")
    }

    @Test("A stream gets a new title of its room, and its removal")
    func title() async throws {
        let hub = hub()
        let stream = try await open(hub, member)
        await hub.maintain()
        #expect(next(hub, stream.stream) == "nothing")
        feed.setTitle("Tea", of: room)
        await hub.readChanges()
        await hub.maintain()
        #expect(next(hub, stream.stream) == "members 2 Tea")
        feed.setTitle(nil, of: room)
        await hub.readChanges()
        await hub.maintain()
        #expect(next(hub, stream.stream, members: nil) == "members 2")
    }

    @Test("A writer's stream gets each receipt of its last message once; other streams do not")
    func receipts() async throws {
        let hub = hub()
        let (writer, reader) = (try await open(hub, member), try await open(hub, other))
        func told(_ subscription: EventSubscription) -> String { next(hub, subscription.stream) }
        func read(_ count: Int) -> Receipt {
            Receipt(message: 1, reached: 1, fetched: count, readers: [String](repeating: "Bo", count: count))
        }
        feed.setReceipt(Receipt(message: 1, reached: 0, fetched: 0, readers: []), of: member)
        await hub.readChanges()
        await hub.maintain()
        #expect(told(writer) == "nothing", "It has no receipt yet.")
        feed.setReceipt(read(1), of: member)
        await hub.readChanges()
        #expect(told(writer) == "nothing")
        await hub.maintain()
        #expect(told(writer) == "receipt 1 1 1" && told(writer) == "nothing")
        #expect(told(reader) == "nothing")
        feed.setReceipt(read(1), of: member)
        await hub.readChanges()
        await hub.maintain()
        #expect(told(writer) == "nothing", "It has not changed.")
        // No member reads, but pushes of a new message are in progress.
        feed.post("hi", by: other)
        await hub.readChanges()
        feed.setReceipt(read(2), of: member, isRead: false)
        clock.advance(by: .seconds(5))
        await hub.maintain()
        #expect(next(hub, writer.stream, after: 1) == "receipt 1 1 2")
    }

    @Test("Nothing is lost while the store cannot be read")
    func brokenStore() async throws {
        let hub = hub()
        let stream = try await open(hub, member)
        feed.setBroken(true)
        feed.post("one", by: other)
        await hub.readChanges()
        await hub.maintain()
        #expect(feed.failedReads == 4, "messages, positions, members, receipts")
        #expect(stream.stream.end == nil && next(hub, stream.stream, members: nil) == "nothing")
        feed.setBroken(false)
        await hub.maintain()
        #expect(next(hub, stream.stream, members: nil) == "members 2")
        await hub.readChanges()
        #expect(next(hub, stream.stream) == "events [1]")
    }

    @Test(
        "Any number of rooms drop their cached messages after a while; a stream behind them reads from the store"
    )
    func forgets() async throws {
        let hub = hub()
        let stream = try await open(hub, member)
        feed.post("hello", by: member)
        await hub.readChanges()
        await hub.maintain()
        #expect(next(hub, stream.stream) == "events [1]")
        clock.advance(by: .seconds(10))
        await hub.maintain()
        #expect(next(hub, stream.stream) == "behind")
        #expect(next(hub, stream.stream, after: 1) != "behind")
        feed.post("again", by: member)
        await hub.readChanges()
        #expect(next(hub, stream.stream, after: 1) == "events [2]")
    }

    @Test("One write to a stream is bounded unless a single event is larger; the remaining events follow")
    func writes() throws {
        func events(_ length: Int) -> ArraySlice<RoomEvent> {
            (1...100).map { event($0, String(repeating: "x", count: length)) }[...]
        }
        let form = StreamForm(RoomEvents(isWebSocket: false))
        for length in [1, 190, 4000, 20_000] {
            var (rest, count) = (events(length), 0)
            while !rest.isEmpty {
                let write = EventWrite(rest, as: form, for: member)
                let written = rest.prefix(write.count)
                #expect(write.lastMessage == written.last?.id)
                let size = written.reduce(0) { $0 + ($1.bytes(as: form, for: member)?.readableBytes ?? 0) }
                #expect(write.bytes.readableBytes == size)
                #expect(size <= HTTPLimits.streamWrite || written.count == 1)
                count += written.count
                rest = rest.dropFirst(max(written.count, 1))
            }
            #expect(count == 100)
        }
    }

    @Test("A stream whose member left between look-up and opening ends, if no event says why")
    func leftMeanwhile() async throws {
        let hub = hub()
        let position = try await feed.position(of: member)
        feed.leave(member)
        _ = feed.takeRoomChanges()
        let stream = try hub.open(member, at: [StreamStart(position)]) {}
        await hub.maintain()
        #expect(stream.stream.end == nil)
        await hub.maintain()
        #expect(stream.stream.end == .left)
    }

    @Test("The stream of a member that leaves ends at once, before many new streams are checked")
    func leavesAmongMany() async throws {
        let hub = hub(maxStreams: 10_000)
        let many = (0..<5000).map { MemberID(stored: String(100_000 + $0)) }
        for member in many { feed.join(member, room) }
        let position = try await feed.position(of: many[0])
        _ = feed.takeRoomChanges()
        var streams = try many.map { try hub.open($0, at: [StreamStart(position)]) {} }
        let lookups = feed.positionLookups
        feed.leave(many[4000])
        await hub.readChanges()
        #expect(feed.positionLookups == lookups + 1)
        #expect(streams[4000].stream.end == .left)
        #expect(streams.count { $0.stream.end != nil } == 1)
        streams = []
        #expect(hub.count == 0)
    }

    @Test(
        "A message deleted by any process leaves the cache; streams get the deletion even without the message"
    )
    func deletion() async throws {
        let hub = hub()
        let stream = try await open(hub, member)
        for text in ["one", "two", "three"] { feed.post(text, by: other) }
        await hub.readChanges()
        #expect(next(hub, stream.stream) == "events [1, 2, 3]")
        feed.delete(2, in: room)
        await hub.readChanges()
        await stream.stream.wait()
        #expect(next(hub, stream.stream) == "events [1, 3, 4]")
        // A stream that opens now has not received the message.
        let later = try await open(hub, other)
        #expect(next(hub, later.stream) == "events [1, 3, 4]")
        // The hub does not announce deletions by another process. It reads the cached messages again.
        feed.delete(3, in: room, isLocal: false)
        await hub.readChanges()
        #expect(next(hub, later.stream) == "behind")
        #expect(try await hub.older(for: later.stream, after: [0])?.map(\.id) == [1, 4, 5])
    }

    @Test("A removed member that has rejoined keeps its stream; otherwise the stream gives the reason and ends")
    func removals() async throws {
        let hub = hub()
        let (back, gone) = (try await open(hub, member), try await open(hub, other))
        feed.remove(member)
        feed.join(member, room)
        feed.remove(other)
        await hub.readChanges()
        #expect(back.stream.end == nil && gone.stream.end == .removed)
        feed.close(room)
        await hub.readChanges()
        #expect(back.stream.end == .removed)
    }

    @Test("The number of open streams is limited; a stream that ends makes room for another")
    func limit() async throws {
        let hub = hub(maxStreams: 2)
        feed.join(MemberID(stored: "0003"), room)
        var streams = [try await open(hub, member), try await open(hub, other)]
        await #expect(throws: ChatError.self) { try await open(hub, MemberID(stored: "0003")) }
        streams.removeFirst()
        streams.append(try await open(hub, MemberID(stored: "0003")))
        #expect(hub.count == 2)
    }

    @Test("A room caches only its last messages, in a limited space")
    func window() {
        var room = EventRoom(last: 10)
        func events(_ ids: ClosedRange<MessageID>, text: String = "x") -> [RoomEvent] { ids.map { event($0, text) } }
        room.append(events(11...20))
        #expect(room.events(after: 10, limit: 100)?.map(\.id) == Array(11...20))
        #expect(room.events(after: 15, limit: 3)?.map(\.id) == [16, 17, 18])
        #expect(room.events(after: 20, limit: 3)?.isEmpty == true)
        #expect(room.events(after: 9, limit: 3) == nil)
        // Messages that were read twice are kept once.
        room.append(events(18...21))
        #expect(room.events(after: 17, limit: 100)?.map(\.id) == Array(18...21))
        room.append(events(22...1000))
        #expect(room.last == 1000 && room.start == 1000 - 256)
        room.append(events(1001...1100, text: String(repeating: "y", count: 4000)))
        #expect((room.last - room.start) < 40)
        #expect(room.events(after: room.start, limit: 1)?.first?.id == room.start + 1)
    }

    // MARK: - Changes

    @Test("A changed message has its newest form in memory, and only its last change")
    func supersedes() {
        var memory = EventRoom(last: 10)
        memory.append([event(11, "down"), event(12, "other"), change(13, of: 11, "still down")])
        func shown() -> [String] {
            memory.events(after: 10, limit: 100)?.map { "\($0.id) \($0.messageID) \($0.entry.message?.text ?? "-")" }
                ?? []
        }
        #expect(shown() == ["11 11 still down", "12 12 other", "13 11 still down"])
        memory.append([change(14, of: 11, "up"), change(15, of: 3, "earlier than memory")])
        #expect(shown() == ["11 11 up", "12 12 other", "14 11 up", "15 3 earlier than memory"])
        // The store returns entries that were read already again.
        memory.append([change(14, of: 11, "up")])
        #expect(memory.last == 15 && shown().count == 4)
        memory.append([change(16, .deleted, of: 11, nil)])
        #expect(shown() == ["12 12 other", "15 3 earlier than memory", "16 11 -"])
        memory.remove([3, 11])
        #expect(shown() == ["12 12 other", "16 11 -"], "Streams have not written the deletion yet.")
        #expect(memory.start == 10)
    }

    @Test("However often messages change, memory holds one change of each")
    func manyChanges() {
        var memory = EventRoom(last: 0)
        for id in 1...30 { memory.append([event(MessageID(id), "new")]) }
        for id in 31...2000 {
            memory.append([change(MessageID(id), of: MessageID(id % 30 + 1), String(repeating: "y", count: 4000))])
        }
        let events = memory.events(after: memory.start, limit: 1000) ?? []
        #expect(events.reduce(0) { $0 + $1.size } <= 128 * 1024)
        #expect(Set(events.map(\.id)).count == events.count && events.last?.id == 2000)
    }

    @Test("A stream gets a change only of a message that its reader may read")
    func historyOfChanges() async throws {
        let hub = hub()
        feed.setHistoryFrom(5)
        let stream = try await open(hub, member).stream
        let form = StreamForm(RoomEvents(isWebSocket: false))
        let events = [change(11, of: 5, "before"), change(12, of: 6, "after"), change(13, .deleted, of: 4, nil)]
        let write = EventWrite(events, as: form, for: member, mayRead: stream.mayRead)
        let text = String(buffer: write.bytes)
        #expect(text.contains("event: edited\nid: 12\ndata: {\"id\":6,") && !text.contains("before"))
        #expect(!text.contains("deleted") && write.count == 3)
        #expect(write.lastMessage == nil, "A change is not a message that a member can have read.")
    }

    @Test("A change whose message retention has deleted has no event")
    func changeWithoutMessage() {
        let form = StreamForm(RoomEvents(isWebSocket: true))
        let write = EventWrite([change(11, of: 5, nil)], as: form, for: member)
        #expect(write.bytes.readableBytes == 0 && write.count == 1)
    }

    @Test("A format without changes passes over them")
    func withoutChanges() {
        let write = EventWrite([event(1, "a!"), change(2, of: 1, "b!")], as: StreamForm(Loud()), for: member)
        #expect(String(buffer: write.bytes) == "a!\n" && write.count == 2 && write.lastMessage == 1)
    }

    // MARK: - Programs

    private func program(_ hub: EventHub, _ secret: String) throws -> EventSubscription {
        try hub.open(
            MemberID(stored: "token:1"), at: [StreamStart(.room(room), last: 0, start: 0)],
            admission: .program(secret: secret)
        ) { Issue.record("closed") }
    }

    @Test(
        "A program's stream ends when its token is revoked, expires, or may no longer read the room",
        arguments: [(nil, nil), ([.post], nil), ([.read], "hall")] as [(Set<Scope>?, String?)])
    func tokenEnds(scopes: Set<Scope>?, room wanted: String?) async throws {
        let grant = try scopes.map { try AccessGrant(scopes: $0, room: wanted.map(SecretCode.init(stored:))) }
        let hub = hub()
        let (good, other) = try (AccessGrant(scopes: [.read], room: room), AccessGrant(scopes: [.read]))
        tokens.grants.withLock { $0 = ["pct_a": good, "pct_b": other] }
        let (first, second) = (try program(hub, "pct_a"), try program(hub, "pct_b"))
        await hub.maintain()
        #expect(first.stream.end == nil && second.stream.end == nil)
        tokens.grants.withLock { $0["pct_a"] = grant }
        clock.advance(by: .seconds(5))
        await hub.maintain()
        #expect(first.stream.end == .reconnect && second.stream.end == nil)
    }

    @Test("When a member leaves or is removed, the streams of its credentials end before they get another message")
    func credentialEnds() async throws {
        for isRemoved in [false, true] {
            let (ann, bob) = (try Sample.member, MemberID(stored: "bob"))
            feed.join(ann, room)
            feed.join(bob, room)
            try real.member(ann, in: room)
            try real.credential("pcc_a", id: 1)
            let hub = hub()
            let stream = try hub.open(
                ann, at: [StreamStart(.room(room), last: 0, start: 0)], admission: .program(secret: "pcc_a")
            ) { Issue.record("closed") }
            await hub.readChanges()
            #expect(stream.stream.end == nil)
            try real.query("DELETE FROM active_users")
            if isRemoved { feed.remove(ann) } else { feed.leave(ann) }
            feed.post("Without Ann", by: bob)
            await hub.readChanges()
            #expect(stream.stream.end == .reconnect)
        }
    }

    @Test("While tokens cannot be looked up, programs' streams stay open")
    func tokensUnknown() async throws {
        let hub = hub()
        tokens.isBroken.withLock { $0 = true }
        let stream = try program(hub, "pct_a")
        await hub.maintain()
        #expect(stream.stream.end == nil)
    }

    @Test("The hub never looks up whether a program is a member, not even after a write by another process")
    func noMember() async throws {
        let hub = hub()
        tokens.grants.withLock { $0 = ["pct_a": try? AccessGrant(scopes: [.read])].compactMapValues(\.self) }
        let stream = try program(hub, "pct_a")
        feed.post("x", by: other, isLocal: false)
        feed.close(room)
        await hub.readChanges()
        for _ in 0..<3 { await hub.maintain() }
        #expect(stream.stream.end == nil && feed.positionLookups == 0)
    }

    // MARK: - Several rooms

    private let hall = SecretCode(stored: "hall")
    private let guest = MemberID(stored: "0009")

    /// Opens a program's stream of both rooms. The guest writes in the second.
    private func both(_ hub: EventHub, _ secret: String = "pct_a") throws -> EventSubscription {
        feed.join(guest, hall)
        _ = feed.takeRoomChanges()
        return try hub.open(
            .program(token: 1), at: [room, hall].map { StreamStart(.room($0), last: 0, start: 0) },
            admission: .program(secret: secret)
        ) {}
    }

    private func next(_ hub: EventHub, _ stream: EventStream, after: [MessageID]) -> String {
        switch hub.next(for: stream, after: after, summary: nil) {
        case .events(let events): "events \(events.map { "\($0.source.room?.text ?? "topic") \($0.id)" })"
        case .behind(let starts): "behind \(starts)"
        case .nothing: "nothing"
        default: "other"
        }
    }

    @Test("A stream of several rooms gets their messages in the order of their ids, and counts once")
    func severalRooms() async throws {
        let hub = hub(maxStreams: 1)
        let subscription = try both(hub)
        let stream = subscription.stream
        #expect(hub.count == 1)
        feed.post("1", by: guest)
        feed.post("2", by: member)
        feed.post("3", by: guest)
        #expect(next(hub, stream, after: [0, 0]) == "nothing")
        await hub.readChanges()
        await stream.wait()
        #expect(next(hub, stream, after: [0, 0]) == #"events ["hall 1", "kitchen 2", "hall 3"]"#)
        #expect(next(hub, stream, after: [0, 1]) == #"events ["kitchen 2", "hall 3"]"#)
        #expect(next(hub, stream, after: [2, 3]) == "nothing")
    }

    @Test("A stream that is behind in one of its rooms reads them all from the store, in order")
    func severalRoomsBehind() async throws {
        let hub = hub()
        let subscription = try both(hub)
        let stream = subscription.stream
        for number in 1...60 { feed.post("\(number)", by: number.isMultiple(of: 3) ? guest : member) }
        await hub.readChanges()
        for _ in 0..<2 {
            clock.advance(by: .seconds(10))
            await hub.maintain()
        }
        #expect(next(hub, stream, after: [0, 0]) == "behind [59, 60]")
        var (cursors, got) = ([0, 0] as [MessageID], [MessageID]())
        while case .behind(let starts) = hub.next(for: stream, after: cursors, summary: nil) {
            let events = try #require(try await hub.older(for: stream, after: cursors))
            got += events.map(\.id)
            for event in events { cursors[event.source == .room(room) ? 0 : 1] = event.id }
            if events.isEmpty { cursors = zip(cursors, starts).map { max($0, $1) } }
        }
        #expect(got == Array(1...60))
    }

    @Test("A message waits if another room may have an earlier one")
    func severalRoomsOrder() async throws {
        let hub = hub()
        let subscription = try both(hub)
        let stream = subscription.stream
        feed.post("1", by: guest)
        feed.setCompleteTo(1)
        await hub.readChanges()
        #expect(next(hub, stream, after: [0, 0]) == #"events ["hall 1"]"#)
        // The second message is stored, but its room is not yet among the changes.
        feed.post("2", by: guest)
        _ = feed.takeRoomChanges()
        feed.post("3", by: member)
        await hub.readChanges()
        #expect(next(hub, stream, after: [0, 1]) == "nothing")
        #expect(try await hub.older(for: stream, after: [0, 1]) == nil)
        feed.post("4", by: guest)
        feed.setCompleteTo(4)
        await hub.readChanges()
        #expect(next(hub, stream, after: [0, 1]) == #"events ["hall 2", "kitchen 3", "hall 4"]"#)
        #expect(try await hub.older(for: stream, after: [0, 1])?.map(\.id) == [2, 3, 4])
        feed.post("5", by: guest, isLocal: false)
        feed.setCompleteTo(5)
        await hub.readChanges()
        #expect(next(hub, stream, after: [3, 4]) == #"events ["hall 5"]"#)
    }

    @Test("A stream of several rooms waits while one of them cannot be read, so that no message comes too late")
    func severalRoomsBroken() async throws {
        let hub = hub()
        let subscription = try both(hub)
        await hub.readChanges()
        feed.post("1", by: guest)
        feed.setBroken(true)
        await hub.readChanges()
        feed.setBroken(false)
        feed.post("2", by: member)
        #expect(next(hub, subscription.stream, after: [0, 0]) == "nothing")
        await hub.readChanges()
        #expect(next(hub, subscription.stream, after: [0, 0]) == #"events ["hall 1", "kitchen 2"]"#)
    }

    @Test("A stream has at least one room and a limited number of them")
    func roomLimit() {
        let hub = hub()
        for count in [0, HTTPLimits.streamRooms + 1] {
            let rooms = (0..<count).map {
                StreamStart(.room(SecretCode(stored: "\($0)")), last: 0, start: 0)
            }
            #expect(throws: ChatError.self) { () throws in _ = try hub.open(member, at: rooms) {} }
        }
    }

    @Test("The stream of several rooms ends when its token no longer reads one of them")
    func severalRoomsToken() async throws {
        let hub = hub()
        let all = try AccessGrant(scopes: [.read])
        tokens.grants.withLock { $0["pct_a"] = all }
        let subscription = try both(hub)
        await hub.maintain()
        #expect(subscription.stream.end == nil)
        let one = try AccessGrant(scopes: [.read], room: room)
        tokens.grants.withLock { $0["pct_a"] = one }
        clock.advance(by: .seconds(5))
        await hub.maintain()
        #expect(subscription.stream.end == .reconnect)
    }

    // MARK: - Credentials

    @Test(
        "A member's stream in another app ends with the credential, or when the member is elsewhere",
        arguments: [nil, "hall"])
    func credentialEnds(code: String?) async throws {
        let hub = hub()
        try real.member(member, in: room)
        try real.credential("pcc_1", id: 1)
        let subscription = try hub.open(
            member, at: [StreamStart(try await feed.position(of: member))], admission: .program(secret: "pcc_1")
        ) {}
        await hub.maintain()
        clock.advance(by: .seconds(5))
        await hub.maintain()
        #expect(subscription.stream.end == nil)
        try real.query(code.map { "UPDATE active_users SET secret_code = '\($0)'" } ?? "DELETE FROM active_users")
        await hub.maintain()
        #expect(subscription.stream.end == nil, "The hub looks every five seconds.")
        clock.advance(by: .seconds(5))
        await hub.maintain()
        #expect(subscription.stream.end == .reconnect)
    }

    @Test("A credential of a token has the token's rights")
    func tokenCredential() async throws {
        let hub = hub()
        let grant = try AccessGrant(scopes: [.read], room: room)
        try real.add(
            AccessToken(id: 1, name: Nickname(stored: "bot"), grant: grant, createdAt: Sample.time), "pct_bot")
        try real.credential("pcc_1", id: 1, of: .token)
        for (code, end) in [(room, nil), (hall, .reconnect)] as [(SecretCode, EventStream.End?)] {
            try real.query("UPDATE api_tokens SET room = ?", [code.text])
            clock.advance(by: .seconds(5))
            let subscription = try program(hub, "pcc_1")
            await hub.maintain()
            #expect(subscription.stream.end == end)
        }
    }

    @Test("A message counts as fetched by a member, also through another app, but not by a program")
    func handedOut() async throws {
        let hub = hub()
        let app = try hub.open(
            member, at: [StreamStart(try await feed.position(of: member))], admission: .program(secret: "pcc_1")
        ) {}
        hub.handedOut(7, to: app.stream)
        hub.handedOut(8, to: try program(hub, "pct_1").stream)
        #expect(feed.handedOut == [member: 7])
    }

    // MARK: - Topics of UnifiedPush

    private let topic = UnifiedPushTopic("upABCabc012345")

    /// Opens the stream of the topic's owner, in another app of the member.
    private func openTopic(_ hub: EventHub) async throws -> (EventSubscription, UnifiedPushTopic) {
        let topic = try #require(topic)
        try real.query("DELETE FROM active_users")
        try real.member(member, in: room)
        try real.credential("pcc_1", id: 1)
        _ = try await pushes.claim([topic], for: .member(1))
        let subscription = try hub.open(
            member, at: [StreamStart(.topic(topic), last: 0, start: 0)], admission: .program(secret: "pcc_1")
        ) {}
        return (subscription, topic)
    }

    @Test("A topic and a room of the same name have no messages in common")
    func topicAndRoom() async throws {
        let hub = hub()
        let (subscription, topic) = try await openTopic(hub)
        let code = SecretCode(stored: topic.text)
        feed.join(guest, code)
        let ofRoom = try await open(hub, guest)
        _ = try await pushes.post([1], to: topic)
        feed.pushed(to: topic)
        await hub.readChanges()
        #expect(next(hub, subscription.stream, members: nil) == "events [1]")
        #expect(next(hub, ofRoom.stream, members: nil) == "nothing")
        for _ in 1...2 { feed.post("secret", by: guest) }
        await hub.readChanges()
        #expect(next(hub, subscription.stream, after: 1, members: nil) == "nothing")
        #expect(next(hub, ofRoom.stream, members: nil) == "events [1, 2]")
        #expect(subscription.stream.end == nil, "The store still says that the topic belongs to the client.")
    }

    @Test("A topic's stream ends when a room takes its name, or when the topic belongs to its client no longer")
    func topicEnds() async throws {
        for isKnown in [true, false] {
            let hub = hub()
            let (subscription, topic) = try await openTopic(hub)
            await hub.readChanges()
            await hub.maintain()
            #expect(subscription.stream.end == nil)
            try real.member(Sample.member, id: 9, in: SecretCode(stored: topic.text))
            if isKnown {
                feed.join(guest, SecretCode(stored: topic.text))
                await hub.readChanges()
            } else {
                clock.advance(by: .seconds(5))
                await hub.maintain()
            }
            #expect(subscription.stream.end == .reconnect)
            try real.query("DELETE FROM rooms")
            feed.leave(guest)
        }
    }

    // MARK: - Forms

    /// A format that leaves messages out.
    private struct Loud: EventFormat {
        let key = "loud"
        let heartbeatInterval = Duration.seconds(45)
        let contentType = "text/plain"
        let dropsConnection = true
        func includes(_ entry: RoomEntry, in source: StreamSource) -> Bool {
            entry.message?.text.hasSuffix("!") ?? true
        }
        func message(_ message: Message, in source: StreamSource, isOwn: Bool) -> String { message.text + "\n" }
        func opening(from start: MessageID) -> String? { nil }
        func event(_ event: StreamEvent) -> String? { nil }
        func heartbeat() -> String? { nil }
    }

    private func events(_ texts: [String]) -> [RoomEvent] {
        texts.enumerated().map { event(MessageID($0 + 1), $1) }
    }

    private func message(_ id: MessageID, _ text: String) -> Message {
        Message(id: id, sender: other, nickname: "n", content: MessageContent(stored: text), sentAt: Sample.time)
    }

    private func event(_ id: MessageID, _ text: String) -> RoomEvent {
        RoomEvent(.message(message(id, text)), in: .room(room))
    }

    /// - Parameter text: The newest text. `nil` if the message is gone.
    private func change(
        _ id: MessageID, _ kind: MessageChange.Kind = .edited, of message: MessageID, _ text: String?
    ) -> RoomEvent {
        let change = MessageChange(
            id: id, kind: kind, message: message, author: other, revision: 2, time: Sample.time)
        return RoomEvent(.change(change, text.map { self.message(message, $0) }), in: .room(room))
    }

    @Test("A stream passes over the messages that its format leaves out")
    func filter() {
        let form = StreamForm(Loud())
        let write = EventWrite(events(["a", "b!", "c", "d!", "e"]), as: form, for: member)
        #expect(String(buffer: write.bytes) == "b!\nd!\n" && write.lastMessage == 4 && write.count == 5)
        let nothing = EventWrite(events(["a", "c"]), as: form, for: member)
        #expect(nothing.bytes.readableBytes == 0 && nothing.lastMessage == nil && nothing.count == 2)
        #expect(form.heartbeat() == nil && form.dropsConnection)
    }

    @Test("Streams of one form share the bytes of a message; a WebSocket has its own frames")
    func sharedBytes() throws {
        let event = events(["x"])[0]
        let (plain, frames) = (StreamForm(Loud()), StreamForm(Loud(), isWebSocket: true))
        func address(_ form: StreamForm, _ reader: MemberID) -> Int {
            event.bytes(as: form, for: reader)?.withUnsafeReadableBytes { Int(bitPattern: $0.baseAddress) } ?? 0
        }
        #expect(address(plain, member) == address(StreamForm(Loud()), guest))
        #expect(address(plain, member) != address(plain, other), "The sender's own bytes")
        let frame = try #require(event.bytes(as: frames, for: member))
        #expect(Array(frame.readableBytesView) == [0x81, 2] + Array("x\n".utf8))
        #expect(event.size == 1 + 2 + 2 + 4)
    }
}

/// A token store whose grants the test changes. Any call other than a look-up fails the test.
final class FakeTokens: TokenStore {
    let grants = Mutex<[String: AccessGrant]>([:])
    let isBroken = Mutex(false)

    func token(of secret: String) async throws(ChatError) -> AccessToken? {
        if isBroken.withLock({ $0 }) { throw .unavailable(cause: "broken") }
        return grants.withLock { $0[secret] }.map { grant in
            AccessToken(id: 1, name: Nickname(stored: "bot"), grant: grant, createdAt: Sample.time)
        }
    }
    func create(
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?, form: AccessToken.Form
    ) async throws(ChatError) -> (token: AccessToken, secret: String) {
        throw unasked()
    }
    func tokens(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<AccessToken> { throw unasked() }
    func revoke(_ id: Int64, by moderator: Moderator) async throws(ChatError) -> Nickname? { throw unasked() }
    func used(_ id: Int64, from address: String?) { _ = unasked() }

    private func unasked() -> ChatError {
        Issue.record("Unexpected call of the token store")
        return ChatError(.internalError, "not told")
    }
}
