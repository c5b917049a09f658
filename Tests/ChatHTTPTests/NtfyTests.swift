import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("ntfy's clients subscribe", .timeLimit(.minutes(1)))
struct NtfyTests {
    private static let kitchen = SecretCode(stored: "kitchen")
    private static let hall = SecretCode(stored: "hall")
    private static let time: Int64 = 1_780_000_000

    /// Two rooms with messages. The credential `pcc_ann` belongs to a member of the kitchen. The member may
    /// read messages after the second.
    private struct Rooms: Sendable {
        let feed = FakeFeed()
        let real: RealStore
        var clients: any ClientStore { real.ports.clients }

        init() throws {
            for (number, room) in [kitchen, hall].enumerated() {
                feed.join(MemberID(stored: String(repeating: "\(number)", count: 40)), room)
            }
            let member = try Sample.member
            feed.join(member, kitchen)
            feed.setHistoryFrom(2)
            real = try RealStore(tokens: TokenAccessTests.tokens())
            try real.member(member, in: kitchen, historyFrom: 2)
            try real.credential("pcc_ann", id: 9)
        }

        func add(
            _ id: MessageID, _ text: String, in room: SecretCode = kitchen, by sender: String = "ab",
            title: String? = nil, link: String? = nil, priority: UInt8? = nil,
            extras: MessageExtras = MessageExtras(), at seconds: Int64 = time
        ) {
            let message = Message(
                id: id, sender: MemberID(stored: sender), nickname: "Bob",
                content: MessageContent(stored: text, title: title, link: link, priority: priority, extras: extras),
                sentAt: Timestamp(seconds: seconds))
            feed.add(message, to: room)
            do { try real.add(message, to: room) } catch { Issue.record(error) }
        }

        func relay(_ settings: ChatHTTPSettings = ChatHTTPSettings(adminTokens: ["geheim"])) throws -> Relay {
            Relay(
                ScriptedStore(post: Sample.receipt, ping: {}, feed: feed, real: real), settings: settings)
        }
    }

    private static func get(
        _ relay: Relay, _ path: String, _ secret: String? = "pct_read", headers: HTTPFields = [:]
    ) async throws -> TestResponse {
        var headers = headers
        if let secret { headers[.authorization] = "Bearer \(secret)" }
        return try await relay.send(.get, path, headers: headers)
    }

    /// The ids in the lines of a poll.
    private static func ids(_ answer: TestResponse) throws -> [Int64] {
        try answer.text.split(separator: "\n").map { line in
            let id = try JSONValue(parsing: String(line)).object?["id"]?.text
            return try #require(id.flatMap(NtfyMessageID.message))
        }
    }

    private static func check(_ answer: TestResponse, _ status: Int, _ code: Int64) throws {
        #expect(answer.status.code == status, "\(answer.text)")
        let json = try #require(try JSONValue(parsing: answer.text).object)
        #expect(json.members.map(\.name) == ["code", "http", "error"])
        #expect(json["code"]?.integer == code && json["http"]?.integer == Int64(status), "\(answer.text)")
        #expect(answer.headers[.wwwAuthenticate] == nil && answer.headers[.accessControlAllowOrigin] == "*")
    }

    // MARK: - Polls

