import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import TestSupport
import Testing

@testable import ChatHTTP
@testable import TestStores

@Suite("UnifiedPush", .timeLimit(.minutes(1)))
struct UnifiedPushTests {
    private static let name = "upABCDabcd0123"
    private static let matrix = "/_matrix/push/v1/notify"

    private static func topic() throws -> UnifiedPushTopic { try #require(UnifiedPushTopic(name)) }

    /// A relay with the credential `pcc_ann` of a member of the room `kitchen`, and `pcc_bob` of one of the hall.
    private static func relay(isOn: Bool = true, atRoot: Bool = false) throws -> (Relay, ScriptedStore) {
        let (feed, real) = (FakeFeed(), try RealStore())
        feed.join(try Sample.member, SecretCode(stored: "kitchen"))
        for (id, member, name, room) in [
            (1, try Sample.member, "ann", "kitchen"), (2, try StoreFixture.member(2), "bob", "hall"),
        ] as [(Int64, MemberID, String, String)] {
            try real.member(member, id: id, name: name, in: SecretCode(stored: room))
            try real.credential("pcc_\(name)", id: id, id)
        }
        let store = ScriptedStore(feed: feed, real: real)
        var settings = ChatHTTPSettings(
            adminTokens: ["geheim"], ntfy: NtfySettings(baseURL: "https://chat.example.org", unifiedPush: isOn))
        settings.ntfyAtRoot = atRoot
        return (Relay(store, settings: settings), store)
    }

    private static func push(
        _ relay: Relay, _ body: [UInt8], to path: String = "/ntfy/\(name)?up=1", _ method: HTTPRequest.Method = .post,
        headers: HTTPFields = [:]
    ) async throws -> TestResponse {
        try await relay.send(method, path, headers: headers, body: body)
    }

    private static func poll(
        _ relay: Relay, _ topics: String = name, by secret: String = "pcc_ann", _ query: String = ""
    ) async throws -> TestResponse {
        try await relay.send(
            .get, "/ntfy/\(topics)/json?poll=1\(query)", headers: [.authorization: "Bearer \(secret)"])
    }

    private static func code(_ answer: TestResponse) throws -> Int64? {
        try JSONValue(parsing: answer.text).object?["code"]?.integer
    }

    @Test("A push to a topic waits for its owner, who subscribes with a credential")
    func delivery() async throws {
        let (relay, store) = try Self.relay()
        let orphan = try await Self.push(relay, [1])
        #expect(orphan.status.code == 507)
        #expect(try Self.code(orphan) == 50701)
        #expect(try await Self.poll(relay).text.isEmpty)
        let binary = try await Self.push(
            relay, [0xFF, 0], headers: [.contentEncoding: "aes128gcm", .authorization: "vapid t=a, k=b"])
        #expect(binary.status == .ok)
        let answer = try #require(try JSONValue(parsing: binary.text).object)
        #expect(answer["id"]?.text == "m00000000001" && answer["topic"]?.text == Self.name)
        #expect(answer["message"]?.text == "/wA=" && answer["encoding"]?.text == "base64")
        let plain = try await Self.push(relay, Array("über\n".utf8), to: "/ntfy/\(Self.name)", .put)
        #expect(try JSONValue(parsing: plain.text).object?["message"]?.text == "über\n")
        let lines = try await Self.poll(relay).text.split(separator: "\n").map { line in
            try JSONValue(parsing: String(line)).object
        }
        #expect(lines.map { $0?["message"]?.text } == ["/wA=", "über\n"])
        #expect(lines.map { $0?["encoding"]?.text } == ["base64", nil])
        #expect(lines.map { $0?["topic"]?.text } == [Self.name, Self.name])
        #expect(try await Self.poll(relay, by: "pcc_ann", "&since=m00000000001").text.contains("über"))
        #expect(try store.real.query("SELECT message_id FROM unifiedpush_messages") == ["2"])
        #expect(try await Self.poll(relay).text.split(separator: "\n").count == 1)
    }

    @Test("Only the owner may subscribe to a topic")
    func owners() async throws {
        let (relay, _) = try Self.relay()
        #expect(try await Self.poll(relay, "\(Self.name),kitchen").status == .ok)
        for answer in [
            try await Self.poll(relay, by: "pcc_bob"), try await Self.poll(relay, by: "geheim"),
            try await relay.send(.get, "/ntfy/\(Self.name)/json?poll=1"),
            try await Self.poll(relay, "upABCDabcd012", by: "pcc_ann"),
        ] {
            #expect(answer.status == .forbidden)
            #expect(try Self.code(answer) == 40301)
        }
    }

    @Test("A room with the name of a topic wins")
    func room() async throws {
        let (relay, store) = try Self.relay()
        try store.real.member(StoreFixture.member(3), id: 3, in: SecretCode(stored: Self.name))
        #expect(try await Self.poll(relay).status == .forbidden)
    }

    @Test("Without a credential, a room's name gets the same answer as an unused name")
    func oracle() async throws {
        let (relay, store) = try Self.relay()
        _ = try await store.real.ports.unifiedPush.claim([Self.topic()], for: .member(1))
        try store.real.member(StoreFixture.member(3), id: 3, in: SecretCode(stored: Self.name))
        func answers(_ name: String) async throws -> [String] {
            let body = Array(
                #"{"notification":{"devices":[{"pushkey":"https://chat.example.org/\#(name)"}]}}"#.utf8)
            return try await [
                Self.push(relay, [1], to: "/ntfy/\(name)"), Self.push(relay, [1], to: "/ntfy/\(name)", .put),
                Self.push(relay, body, to: Self.matrix), relay.send(.get, "/ntfy/\(name)/auth"),
            ].map { "\($0.status.code) \($0.text)" }
        }
        let room = try await answers(Self.name)
        #expect(room == (try await answers("upZZZZzzzz0123")))
        #expect(room.map { $0.prefix(3) } == ["507", "507", "507", "403"])
    }

    @Test("Pushes to topics without a subscriber count as refused calls; other pushes pass")
    func guesses() async throws {
        var (relay, store) = try Self.relay()
        relay.clock = TestClock()
        let burst = HTTPLimits.missingTokens.burst
        _ = try await store.real.ports.unifiedPush.claim([Self.topic()], for: .member(1))
        let statuses = try await relay.requests { send in
            var statuses: [Int] = []
            for number in 1000...1000 + burst {
                statuses.append(try await send(.post, "/ntfy/upZZZZzzzz\(number)", [:], [1]).status.code)
            }
            statuses.append(try await send(.post, "/ntfy/\(Self.name)", [:], [1]).status.code)
            return statuses
        }
        #expect(statuses == Array(repeating: 507, count: burst) + [429, 200])
    }

    @Test("Claims of topics count towards the limit on joins, but not those of the caller's own topics")
    func claims() async throws {
        var (relay, store) = try Self.relay()
        relay.settings.joinRate = RateLimit(perSecond: 0.001, burst: 2)
        relay.clock = TestClock()
        let room = try #require(UnifiedPushTopic("upcomingevents"))
        try store.real.member(StoreFixture.member(3), id: 3, in: SecretCode(stored: room.text))
        let names = ["upAAAAaaaa0001", room.text, "upAAAAaaaa0003", "upAAAAaaaa0001"]
        let statuses = try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                var statuses: [Int] = []
                for name in names {
                    try await connection.write(
                        "GET /ntfy/\(name)/auth HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer pcc_ann\r\n\r\n")
                    statuses.append(try await connection.answer().status)
                }
                return statuses
            }
        }
        #expect(statuses == [200, 403, 429, 200])
    }

