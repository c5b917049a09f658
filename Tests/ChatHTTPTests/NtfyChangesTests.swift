import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import TestSupport
import Testing

@testable import ChatHTTP

/// ntfy's clients over a real store: they replace, clear and delete messages, and hear of it.
@Suite("ntfy's messages that change", .timeLimit(.minutes(1)))
struct NtfyChangesTests {
    private static let kitchen = SecretCode(stored: "kitchen")

    /// A relay with the tokens of ``TokenAccessTests``, and the credential `pcc_ann` of a member of the kitchen.
    private struct Kitchen: Sendable {
        let real: RealStore
        let relay: Relay

        init(atRoot: Bool = false) throws {
            real = try RealStore(tokens: TokenAccessTests.tokens())
            try real.member(Sample.member, in: kitchen)
            try real.credential("pcc_ann", id: 9)
            var settings = ChatHTTPSettings(adminTokens: ["geheim"])
            settings.ntfyAtRoot = atRoot
            relay = Relay(ScriptedStore(real: real, isReal: true), settings: settings)
        }

        func ask(
            _ method: HTTPRequest.Method, _ path: String, _ body: String? = nil, token: String = "pct_post_kitchen",
            headers: HTTPFields = [:]
        ) async throws -> TestResponse {
            var headers = headers
            headers[.authorization] = "Bearer \(token)"
            return try await relay.send(method, path, headers: headers, body: body.map { Array($0.utf8) })
        }

        /// Sends a request that must succeed, and returns its event.
        func event(
            _ method: HTTPRequest.Method, _ path: String, _ body: String? = nil, token: String = "pct_post_kitchen",
            headers: HTTPFields = [:]
        ) async throws -> Event {
            let answer = try await ask(method, path, body, token: token, headers: headers)
            #expect(answer.status == .ok, "\(method) \(path): \(answer.text)")
            return try Event(answer.text)
        }

        /// The events of a poll.
        func poll(_ query: String = "", token: String = "pct_read", headers: HTTPFields = [:]) async throws -> [Event] {
            let answer = try await ask(.get, "/ntfy/kitchen/json?poll=1" + query, token: token, headers: headers)
            #expect(answer.status == .ok, "\(answer.text)")
            return try answer.text.split(separator: "\n").map { try Event(String($0)) }
        }
    }

    private struct Event: Equatable, CustomStringConvertible {
        var id = "", name = "message", sequence: String?, text: String?, time: Int64 = 0

        init(_ json: String) throws {
            let object = try #require(try JSONValue(parsing: json).object)
            id = try #require(object["id"]?.text)
            name = try #require(object["event"]?.text)
            time = try #require(object["time"]?.integer)
            (sequence, text) = (object["sequence_id"]?.text, object["message"]?.text)
        }

        /// The name, the text and the sequence of an event.
        var description: String { [name, text, sequence].compactMap(\.self).joined(separator: " ") }
    }

