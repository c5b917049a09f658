import ChatDomain
import Synchronization
import Testing

@testable import ChatHTTP

@Suite("GET /events") struct EventsTests {
    private static let room = SecretCode(stored: "kitchen")

    private static func member(_ number: Int) -> MemberID {
        MemberID(stored: String(repeating: "0", count: 38) + String(number + 10))
    }

    /// Two members in a room, and a server.
    private static func run(
        _ feed: FakeFeed = FakeFeed(), _ body: @Sendable (FakeFeed, Int) async throws -> Void
    ) async throws {
        feed.enter(member(1), room)
        feed.enter(member(2), room)
        try await Relay(ScriptedStore(feed: feed)).listening { port in try await body(feed, port) }
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

    @Test("What is said in the room comes to each member's stream, once, in order, with whose it is")
    func messages() async throws {
        try await Self.run { feed, port in
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
                try await opened.reach(2)
                feed.say("one", by: Self.member(1))
                feed.say("two", by: Self.member(2))
                try await read.reach(2)
                // Another process's message comes as well.
                feed.say("three", by: Self.member(2), isTold: false)
                try await group.waitForAll()
            }
            // It is known how far each has come.
            #expect(feed.fetched.count == 2 && feed.fetched.values.allSatisfy { $0 >= 2 })
        }
    }

