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

    // MARK: - Messages for later

    @Test("A delay has ntfy's spellings, and the response has the time at which the message is due")
    func delays() async throws {
        let kitchen = try Kitchen()
        let due = Sample.time.seconds + 3600
        var calls: [(HTTPRequest.Method, String, String, HTTPFields)] = []
        for name in ["X-Delay", "delay", "X-At", "At", "X-In", "in"] {
            calls.append((.put, "/ntfy/kitchen/door", "x", try Self.header(name, "1h")))
        }
        for name in ["x-delay", "delay", "x-at", "at", "x-in", "in"] {
            calls.append((.put, "/ntfy/kitchen/door?\(name)=60min", "x", [:]))
        }
        calls += [
            (.get, "/ntfy/kitchen/publish?message=x&sid=door&in=3600s", "", [:]),
            (.post, "/ntfy", #"{"topic":"kitchen","message":"x","sequence_id":"door","delay":"1 hour"}"#, [:]),
            (.post, "/", #"{"topic":"kitchen","message":"x","sequence_id":"door","delay":\#(due)}"#, [:]),
            (.post, "/ntfy", #"{"topic":"kitchen","message":"x","sequence_id":"door","delay":"\#(due)"}"#, [:]),
        ]
        for (method, path, body, headers) in calls {
            let event = try await kitchen.event(
                method, path, method == .get ? nil : body, headers: headers)
            #expect(event.description == "message x door" && event.time == due, "\(path) \(body) \(headers)")
            #expect(event.id == "m00000000001", "the message for later keeps its number")
        }
        #expect(try await kitchen.poll() == [])
        #expect(try kitchen.real.query("SELECT revision FROM scheduled_messages") == ["\(calls.count)"])
    }

    @Test("A message for later is on no stream and in no poll until it is due, and gets a new id then")
    func due() async throws {
        let kitchen = try Kitchen()
        let named = try await kitchen.event(.put, "/ntfy/kitchen/door?in=1h", "open")
        let plain = try await kitchen.event(.put, "/ntfy/kitchen?in=2h", "plain")
        #expect(plain.sequence == nil)
        #expect(try await kitchen.real.ports.changes.performDue() == false)
        #expect(try await kitchen.poll() == [])
        kitchen.real.advance(.seconds(7200))
        for _ in 0..<2 { #expect(try await kitchen.real.ports.changes.performDue()) }
        let rows = try await kitchen.poll()
        #expect(rows.map(\.description) == ["message open door", "message plain"])
        #expect(rows[0].id > plain.id && rows[1].id > rows[0].id && rows[0].time >= named.time)
        // The first id still names the message.
        let update = try await kitchen.event(.put, "/ntfy/kitchen/\(plain.id)", "changed")
        #expect(update.id > rows[1].id)
        #expect(try await kitchen.event(.delete, "/ntfy/kitchen/door").name == "message_delete")
        #expect(
            try await kitchen.poll().map(\.description) == ["message changed \(rows[1].id)", "message_delete door"])
    }

    @Test("A poll for scheduled messages has those for later after the others, the earliest first")
    func scheduled() async throws {
        let kitchen = try Kitchen()
        let late = try await kitchen.event(.put, "/ntfy/kitchen/door?in=2h&tags=a", "late")
        let early = try await kitchen.event(.put, "/ntfy/kitchen?in=1h&title=T", "early", token: "pct_post")
        let now = try await kitchen.event(.put, "/ntfy/kitchen", "now")
        for query in ["&sched=1", "&scheduled=yes", "&x-scheduled=true", "&sched=1&since=all", "&sched=1&since=1h"] {
            let rows = try await kitchen.poll(query)
            #expect(rows.map(\.id) == [now.id, early.id, late.id], "\(query)")
            #expect(rows.map(\.time) == [now.time, early.time, late.time])
            #expect(rows.map(\.description) == ["message now", "message early", "message late door"])
        }
        #expect(try await kitchen.poll("&sched=1", token: "pcc_ann").count == 3)
        for (query, expected) in [
            ("&sched=1&tags=a", [late.id]), ("&sched=1&title=T", [early.id]), ("&sched=1&id=\(late.id)", [late.id]),
            ("&sched=1&since=\(now.id)", [early.id, late.id]), ("&sched=1&since=none", []),
            ("&sched=1&since=latest", [now.id]), ("&sched=0", [now.id]), ("", [now.id]),
        ] {
            #expect(try await kitchen.poll(query).map(\.id) == expected, "\(query)")
        }
        // A held message waits for its author.
        try kitchen.real.query("UPDATE scheduled_messages SET is_held = 1 WHERE message_key IS NULL")
        #expect(try await kitchen.poll("&sched=1").map(\.id) == [now.id, late.id])
    }

    @Test(
        "A message for later is cancelled by its name or id, also by a post without a delay; clearing it changes nothing"
    )
    func cancelled() async throws {
        let kitchen = try Kitchen()
        let named = try await kitchen.event(.put, "/ntfy/kitchen/door?in=1h", "silent")
        for call in ["clear", "read"] {
            let cleared = try await kitchen.event(.put, "/ntfy/kitchen/door/\(call)")
            #expect(cleared.description == "message_clear door" && NtfyMessageID.message(cleared.id) == nil)
        }
        let plain = try await kitchen.event(.put, "/ntfy/kitchen?in=1h", "silent")
        #expect(try await kitchen.poll("&sched=1").map(\.id) == [named.id, plain.id])
        #expect(try await kitchen.event(.delete, "/ntfy/kitchen/door").description == "message_delete door")
        #expect(try await kitchen.event(.delete, "/ntfy/kitchen/\(plain.id)").id == plain.id)
        #expect(try await kitchen.poll("&sched=1") == [])

        _ = try await kitchen.event(.put, "/ntfy/kitchen/door?in=1h", "silent")
        let posted = try await kitchen.event(.put, "/ntfy/kitchen/door", "over")
        #expect(try await kitchen.poll("&sched=1").map(\.id) == [posted.id])

        let waiting = try await kitchen.event(.put, "/ntfy/kitchen?in=1h", "silent")
        let again = try await kitchen.event(.put, "/ntfy/kitchen/\(waiting.id)", "over")
        #expect(again.id == waiting.id && again.time <= posted.time + 2 && again.text == "over")
        kitchen.real.advance(.seconds(2))
        #expect(try await kitchen.real.ports.changes.performDue())
        #expect(try await kitchen.poll("&sched=1").map(\.text) == ["over", "over"])
        kitchen.real.advance(.seconds(7200))
        #expect(try await !kitchen.real.ports.changes.performDue())
    }

    @Test("An open message can be replaced later by its name, not by its id")
    func laterUpdate() async throws {
        let kitchen = try Kitchen()
        let door = try await kitchen.event(.put, "/ntfy/kitchen/door", "open")
        let later = try await kitchen.event(.put, "/ntfy/kitchen/door?in=10s", "still open")
        let plain = try await kitchen.event(.put, "/ntfy/kitchen", "plain")
        let answer = try await kitchen.ask(.put, "/ntfy/kitchen/\(plain.id)?in=10s", "x")
        let error = try JSONValue(parsing: answer.text).object
        #expect(answer.status == .badRequest && error?["code"]?.integer == 40004)
        #expect(error?["error"]?.text?.hasPrefix("Invalid delay: the message is posted already") == true)
        kitchen.real.advance(.seconds(10))
        #expect(try await kitchen.real.ports.changes.performDue())
        let rows = try await kitchen.poll()
        #expect(rows.map(\.description) == ["message plain", "message still open door"])
        #expect(rows[1].id > later.id && rows[1].time > door.time)
    }

    @Test("A member posts nothing for later, and other programs cannot cancel a message")
    func foreignSchedules() async throws {
        let kitchen = try Kitchen()
        #expect(try await kitchen.ask(.put, "/ntfy/kitchen?in=1h", "x", token: "pcc_ann").status == .forbidden)
        let mine = try await kitchen.event(.put, "/ntfy/kitchen/door?in=1h", "mine")
        for name in ["door", mine.id] {
            _ = try await kitchen.event(.delete, "/ntfy/kitchen/\(name)", token: "pct_post")
            #expect(try await kitchen.ask(.delete, "/ntfy/kitchen/\(name)", token: "pcc_ann").status == .forbidden)
        }
        let theirs = try await kitchen.event(.put, "/ntfy/kitchen/door?in=2h", "theirs", token: "pct_post")
        #expect(try await kitchen.poll("&sched=1").map(\.id) == [mine.id, theirs.id])
        #expect(try await kitchen.ask(.put, "/ntfy/kitchen/\(mine.id)", "x", token: "pct_post").status == .notFound)
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