    @Test("One request may claim more topics than the burst after a pause, and each of them counts")
    func manyClaims() async throws {
        var (relay, _) = try Self.relay()
        let clock = TestClock()
        relay.settings.joinRate = RateLimit(perSecond: 0.1, burst: 2)
        relay.clock = clock
        let answers = try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                var answers: [String] = []
                for (names, pause) in [("A,B,C", 0), ("D", 19), ("D", 1), ("E,F,G", 19), ("E,F,G", 1)] {
                    clock.advance(by: .seconds(pause))
                    let topics = names.split(separator: ",").map { "upAAAAaaaa000\($0)" }.joined(separator: ",")
                    try await connection.write(
                        "GET /ntfy/\(topics)/auth HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer pcc_ann\r\n\r\n")
                    let answer = try await connection.answer()
                    answers.append("\(answer.status) \(answer.headers["retry-after"] ?? "")")
                }
                return answers
            }
        }
        #expect(answers == ["200 ", "429 1", "200 ", "429 1", "200 "])
    }

    @Test("Without the setting there is no UnifiedPush")
    func off() async throws {
        let (relay, _) = try Self.relay(isOn: false)
        #expect(try await Self.push(relay, [1]).status == .forbidden)
        #expect(try await Self.poll(relay).status == .forbidden)
        for path in ["/ntfy/\(Self.name)?up=1", "/ntfy\(Self.matrix)", Self.matrix] {
            #expect(try await relay.send(.get, path).status == .notFound)
        }
    }

    @Test("Size, rate and total are limited")
    func limits() async throws {
        var (relay, store) = try Self.relay()
        relay.clock = TestClock()
        #expect(try await Self.poll(relay).status == .ok)
        #expect(try await Self.push(relay, [UInt8](repeating: 0, count: 4096)).status == .ok)
        #expect(try Self.code(await Self.push(relay, [UInt8](repeating: 0, count: 4097))) == 41301)
        try store.real.query("UPDATE unifiedpush_messages SET size = \(UnifiedPushLimits.bytesPerOwner)")
        #expect(try Self.code(await Self.push(relay, [1])) == 50701)
        try store.real.query("DELETE FROM unifiedpush_messages")
        let statuses = try await relay.requests { send in
            var statuses: [Int] = []
            for _ in 0..<61 { statuses.append(try await send(.post, "/ntfy/\(Self.name)", [:], [1]).status.code) }
            return statuses
        }
        #expect(statuses.dropLast().allSatisfy { $0 == 200 } && statuses.last == 429)
    }

    @Test("Calls of Matrix count towards the limit of the address before their bodies are read")
    func matrixRate() async throws {
        var (relay, _) = try Self.relay()
        relay.settings.addressRate = RateLimit(perSecond: 1, burst: 1)
        relay.clock = TestClock()
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                for status in [400, 429] {
                    try await connection.write(
                        "POST /ntfy\(Self.matrix) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
                    #expect(try await connection.answer().status == status)
                }
            }
        }
    }

    @Test("Apps find UnifiedPush and the gateway of Matrix, also at the root")
    func discovery() async throws {
        let (relay, _) = try Self.relay(atRoot: true)
        for path in ["/ntfy/\(Self.name)?up=1", "/\(Self.name)?unifiedpush=1"] {
            let answer = try await relay.send(.get, path)
            #expect(answer.text == #"{"unifiedpush":{"version":1}}"#)
        }
        #expect(try await relay.send(.get, "/ntfy/\(Self.name)").status == .notFound)
        for path in [Self.matrix, "/ntfy\(Self.matrix)"] {
            #expect(try await relay.send(.get, path).text == #"{"unifiedpush":{"gateway":"matrix"}}"#)
        }
        #expect(try Self.code(await Self.push(relay, [1], to: "/\(Self.name)?up=1")) == 50701)
    }

    @Test("A server of Matrix pushes through the gateway")
    func gateway() async throws {
        let (relay, store) = try Self.relay()
        #expect(try await Self.poll(relay).status == .ok)
        func notify(_ key: String) -> [UInt8] {
            Array(#"{"notification":{"devices":[{"pushkey":"\#(key)"}]}}"#.utf8)
        }
        let body = notify("https://chat.example.org/\(Self.name)?up=1")
        #expect(try await Self.push(relay, body, to: Self.matrix).text == #"{"rejected":[]}"#)
        let stored = try await store.real.ports.unifiedPush.messages(in: Self.topic(), after: 0, limit: 9)
        #expect(stored.map(\.body) == [body])
        for key in ["https://other.example/\(Self.name)?up=1", "https://chat.example.org/kitchen"] {
            let answer = try await Self.push(relay, notify(key), to: Self.matrix)
            #expect(answer.text == #"{"rejected":["\#(key)"]}"#)
        }
        let orphan = notify("https://chat.example.org/upZZZZzzzz0123")
        #expect(try Self.code(await Self.push(relay, orphan, to: Self.matrix)) == 50701)
        for wrong in ["", "{}", #"{"notification":{"devices":[]}}"#] {
            #expect(try Self.code(await Self.push(relay, Array(wrong.utf8), to: Self.matrix)) == 40019)
        }
    }
}