    @Test("A stream goes on after what the client has, from memory and from the store", arguments: [0, 50, 290, 299])
    func resumption(after: Int) async throws {
        let feed = FakeFeed()
        try await Self.run(feed) { feed, port in
            // Somebody follows, so that the last messages are in memory.
            try await Self.follow(port, 2) { other in
                for number in 1...300 { feed.say("m\(number)", by: Self.member(1)) }
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

    @Test("Without a place to begin it begins now, and says where that is")
    func fromNow() async throws {
        try await Self.run { feed, port in
            feed.say("earlier", by: Self.member(1))
            try await Self.follow(port, 2) { connection in
                feed.say("later", by: Self.member(1))
                let text = try await connection.text(until: "\"later\"")
                #expect(text.hasPrefix("id: 1\n\n") && !text.contains("earlier"))
            }
        }
    }

    @Test("How many are in the room comes at the beginning and when it changes")
    func members() async throws {
        try await Self.run { feed, port in
            try await Self.follow(port, 1) { connection in
                _ = try await connection.text(until: #"data: {"members":2}"#)
                feed.enter(Self.member(3), Self.room)
                _ = try await connection.text(until: #"data: {"members":3}"#)
                feed.leave(Self.member(3))
                _ = try await connection.text(until: #"data: {"members":2}"#)
            }
        }
    }

    @Test("Who leaves, or goes to another room, hears no more of this one", arguments: [true, false])
    func leaving(isLeaving: Bool) async throws {
        try await Self.run { feed, port in
            try await Self.follow(port, 1) { connection in
                if isLeaving {
                    feed.leave(Self.member(1))
                } else {
                    feed.enter(Self.member(1), SecretCode(stored: "garden"))
                }
                _ = try await connection.text(until: "event: left\ndata: {}\n\n")
                try await connection.closedOrEnded()
            }
        }
    }

    @Test("While the store cannot be read nothing is lost")
    func brokenStore() async throws {
        try await Self.run { feed, port in
            try await Self.follow(port, 1) { connection in
                feed.setBroken(true)
                feed.say("one", by: Self.member(2))
                while feed.failures == 0 { try await Task.sleep(for: .milliseconds(5)) }
                feed.setBroken(false)
                _ = try await connection.text(until: "\"one\"")
            }
        }
    }

    @Test("A message is read once, however many follow")
    func readOnce() async throws {
        try await Self.run { feed, port in
            try await withThrowingTaskGroup(of: Void.self) { group in
                let opened = Counter()
                for number in 0..<40 {
                    feed.enter(Self.member(number + 1), Self.room)
                    group.addTask {
                        try await Self.follow(port, number + 1) { connection in
                            opened.increase()
                            _ = try await connection.text(until: "\"hello\"")
                        }
                    }
                }
                try await opened.reach(40)
                feed.say("hello", by: Self.member(1))
                try await group.waitForAll()
            }
            #expect(feed.read == 1)
        }
    }

    @Test(
        "What is wrong is said",
        arguments: [
            ("/events", 400, "Missing udid"), ("/events?udid=12", 400, "Invalid udid"),
            ("/events?udid=ffffffffffffffffffffffffffffffff", 404, "has not joined"),
            ("/events?udid=\(member(1))&since=x", 400, "Invalid since: must be a whole number"),
        ])
    func refusals(path: String, status: Int, text: String) async throws {
        try await Self.run { _, port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
                let answer = try await connection.answer()
                #expect(answer.status == status && answer.body.contains(text), "\(answer)")
            }
        }
    }

    @Test("One member has so many streams and no more, and those that ended do not count")
    func limit() async throws {
        try await Self.run { _, port in
            for _ in 0..<3 {
                try await withThrowingTaskGroup(of: Void.self) { group in
                    let opened = Counter()
                    let (release, gate) = AsyncStream.makeStream(of: Void.self)
                    for _ in 0..<EventHub.maxStreamsPerMember {
                        group.addTask {
                            try await Self.follow(port, 1) { connection in
                                _ = try await connection.text(until: "\n\n")
                                opened.increase()
                                for await _ in release {}
                            }
                        }
                    }
                    try await opened.reach(EventHub.maxStreamsPerMember)
                    try await RawConnection.open(port: port) { connection in
                        try await connection.write(
                            "GET /events?udid=\(Self.member(1)) HTTP/1.1\r\nHost: localhost\r\n\r\n")
                        let answer = try await connection.answer()
                        #expect(answer.status == 429 && answer.headers["retry-after"] == "30")
                    }
                    gate.finish()
                    try await group.waitForAll()
                }
            }
        }
    }

    @Test("Who takes nothing is cut off, who has nothing to take is not", .timeLimit(.minutes(1)))
    func slow() async throws {
        let feed = FakeFeed()
        feed.enter(Self.member(1), Self.room)
        let hub = EventHub(feed: feed, most: 10, patience: .milliseconds(50), logger: LogRecorder().logger)
        let closed = Counter()
        let place = try await feed.position(of: Self.member(1))
        var tickets = [
            try hub.enter(Self.member(1), place) { closed.increase() },
            try hub.enter(Self.member(1), place) { Issue.record("cut off for nothing") },
        ]
        tickets[0].stream.willWrite()
        let running = Task { try await hub.run() }
        try await closed.reach(1)
        #expect(tickets[0].stream.end == .comeAgain && tickets[1].stream.end == nil)
        #expect(hub.count == 2)
        tickets = []
        #expect(hub.count == 0)
        running.cancel()
        try await running.value
    }

    @Test("Who asks for the head only has opened no stream")
    func head() async throws {
        try await Self.run { _, port in
            for _ in 0...EventHub.maxStreamsPerMember {
                try await RawConnection.open(port: port) { connection in
                    try await connection.write(
                        "HEAD /events?udid=\(Self.member(1)) HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    #expect(try await connection.text(until: "\r\n\r\n").contains("HTTP/1.1 200"))
                }
            }
        }
    }

    @Test("Who has left between the look-up and the stream hears nothing", .timeLimit(.minutes(1)))
    func leftMeanwhile() async throws {
        let feed = FakeFeed()
        feed.enter(Self.member(1), Self.room)
        let hub = EventHub(feed: feed, most: 10, logger: LogRecorder().logger)
        let place = try await feed.position(of: Self.member(1))
        feed.leave(Self.member(1))
        _ = feed.takeRoomChanges()
        let ticket = try hub.enter(Self.member(1), place) {}
        let running = Task { try await hub.run() }
        while ticket.stream.end == nil { await ticket.stream.wait() }
        #expect(ticket.stream.end == .left)
        running.cancel()
        try await running.value
    }

    @Test("Who leaves hears nothing more at once, however many streams have just opened", .timeLimit(.minutes(1)))
    func leavesAmongMany() async throws {
        let feed = FakeFeed()
        let hub = EventHub(feed: feed, most: 10_000, logger: LogRecorder().logger)
        let many = (0..<5000).map { MemberID(stored: String(100_000 + $0)) }
        for member in many { feed.enter(member, Self.room) }
        let place = try await feed.position(of: many[0])
        _ = feed.takeRoomChanges()
        let running = Task { try await hub.run() }
        var tickets = try many.map { try hub.enter($0, place) {} }
        feed.leave(many[4000])
        while tickets[4000].stream.end == nil { await tickets[4000].stream.wait() }
        // Not in its turn, behind those that are looked at one after another because they have just opened.
        #expect(feed.lookups < many.count)
        #expect(tickets[4000].stream.end == .left)
        #expect(tickets.count { $0.stream.end != nil } == 1)
        tickets = []
        #expect(hub.count == 0)
        running.cancel()
        try await running.value
    }

    @Test("No more streams than there may be")
    func most() async throws {
        let feed = FakeFeed()
        let hub = EventHub(feed: feed, most: 2, logger: LogRecorder().logger)
        for number in 1...3 { feed.enter(Self.member(number), Self.room) }
        let place = try await feed.position(of: Self.member(1))
        var tickets = [try hub.enter(Self.member(1), place) {}, try hub.enter(Self.member(2), place) {}]
        #expect(throws: ChatError.self) { try hub.enter(Self.member(3), place) {} }
        tickets.removeFirst()
        tickets.append(try hub.enter(Self.member(3), place) {})
        #expect(hub.count == 2)
    }

    @Test("A room keeps its last messages only, in a bounded space")
    func window() {
        var room = EventRoom(last: 10)
        func events(_ ids: ClosedRange<MessageID>, text: String = "x") -> [MessageEvent] {
            ids.map {
                MessageEvent(
                    Message(
                        id: $0, sender: Self.member(1), nickname: "n", text: text, sentAt: Timestamp(seconds: 0)))
            }
        }
        room.append(events(11...20))
        #expect(room.events(after: 10, limit: 100)?.map(\.id) == Array(11...20))
        #expect(room.events(after: 15, limit: 3)?.map(\.id) == [16, 17, 18])
        #expect(room.events(after: 20, limit: 3)?.isEmpty == true)
        #expect(room.events(after: 9, limit: 3) == nil)
        // What was read twice stands once.
        room.append(events(18...21))
        #expect(room.events(after: 17, limit: 100)?.map(\.id) == Array(18...21))
        room.append(events(22...1000))
        #expect(room.last == 1000 && room.start == 1000 - 256)
        room.append(events(1001...1100, text: String(repeating: "y", count: 4000)))
        #expect((room.last - room.start) < 40)
        #expect(room.events(after: room.start, limit: 1)?.first?.id == room.start + 1)
    }
}

private final class Counter: Sendable {
    private let count = Atomic(0)

    /// Waits until it has come so far.
    func reach(_ wanted: Int) async throws {
        while count.load(ordering: .relaxed) < wanted { try await Task.sleep(for: .milliseconds(5)) }
    }

    func increase() {
        count.add(1, ordering: .relaxed)
    }
}