    private static func header(_ name: String, _ value: String) throws -> HTTPFields {
        [try #require(HTTPField.Name(name)): value]
    }

    // MARK: - Publishing

    @Test("A message is replaced under every spelling of its name")
    func spellings() async throws {
        let kitchen = try Kitchen()
        var ids = [try await kitchen.event(.put, "/ntfy/kitchen/door", "0").id]
        let calls: [(HTTPRequest.Method, String, String, HTTPFields)] = [
            (.post, "/ntfy/kitchen/door", "1", [:]),
            (.put, "/ntfy/kitchen", "2", try Self.header("X-Sequence-ID", "door")),
            (.post, "/ntfy/kitchen", "3", try Self.header("sequence-id", "door")),
            (.post, "/ntfy/kitchen", "4", try Self.header("SID", "door")),
            (.put, "/ntfy/kitchen?sid=door", "5", [:]), (.put, "/ntfy/kitchen?x-sequence-id=door", "6", [:]),
            (.put, "/ntfy/kitchen/door?sid=other", "7", try Self.header("SID", "another")),
            (.post, "/ntfy", #"{"topic":"kitchen","message":"8","sequence_id":"door","tags":null,"delay":null}"#, [:]),
            (.put, "/ntfy/kitchen/m00000000001", "9", [:]),
        ]
        for (number, (method, path, body, headers)) in calls.enumerated() {
            let event = try await kitchen.event(method, path, body, headers: headers)
            #expect(event.text == "\(number + 1)" && event.sequence == (number == 8 ? "m00000000001" : "door"))
            let rows = try await kitchen.poll()
            #expect(rows.map(\.description) == ["message \(number + 1) door"], "\(path)")
            #expect(rows[0].id == event.id && rows[0].time == event.time && event.id > ids[number])
            ids.append(event.id)
        }
        let got = try await kitchen.event(.get, "/ntfy/kitchen/publish?message=10&sid=door")
        #expect(got.description == "message 10 door")
        #expect(try await kitchen.poll().map(\.description) == ["message 10 door"])
    }

    @Test("A message without a name is replaced by its id, and a number is a name")
    func names() async throws {
        let kitchen = try Kitchen()
        let plain = try await kitchen.event(.put, "/ntfy/kitchen", "plain")
        #expect(plain.sequence == nil)
        let changed = try await kitchen.event(.put, "/ntfy/kitchen/\(plain.id)", "changed")
        #expect(changed.sequence == plain.id && changed.id > plain.id)
        for text in ["problem", "solved"] {
            #expect(try await kitchen.event(.put, "/ntfy/kitchen/4711", text).sequence == "4711")
        }
        #expect(
            try await kitchen.poll().map(\.description) == ["message changed \(plain.id)", "message solved 4711"])
        // Elsewhere in the relay, the number is an id.
        let extras = try kitchen.real.query("SELECT message_key FROM message_states WHERE message_key IS NOT NULL")
        #expect(extras == ["ntfy_4711"])
    }

    @Test("Another sender's message of the same name stays apart")
    func authors() async throws {
        let kitchen = try Kitchen()
        let first = try await kitchen.event(.put, "/ntfy/kitchen/door", "open")
        let other = try await kitchen.event(.put, "/ntfy/kitchen/door", "mine", token: "pct_post")
        #expect(first.sequence == "door" && other.sequence == nil)
        let update = try await kitchen.event(.put, "/ntfy/kitchen/door", "mine 2", token: "pct_post")
        #expect(update.sequence == other.id)
        #expect(try await kitchen.event(.delete, "/ntfy/kitchen/door", token: "pct_post").sequence == other.id)
        #expect(try await kitchen.poll().map(\.description) == ["message open door", "message_delete \(other.id)"])
    }

    @Test(
        "Wrong names",
        arguments: [
            ("/ntfy/kitchen/a%20b", nil, 404, 40401), ("/ntfy/kitchen/a,b", nil, 404, 40401),
            ("/ntfy/kitchen/\(String(repeating: "x", count: 65))", nil, 404, 40401), ("/ntfy/v1/x", nil, 404, 40401),
            ("/ntfy/kitchen/m00000000099", nil, 404, 40401),
            ("/ntfy/kitchen", "a b", 400, 40049), ("/ntfy/kitchen", "ä", 400, 40049),
            ("/ntfy/kitchen", String(repeating: "x", count: 65), 400, 40049),
            ("/ntfy/kitchen", "m99999999999999999999", 404, 40401),
        ] as [(String, String?, Int, Int64)])
    func wrongNames(path: String, name: String?, status: Int, code: Int64) async throws {
        let kitchen = try Kitchen()
        let answer = try await kitchen.ask(.put, path, "x", headers: name.map { [.sequence: $0] } ?? [:])
        #expect(answer.status.code == status, "\(answer.text)")
        #expect(try JSONValue(parsing: answer.text).object?["code"]?.integer == code, "\(answer.text)")
        #expect(try await kitchen.poll() == [])
    }

    @Test(
        "In a path, a message cannot have the name of a stream",
        arguments: ["json", "sse", "raw", "ws", "auth", "publish"])
    func reserved(name: String) async throws {
        let kitchen = try Kitchen(atRoot: true)
        for base in ["/ntfy/kitchen/", "/kitchen/"] {
            for (method, end) in [(HTTPRequest.Method.put, ""), (.post, ""), (.delete, ""), (.put, "/clear")] {
                let answer = try await kitchen.ask(method, base + name + end, "x")
                #expect([403, 404, 405].contains(answer.status.code), "\(method) \(base)\(name)\(end): \(answer.text)")
            }
        }
        #expect(try await kitchen.poll() == [])
        // In a header it is one.
        let event = try await kitchen.event(.put, "/ntfy/kitchen", "x", headers: [.sequence: name])
        #expect(event.sequence == name)
    }

    @Test("A member's message has no name, and a member changes none")
    func members() async throws {
        let kitchen = try Kitchen()
        let own = try await kitchen.event(.put, "/ntfy/kitchen", "hello", token: "pcc_ann")
        for (method, path) in [
            (HTTPRequest.Method.put, "door"), (.put, own.id), (.delete, own.id), (.put, "\(own.id)/clear"),
            (.delete, "door"),
        ] {
            let answer = try await kitchen.ask(method, "/ntfy/kitchen/" + path, "x", token: "pcc_ann")
            #expect(answer.status == .forbidden, "\(method) \(path): \(answer.text)")
        }
        #expect(try await kitchen.poll().map(\.description) == ["message hello"])
    }

    // MARK: - Clearing and deleting

    @Test(
        "A cleared message stays, and a deleted one does not; a new one may then have the name",
        arguments: ["clear", "read"])
    func removals(call: String) async throws {
        let kitchen = try Kitchen()
        let first = try await kitchen.event(.put, "/ntfy/kitchen/door", "open")
        let cleared = try await kitchen.event(.put, "/ntfy/kitchen/door/\(call)", "ignored")
        #expect(cleared.description == "message_clear door" && cleared.id > first.id && cleared.time > first.time)
        let rows = try await kitchen.poll()
        #expect(rows.map(\.description) == ["message open door", "message_clear door"])
        #expect(rows.map(\.id) == [first.id, cleared.id])
        let deleted = try await kitchen.event(.delete, "/ntfy/kitchen/door")
        #expect(deleted.description == "message_delete door" && deleted.time > cleared.time)
        #expect(try await kitchen.poll().map(\.description) == ["message_delete door"])
        #expect(try await kitchen.poll("&since=\(first.id)").map(\.id) == [deleted.id])
        #expect(try await kitchen.poll("&since=\(deleted.id)") == [])
        let again = try await kitchen.event(.put, "/ntfy/kitchen/door", "open again")
        #expect(try await kitchen.poll("&since=\(deleted.id)").map(\.id) == [again.id])
    }

    @Test("A message that does not exist is cleared and deleted without a trace")
    func unknown() async throws {
        let kitchen = try Kitchen()
        _ = try await kitchen.event(.put, "/ntfy/kitchen", "foreign", token: "pct_post")
        for name in ["door", "m00000000001", "m00000000099", "4711", "m99999999999999999999"] {
            for (method, end, event) in [
                (HTTPRequest.Method.put, "/clear", "message_clear"), (.delete, "", "message_delete"),
            ] {
                let got = try await kitchen.event(method, "/ntfy/kitchen/\(name)\(end)")
                #expect(got.description == "\(event) \(name)" && NtfyMessageID.message(got.id) == nil)
            }
        }
        #expect(try await kitchen.poll().map(\.description) == ["message foreign"])
    }

    @Test("A deletion in the room reaches ntfy's clients, with a name or without")
    func moderation() async throws {
        let kitchen = try Kitchen()
        let named = try await kitchen.event(.put, "/ntfy/kitchen/door", "open")
        let plain = try await kitchen.event(.put, "/ntfy/kitchen", "plain")
        for event in [named, plain] {
            let id = try #require(NtfyMessageID.message(event.id))
            #expect(try await kitchen.ask(.delete, "/v1/messages/\(id)", token: "geheim").status == .noContent)
        }
        #expect(
            try await kitchen.poll().map(\.description) == ["message_delete door", "message_delete \(plain.id)"])
    }

