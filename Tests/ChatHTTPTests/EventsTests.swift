import ChatDomain
import Logging
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("GET /events", .timeLimit(.minutes(1)))
struct EventsTests {
    private static let room = SecretCode(stored: "kitchen")

    private static func member(_ number: Int) -> MemberID {
        MemberID(stored: String(repeating: "0", count: 38) + String(number + 10))
    }

    /// Runs a server whose clock stands still, with two members in a room.
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

    /// Opens a stream and keeps the text that was read from it.
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

    @Test("Each member's stream gets each message once, in order, and marked if it is the member's own")
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
                // A message from another process arrives as well.
                feed.post("three", by: Self.member(2), isLocal: false)
                try await group.waitForAll()
            }
            // The server records the last message that each member received.
            #expect(feed.handedOut.count == 2 && feed.handedOut.values.allSatisfy { $0 >= 2 })
        }
    }

    @Test(
        "A stream continues after the client's last message, from the cache and from the store",
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

    @Test("A stream continues although retention has deleted the messages that it would read from the store")
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

    /// Returns a ticket for a member, requested as the page does.
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

    @Test("A ticket opens one stream instead of the udid, while it is valid")
    func tickets() async throws {
        try await Self.run { feed, clock, port in
            try await RawConnection.open(port: port) { connection in
                let ticket = try await Self.ticket("\(Self.member(1))", connection)
                let late = try await Self.ticket("\(Self.member(1))", connection)
                #expect(ticket.count == 32 && ticket != late)
                // A HEAD request is rejected and does not use up the ticket.
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

    @Test(
        "A stream ends exactly when its session does; a stream without a session continues", arguments: [true, false])
    func sessionEnd(hasTicket: Bool) async throws {
        let (feed, clock) = (FakeFeed(), TestClock())
        let wallTime = WallClock(Sample.time)
        feed.join(Self.member(1), Self.room)
        var relay = Relay(ScriptedStore(feed: feed))
        (relay.clock, relay.sessions) = (clock, OneSession())
        relay.now = wallTime.source
        try await relay.listening { port in
            let session = "Authorization: Bearer good\r\n"
            try await RawConnection.open(port: port) { stream in
                let ticket = hasTicket ? try await Self.ticket("\(Self.member(1))", stream, headers: session) : nil
                try await stream.write(
                    "GET /events?\(ticket.map { "ticket=\($0)" } ?? "udid=\(Self.member(1))") HTTP/1.1\r\n"
                        + "Host: localhost\r\n\(ticket == nil ? session : "")\r\n")
                _ = try await stream.text(until: "retry: 2000\n")
                wallTime.now = OneSession.end - .milliseconds(1)
                await clock.advanceSleepers(by: .seconds(1))
                feed.post("still here", by: Self.member(1))
                _ = try await stream.text(until: "\"still here\"", and: "\n\n")
                wallTime.now = OneSession.end
                await clock.advanceSleepers(by: .seconds(1))
                // The end of a chunked body is an orderly end. The client then reconnects and is rejected.
                #expect(!(try await stream.text(until: "\r\n0\r\n\r\n")).contains("event: left"))
            }
        }
    }

    @Test("A probe's stream describes its request once, and ends two seconds later")
    func probe() async throws {
        let clock = TestClock()
        var relay = Relay(
            settings: ChatHTTPSettings(
                isDevelopment: true, trustedProxies: ["127.0.0.0/8"].compactMap { AddressRange($0) }))
        relay.clock = clock
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(
                    "POST /v1/probes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
                let answer = try await connection.answer()
                #expect(answer.status == 200, "\(answer.body)")
                let ticket = try JSONValue(parsing: Array(answer.body.utf8)).object?["ticket"]?.text ?? ""
                func ask(_ connection: RawConnection) async throws {
                    try await connection.write(
                        "GET /events?ticket=\(ticket) HTTP/1.1\r\nHost: localhost\r\n"
                            + "X-Forwarded-For: 192.0.2.1, 198.51.100.7\r\n\r\n")
                }
                try await RawConnection.open(port: port) { stream in
                    try await ask(stream)
                    let first = try await stream.text(until: "event: probe\n", and: "\n\n")
                    #expect(
                        first.contains(
                            #"{"client":"198.51.100.7","peer":"127.0.0.1","trusted":true,"forwarded":[],"#
                                + #""x_forwarded_for":["192.0.2.1, 198.51.100.7"]}"#), "\(first)")
                    #expect(!first.contains("event: end"))
                    let time = Task {
                        while !Task.isCancelled {
                            clock.advance(by: HTTPLimits.probeTime)
                            try await Task.sleep(for: .milliseconds(5))
                        }
                    }
                    defer { time.cancel() }
                    _ = try await stream.text(until: "event: end\n")
                }
                try await ask(connection)
                #expect(try await connection.answer().status == 401)
            }
        }
    }

    @Test("Only a member of a room gets a ticket", arguments: [("", 400), ("udid=x", 400), ("udid=0", 404)])
    func noTicket(form: String, status: Int) async throws {
        let feed = FakeFeed()
        let stranger = MemberID(stored: String(repeating: "0", count: 40))
        feed.leave(stranger)
        let answer = try await Relay(ScriptedStore(feed: feed)).send(
            .post, "/events/ticket", headers: [.contentType: "application/x-www-form-urlencoded"],
            body: Array((form == "udid=0" ? "udid=\(stranger)" : form).utf8))
        #expect(answer.status.code == status && answer.text.contains("udid"), "\(answer.text)")
    }

    @Test("A udid in a header takes precedence over one in the address")
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

    @Test("Without an id a stream begins with the next message, and gives the id of the last one")
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
        "A stream begins no earlier than the entry of its member",
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

    @Test("A stream begins with the room's title, if it has one")
    func title() async throws {
        try await Self.run { feed, clock, port in
            feed.setTitle("Our kitchen", of: Self.room)
            try await Self.follow(port, 1) { connection in
                await clock.advanceSleepers(by: .seconds(1))
                _ = try await connection.text(
                    until: "event: room\ndata: {\"members\":2,\"title\":\"Our kitchen\"}\n\n")
            }
        }
    }

    @Test("A stream begins with the number of members")
    func members() async throws {
        try await Self.run { feed, clock, port in
            try await Self.follow(port, 1) { connection in
                await clock.advanceSleepers(by: .seconds(1))
                _ = try await connection.text(until: "event: room\ndata: {\"members\":2}\n\n")
            }
        }
    }

    @Test("The stream of a member that leaves or joins another room ends", arguments: [true, false])
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

    @Test(
        "When a room gets a new code, its streams get the code and end; a banned member's stream ends without it",
        arguments: [true, false])
    func newCode(isLocal: Bool) async throws {
        try await Self.run { feed, clock, port in
            try await Self.follow(port, 2) { banned in
                try await Self.follow(port, 1) { connection in
                    feed.recode(
                        Self.room, to: SecretCode(stored: "new \"code"), without: Self.member(2), isLocal: isLocal)
                    // The server looks for changes by other processes once a second.
                    if !isLocal { for _ in 1...3 { await clock.advanceSleepers(by: .seconds(1)) } }
                    _ = try await connection.text(until: "event: code\ndata: {\"code\":\"new \\\"code\"}\n\n")
                    try await connection.closedOrEnded()
                }
                let reason = isLocal ? "{\"reason\":\"removed\"}" : "{}"
                let text = try await banned.text(until: "event: left\ndata: \(reason)\n\n")
                #expect(!text.contains("code"))
            }
            feed.post("after", by: Self.member(1))
            try await Self.follow(port, 1, query: "&since=0") { connection in
                _ = try await connection.text(until: "\"after\"")
            }
        }
    }

    @Test("Streams get a deletion with its number, and later streams do not contain the message")
    func deletion() async throws {
        try await Self.run { feed, _, port in
            try await Self.follow(port, 2) { other in
                for text in ["one", "two", "three"] { feed.post(text, by: Self.member(1)) }
                _ = try await other.text(until: "\"three\"")
                feed.delete(2, in: Self.room)
                let told = try await other.text(until: "event: deleted\n", and: "\n\n")
                #expect(told.hasSuffix("event: deleted\nid: 4\ndata: {\"id\":2}\n\n"))
                try await Self.follow(port, 1, query: "&since=0") { connection in
                    let text = try await connection.text(until: "\"three\"")
                    #expect(text.contains("\"one\"") && !text.contains("\"two\"") && !text.contains("deleted"))
                }
            }
        }
    }

    private static func changed(_ kind: String, _ id: Int, _ text: String) -> String {
        Self.event(1, text, isOwn: false).replacing("event: message\nid: 1\n", with: "event: \(kind)\nid: \(id)\n")
    }

    /// The messages and the position of a client of version 0.5.
    private static func read(_ text: String) -> (messages: [String], last: String?) {
        var (messages, last): ([String], String?) = ([], nil)
        for event in text.split(separator: "\n\n") {
            let lines = event.split(separator: "\n")
            last = lines.first { $0.hasPrefix("id: ") }.map { String($0.dropFirst(4)) } ?? last
            if lines.first == "event: message" { messages.append(event + "\n\n") }
        }
        return (messages, last)
    }

    @Test(
        "A change is an event with another number; a stream that resumes gets the newest state",
        arguments: [true, false])
    func changes(isLocal: Bool) async throws {
        try await Self.run { feed, _, port in
            try await Self.follow(port, 2) { stream in
                func next(_ kind: String) async throws -> String {
                    try await stream.text(until: "event: \(kind)\n", and: "\n\n")
                }
                feed.post("down", by: Self.member(1))
                _ = try await stream.text(until: "\"down\"", and: "\n\n")
                feed.change(.edited, 1, to: "still down", in: Self.room, isLocal: isLocal)
                #expect(try await next("edited").hasSuffix(Self.changed("edited", 2, "still down")))
                feed.change(.cleared, 1, in: Self.room, isLocal: isLocal)
                #expect(try await next("cleared").hasSuffix(Self.changed("cleared", 3, "still down")))
                feed.change(.resolved, 1, to: "up", in: Self.room, isLocal: isLocal)
                #expect(try await next("resolved").hasSuffix(Self.changed("resolved", 4, "up")))
                feed.post("tea", by: Self.member(1))
                _ = try await stream.text(until: "\"tea\"", and: "\n\n")
                feed.change(.deleted, 5, in: Self.room, isLocal: isLocal)
                #expect(try await next("deleted").hasSuffix("event: deleted\nid: 6\ndata: {\"id\":5}\n\n"))
                feed.post("end", by: Self.member(1))
                for (since, first) in [
                    (0, Self.event(1, "up", isOwn: false) + Self.changed("resolved", 4, "up")),
                    (3, Self.changed("resolved", 4, "up")), (5, ""),
                ] {
                    try await Self.follow(port, 2, headers: "Last-Event-ID: \(since)\r\n") { resumed in
                        let text = try await resumed.text(until: "\"end\"", and: "\n\n")
                        #expect(
                            text.hasPrefix(
                                "id: \(since)\n\n\(first)event: deleted\nid: 6\ndata: {\"id\":5}\n\n"
                                    + Self.event(7, "end", isOwn: false)))
                        #expect(!text.contains("down") && !text.contains("tea"))
                    }
                }
            }
            // The number of a change does not count as a message that was read.
            #expect([1, 5, 7].contains(feed.handedOut[Self.member(2)]))
        }
    }

    @Test("A client that ignores events that it does not know reads the same messages as without changes")
    func olderClient() async throws {
        try await Self.run { feed, _, port in
            try await Self.follow(port, 2) { stream in
                feed.post("one", by: Self.member(1))
                feed.change(.edited, 1, to: "uno", in: Self.room)
                feed.post("two", by: Self.member(1))
                feed.change(.resolved, 1, to: "eins", in: Self.room)
                feed.change(.cleared, 3, in: Self.room)
                feed.post("three", by: Self.member(1))
                let (messages, last) = Self.read(try await stream.text(until: "\"three\"", and: "\n\n"))
                #expect(messages.map { $0.contains("\"id\":1,") } == [true, false, false])
                #expect(messages.last == Self.event(6, "three", isOwn: false) && last == "6")
                // It reconnects with the position of the last event of any kind, or of the last message.
                feed.change(.edited, 6, to: "tres", in: Self.room)
                feed.post("four", by: Self.member(1))
                for since in [6, 7] {
                    try await Self.follow(port, 2, headers: "Last-Event-ID: \(since)\r\n") { resumed in
                        let (messages, last) = Self.read(try await resumed.text(until: "\"four\"", and: "\n\n"))
                        #expect(messages == [Self.event(8, "four", isOwn: false)] && last == "8")
                    }
                }
            }
        }
    }

    @Test("A member's stream has no change of a message from before its history")
    func changesBefore() async throws {
        try await Self.run { feed, _, port in
            feed.post("old", by: Self.member(1))
            feed.enterAll()
            try await Self.follow(port, 2) { live in
                feed.post("new", by: Self.member(1))
                feed.change(.edited, 1, to: "secret", in: Self.room)
                feed.change(.edited, 2, to: "newer", in: Self.room)
                feed.change(.deleted, 1, in: Self.room)
                feed.post("end", by: Self.member(1))
                try await Self.follow(port, 1, query: "&since=0") { resumed in
                    try await Self.hasOnlyReadableChanges(resumed)
                }
                try await Self.hasOnlyReadableChanges(live)
            }
        }
    }

    private static func hasOnlyReadableChanges(_ stream: RawConnection) async throws {
        let text = try await stream.text(until: "\"end\"", and: "\n\n")
        #expect(text.contains("event: edited\nid: 4\ndata: {\"id\":2,"))
        #expect(!text.contains("secret") && !text.contains("deleted"))
    }

    @Test("A message is read from the store once for all streams of the room")
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
        "The response to a refused request gives the reason",
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

    @Test("A member has a limited number of streams; streams of disconnected clients do not count")
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
            // The server notices disconnected clients with some delay.
            while try await Self.answer(port).status != 200 {}
        }
    }

    @Test("An address has a limited number of streams for all its members together; loopback has no limit")
    func addressLimit() throws {
        let hub = EventHub(
            stores: ScriptedStore().stores, maxStreams: 10_000, clocks: Clocks(), logger: .silent)
        let start = StreamStart(.room(SecretCode(stored: "room")), last: 0, start: 0)
        func open(_ number: Int, from address: String) throws -> EventSubscription {
            let digits = String(number)
            let member = try MemberID(parsing: String(repeating: "0", count: 40 - digits.count) + digits)
            return try hub.open(member, from: IPAddress(address), at: [start]) {}
        }
        var kept = try (0..<HTTPLimits.streamsPerAddress).map { try open($0, from: "192.0.2.1") }
        let refused = #expect(throws: ChatError.self) { () throws in _ = try open(9000, from: "192.0.2.1") }
        #expect(refused?.code == .tooManyRequests)
        kept.append(try open(9001, from: "192.0.2.2"))
        for number in 1000..<1300 { kept.append(try open(number, from: "127.0.0.1")) }
        // A stream that has ended does not count.
        kept.removeFirst()
        kept.append(try open(9002, from: "192.0.2.1"))
        #expect(hub.count == kept.count)
    }

    // MARK: - Programs

    private static func programs(_ feed: FakeFeed, _ body: @Sendable (Int) async throws -> Void) async throws {
        feed.join(member(1), room)
        let store = ScriptedStore(feed: feed, real: try RealStore(tokens: TokenAccessTests.tokens()))
        var relay = Relay(store, settings: ChatHTTPSettings(adminTokens: ["geheim"]))
        relay.sessions = OneSession()
        try await relay.listening(body)
    }

    @Test(
        "A token with the scope read opens a stream of its room from a message on, without being a member",
        arguments: [
            ("pct_read_kitchen", ""), ("pct_read_kitchen", "room=kitchen"), ("pct_read", "room=kitchen"),
            ("pct_admin", "room=kitchen"),
        ])
    func program(token: String, query: String) async throws {
        let feed = FakeFeed()
        feed.join(Self.member(1), Self.room)
        for number in 1...3 { feed.post("m\(number)", by: Self.member(1)) }
        feed.change(.edited, 1, to: "m1!", in: Self.room)
        try await Self.programs(feed) { port in
            // The change has the number 4, and each round posts a message.
            for (since, first) in [("", 4), ("since=1", 1), ("since=9", 6)] {
                try await RawConnection.open(port: port) { connection in
                    try await connection.write(
                        "GET /events?\(query)&\(since) HTTP/1.1\r\nHost: localhost\r\n"
                            + "Authorization: Bearer \(token)\r\n\r\n")
                    var text = try await connection.text(until: "retry: 2000\n", and: "\n\n")
                    #expect(text.contains("id: \(first)\n"), "\(text)")
                    feed.post("new", by: Self.member(1))
                    text = try await connection.text(until: "\"new\"", and: "\n\n")
                    #expect(text.contains("\"m2\"") == (first == 1) && !text.contains("\"m1\""))
                    #expect(text.contains("event: edited\nid: 4\n") == (first == 1))
                }
            }
        }
        #expect(feed.handedOut.isEmpty && feed.positionLookups == 0)
    }

    @Test(
        "Other tokens, other rooms and the operator's own token open no stream",
        arguments: [
            ("pct_post_kitchen", "room=kitchen", 403), ("pct_read_kitchen", "room=hall", 403), ("pct_read", "", 400),
            ("pct_read", "room=", 400), ("pct_wrong", "room=kitchen", 401), ("geheim", "room=kitchen", 400),
            ("pct_read", "udid=\(member(1))", 401),
        ])
    func programRefused(token: String, query: String, status: Int) async throws {
        try await Self.programs(FakeFeed()) { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(
                    "GET /events?\(query) HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(token)\r\n\r\n")
                #expect(try await connection.answer().status == status)
            }
        }
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

    /// Returns the response to the first member's request, without the events.
    private static func answer(_ port: Int) async throws -> RawConnection.Answer {
        try await RawConnection.open(port: port) { connection in
            try await connection.write("GET /events?udid=\(member(1)) HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return try await connection.answer()
        }
    }
}

/// Counts events from several tasks.
final class Counter: Sendable {
    private let (stream, continuation) = AsyncStream.makeStream(of: Void.self)

    func increase() { continuation.yield() }

    /// Waits for this number of further increments.
    func reach(_ wanted: Int) async {
        for await _ in stream.prefix(wanted) {}
    }
}
