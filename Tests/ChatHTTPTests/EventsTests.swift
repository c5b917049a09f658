import ChatDomain
import Logging
import Testing

@testable import ChatHTTP

@Suite("GET /events", .timeLimit(.minutes(1)))
struct EventsTests {
    private static let room = SecretCode(stored: "kitchen")

    private static func member(_ number: Int) -> MemberID {
        MemberID(stored: String(repeating: "0", count: 38) + String(number + 10))
    }

    /// Two members in a room, and a server whose clock stands still.
    private static func run(
        _ feed: FakeFeed = FakeFeed(), _ body: @Sendable (FakeFeed, TestClock, Int) async throws -> Void
    ) async throws {
        feed.join(member(1), room)
        feed.join(member(2), room)
        let clock = TestClock()
        var relay = Relay(ScriptedStore(feed: feed))
        relay.clock = clock
        try await relay.listening { port in try await body(feed, clock, port) }
    }

    /// A stream that has been opened, with what was read of it so far.
    private static func follow(
        _ port: Int, _ number: Int, query: String = "", headers: String = "",
        _ body: @Sendable (RawConnection) async throws -> Void
    ) async throws {
        try await RawConnection.open(port: port) { connection in
            try await connection.write(
                "GET /events?udid=\(member(number))\(query) HTTP/1.1\r\nHost: localhost\r\n\(headers)\r\n")
            let head = try await connection.text(until: "retry: 2000\n")
            #expect(head.contains("HTTP/1.1 200"))
            #expect(head.lowercased().contains("content-type: text/event-stream"))
            #expect(head.lowercased().contains("x-accel-buffering: no"))
            try await body(connection)
        }
    }

    private static func event(_ id: Int, _ text: String, isOwn: Bool) -> String {
        """
        event: message
        id: \(id)
        data: {"id":\(id),"name":"n","text":"\(text)","sent_at":"2026-05-28T20:26:40.000Z","own":\(isOwn)}


        """
    }

