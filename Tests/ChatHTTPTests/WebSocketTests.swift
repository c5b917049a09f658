import ChatDomain
import NIOCore
import NIOSSL
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("GET /events as a WebSocket", .timeLimit(.minutes(1)))
struct WebSocketTests {
    private static let room = SecretCode(stored: "kitchen")
    private static let member = MemberID(stored: String(repeating: "0", count: 40))
    private static let path = "/events?udid=\(member)"

    /// Runs a server whose clock stands still, with a member in a room.
    private static func run(
        certificate: TestCertificate? = nil, _ body: @Sendable (FakeFeed, TestClock, Int) async throws -> Void
    ) async throws {
        let (feed, clock) = (FakeFeed(), TestClock())
        feed.join(member, room)
        var relay = Relay(ScriptedStore(feed: feed))
        relay.clock = clock
        relay.certificate = try certificate.map {
            try ServerCertificate(certificate: $0.certificate, key: $0.key)
        }
        try await relay.listening { port in try await body(feed, clock, port) }
    }

    /// Opens a WebSocket and reads its first event.
    private static func open(
        _ port: Int, headers: String = "", tls: TLSConfiguration? = nil,
        _ body: @Sendable (RawConnection) async throws -> Void
    ) async throws {
        try await RawConnection.open(port: port, tls: tls) { connection in
            try await connection.write(RawConnection.handshake(path, headers: headers))
            let answer = try await connection.answer()
            #expect(answer.status == 101 && answer.headers["upgrade"] == "websocket")
            #expect(answer.headers["connection"]?.lowercased() == "upgrade")
            #expect(answer.headers["sec-websocket-accept"] == RawConnection.accept)
            for name in ["sec-websocket-extensions", "sec-websocket-protocol", "transfer-encoding", "content-length"] {
                #expect(answer.headers[name] == nil, "\(name)")
            }
            #expect(try await connection.message().hasPrefix(#"{"event":"open","id":"#))
            try await body(connection)
        }
    }

    /// Waits for the end of the connection, which must come without another frame.
    private static func closes(_ connection: RawConnection) async throws {
        do {
            let frame = try await connection.frame()
            Issue.record("\(frame)")
        } catch RawConnection.Problem.closed {
        } catch  where error is IOError || error is ChannelError {
            // A reset also counts as closed.
        }
    }

    @Test("Each event is a text frame with the SSE stream's event, id and data; compression is declined")
    func events() async throws {
        try await Self.run { feed, clock, port in
            try await Self.open(port, headers: "Sec-WebSocket-Extensions: permessage-deflate\r\n") { connection in
                await clock.advanceSleepers(by: .seconds(1))
                #expect(try await connection.message() == #"{"event":"room","data":{"members":1}}"#)
                for text in ["one", String(repeating: "2", count: 200), String(repeating: "3", count: 70_000)] {
                    feed.post(text, by: Self.member)
                    let message = try await connection.message()
                    let data =
                        #""name":"n","text":"\#(text)","sent_at":"2026-05-28T20:26:40.000Z","own":true}}"#
                    #expect(message.hasPrefix(#"{"event":"message","id":"#) && message.hasSuffix(data))
                    #expect(try JSONValue(parsing: Array(message.utf8)).object?["event"]?.text == "message")
                }
                feed.delete(1, in: Self.room)
                feed.delete(2, in: Self.room)
                #expect(try await connection.message() == #"{"event":"deleted","id":4,"data":{"id":1}}"#)
                #expect(try await connection.message() == #"{"event":"deleted","id":5,"data":{"id":2}}"#)
                feed.remove(Self.member)
                #expect(try await connection.message() == #"{"event":"left","data":{"reason":"removed"}}"#)
                try await Self.closes(connection)
            }
        }
    }

