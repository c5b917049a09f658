import ChatDomain
import Synchronization
import Testing

@testable import ChatHTTP

/// Tests the hub without sockets. Nothing runs in the background: the test makes the calls of the service.
@Suite("Event hub", .timeLimit(.minutes(1)))
struct EventHubTests {
    private let room = SecretCode(stored: "kitchen")
    private let member = MemberID(stored: "0001")
    private let other = MemberID(stored: "0002")
    private let feed = FakeFeed()
    private let tokens = FakeTokens()
    private let clients = FakeClients()
    private let clock = TestClock()

    /// Creates a hub with both members in the room.
    private func hub(maxStreams: Int = 10) -> EventHub {
        feed.join(member, room)
        feed.join(other, room)
        _ = feed.takeRoomChanges()
        return EventHub(
            feed: feed, tokens: tokens, clients: clients, maxStreams: maxStreams, clocks: Clocks(monotonic: clock),
            logger: LogRecorder().logger)
    }

    private func open(
        _ hub: EventHub, _ member: MemberID, close: @escaping @Sendable () -> Void = { Issue.record("closed") }
    ) async throws -> EventSubscription {
        try hub.open(member, at: [try await feed.position(of: member)], close: close)
    }

    private func next(_ hub: EventHub, _ stream: EventStream, after: MessageID = 0, members: Int? = 2) -> String {
        switch hub.next(for: stream, after: [after], members: members) {
        case .events(let events): "events \(events.map(\.id))"
        case .behind: "behind"
        case .deleted(let messages): "deleted \(messages)"
        case .receipt(let receipt): "receipt \(receipt.message) \(receipt.reached) \(receipt.fetched)"
        case .members(let count): "members \(count)"
        case .heartbeat: "heartbeat"
        case .nothing: "nothing"
        }
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
        func events(_ length: Int) -> ArraySlice<MessageEvent> {
            (1...100).map { id in
                MessageEvent(
                    Message(
                        id: id, sender: other, nickname: "n", text: String(repeating: "x", count: length),
                        sentAt: Sample.time), in: room)
            }[...]
        }
        let form = StreamForm(RoomEvents(isWebSocket: false))
        for length in [1, 190, 4000, 20_000] {
            var (rest, count) = (events(length), 0)
            while !rest.isEmpty {
                let write = EventWrite(rest, as: form, for: member)
                let written = rest.prefix(write.count)
                #expect(write.last == written.last?.id)
                let size = written.reduce(0) { $0 + $1.bytes(as: form, for: member).readableBytes }
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
        let stream = try hub.open(member, at: [position]) {}
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
        var streams = try many.map { try hub.open($0, at: [position]) {} }
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
        "A message deleted by any process leaves the cache; open streams get the deletion even without the message"
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
        #expect(next(hub, stream.stream) == "deleted [2]")
        #expect(next(hub, stream.stream) == "events [1, 3]")
        // A stream that opens now has not received the message.
        let later = try await open(hub, other)
        #expect(next(hub, later.stream) == "events [1, 3]")
        // The hub does not announce deletions by another process. It reads the cached messages again.
        feed.delete(3, in: room, isLocal: false)
        await hub.readChanges()
        #expect(next(hub, later.stream) == "behind")
        #expect(try await hub.older(for: later.stream, after: [0]).map(\.id) == [1])
    }

    @Test("A stream whose client does not read keeps a limited number of deletions")
    func manyDeletions() async throws {
        let hub = hub()
        let stream = try await open(hub, member)
        for number in 1...300 { feed.delete(MessageID(number), in: room) }
        await hub.readChanges()
        #expect(stream.stream.takeDeleted() == Array(45...300))
        #expect(stream.stream.takeDeleted() == nil)
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
        func events(_ ids: ClosedRange<MessageID>, text: String = "x") -> [MessageEvent] {
            ids.map {
                MessageEvent(
                    Message(id: $0, sender: member, nickname: "n", text: text, sentAt: Timestamp(seconds: 0)),
                    in: self.room)
            }
        }
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

    // MARK: - Programs

    private func program(_ hub: EventHub, _ secret: String) throws -> EventSubscription {
        try hub.open(
            MemberID(stored: "token:1"), at: [RoomPosition(code: room, historyFrom: 0, last: 0)],
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
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?
    ) async throws(ChatError) -> (token: AccessToken, secret: String) {
        throw unasked()
    }
    func tokens(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<AccessToken> { throw unasked() }
    func revoke(_ id: Int64) async throws(ChatError) -> Nickname? { throw unasked() }
    func used(_ id: Int64, from address: String?) { _ = unasked() }

    private func unasked() -> ChatError {
        Issue.record("Unexpected call of the token store")
        return ChatError(.internalError, "not told")
    }
}