    @Test("Messages come to each member's stream, once, in order, and tell whether they are its own")
    func messages() async throws {
        try await Self.run { feed, _, port in
            let (opened, read) = (Counter(), Counter())
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (number, isOwn) in [(1, true), (2, false)] {
                    group.addTask {
                        try await Self.follow(port, number) { connection in
                            opened.increase()
                            let text = try await connection.text(until: "\"two\"", and: "\n\n")
                            #expect(text.contains(Self.event(1, "one", isOwn: isOwn)))
                            #expect(text.contains(Self.event(2, "two", isOwn: !isOwn)))
                            read.increase()
                            _ = try await connection.text(until: "\"three\"")
                        }
                    }
                }
                await opened.reach(2)
                feed.post("one", by: Self.member(1))
                feed.post("two", by: Self.member(2))
                await read.reach(2)
                // A message that another process has written comes as well.
                feed.post("three", by: Self.member(2), isLocal: false)
                try await group.waitForAll()
            }
            // The store was told what each member has received.
            #expect(feed.handedOut.count == 2 && feed.handedOut.values.allSatisfy { $0 >= 2 })
        }
    }

    @Test(
        "A stream goes on after the client's last message, from memory and from the store",
        arguments: [0, 50, 290, 299])
    func resumption(after: Int) async throws {
        let feed = FakeFeed()
        try await Self.run(feed) { feed, _, port in
            // The other stream keeps the last messages in memory.
            try await Self.follow(port, 2) { other in
                for number in 1...300 { feed.post("m\(number)", by: Self.member(1)) }
                _ = try await other.text(until: "\"m300\"")
                for header in [true, false] {
                    try await Self.follow(
                        port, 1, query: header ? "" : "&since=\(after)",
                        headers: header ? "Last-Event-ID: \(after)\r\n" : ""
                    ) { connection in
                        let text = try await connection.text(until: "\"m300\"")
                        let ids = text.split(separator: "\n").filter { $0.hasPrefix("id: ") }.compactMap {
                            Int($0.dropFirst(4))
                        }
                        #expect(ids == [after] + Array(after + 1...300))
                    }
                }
            }
        }
    }

    @Test("A stream goes on though retention has deleted what it would have to read from the store")
    func deleted() async throws {
        try await Self.run { feed, _, port in
            try await Self.follow(port, 2) { other in
                for number in 1...300 { feed.post("m\(number)", by: Self.member(1)) }
                _ = try await other.text(until: "\"m300\"")
                feed.deleteAll()
                try await Self.follow(port, 1, query: "&since=0") { connection in
                    let text = try await connection.text(until: "\"m300\"")
                    #expect(!text.contains("\"m1\""))
                    feed.post("again", by: Self.member(2))
                    _ = try await connection.text(until: "\"again\"")
                }
            }
        }
    }

    /// A ticket of a member, asked for as the page does it.
    static func ticket(_ udid: String, _ connection: RawConnection, headers: String = "") async throws -> String {
        let form = "udid=\(udid)"
        try await connection.write(
            "POST /events/ticket HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(form.utf8.count)\r\n"
                + "Content-Type: application/x-www-form-urlencoded\r\n\(headers)\r\n\(form)")
        let answer = try await connection.answer()
        #expect(answer.status == 200 && answer.headers["cache-control"] == "no-store")
        let object = try JSONValue(parsing: Array(answer.body.utf8)).object
        #expect(object?["expires_in"]?.integer == 30)
        return object?["ticket"]?.text ?? ""
    }

    @Test("A ticket opens one stream in place of the udid, within its time")
    func tickets() async throws {
        try await Self.run { feed, clock, port in
            try await RawConnection.open(port: port) { connection in
                let ticket = try await Self.ticket("\(Self.member(1))", connection)
                let late = try await Self.ticket("\(Self.member(1))", connection)
                #expect(ticket.count == 32 && ticket != late)
                // Asking for the head alone is answered, and does not use it up.
                try await Self.refuseHead(port, "ticket=\(ticket)")
                try await RawConnection.open(port: port) { stream in
                    try await stream.write("GET /events?ticket=\(ticket) HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    _ = try await stream.text(until: "retry: 2000\n")
                    feed.post("own", by: Self.member(1))
                    #expect(
                        try await stream.text(until: "\"own\"", and: "\n\n").contains(Self.event(1, "own", isOwn: true))
                    )
                }
                clock.advance(by: HTTPLimits.ticketTime)
                for ticket in [ticket, late, "", "0", String(repeating: "0", count: 32), "+" + late.dropFirst()] {
                    try await connection.write("GET /events?ticket=\(ticket) HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    let answer = try await connection.answer()
                    #expect(answer.status == 401 && answer.body.contains("ticket"), "\(ticket)")
                }
            }
        }
    }

    @Test("Only a member of a room is given a ticket", arguments: [("", 400), ("udid=x", 400), ("udid=0", 404)])
    func noTicket(form: String, status: Int) async throws {
        let feed = FakeFeed()
        let stranger = MemberID(stored: String(repeating: "0", count: 40))
        feed.leave(stranger)
        let answer = try await Relay(ScriptedStore(feed: feed)).send(
            .post, "/events/ticket", headers: [.contentType: "application/x-www-form-urlencoded"],
            body: Array((form == "udid=0" ? "udid=\(stranger)" : form).utf8))
        #expect(answer.status.code == status && answer.text.contains("udid"), "\(answer.text)")
    }

    @Test("A stream takes the udid from a header, before the one in the address")
    func udidHeader() async throws {
        try await Self.run { feed, _, port in
            for query in ["", "?udid=\(Self.member(2))"] {
                try await RawConnection.open(port: port) { connection in
                    try await connection.write("GET /events\(query) HTTP/1.1\r\nHost: localhost\r\nX-Udid: x\r\n\r\n")
                    let refused = try await connection.answer()
                    #expect(refused.status == 400 && refused.body.hasPrefix("Invalid X-Udid: must be 32 or 40"))
                    try await connection.write(
                        "GET /events\(query) HTTP/1.1\r\nHost: localhost\r\nX-Udid: \(Self.member(1))\r\n\r\n")
                    _ = try await connection.text(until: "retry: 2000\n")
                    feed.post("hello", by: Self.member(1))
                    #expect(try await connection.text(until: "\"hello\"", and: "\n\n").contains(#""own":true"#))
                }
            }
        }
    }

    @Test("Without an id a stream begins with the next message, and names the last one")
    func fromNow() async throws {
        try await Self.run { feed, _, port in
            feed.post("earlier", by: Self.member(1))
            try await Self.follow(port, 2) { connection in
                feed.post("later", by: Self.member(1))
                let text = try await connection.text(until: "\"later\"")
                #expect(text.hasPrefix("id: 1\n\n") && !text.contains("earlier"))
            }
        }
    }

    @Test(
        "A stream begins no earlier than its member has entered",
        arguments: ["&since=0", "&since=1", "Last-Event-ID: 0\r\n"])
    func noHistory(ask: String) async throws {
        try await Self.run { feed, _, port in
            for number in 1...3 { feed.post("before \(number)", by: Self.member(1)) }
            feed.enterAll()
            feed.post("after", by: Self.member(1))
            let isHeader = ask.hasPrefix("L")
            try await Self.follow(port, 2, query: isHeader ? "" : ask, headers: isHeader ? ask : "") { connection in
                let text = try await connection.text(until: "\"after\"")
                #expect(text.hasPrefix("id: 3\n\n") && !text.contains("before"))
            }
        }
    }

    @Test("The number of members comes at the beginning")
    func members() async throws {
        try await Self.run { feed, clock, port in
            try await Self.follow(port, 1) { connection in
                await clock.advanceSleepers(by: .seconds(1))
                _ = try await connection.text(until: "event: room\ndata: {\"members\":2}\n\n")
            }
        }
    }

    @Test("The stream of a member that leaves, or joins another room, ends", arguments: [true, false])
    func leaving(isLeaving: Bool) async throws {
        try await Self.run { feed, _, port in
            try await Self.follow(port, 1) { connection in
                if isLeaving {
                    feed.leave(Self.member(1))
                } else {
                    feed.join(Self.member(1), SecretCode(stored: "garden"))
                }
                _ = try await connection.text(until: "event: left\ndata: {}\n\n")
                try await connection.closedOrEnded()
            }
        }
    }

    @Test(
        "The stream of a member that is removed, or whose room is closed, ends with the reason",
        arguments: [true, false])
    func removal(isClosing: Bool) async throws {
        try await Self.run { feed, _, port in
            try await Self.follow(port, 1) { connection in
                if isClosing { feed.close(Self.room) } else { feed.remove(Self.member(1)) }
                _ = try await connection.text(until: "event: left\ndata: {\"reason\":\"removed\"}\n\n")
                try await connection.closedOrEnded()
            }
        }
    }

    @Test("A message that is deleted is told to open streams, without an id, and is in none that opens later")
    func deletion() async throws {
        try await Self.run { feed, _, port in
            try await Self.follow(port, 2) { other in
                for text in ["one", "two", "three"] { feed.post(text, by: Self.member(1)) }
                _ = try await other.text(until: "\"three\"")
                feed.delete(2, in: Self.room)
                let told = try await other.text(until: "event: deleted\n", and: "\n\n")
                #expect(told.hasSuffix("event: deleted\ndata: {\"id\":2}\n\n"))
                try await Self.follow(port, 1, query: "&since=0") { connection in
                    let text = try await connection.text(until: "\"three\"")
                    #expect(text.contains("\"one\"") && !text.contains("\"two\"") && !text.contains("deleted"))
                }
            }
        }
    }

    @Test("A message is read once for all streams of the room")
    func readOnce() async throws {
        try await Self.run { feed, _, port in
            try await withThrowingTaskGroup(of: Void.self) { group in
                let opened = Counter()
                for number in 0..<40 {
                    feed.join(Self.member(number + 1), Self.room)
                    group.addTask {
                        try await Self.follow(port, number + 1) { connection in
                            opened.increase()
                            _ = try await connection.text(until: "\"hello\"")
                        }
                    }
                }
                await opened.reach(40)
                feed.post("hello", by: Self.member(1))
                try await group.waitForAll()
            }
            #expect(feed.readMessages == 1)
        }
    }

    @Test(
        "A refused request is told why",
        arguments: [
            ("/events", 400, "Missing udid"), ("/events?udid=12", 400, "Invalid udid"),
            ("/events?udid=ffffffffffffffffffffffffffffffff", 404, "has not joined"),
            ("/events?udid=\(member(1))&since=x", 400, "Invalid since: must be a whole number"),
        ])
    func refusals(path: String, status: Int, text: String) async throws {
        try await Self.run { feed, _, port in
            feed.leave(MemberID(stored: String(repeating: "f", count: 32)))
            try await RawConnection.open(port: port) { connection in
                try await connection.write("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
                let answer = try await connection.answer()
                #expect(answer.status == status && answer.body.contains(text), "\(answer)")
            }
        }
    }

    @Test("A member has a limited number of streams; those whose client has disconnected do not count")
    func limit() async throws {
        try await Self.run { _, _, port in
            try await withThrowingTaskGroup(of: Void.self) { group in
                let opened = Counter()
                let (release, gate) = AsyncStream.makeStream(of: Void.self)
                for _ in 0..<HTTPLimits.streamsPerMember {
                    group.addTask {
                        try await Self.follow(port, 1) { _ in
                            opened.increase()
                            for await _ in release {}
                        }
                    }
                }
                await opened.reach(HTTPLimits.streamsPerMember)
                let refused = try await Self.answer(port)
                #expect(refused.status == 429 && refused.headers["retry-after"] == "30")
                gate.finish()
                try await group.waitForAll()
            }
            // The server notices that the clients have disconnected when it does.
            while try await Self.answer(port).status != 200 {}
        }
    }

    @Test("An address has a limited number of streams, whatever members they are of; this machine has not")
    func addressLimit() throws {
        let hub = EventHub(
            feed: FakeFeed(), maxStreams: 10_000, time: ElapsedTime(ContinuousClock()),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let position = RoomPosition(code: SecretCode(stored: "room"), historyFrom: 0, last: 0)
        func open(_ number: Int, from address: String) throws -> EventSubscription {
            let digits = String(number)
            let member = try MemberID(parsing: String(repeating: "0", count: 40 - digits.count) + digits)
            return try hub.open(member, from: IPAddress(address), at: position) {}
        }
        var kept = try (0..<HTTPLimits.streamsPerAddress).map { try open($0, from: "192.0.2.1") }
        let refused = #expect(throws: ChatError.self) { () throws in _ = try open(9000, from: "192.0.2.1") }
        #expect(refused?.code == .tooManyRequests)
        kept.append(try open(9001, from: "192.0.2.2"))
        for number in 1000..<1300 { kept.append(try open(number, from: "127.0.0.1")) }
        // One that has ended does not count.
        kept.removeFirst()
        kept.append(try open(9002, from: "192.0.2.1"))
        #expect(hub.count == kept.count)
    }

    @Test("A HEAD request opens no stream")
    func headRequest() async throws {
        try await Self.run { _, _, port in
            for _ in 0...HTTPLimits.streamsPerMember {
                try await Self.refuseHead(port, "udid=\(Self.member(1))")
            }
            try await Self.follow(port, 1) { _ in }
        }
    }

    private static func refuseHead(_ port: Int, _ query: String) async throws {
        try await RawConnection.open(port: port) { connection in
            try await connection.write("HEAD /events?\(query) HTTP/1.1\r\nHost: localhost\r\n\r\n")
            let head = try await connection.text(until: "\r\n\r\n")
            #expect(head.contains(" 405 ") && head.lowercased().contains("allow: get\r\n"))
        }
    }

    /// The answer to the first member's request, without the events.
    private static func answer(_ port: Int) async throws -> RawConnection.Answer {
        try await RawConnection.open(port: port) { connection in
            try await connection.write("GET /events?udid=\(member(1)) HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return try await connection.answer()
        }
    }
}

/// The hub without sockets. Nothing runs in the background: the test calls what the service would.
@Suite("Event hub", .timeLimit(.minutes(1)))
struct EventHubTests {
    private let room = SecretCode(stored: "kitchen")
    private let member = MemberID(stored: "0001")
    private let other = MemberID(stored: "0002")
    private let feed = FakeFeed()
    private let clock = TestClock()

    /// Both members are in the room.
    private func hub(maxStreams: Int = 10) -> EventHub {
        feed.join(member, room)
        feed.join(other, room)
        _ = feed.takeRoomChanges()
        return EventHub(
            feed: feed, maxStreams: maxStreams, time: ElapsedTime(clock), logger: LogRecorder().logger)
    }

    private func open(
        _ hub: EventHub, _ member: MemberID, close: @escaping @Sendable () -> Void = { Issue.record("closed") }
    ) async throws -> EventSubscription {
        try hub.open(member, at: try await feed.position(of: member), close: close)
    }

    private func next(_ hub: EventHub, _ stream: EventStream, after: MessageID = 0, members: Int? = 2) -> String {
        switch hub.next(for: stream, after: after, members: members) {
        case .events(let events): "events \(events.map(\.id))"
        case .behind: "behind"
        case .deleted(let messages): "deleted \(messages)"
        case .receipt(let receipt): "receipt \(receipt.message) \(receipt.reached) \(receipt.fetched)"
        case .members(let count): "members \(count)"
        case .heartbeat: "heartbeat"
        case .nothing: "nothing"
        }
    }

    @Test("A connection whose client accepts nothing for 20 seconds is closed; one with nothing to accept is not")
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

    @Test("The members of a room are counted at the beginning and when one joins or leaves")
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

    @Test("A writer's stream is told how far its last message has come: once each time, and nobody else's stream")
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
        #expect(told(writer) == "nothing", "Nothing has become of it yet.")
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
        // Nobody reads, but pushes of a new message are under way.
        feed.post("hi", by: other)
        await hub.readChanges()
        feed.setReceipt(read(2), of: member, isRead: false)
        clock.advance(by: .seconds(5))
        await hub.maintain()
        #expect(next(hub, writer.stream, after: 1) == "receipt 1 1 2")
    }

    @Test("While the store cannot be read nothing is lost")
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
        "Rooms forget what they hold after a while, however many they are; a stream behind that reads it from the store"
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

    @Test("One write to a stream is bounded, unless its one event is larger; the rest is written next")
    func writes() throws {
        func events(_ length: Int) -> ArraySlice<MessageEvent> {
            (1...100).map { id in
                MessageEvent(
                    Message(
                        id: id, sender: other, nickname: "n", text: String(repeating: "x", count: length),
                        sentAt: Sample.time))
            }[...]
        }
        for length in [1, 190, 4000, 20_000] {
            var (rest, count) = (events(length), 0)
            while let (bytes, last) = MessageEvent.write(rest, for: member) {
                let written = rest.prefix { $0.id <= last }
                #expect(bytes.readableBytes <= HTTPLimits.streamWrite || written.count == 1)
                #expect(bytes.readableBytes == written.reduce(0) { $0 + $1.bytes(for: member).readableBytes })
                count += written.count
                rest = rest.dropFirst(written.count)
            }
            #expect(count == 100)
        }
    }

    @Test("A stream whose member has left between the look-up and the opening ends")
    func leftMeanwhile() async throws {
        let hub = hub()
        let position = try await feed.position(of: member)
        feed.leave(member)
        _ = feed.takeRoomChanges()
        let stream = try hub.open(member, at: position) {}
        await hub.maintain()
        #expect(stream.stream.end == .left)
    }

    @Test("The stream of a member that leaves ends at once, before the many that have just opened are checked")
    func leavesAmongMany() async throws {
        let hub = hub(maxStreams: 10_000)
        let many = (0..<5000).map { MemberID(stored: String(100_000 + $0)) }
        for member in many { feed.join(member, room) }
        let position = try await feed.position(of: many[0])
        _ = feed.takeRoomChanges()
        var streams = try many.map { try hub.open($0, at: position) {} }
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
        "A deleted message goes out of memory, whoever deletes it; an open stream that has not had it is told all the same"
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
        // One that opens now has not had it.
        let later = try await open(hub, other)
        #expect(next(hub, later.stream) == "events [1, 3]")
        // What another process deletes is not told; what is kept here is read again.
        feed.delete(3, in: room, isLocal: false)
        await hub.readChanges()
        #expect(next(hub, later.stream) == "behind")
        #expect(try await hub.older(for: later.stream, after: 0).map(\.id) == [1])
    }

    @Test("A stream that nobody reads keeps a limited number of deletions")
    func manyDeletions() async throws {
        let hub = hub()
        let stream = try await open(hub, member)
        for number in 1...300 { feed.delete(MessageID(number), in: room) }
        await hub.readChanges()
        #expect(stream.stream.takeDeleted() == Array(45...300))
        #expect(stream.stream.takeDeleted() == nil)
    }

    @Test("Who is removed and has come back already keeps the stream; who has not is told why it ends")
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

    @Test("There is a limit of open streams; one that ends makes room for another")
    func limit() async throws {
        let hub = hub(maxStreams: 2)
        feed.join(MemberID(stored: "0003"), room)
        var streams = [try await open(hub, member), try await open(hub, other)]
        await #expect(throws: ChatError.self) { try await open(hub, MemberID(stored: "0003")) }
        streams.removeFirst()
        streams.append(try await open(hub, MemberID(stored: "0003")))
        #expect(hub.count == 2)
    }

    @Test("A room keeps its last messages only, in a limited space")
    func window() {
        var room = EventRoom(last: 10)
        func events(_ ids: ClosedRange<MessageID>, text: String = "x") -> [MessageEvent] {
            ids.map {
                MessageEvent(
                    Message(id: $0, sender: member, nickname: "n", text: text, sentAt: Timestamp(seconds: 0)))
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
}

/// Counts what happens in several tasks.
private final class Counter: Sendable {
    private let (stream, continuation) = AsyncStream.makeStream(of: Void.self)

    func increase() { continuation.yield() }

    /// Waits for the next increases, so many of them.
    func reach(_ wanted: Int) async {
        for await _ in stream.prefix(wanted) {}
    }
}
