import ChatDomain
import HTTPTypes
import NIOCore
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("Gotify's stream", .timeLimit(.minutes(1)))
struct GotifyStreamTests {
    private static let bob = MemberID(stored: "2")

    /// Runs a server whose clock stands still, with Ann and Bob in the kitchen.
    private static func run(
        isAtRoot: Bool = false, _ body: @Sendable (ScriptedStore, FakeFeed, TestClock, Int) async throws -> Void
    ) async throws {
        let (feed, clock) = (FakeFeed(), TestClock())
        feed.join(GotifySample.ann, GotifySample.kitchen)
        feed.join(bob, GotifySample.kitchen)
        let store = try GotifySample.store(feed: feed)
        var relay = try GotifySample.relay(store)
        relay.settings.gotifyAtRoot = isAtRoot
        relay.clock = clock
        try await relay.listening { port in try await body(store, feed, clock, port) }
    }

    private static func open(
        _ port: Int, _ path: String = "/gotify/stream", token: String,
        _ body: @Sendable (RawConnection) async throws -> Void
    ) async throws {
        try await RawConnection.open(port: port) { connection in
            try await connection.write(RawConnection.handshake("\(path)?token=\(token)"))
            #expect(try await connection.answer().status == 101)
            try await body(connection)
        }
    }

    @Test("A member's app gets each new message of its room as one text frame, and has then fetched it")
    func member() async throws {
        try await Self.run { _, feed, clock, port in
            feed.post("before", by: Self.bob)
            try await Self.open(port, token: GotifySample.phone) { connection in
                feed.post("two", by: Self.bob)
                let message = try await connection.message()
                #expect(
                    message
                        == #"{"id":2,"appid":1,"message":"two","title":"n","priority":5,"#
                        + #""date":"2026-05-28T20:26:40.000Z"}"#)
                // There are no other events, and members also get their own messages.
                feed.delete(2, in: GotifySample.kitchen)
                feed.join(MemberID(stored: "3"), GotifySample.kitchen)
                await clock.advanceSleepers(by: .seconds(1))
                feed.post("three", by: GotifySample.ann)
                let third = try await connection.message()
                #expect(third.contains(#""message":"three""#))
                feed.post("four", by: Self.bob)
                let fourth = try await connection.message()
                #expect(fourth.contains(#""id":5,"#))
                #expect((feed.handedOut[GotifySample.ann] ?? 0) >= 3)
                #expect(feed.handedOut[Self.bob] == nil)
            }
        }
    }

    @Test("A token without room gets the messages of several rooms, each with its application's id")
    func severalRooms() async throws {
        try await Self.run { _, feed, _, port in
            let caretaker = MemberID(stored: "4")
            feed.join(caretaker, GotifySample.hall)
            try await Self.open(port, token: "pct_read") { connection in
                feed.post("one", by: Self.bob)
                let first = try await connection.message()
                #expect(first.hasPrefix(#"{"id":1,"appid":1,"message":"one""#))
                feed.post("two", by: caretaker)
                let second = try await connection.message()
                #expect(second.hasPrefix(#"{"id":2,"appid":2,"message":"two""#))
                #expect(feed.handedOut.isEmpty)
            }
            // A token for one room gets only that room's messages.
            try await Self.open(port, token: GotifySample.desktop) { connection in
                feed.post("three", by: caretaker)
                feed.post("four", by: Self.bob)
                var messages = [try await connection.message()]
                while !messages[messages.count - 1].contains("four") { messages.append(try await connection.message()) }
                #expect(messages.allSatisfy { $0.contains(#""appid":1,"#) }, "\(messages)")
            }
        }
    }

    @Test("If there are too many rooms, those with the newest messages come first")
    func manyRooms() async throws {
        try await Self.run { store, feed, _, port in
            feed.join(Self.bob, GotifySample.hall)
            for number in 3...(HTTPLimits.streamRooms + 20) {
                let room = SecretCode(stored: "room \(number)")
                try store.real.room(room)
                feed.join(MemberID(stored: "\(number)"), room)
            }
            let last = HTTPLimits.streamRooms + 20
            let message = Message(
                id: 9, sender: Self.bob, nickname: "n", content: MessageContent(stored: "x"), sentAt: Sample.time)
            try store.real.add(message, to: SecretCode(stored: "room \(last)"))
            try await Self.open(port, token: "pct_read") { connection in
                feed.post("not seen", by: MemberID(stored: "\(last - 1)"))
                feed.post("seen", by: MemberID(stored: "\(last)"))
                let seen = try await connection.message()
                #expect(seen.hasPrefix(#"{"id":2,"appid":\#(last),"message":"seen""#))
            }
        }
    }

    @Test("The connection closes without a Close frame after the credential was revoked")
    func revoked() async throws {
        try await Self.run { store, feed, clock, port in
            try await Self.open(port, token: GotifySample.phone) { connection in
                _ = try await store.clients.revokeCredential(1, of: nil)
                for _ in 0..<6 { await clock.advanceSleepers(by: .seconds(1)) }
                do {
                    let frame = try await connection.frame()
                    Issue.record("\(frame)")
                } catch RawConnection.Problem.closed {
                } catch  where error is IOError || error is ChannelError {
                    // A reset also counts as closed.
                }
            }
        }
    }

    @Test(
        "A page of another site, a request for no WebSocket and a caller without the right are refused",
        arguments: [
            ("pcc_phone", "Origin: http://localhost\r\n", true, 101), ("pcc_phone", "", true, 101),
            ("pcc_phone", "Origin: https://LOCALHOST\r\n", true, 101),
            ("pcc_phone", "Origin: https://example.org\r\n", true, 403),
            ("pcc_phone", "Origin: http://localhost:81\r\n", true, 101), ("pcc_phone", "Origin: null\r\n", true, 403),
            ("pcc_phone", "Origin: http://localhost.example.org:81\r\n", true, 403),
            ("pcc_phone", "Origin: http://localhost:x\r\n", true, 403),
            ("pcc_phone", "", false, 400), ("pct_post", "", true, 403), ("pct_wrong", "", true, 401),
            ("geheim", "", true, 403), ("", "", true, 401),
        ])
    func refused(token: String, headers: String, asks: Bool, status: Int) async throws {
        try await Self.run { _, _, _, port in
            try await RawConnection.open(port: port) { connection in
                let handshake = RawConnection.handshake("/gotify/stream?token=\(token)", headers: headers)
                let plain = "GET /gotify/stream?token=\(token) HTTP/1.1\r\nHost: localhost\r\n\r\n"
                try await connection.write(asks ? handshake : plain)
                let answer = try await connection.answer()
                #expect(answer.status == status)
                if status != 101 { #expect(answer.body.contains(#""errorCode":\#(status)"#), "\(answer.body)") }
            }
        }
    }

    @Test("With the setting, the stream is also at the root")
    func root() async throws {
        try await Self.run(isAtRoot: true) { _, feed, _, port in
            try await Self.open(port, "/stream", token: GotifySample.phone) { connection in
                feed.post("one", by: Self.bob)
                let first = try await connection.message()
                #expect(first.contains(#""message":"one""#))
            }
        }
    }
}