    @Test("Pings of the client are answered, and what else it sends is discarded")
    func client() async throws {
        try await Self.run { feed, _, port in
            try await Self.open(port) { connection in
                try await connection.send(.text("hello"))
                try await connection.send(.ping("a"))
                #expect(try await connection.frame() == .pong("a"))
                try await connection.send(.init(first: 0x02, payload: [UInt8](repeating: 7, count: 1000)))
                try await connection.send(.ping())
                #expect(try await connection.frame() == .pong())
                try await connection.send(.pong("unasked"))
                feed.post("x", by: Self.member)
                #expect(try await connection.message().contains(#""text":"x""#))
            }
        }
    }

    @Test(
        "A Close frame is answered with its status, and the connection closes and no longer counts",
        arguments: [[], [3, 232], [3, 233, 98, 121, 101]])
    func close(payload: [UInt8]) async throws {
        try await Self.run { _, _, port in
            for _ in 0...HTTPLimits.streamsPerMember {
                try await Self.open(port) { connection in
                    try await connection.send(.close(payload))
                    #expect(try await connection.frame() == .close(Array(payload.prefix(2))))
                    try await Self.closes(connection)
                }
            }
        }
    }

    @Test(
        "A connection closes if its client breaks the protocol or sends too much",
        arguments: [
            (.init(first: 0x81, payload: [1]), false), (.init(first: 0xC1, payload: [1]), true),
            (.init(first: 0x83, payload: [1]), true), (.init(first: 0x8B, payload: [1]), true),
            (.init(first: 0x89, payload: [UInt8](repeating: 0, count: 126)), true),
            (.init(first: 0x82, payload: [UInt8](repeating: 0, count: HTTPLimits.webSocketInput + 1)), true),
        ] as [(RawConnection.Frame, Bool)])
    func badFrames(frame: RawConnection.Frame, isMasked: Bool) async throws {
        try await Self.run { _, _, port in
            try await Self.open(port) { connection in
                // The server may close before it has read everything.
                try? await connection.send(frame, isMasked: isMasked)
                try await Self.closes(connection)
            }
        }
    }

    @Test("The bytes that a client may send are limited, in any number of frames")
    func inputLimit() async throws {
        try await Self.run { _, _, port in
            try await Self.open(port) { connection in
                for _ in 0..<64 {
                    try await connection.send(.init(first: 0x82, payload: [UInt8](repeating: 0, count: 1024)))
                }
                try await connection.send(.ping("still open"))
                #expect(try await connection.frame() == .pong("still open"))
                try await connection.send(.text("x"))
                try await Self.closes(connection)
            }
        }
    }

    @Test("After 45 seconds of silence the client gets a ping, which it must answer within 60 seconds")
    func pings() async throws {
        try await Self.run { feed, clock, port in
            try await Self.open(port) { connection in
                await clock.advanceSleepers(by: .seconds(1))
                #expect(try await connection.message().contains("room"))
                for _ in 1...45 { await clock.advanceSleepers(by: .seconds(1)) }
                #expect(try await connection.frame() == .ping())
                try await connection.send(.pong())
                // The answer to a second ping shows that the server has read the first answer.
                try await connection.send(.ping())
                #expect(try await connection.frame() == .pong())
                for _ in 1...45 { await clock.advanceSleepers(by: .seconds(1)) }
                #expect(try await connection.frame() == .ping())
                for _ in 1...59 { await clock.advanceSleepers(by: .seconds(1)) }
                #expect(try await connection.frame() == .ping(), "A later ping does not extend the time.")
                feed.post("still open", by: Self.member)
                #expect(try await connection.message().contains("still open"))
                for _ in 1...2 { await clock.advanceSleepers(by: .seconds(1)) }
                try await Self.closes(connection)
            }
        }
    }

    @Test("A client that reads nothing is disconnected after 20 seconds, although it sends pings")
    func slow() async throws {
        try await Self.run { feed, clock, port in
            try await Self.open(port) { connection in
                let text = String(repeating: "x", count: 60_000)
                for _ in 1...400 { feed.post(text, by: Self.member) }
                for _ in 1...50 { try await connection.send(.ping("x")) }
                // Once the stream has ended, there is a place for another.
                try await Self.nested(HTTPLimits.streamsPerMember - 1, port) {
                    var seconds = 0
                    while try await Self.status(port) == 429, seconds < 100 {
                        await clock.advanceSleepers(by: .seconds(1))
                        seconds += 1
                    }
                    #expect(20..<100 ~= seconds)
                }
            }
        }
    }