    @Test("A poll returns the messages, the oldest first, in each form")
    func poll() async throws {
        let rooms = try Rooms()
        rooms.add(1, "one \"1\"\nline")
        rooms.add(2, "two", by: "token:3", title: "Backup", link: "https://example.org/x", priority: 5)
        rooms.add(3, "three", in: Self.hall, by: "admin")
        let relay = try rooms.relay()
        let json = [
            #"{"id":"m00000000001","time":1780000000,"event":"message","topic":"kitchen","title":"Bob","message":"one \"1\"\nline"}"#,
            #"{"id":"m00000000002","time":1780000000,"event":"message","topic":"kitchen","title":"Backup","message":"two","click":"https://example.org/x","priority":2}"#,
            #"{"id":"m00000000003","time":1780000000,"event":"message","topic":"hall","message":"three"}"#,
        ]
        for (form, type, text) in [
            ("json", "application/x-ndjson; charset=utf-8", json.map { $0 + "\n" }.joined()),
            ("sse", "text/event-stream; charset=utf-8", json.map { "data: \($0)\n\n" }.joined()),
            ("raw", "text/plain; charset=utf-8", "one \"1\" line\ntwo\nthree\n"),
        ] {
            let answer = try await Self.get(relay, "/ntfy/kitchen,hall/\(form)?poll=1")
            #expect(answer.status == .ok && answer.headers[.contentType] == type)
            #expect(answer.text == text)
            #expect(answer.headers[.accessControlAllowOrigin] == "*")
        }
        #expect(try await Self.get(relay, "/ntfy/empty/json?poll=1", "geheim").text.isEmpty)
    }

    @Test("A message is one line in each form, also for clients that end lines at other characters")
    func lines() async throws {
        let rooms = try Rooms()
        let words = "one\r\ntwo\nthree\rfour\u{2028}five\u{2029}six"
        rooms.add(1, words, by: "token:1", title: "a\u{2028}b")
        let relay = try rooms.relay()
        let raw = try await Self.get(relay, "/ntfy/kitchen/raw?poll=1").text
        #expect(raw == "one two three four five six\n")
        for form in ["json", "sse"] {
            let text = try await Self.get(relay, "/ntfy/kitchen/\(form)?poll=1").text
            let lines = text.split(whereSeparator: \.isNewline)
            let line = try #require(lines.first)
            #expect(lines.count == 1)
            let json = try JSONValue(parsing: String(line.trimmingPrefix("data: "))).object
            #expect(json?["message"]?.text == words && json?["title"]?.text == "a\u{2028}b")
        }
    }

    @Test("A member's credential reads its room only, from its history on, and counts as fetched")
    func member() async throws {
        let rooms = try Rooms()
        for id in 1...4 { rooms.add(MessageID(id), "m\(id)", in: id == 3 ? Self.hall : Self.kitchen) }
        let relay = try rooms.relay()
        #expect(try Self.ids(await Self.get(relay, "/ntfy/kitchen/json?poll=1", "pcc_ann")) == [4])
        #expect(rooms.feed.handedOut[try Sample.member] == 4)
        for path in ["hall", "kitchen,hall", "none"] {
            let answer = try await Self.get(relay, "/ntfy/\(path)/json?poll=1", "pcc_ann")
            try Self.check(answer, 403, 40301)
        }
    }

    @Test(
        "A poll begins after an id or at a time",
        arguments: [
            ("all", [1, 2, 4, 5]), ("", [1, 2, 4, 5]), ("none", []), ("latest", [5]), ("m00000000002", [4, 5]),
            ("m00000000003", [4, 5]), ("m00000000005", []), ("m00000000006", [1, 2, 4, 5]),
            ("abcdefghijkl", [1, 2, 4, 5]), ("123456789012", [1, 2, 4, 5]), ("1780000020", [2, 4, 5]),
            ("1780000021", [4, 5]), ("10m", [1, 2, 4, 5]), ("0", [1, 2, 4, 5]), ("-5", [1, 2, 4, 5]),
            ("99999999999999", []),
        ] as [(String, [Int64])])
    func since(text: String, expected: [Int64]) async throws {
        let rooms = try Rooms()
        for (id, seconds) in [(1, 10), (2, 20), (4, 25), (5, 50)] as [(MessageID, Int64)] {
            rooms.add(id, "m", at: Self.time + seconds)
        }
        var relay = try rooms.relay()
        relay.now = { Timestamp(seconds: Self.time + 60) }
        for name in ["since", "si", "x-since"] {
            let answer = try await Self.get(relay, "/ntfy/kitchen/json?po=yes&\(name)=\(text)")
            #expect(try Self.ids(answer) == expected)
        }
        let field = try #require(HTTPField.Name("Since"))
        let poll = try #require(HTTPField.Name("X-Poll"))
        let answer = try await Self.get(relay, "/ntfy/kitchen/json?since=none", headers: [field: text, poll: "TRUE"])
        #expect(try Self.ids(answer) == (text.isEmpty ? [] : expected))
    }