    // MARK: - Reading

    @Test("Each form of a poll")
    func forms() async throws {
        let kitchen = try Kitchen()
        for text in ["one", "two"] { _ = try await kitchen.event(.put, "/ntfy/kitchen/door", text) }
        _ = try await kitchen.event(.put, "/ntfy/kitchen/gate", "gone")
        _ = try await kitchen.event(.delete, "/ntfy/kitchen/gate")
        let json = [
            #"{"id":"m00000000002","sequence_id":"door","time":1780000001,"event":"message","topic":"kitchen","message":"two"}"#,
            #"{"id":"m00000000004","sequence_id":"gate","time":1780000001,"event":"message_delete","topic":"kitchen"}"#,
        ]
        for (form, text) in [
            ("json", json.map { $0 + "\n" }.joined()), ("sse", json.map { "data: \($0)\n\n" }.joined()),
            ("raw", "two\n"),
        ] {
            let answer = try await kitchen.ask(.get, "/ntfy/kitchen/\(form)?poll=1", token: "pct_read")
            #expect(answer.text == text)
        }
    }

    @Test("ntfy's app for iPhones gets texts, and no event that it would store as an empty message")
    func phone() async throws {
        let kitchen = try Kitchen()
        let door = try await kitchen.event(.put, "/ntfy/kitchen/door", "open")
        let update = try await kitchen.event(.put, "/ntfy/kitchen/door", "still open")
        _ = try await kitchen.event(.put, "/ntfy/kitchen/gate", "gone")
        _ = try await kitchen.event(.delete, "/ntfy/kitchen/gate")
        let agent: HTTPFields = [.userAgent: "ntfy/1.8.0 (build 42; iOS 18.5)"]
        #expect(try await kitchen.poll(headers: agent).map(\.id) == [update.id])
        #expect(
            try await kitchen.poll(headers: [.userAgent: "ntfy/1.25.0 (fdroid; Android 15)"]).map(\.name)
                == ["message", "message_delete"])
        // The announcement that woke the app named the first id.
        let fetched = try await kitchen.poll("&id=\(door.id)", headers: agent)
        #expect(fetched.map(\.id) == [door.id] && fetched.map(\.text) == ["still open"])
        _ = try await kitchen.event(.put, "/ntfy/kitchen/door/clear")
        #expect(try await kitchen.poll(headers: agent).map(\.id) == [door.id])
    }

    @Test("A poll from a time has the changes since then, also of older messages")
    func since() async throws {
        let kitchen = try Kitchen()
        _ = try await kitchen.event(.put, "/ntfy/kitchen/door", "open")
        _ = try await kitchen.event(.put, "/ntfy/kitchen/gate", "open")
        var relay = kitchen.relay
        let later = Sample.time.seconds + 3600
        relay.now = { Timestamp(seconds: later + 60) }
        kitchen.real.advance(.seconds(3600))
        _ = try await kitchen.event(.put, "/ntfy/kitchen/door", "shut")
        for (since, expected) in [
            ("\(later - 10)", ["shut"]), ("10m", ["shut"]), ("2h", ["open", "shut"]), ("all", ["open", "shut"]),
        ] {
            let answer = try await relay.send(
                .get, "/ntfy/kitchen/json?poll=1&since=\(since)", headers: [.authorization: "Bearer pct_read"])
            let texts = try answer.text.split(separator: "\n").map { try Event(String($0)).text }
            #expect(texts == expected, "\(since)")
        }
        #expect(try await kitchen.poll("&since=latest").map(\.text) == ["shut"])
        #expect(try await kitchen.poll("&since=none") == [])
    }

    @Test("Filters choose messages by their newest text, and let removals pass")
    func filters() async throws {
        let kitchen = try Kitchen()
        _ = try await kitchen.event(.put, "/ntfy/kitchen/door?tags=a,b&priority=4", "open")
        _ = try await kitchen.event(.put, "/ntfy/kitchen/door?tags=b,c&priority=4", "shut")
        _ = try await kitchen.event(.put, "/ntfy/kitchen/gate", "gone")
        _ = try await kitchen.event(.delete, "/ntfy/kitchen/gate")
        for (query, expected) in [
            ("message=open", []), ("message=shut", ["shut"]), ("tags=a", []), ("tags=b,c", ["shut"]),
            ("priority=4", ["shut"]),
        ] {
            let events = try await kitchen.poll("&" + query)
            #expect(events.compactMap(\.text) == expected && events.last?.name == "message_delete", "\(query)")
        }
    }

    @Test("A member hears of changes of those messages alone that it may read")
    func histories() async throws {
        let kitchen = try Kitchen()
        _ = try await kitchen.event(.put, "/ntfy/kitchen/door", "early")
        try kitchen.real.query("UPDATE active_users SET history_from = 1")
        _ = try await kitchen.event(.put, "/ntfy/kitchen/gate", "late")
        for text in ["early 2", "early 3"] { _ = try await kitchen.event(.put, "/ntfy/kitchen/door", text) }
        for _ in 0..<30 { _ = try await kitchen.event(.put, "/ntfy/kitchen/door", "early") }
        _ = try await kitchen.event(.put, "/ntfy/kitchen/gate", "late 2")
        _ = try await kitchen.event(.delete, "/ntfy/kitchen/door")
        for query in ["", "&since=m00000000001", "&since=10m"] {
            #expect(try await kitchen.poll(query, token: "pcc_ann").map(\.description) == ["message late 2 gate"])
        }
    }

    @Test("A stream hears each change, and nothing of what came before it")
    func stream() async throws {
        let kitchen = try Kitchen()
        _ = try await kitchen.event(.put, "/ntfy/kitchen/door", "old")
        _ = try await kitchen.event(.put, "/ntfy/kitchen/door", "older change")
        try await kitchen.relay.listening { port in
            try await RawConnection.open(port: port) { stream in
                try await stream.write(
                    "GET /ntfy/kitchen/json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer pct_read\r\n\r\n")
                #expect(try await !stream.text(until: "\"kitchen\"}\n").contains("older change"))
                for (request, event) in [
                    ("PUT /ntfy/kitchen/door HTTP/1.1\r\nContent-Length: 4\r\n", #""message":"open"}"#),
                    ("PUT /ntfy/kitchen/door HTTP/1.1\r\nContent-Length: 4\r\n", #""message":"open"}"#),
                    (
                        "PUT /ntfy/kitchen/door/clear HTTP/1.1\r\nContent-Length: 0\r\n",
                        #""event":"message_clear","topic":"kitchen"}"#
                    ),
                    (
                        "DELETE /ntfy/kitchen/door HTTP/1.1\r\n", #""event":"message_delete","topic":"kitchen"}"#
                    ),
                ] {
                    try await RawConnection.open(port: port) { sender in
                        let body = request.contains(": 4") ? "open" : ""
                        try await sender.write(
                            "\(request)Host: localhost\r\nAuthorization: Bearer pct_post_kitchen\r\n\r\n\(body)")
                        #expect(try await sender.answer().status == 200)
                    }
                    let heard = try await stream.text(until: event)
                    #expect(heard.contains(#""sequence_id":"door""#))
                }
            }
        }
    }

    // MARK: - At the root, and Gotify

    @Test("http.ntfy_at_root serves the calls at the root, and no other paths of two or three names")
    func root() async throws {
        let (kitchen, without) = (try Kitchen(atRoot: true), try Kitchen())
        for (method, path, event) in [
            (HTTPRequest.Method.put, "/kitchen/door", "message"), (.post, "/kitchen/door", "message"),
            (.put, "/kitchen/door/clear", "message_clear"), (.put, "/kitchen/door/read", "message_clear"),
            (.delete, "/kitchen/door", "message_delete"),
        ] {
            #expect(try await kitchen.event(method, path, "x").name == event)
            #expect(try await without.ask(method, path, "x").status == .notFound)
            let preflight = try await kitchen.ask(.options, path)
            #expect(preflight.status == .ok && preflight.headers[.accessControlAllowOrigin] == "*")
        }
        for (method, path) in [
            (HTTPRequest.Method.get, "/kitchen/door"), (.get, "/kitchen/door/clear"), (.put, "/kitchen/door/dismiss"),
            (.put, "/kitchen/door/clear/x"), (.put, "/v1/door"), (.put, "/metrics/door"), (.delete, "/kitchen/a%20b"),
            (.put, "/a,b/door/x"),
        ] {
            #expect(try await [404, 405].contains(kitchen.ask(method, path, "x").status.code), "\(method) \(path)")
        }
    }

    @Test("Gotify's lists have the newest text of a message, and no deleted one")
    func gotify() async throws {
        let kitchen = try Kitchen()
        for text in ["open", "shut"] { _ = try await kitchen.event(.put, "/ntfy/kitchen/door", text) }
        _ = try await kitchen.event(.put, "/ntfy/kitchen/gate", "gone")
        func texts() async throws -> [String] {
            let answer = try await kitchen.ask(.get, "/gotify/message", token: "pct_read")
            let messages = try #require(try JSONValue(parsing: answer.text).object?["messages"]?.array)
            return messages.map { "\($0.object?["id"]?.integer ?? 0) \($0.object?["message"]?.text ?? "")" }
        }
        #expect(try await texts() == ["3 gone", "1 shut"])
        _ = try await kitchen.event(.delete, "/ntfy/kitchen/gate")
        #expect(try await texts() == ["1 shut"])
    }
}

extension HTTPField.Name {
    fileprivate static let sequence = HTTPField.Name("X-Sequence-ID")!
}