    /// Returns the status of the response to another handshake.
    private static func status(_ port: Int) async throws -> Int {
        try await RawConnection.open(port: port) { connection in
            try await connection.write(RawConnection.handshake(path))
            return try await connection.answer().status
        }
    }

    @Test("A client that closes its side of the connection ends its stream")
    func halfClosed() async throws {
        try await Self.run { _, _, port in
            try await Self.open(port) { connection in
                connection.finish()
                try await Self.closes(connection)
            }
        }
    }

    @Test("When the server stops, WebSockets close without a Close frame", arguments: [true, false])
    func stop(isSecure: Bool) async throws {
        let (opened, continuation) = AsyncStream.makeStream(of: Void.self)
        let (ports, found) = AsyncStream.makeStream(of: Int.self)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                try await Self.run(certificate: isSecure ? TestCertificate() : nil) { _, _, port in
                    found.yield(port)
                    for await _ in opened.prefix(1) {}
                }
            }
            group.addTask {
                var tls = TLSConfiguration.makeClientConfiguration()
                tls.certificateVerification = .none
                tls.applicationProtocols = ["http/1.1"]
                for await port in ports.prefix(1) {
                    try await Self.open(port, tls: isSecure ? tls : nil) { connection in
                        try await connection.send(.ping("a"))
                        #expect(try await connection.frame() == .pong("a"))
                        continuation.yield()
                        try await Self.closes(connection)
                    }
                }
            }
            try await group.waitForAll()
        }
    }

    @Test(
        "A refusal has the status and text of the route",
        arguments: [
            (path, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8", 400, "Sec-WebSocket-Version: must be 13"),
            (path, "Sec-WebSocket-Key: \(RawConnection.key)", "Sec-WebSocket-Key: x", 400, "must be 16 bytes"),
            (path, "Sec-WebSocket-Key: \(RawConnection.key)\r\n", "", 400, "Sec-WebSocket-Key"),
            ("/events", "", "", 400, "Missing udid"),
            ("/events?ticket=1", "", "", 401, "ticket"),
        ])
    func refusals(path: String, part: String, other: String, status: Int, text: String) async throws {
        try await Self.run { _, _, port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(RawConnection.handshake(path).replacing(part, with: other))
                let answer = try await connection.answer()
                #expect(answer.status == status && answer.body.contains(text), "\(answer)")
                try await connection.closed()
            }
        }
    }

    @Test("WebSockets count as streams")
    func limit() async throws {
        try await Self.run { _, _, port in
            try await Self.nested(HTTPLimits.streamsPerMember, port) {
                try await RawConnection.open(port: port) { connection in
                    try await connection.write(RawConnection.handshake(Self.path))
                    let answer = try await connection.answer()
                    #expect(answer.status == 429 && answer.headers["retry-after"] == "30")
                }
            }
        }
    }

    /// Runs `body` while this many WebSockets are open.
    private static func nested(_ count: Int, _ port: Int, _ body: @Sendable () async throws -> Void) async throws {
        if count == 0 { return try await body() }
        try await open(port) { _ in try await nested(count - 1, port, body) }
    }

    @Test(
        "Other requests with Upgrade get an ordinary response",
        arguments: [
            ("HTTP/1.1", "HTTP/1.0"), ("Connection: keep-alive, Upgrade", "Connection: keep-alive"),
            ("Upgrade: WebSocket", "Upgrade: h2c"),
        ])
    func ordinary(part: String, other: String) async throws {
        try await Self.run { _, _, port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(RawConnection.handshake(Self.path).replacing(part, with: other))
                _ = try await connection.text(until: "200 OK", and: "retry: 2000\n")
            }
        }
    }
}