    @Test("Several topics: the newest of each, and one order by id")
    func several() async throws {
        let rooms = try Rooms()
        for id in 1...120 { rooms.add(MessageID(id), "m", in: id % 3 == 0 ? Self.hall : Self.kitchen) }
        let relay = try rooms.relay()
        #expect(try Self.ids(await Self.get(relay, "/ntfy/kitchen,hall/json?poll=1")) == Array(1...120))
        #expect(try Self.ids(await Self.get(relay, "/ntfy/hall,kitchen/json?poll=1&since=latest")) == [119, 120])
        #expect(
            try Self.ids(await Self.get(relay, "/ntfy/hall,kitchen/json?poll=1&since=m00000000100"))
                == Array(101...120))
        // A room under two names is one room.
        let alias = try await rooms.clients.alias(of: Self.hall).text
        let answer = try await Self.get(relay, "/ntfy/\(alias),hall/json?poll=1&since=m00000000117")
        #expect(answer.text.contains(#""topic":"\#(alias)""#) && answer.text.split(separator: "\n").count == 1)
    }

    @Test("From a time on a poll has at most 1,000 messages, but all after an id")
    func capped() async throws {
        let rooms = try Rooms()
        for id in 1...1100 { rooms.add(MessageID(id), "m", in: id % 2 == 0 ? Self.hall : Self.kitchen) }
        let relay = try rooms.relay()
        for since in ["all", "1780000000", "nevernevernv"] {
            let answer = try await Self.get(relay, "/ntfy/kitchen,hall/json?poll=1&since=\(since)")
            #expect(try Self.ids(answer) == Array(101...1100))
        }
        let answer = try await Self.get(relay, "/ntfy/kitchen,hall/json?poll=1&since=m00000000010")
        #expect(try Self.ids(answer) == Array(11...1100))
    }

    @Test("With an upstream server, a poll of an alias is recorded", arguments: [true, false])
    func recordedPolls(hasUpstream: Bool) async throws {
        let rooms = try Rooms()
        let alias = try await rooms.clients.alias(of: Self.kitchen).text
        _ = try await rooms.clients.alias(of: Self.hall)
        var settings = ChatHTTPSettings(adminTokens: ["geheim"])
        settings.ntfy.hasUpstream = hasUpstream
        let relay = try rooms.relay(settings)
        let polled = "SELECT secret_code FROM polled_rooms JOIN rooms USING (room_id)"
        for topic in ["kitchen", "hall"] { _ = try await Self.get(relay, "/ntfy/\(topic)/json?poll=1") }
        #expect(try rooms.real.query(polled) == [])
        _ = try await Self.get(relay, "/ntfy/\(alias)/json?poll=1")
        #expect(try rooms.real.query(polled) == (hasUpstream ? ["kitchen"] : []))
    }

    @Test(
        "Filters choose messages",
        arguments: [
            ("id=m00000000002", [2]), ("X-ID=m00000000009", []), ("message=two", [2]), ("m=tw", []),
            ("title=Bob", [1]), ("t=Backup", [2]), ("priority=3", [1]), ("p=high,DEFAULT", [1, 2]), ("prio=4", [2]),
            ("prio=5", []),
            ("tags=", [1, 2]), ("ta=skull", [2]), ("tags=b,skull", [2]), ("tags=skull,c", []), ("scheduled=0", [1, 2]),
            ("id=m00000000002&t=Bob", []),
        ] as [(String, [Int64])])
    func filters(query: String, expected: [Int64]) async throws {
        let rooms = try Rooms()
        rooms.add(1, "one")
        let extras = try MessageExtras(tags: ["skull", "b"], markdown: true, icon: "https://example.org/i.png")
        rooms.add(2, "two", by: "admin", title: "Backup", priority: 10, extras: extras)
        let answer = try await Self.get(rooms.relay(), "/ntfy/kitchen/json?poll=1&\(query)")
        #expect(try Self.ids(answer) == expected)
        #expect(
            !expected.contains(2)
                || answer.text.contains(
                    #""message":"two","icon":"https://example.org/i.png","content_type":"text/markdown","priority":4,"#
                        + #""tags":["skull","b"]}"#)
        )
    }

    @Test(
        "Durations have Go's form",
        arguments: [
            ("10m", 600), ("1h30m", 5400), ("-1.5h", -5400), ("100ms", 0.1), ("+2s", 2), (".5m", 30), ("1µs", 0),
            ("5", nil), ("", nil), ("m", nil), ("1d", nil), ("1h ", nil), ("1.2.3s", nil), ("-", nil), (".s", nil),
            ("99999999999h", nil), ("1e5s", nil),
        ] as [(String, Double?)])
    func durations(text: String, seconds: Double?) {
        #expect(NtfySince.duration(text) == seconds.map { .milliseconds(Int64($0 * 1000)) })
    }

    @Test("An id has 12 characters and does not look like a number")
    func ids() {
        #expect(NtfyMessageID.text(7) == "m00000000007" && NtfyMessageID.message("m00000000007") == 7)
        for wrong in ["7", "m7", "00000000007", "n00000000007", "m0000000000x", "", "m-0000000007"] {
            #expect(NtfyMessageID.message(wrong) == nil)
        }
        #expect(NtfyMessageID.isID(NtfyMessageID.random()) && NtfyMessageID.message(NtfyMessageID.random()) == nil)
    }

    // MARK: - Topics and credentials

    @Test("Forbidden and unknown topics get the same response", arguments: ["pcc_ann", "pct_read_kitchen"])
    func indistinguishable(secret: String) async throws {
        let rooms = try Rooms()
        rooms.add(1, "secret", in: Self.hall)
        let alias = try await rooms.clients.alias(of: Self.hall).text
        let relay = try rooms.relay()
        var answers: Set<String> = []
        for topic in ["hall", "nothing", alias, "alias-of-room-number-7", "kitchen,hall", "hall,kitchen", "kitchen,x"] {
            for call in ["auth", "json?poll=1", "json", "sse", "raw", "ws", "json?poll=1&since=x"] {
                let answer = try await Self.get(relay, "/ntfy/\(topic)/\(call)", secret)
                try Self.check(answer, 403, 40301)
                answers.insert(answer.text)
            }
        }
        #expect(answers.count == 1)
        let own = try await rooms.clients.alias(of: Self.kitchen).text
        for topic in ["kitchen", own, "\(own),kitchen", "kitchen%2Ckitchen"] {
            let answer = try await Self.get(relay, "/ntfy/\(topic)/auth", secret)
            #expect(answer.status == .ok && answer.text == #"{"success":true}"#)
        }
    }

    @Test(
        "Errors have ntfy's codes",
        arguments: [
            ("/ntfy/kitchen/auth", nil, 403, 40301), ("/ntfy/kitchen/json", "", 403, 40301),
            ("/ntfy/kitchen/json", "pct_wrong", 401, 40101), ("/ntfy/kitchen/auth", "pcc_wrong", 401, 40101),
            ("/ntfy/kitchen/auth", "other", 401, 40101), ("/ntfy/kitchen/auth", "pct_post", 403, 40301),
            ("/ntfy/kitchen/json?since=soon", "pct_read", 400, 40008),
            ("/ntfy/kitchen/json?priority=9", "pct_read", 400, 40007), ("/ntfy/v1/json", "pct_read", 400, 40009),
            ("/ntfy/a,v1/auth", "pct_read", 400, 40009), ("/ntfy/kitchen/ws", "pct_read", 400, 40016),
            ("/ntfy/kitchen/ws?poll=1", "pct_read", 400, 40016),
            ("/ntfy/\((1...21).map { "t\($0)" }.joined(separator: ","))/auth", "pct_read", 400, 40009),
            ("/ntfy/a,,b/auth", "pct_read", 404, 40401), ("/ntfy/a,%20b/json", "pct_read", 404, 40401),
            ("/ntfy/k%C3%BCche/json", "pct_read", 404, 40401), ("/ntfy/kitchen/xml", "pct_read", 404, 40401),
            ("/ntfy/\(String(repeating: "t", count: 65))/auth", "pct_read", 404, 40401),
            ("/ntfy/kitchen/json/x", "pct_read", 404, 40401), ("/ntfy/kitchen/json", "geheim", 403, 40301),
            ("/ntfy/kitchen/publish?delay=tomorrow,%203pm", "pct_post", 400, 40004),
            ("/ntfy/kitchen/publish?at=1780000009", "pct_post", 400, 40005),
            ("/ntfy/kitchen/publish?in=31d", "pct_post", 400, 40006),
            ("/ntfy/kitchen/publish?priority=x", "pct_post", 400, 40007),
            ("/ntfy/v1/publish", "pct_post", 400, 40010), ("/ntfy/kitchen/publish", nil, 403, 40301),
        ] as [(String, String?, Int, Int64)])
    func errors(path: String, secret: String?, status: Int, code: Int64) async throws {
        try Self.check(await Self.get(Rooms().relay(), path, secret), status, code)
    }

    /// The user of an app has a password of a room, and no access to the relay's configuration.
    @Test(
        "A wrong password of an app is not answered with words about the operator's settings",
        arguments: [
            ("/ntfy/kitchen/auth", nil), ("/ntfy/kitchen/auth", "other"), ("/ntfy/kitchen/json", "pcc_wrong"),
            ("/ntfy/v1/account", "other"), ("/gotify/message", nil), ("/gotify/message?token=other", nil),
        ] as [(String, String?)])
    func wrongPassword(path: String, secret: String?) async throws {
        let answer = try await Self.get(Rooms().relay(), path, secret)
        #expect([401, 403].contains(answer.status.code))
        #expect(!answer.text.contains("admin.token") && answer.text.localizedCaseInsensitiveContains("token"))
    }

    @Test("Another scheme counts as no credential")
    func schemes() async throws {
        let relay = try Rooms().relay()
        for value in ["vapid t=a, k=b", "WebPush x", "Digest y"] {
            let answer = try await Self.get(relay, "/ntfy/kitchen/auth", nil, headers: [.authorization: value])
            try Self.check(answer, 403, 40301)
        }
    }

    @Test("An address with a slash at the end works, because ntfy's app does not remove it")
    func slashes() async throws {
        #expect(try await Self.get(Rooms().relay(), "/ntfy//kitchen/auth").status == .ok)
    }

    @Test("Polls count towards the limits of the address and of the member")
    func rates() async throws {
        var settings = ChatHTTPSettings(adminTokens: ["geheim"])
        settings.memberRate = RateLimit(perSecond: 0.001, burst: 2)
        try await Rooms().relay(settings).requests { send in
            func status() async throws -> TestResponse {
                try await send(.get, "/ntfy/kitchen/json?poll=1", [.authorization: "Bearer pcc_ann"], nil)
            }
            for _ in 0..<2 { #expect(try await status().status == .ok) }
            try Self.check(await status(), 429, 42901)
            for number in 0..<40 {
                let headers: HTTPFields = [.authorization: "Bearer pcc_wrong"]
                let answer = try await send(.get, "/ntfy/kitchen/auth", headers, nil)
                if number == 39 { try Self.check(answer, 429, 42909) }
            }
        }
    }

    @Test("A member's credential posts as the member")
    func posts() async throws {
        let relay = try Rooms().relay()
        let answer = try await relay.send(
            .post, "/ntfy/kitchen?title=T", headers: [.authorization: "Bearer pcc_ann"], body: Array("hi".utf8))
        #expect(answer.status == .ok && answer.text.contains(#""id":"m00000000007""#), "\(answer.text)")
        guard case .post(let request)? = relay.store.calls.first else { throw RawConnection.Problem.closed }
        #expect(try request.member == Sample.member && request.program == nil && request.content.text.text == "T\nhi")
        let refused = try await relay.send(
            .post, "/ntfy/hall", headers: [.authorization: "Bearer pcc_ann"], body: Array("hi".utf8))
        try Self.check(refused, 403, 40301)
        // The alias also names the room.
        let alias = try await relay.store.clients.alias(of: Self.kitchen).text
        let aliased = try await relay.send(
            .put, "/ntfy/\(alias)", headers: [.authorization: "Bearer pct_post_kitchen"], body: Array("hi".utf8))
        #expect(aliased.status == .ok && aliased.text.contains(#""topic":"\#(alias)""#))
    }

    // MARK: - The account

    private static func basic(_ text: String) -> String { "Basic " + Data(text.utf8).base64EncodedString() }

    @Test(
        "The account has the name that the client sent",
        arguments: [
            (nil, "*", "anonymous"), (basic("ann:pcc_ann"), "ann", "user"), (basic(":pct_read"), "cron2", "user"),
            ("Bearer pct_post", "cron1", "user"), ("Bearer pcc_ann", "phone", "user"),
            ("Bearer geheim", "admin", "user"),
            ("vapid t=x", "*", "anonymous"),
        ] as [(String?, String, String)])
    func account(header: String?, name: String, role: String) async throws {
        var headers: HTTPFields = [:]
        if let header { headers[.authorization] = header }
        let answer = try await Self.get(Rooms().relay(), "/ntfy/v1/account", nil, headers: headers)
        let json = try #require(try JSONValue(parsing: answer.text).object)
        #expect(answer.status == .ok && json["username"]?.text == name && json["role"]?.text == role)
        let stats = [
            "messages", "messages_remaining", "emails", "emails_remaining", "calls", "calls_remaining", "reservations",
            "reservations_remaining", "attachment_total_size", "attachment_total_size_remaining",
        ]
        #expect(json["stats"]?.object?.members.map(\.name) == stats)
        #expect(json["limits"]?.object?["attachment_bandwidth"]?.integer == 0)
    }

    @Test("A wrong credential has no account")
    func noAccount() async throws {
        try Self.check(await Self.get(Rooms().relay(), "/ntfy/v1/account", "pct_wrong"), 401, 40101)
    }

    @Test("An account's token has the same rights", arguments: ["pcc_ann", "pct_post_kitchen", "pct_read"])
    func token(secret: String) async throws {
        let rooms = try Rooms()
        let relay = try rooms.relay()
        let headers: HTTPFields = [.authorization: Self.basic("ann:" + secret), .contentType: "application/json"]
        let body = #"{"label":"Home Assistant","expires":0}"#
        let answer = try await relay.send(.post, "/ntfy/v1/account/token", headers: headers, body: Array(body.utf8))
        let json = try #require(try JSONValue(parsing: answer.text).object)
        #expect(answer.status == .ok && json["last_access"]?.integer == Self.time, "\(answer.text)")
        let made = try #require(json["token"]?.text)
        #expect(made != secret && made.hasPrefix(Credential.prefix))
        let credential = try #require(try await rooms.clients.credential(of: made))
        #expect(credential.name.text == "Home Assistant")
        switch (credential.owner, secret) {
        case (.member(let member), "pcc_ann"): #expect(try member.member == Sample.member)
        case (.token(let token), _): #expect(try token == TokenAccessTests.tokens()[secret])
        default: Issue.record("wrong owner")
        }
    }

    @Test("Without a label a token has a name, and the administrator gets the same token back")
    func tokenNames() async throws {
        let relay = try Rooms().relay()
        for (body, name) in [("", "phone"), (#"{"label":null}"#, "phone"), (#"{"label":"a: b"}"#, "phone")] {
            let answer = try await relay.send(
                .post, "/ntfy/v1/account/token", headers: [.authorization: "Bearer pcc_ann"], body: Array(body.utf8))
            #expect(try JSONValue(parsing: answer.text).object?["label"]?.text == name)
        }
        let admin = try await relay.send(
            .post, "/ntfy/v1/account/token", headers: [.authorization: "Bearer geheim"], body: [])
        #expect(try JSONValue(parsing: admin.text).object?["token"]?.text == "geheim")
        try Self.check(await relay.send(.post, "/ntfy/v1/account/token", body: []), 403, 40301)
        let bad = try await relay.send(
            .post, "/ntfy/v1/account/token", headers: [.authorization: "Bearer pcc_ann"], body: Array("x".utf8))
        try Self.check(bad, 400, 40024)
    }

    // MARK: - Pages of other sites, and the root

    @Test("Pages of other sites may call with a credential")
    func preflight() async throws {
        let relay = try Rooms().relay()
        for path in ["/ntfy/kitchen/json", "/ntfy/kitchen", "/ntfy/v1/account"] {
            let answer = try await relay.send(.options, path, headers: [.origin: "https://other.example"])
            #expect(answer.status == .ok && answer.headers[.accessControlAllowOrigin] == "*")
            #expect(answer.headers[.accessControlAllowMethods] == "GET, PUT, POST, PATCH, DELETE")
            #expect(answer.headers[.accessControlAllowHeaders] == "*, Authorization")
            #expect(answer.headers[.accessControlAllowCredentials] == nil)
        }
        #expect(try await relay.send(.get, "/healthz").headers[.accessControlAllowOrigin] == nil)
        #expect(try await relay.send(.options, "/v1/queue").status != .ok)
    }

    @Test("http.ntfy_at_root serves the same paths at the root, after the relay's own and Gotify's")
    func root() async throws {
        let rooms = try Rooms()
        rooms.add(1, "one")
        var settings = ChatHTTPSettings(adminTokens: ["geheim"])
        settings.ntfyAtRoot = true
        let (relay, without) = (try rooms.relay(settings), try rooms.relay())
        for (path, secret) in [
            ("/kitchen/json?poll=1", "pct_read"), ("/kitchen,hall/auth", "pct_read"), ("/v1/health", nil),
            ("/v1/account", nil), ("/v1/account", "pcc_ann"), ("/kitchen/publish", "pct_post"),
            ("/version/auth", "pct_read"),
        ] {
            let answer = try await Self.get(relay, path, secret)
            #expect(answer.status == .ok && answer.headers[.accessControlAllowOrigin] == "*", "\(path)")
            let other = try await Self.get(without, path, secret)
            #expect(other.status == .notFound && other.headers[.accessControlAllowOrigin] == nil, "\(path)")
        }
        let headers: HTTPFields = [.authorization: "Bearer pct_post"]
        for (method, path) in [(HTTPRequest.Method.post, "/kitchen"), (.put, "/kitchen")] {
            #expect(try await relay.send(method, path, headers: headers, body: Array("x".utf8)).status == .ok)
            #expect(
                try await without.send(method, path, headers: headers, body: Array("x".utf8)).status == .notFound)
        }
        try Self.check(await Self.get(relay, "/kitchen/json?poll=1", nil), 403, 40301)
        #expect(try await relay.send(.options, "/kitchen/json").headers[.accessControlAllowHeaders] != nil)
        for path in ["/v1/json", "/events/auth", "/kitchen", "/a/b/c", "/k.php/auth", "/healthz/json"] {
            let answer = try await Self.get(relay, path)
            #expect(answer.status == .notFound && answer.headers[.accessControlAllowOrigin] == nil, "\(path)")
        }
        #expect(try await Self.get(relay, "/healthz", nil).text != "")
        settings.gotifyAtRoot = true
        let both = try rooms.relay(settings)
        #expect(try await Self.get(both, "/version/auth").headers[.accessControlAllowOrigin] == nil)
        #expect(try await Self.get(both, "/kitchen/auth").status == .ok)
    }

    // MARK: - Streams

    /// Opens a stream on a server whose clock stands still.
    private static func follow(
        _ rooms: Rooms, _ path: String, secret: String = "pct_read",
        _ body: @escaping @Sendable (RawConnection, TestClock) async throws -> Void
    ) async throws {
        let clock = TestClock()
        var relay = try rooms.relay()
        relay.clock = clock
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                try await connection.write(
                    "GET \(path) HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(secret)\r\n\r\n")
                try await body(connection, clock)
            }
        }
    }

    @Test("A stream begins with open, then the stored messages, then live ones, with the topic as requested")
    func stream() async throws {
        let rooms = try Rooms()
        for id in 1...3 { rooms.add(MessageID(id), "m\(id)", in: id == 2 ? Self.hall : Self.kitchen) }
        let alias = try await rooms.clients.alias(of: Self.hall).text
        try await Self.follow(rooms, "/ntfy/kitchen,\(alias)/json?since=m00000000001") { connection, _ in
            let head = try await connection.text(until: "\"m3\"}\n")
            #expect(head.hasPrefix("HTTP/1.1 200"))
            #expect(head.lowercased().contains("content-type: application/x-ndjson; charset=utf-"))
            #expect(head.lowercased().contains("access-control-allow-origin: *"))
            #expect(head.contains(#""event":"open","topic":"kitchen,\#(alias)"}"#))
            #expect(head.contains(#""topic":"\#(alias)","title":"Bob","message":"m2"}"#) && !head.contains("\"m1\""))
            rooms.add(4, "live")
            let live = try await connection.text(until: "\"live\"}\n")
            #expect(live.contains(#"{"id":"m00000000004","time":1780000000,"event":"message","topic":"kitchen""#))
        }
    }

    @Test("A stream begins now without since, and leaves out messages that a filter excludes")
    func filtered() async throws {
        let rooms = try Rooms()
        rooms.add(1, "old")
        try await Self.follow(rooms, "/ntfy/kitchen/sse?priority=high") { connection, _ in
            let head = try await connection.text(until: "\"kitchen\"}\n\n")
            #expect(head.contains("event: open\ndata: {"))
            rooms.add(2, "quiet")
            rooms.add(3, "loud", by: "admin", priority: 10)
            let live = try await connection.text(until: "loud")
            #expect(live.contains("data: {\"id\":\"m00000000003\"") && !live.contains("event: message"))
            #expect(!live.contains("quiet") && !live.contains("old"))
        }
    }

    @Test("A member's stream counts as fetched, and silence brings a keepalive after 45 seconds")
    func keepalive() async throws {
        let rooms = try Rooms()
        rooms.add(3, "hi")
        try await Self.follow(rooms, "/ntfy/kitchen/json?since=all", secret: "pcc_ann") { connection, clock in
            _ = try await connection.text(until: "\"hi\"}\n")
            #expect(rooms.feed.handedOut[try Sample.member] == 3)
            for _ in 0..<46 { await clock.advanceSleepers(by: .seconds(1)) }
            _ = try await connection.text(until: #""event":"keepalive","topic":"kitchen"}"#)
        }
    }

    /// Opens streams one after another, and expects that the ninth is refused.
    private static func openNine(_ port: Int, number: Int = 1) async throws {
        try await RawConnection.open(port: port) { connection in
            try await connection.write(
                "GET /ntfy/kitchen/json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer pct_read\r\n\r\n")
            let text = try await connection.text(until: number == 9 ? "42903" : "open")
            #expect(text.hasPrefix(number == 9 ? "HTTP/1.1 429" : "HTTP/1.1 200"))
            if number < 9 { try await openNine(port, number: number + 1) }
        }
    }

    @Test("The ninth stream of a token is refused with ntfy's code")
    func streamLimit() async throws {
        try await Rooms().relay().listening { try await Self.openNine($0) }
    }
}
