import ChatDomain
import HTTPTypes
import HummingbirdTesting
import NIOCore
import Testing

@testable import ChatHTTP

@Suite("message, messages")
struct MessagesTests {
    @Test("A message reaches the store and gets OK")
    func message() async throws {
        let relay = Relay(ScriptedStore(post: Sample.receipt))
        let answer = try await relay.form(
            "cmd=message&udid=\(Sample.udid)&text=Caf%C3%A9%0D%0A%F0%9F%98%80&app_version=2")
        #expect(answer.text == "OK\n")
        #expect(answer.header("Idempotency-Replayed") == nil)
        #expect(
            try relay.store.calls == [
                .post(
                    PostRequest(
                        member: Sample.member, content: MessageContent(parsing: "Café\r\n😀"),
                        client: ClientInfo(appVersion: "2")))
            ])
    }

    @Test("With Accept: application/json the response is JSON with the message's id")
    func json() async throws {
        let answer = try await Relay(ScriptedStore(post: Sample.receipt)).form(
            Sample.message, headers: [.accept: "text/html, Application/JSON;q=0.9"])
        #expect(answer.text == #"{"ok":true,"id":7}"#)
        #expect(answer.headers[.contentType] == "application/json")
        let left = try await Relay(ScriptedStore(leave: { true })).form(
            Sample.leave, headers: [.accept: "application/json"])
        #expect(left.text == #"{"ok":true}"#)
    }

    @Test("The setting limits the text in bytes")
    func textLimit() async throws {
        let relay = Relay(ScriptedStore(post: Sample.receipt), settings: ChatHTTPSettings(textLimit: 4))
        #expect(try await relay.form("cmd=message&udid=\(Sample.udid)&text=%C3%A9%C3%A9").status == .ok)
        let answer = try await relay.form("cmd=message&udid=\(Sample.udid)&text=%C3%A9%C3%A9x")
        #expect(answer.status == .badRequest)
        #expect(answer.header("X-Error-Description") == "Invalid text: must have at most 4 bytes of UTF-8, has 5")
    }

    @Test("The store gets the Idempotency-Key; a repeat gets the first response and says so")
    func idempotency() async throws {
        let relay = Relay(
            ScriptedStore(post: { PostReceipt(message: 7, time: Timestamp(milliseconds: 0), isRepeat: true, queued: 0) }
            ))
        let key = try #require(HTTPField.Name("Idempotency-Key"))
        let answer = try await relay.form(Sample.message, headers: [key: "a b~1"])
        #expect(answer.text == "OK\n")
        #expect(answer.header("Idempotency-Replayed") == "true")
        guard case .post(let request) = relay.store.calls.first else {
            Issue.record("Unexpected calls of the store: \(relay.store.calls)")
            return
        }
        #expect(request.idempotencyKey == "a b~1")
    }

    @Test(
        "An Idempotency-Key that is empty, too long or not ASCII is refused",
        arguments: ["", String(repeating: "k", count: 256), "schlüssel"])
    func badKey(key: String) async throws {
        let name = try #require(HTTPField.Name("Idempotency-Key"))
        let answer = try await Relay().form(Sample.message, headers: [name: key])
        #expect(answer.status == .badRequest)
        #expect(answer.header("X-Error-Description")?.hasPrefix("Invalid Idempotency-Key: ") == true)
    }

    @Test("Messages with any text are listed in JSON, without the writer's udid")
    func list() async throws {
        let text = "\"\\/\u{1}\u{1F}\n\r\t\u{7F}é\u{2028}😀"
        let page = MessagePage(
            messages: [
                Message(
                    id: 5, sender: MemberID(stored: Sample.udid), nickname: "Ann",
                    content: MessageContent(stored: text), sentAt: Timestamp(milliseconds: 1_778_191_049_123)),
                Message(
                    id: 9, sender: MemberID(stored: "other"), nickname: "Bob\"", content: MessageContent(stored: "hi"),
                    sentAt: Timestamp(seconds: 0)),
            ], next: 9, room: SecretCode(stored: "t\"a"))
        let relay = Relay(ScriptedStore(messages: { page }))
        let answer = try await relay.form("cmd=messages&udid=\(Sample.udid)")
        #expect(answer.status == .ok)
        #expect(answer.headers[.contentType] == "application/json")
        #expect(answer.headers[.cacheControl] == "no-store")
        #expect(
            answer.text
                == #"{"messages":[{"id":5,"name":"Ann","text":"\"\\/\u0001\u001f\n\r\t"#
                + "\u{7F}é\u{2028}😀" + #"","sent_at":"2026-05-07T21:57:29.123Z","own":true},"#
                + #"{"id":9,"name":"Bob\"","text":"hi","sent_at":"1970-01-01T00:00:00.000Z","own":false}],"next":9,"#
                + #""code":"t\"a"}"#)
        #expect(try relay.store.calls == [.messages(Sample.member, since: nil, limit: 100)])
    }

    @Test(
        "since and limit are optional; a blank value counts as absent",
        arguments: [
            ("", nil, 100), ("&since=0&limit=1", 0, 1), ("&since=12&limit=500", 12, 500), ("&since=&limit=+", nil, 100),
        ] as [(String, MessageID?, Int)])
    func window(fields: String, since: MessageID?, limit: Int) async throws {
        let relay = Relay(
            ScriptedStore(messages: { MessagePage(messages: [], next: since ?? 0, room: SecretCode(stored: "tea")) }))
        let answer = try await relay.form("cmd=messages&udid=\(Sample.udid)\(fields)")
        #expect(answer.text == #"{"messages":[],"next":\#(since ?? 0),"code":"tea"}"#)
        #expect(try relay.store.calls == [.messages(Sample.member, since: since, limit: limit)])
    }

    @Test("A member searches in its room")
    func search() async throws {
        let message = Message(
            id: 5, sender: MemberID(stored: Sample.udid), nickname: "Ann", content: MessageContent(stored: "Tea?"),
            sentAt: Timestamp(seconds: 0))
        let page = Page(items: [MessageRecord(message: message, room: SecretCode(stored: "tea"))], next: Int64(5))
        let relay = Relay(ScriptedStore(admin: AdminResponses(messages: { page })))
        let answer = try await relay.form("cmd=search&udid=\(Sample.udid)&text=+TEA+&cursor=9&limit=1")
        #expect(
            answer.text
                == #"{"messages":[{"id":5,"name":"Ann","text":"Tea?","sent_at":"1970-01-01T00:00:00.000Z","own":true}],"#
                + #""next":5}"#)
        let text = try SearchText(parsing: "tea")
        #expect(
            try relay.store.calls == [.search(MessageSearch(text, in: .member(Sample.member), before: 9), limit: 1)])
        for (fields, error) in [
            ("", "Missing text"), ("&text=", "Invalid text"), ("&text=a&cursor=-1", "Invalid cursor"),
            ("&text=a&limit=0", "Invalid limit"),
            (
                "&text=\(String(repeating: "x", count: 256))",
                "Invalid text: must have at most 255 bytes of UTF-8, has 256"
            ),
        ] {
            let refused = try await Relay().form("cmd=search&udid=\(Sample.udid)\(fields)")
            #expect(refused.status == .badRequest)
            #expect(refused.header("X-Error-Description")?.hasPrefix(error) == true)
        }
    }

    @Test("A search counts as several requests of its member")
    func searchPrice() async throws {
        let page = Page<MessageRecord>(items: [], next: nil)
        let relay = Relay(
            ScriptedStore(admin: AdminResponses(messages: { page })),
            settings: ChatHTTPSettings(memberRate: RateLimit(perSecond: 0.001, burst: 2 * HTTPLimits.searchPrice)))
        let statuses = try await relay.server().application().test(.router) { client in
            var statuses: [Int] = []
            for _ in 0..<3 {
                let answer = try await client.execute(
                    uri: "/api.php", method: .post, headers: [.contentType: "application/x-www-form-urlencoded"],
                    body: ByteBuffer(string: "cmd=search&udid=\(Sample.udid)&text=tea"))
                statuses.append(answer.status.code)
            }
            return statuses
        }
        #expect(statuses == [200, 200, 429])
    }

    @Test("With changes=1 the list also has the changes, and its position counts them")
    func changes() async throws {
        func message(_ id: MessageID, _ text: String) -> Message {
            Message(
                id: id, sender: .administrator, nickname: "Relay", content: MessageContent(stored: text),
                sentAt: Timestamp(seconds: 0))
        }
        func change(_ id: MessageID, _ kind: MessageChange.Kind, _ message: MessageID) -> MessageChange {
            MessageChange(
                id: id, kind: kind, message: message, author: .administrator, revision: 2, time: Timestamp(seconds: 0))
        }
        let page = RoomEntryPage(
            entries: [
                .message(message(5, "tea")), .change(change(7, .edited, 3), message(3, "up")),
                .change(change(8, .deleted, 4), nil),
                // Retention has deleted its message.
                .change(change(9, .cleared, 2), nil),
            ], next: 9, room: SecretCode(stored: "tea"))
        let relay = Relay(ScriptedStore(entries: { page }))
        func json(_ id: Int, _ text: String) -> String {
            #"{"id":\#(id),"name":"Relay","text":"\#(text)","sent_at":"1970-01-01T00:00:00.000Z","own":false,"program":true}"#
        }
        let answer = try await relay.form("cmd=messages&udid=\(Sample.udid)&since=4&limit=5&peek=1&changes=1")
        #expect(
            answer.text == #"{"messages":["# + json(5, "tea") + #"],"changes":[{"id":7,"event":"edited","message":"#
                + json(3, "up") + #"},{"id":8,"event":"deleted","message":{"id":4}}],"next":9,"code":"tea"}"#)
        #expect(try relay.store.calls == [.entries(Sample.member, since: 4, limit: 5, isPeek: true)])
    }

    @Test("changes must be 0 or 1, and 0 is the list without changes", arguments: ["0", "", "2"])
    func withoutChanges(value: String) async throws {
        let relay = Relay(
            ScriptedStore(messages: { MessagePage(messages: [], next: 4, room: SecretCode(stored: "tea")) }))
        let answer = try await relay.form("cmd=messages&udid=\(Sample.udid)&changes=\(value)")
        guard value == "2" else { return #expect(answer.text == #"{"messages":[],"next":4,"code":"tea"}"#) }
        #expect(answer.status == .badRequest && relay.store.calls.isEmpty)
        #expect(answer.header("X-Error-Description") == "Invalid changes: must be 0 or 1")
    }

    @Test("The list has the room's title, if it has one")
    func title() async throws {
        let page = MessagePage(
            messages: [], next: 0, room: SecretCode(stored: "tea"), title: RoomTitle(stored: "Tea \"time\""))
        let answer = try await Relay(ScriptedStore(messages: { page })).form("cmd=messages&udid=\(Sample.udid)")
        #expect(answer.text == #"{"messages":[],"next":0,"code":"tea","title":"Tea \"time\""}"#)
    }

    @Test("With peek=1 the messages stay unread", arguments: [("1", true), ("0", false), ("", false)])
    func peek(value: String, isPeek: Bool) async throws {
        let relay = Relay(
            ScriptedStore(messages: { MessagePage(messages: [], next: 0, room: SecretCode(stored: "tea")) }))
        let answer = try await relay.form("cmd=messages&udid=\(Sample.udid)&peek=\(value)")
        #expect(answer.status == .ok)
        #expect(try relay.store.calls == [.messages(Sample.member, since: nil, limit: 100, isPeek: isPeek)])
        let refused = try await Relay().form("cmd=messages&udid=\(Sample.udid)&peek=yes")
        #expect(refused.header("X-Error-Description") == "Invalid peek: must be 0 or 1")
    }

    @Test(
        "since and limit out of range are refused",
        arguments: [
            "since=-1", "since=%2B1", "since=x", "since=99999999999999999999", "limit=0", "limit=501", "limit=1.5",
            "limit=99999999999999999999",
        ])
    func outOfRange(field: String) async throws {
        let answer = try await Relay().form("cmd=messages&udid=\(Sample.udid)&\(field)")
        #expect(answer.status == .badRequest)
        let name = field.prefix { $0 != "=" }
        #expect(answer.header("X-Error-Description")?.hasPrefix("Invalid \(name): must be a whole number") == true)
    }

    @Test(
        "A message's fields are checked in the original server's order",
        arguments: [
            ("cmd=message", "Missing udid"), ("cmd=message&udid=\(Sample.udid)", "Missing text"),
            ("cmd=message&udid=\(Sample.udid)&text=+", "Invalid text: must not be empty"),
            ("cmd=message&udid=\(Sample.udid)&text=a%07b", "Invalid text"), ("cmd=messages", "Missing udid"),
        ])
    func firstError(form: String, error: String) async throws {
        let answer = try await Relay().form(form)
        #expect(answer.status == .badRequest)
        #expect(answer.header("X-Error-Description")?.hasPrefix(error) == true)
    }

    @Test("A program's message is marked as such, whatever its signature", arguments: ["admin", "token:7"])
    func programs(writer: String) async throws {
        let room = SecretCode(stored: "tea")
        let messages = [MemberID(stored: writer), MemberID(stored: Sample.udid)].enumerated().map { index, sender in
            Message(
                id: MessageID(index), sender: sender, nickname: "Ann", content: MessageContent(stored: "x"),
                sentAt: Sample.time)
        }
        let relay = Relay(
            ScriptedStore(
                messages: { MessagePage(messages: messages, next: 1, room: room) },
                admin: AdminResponses(
                    messages: { Page(items: messages.map { MessageRecord(message: $0, room: room) }, next: nil) })),
            settings: ChatHTTPSettings(adminTokens: ["geheim"]))
        let answers = [
            try await relay.form("cmd=messages&udid=\(Sample.udid)"),
            try await relay.send(.get, "/v1/messages?room=tea", headers: [.authorization: "Bearer geheim"]),
        ]
        for answer in answers {
            let list = try #require(try JSONValue(parsing: answer.text).object?["messages"]?.array)
            let marks: [JSONValue?] = list.map { $0.object?["program"] }
            #expect(marks == [.bool(true), nil], "\(answer.text)")
        }
    }
}
