import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Messages that change, under /v1")
struct ChangesTests {
    private static let room = SecretCode(stored: "kitchen")

    private static func receipt(
        change: MessageID? = 57, revision: Int = 2, isNew: Bool = false, isRepeat: Bool = false
    ) -> ChangeReceipt {
        ChangeReceipt(
            message: 42, room: room, change: change, time: Sample.time, revision: revision, isNew: isNew,
            isRepeat: isRepeat)
    }

    private static let message = Message(
        id: 42, sender: .program(token: 11), nickname: "cron11",
        content: MessageContent(
            stored: "up", title: "db1",
            extras: MessageExtras(stored: #"{"tags":["ok"],"key":"db1","revision":2,"edited_at":"x","apart":true}"#)),
        sentAt: Sample.time)

    /// Calls a relay with the tokens of ``TokenAccessTests``.
    private static func call(
        _ method: HTTPRequest.Method, _ path: String, _ body: String? = nil, type: String = "application/json",
        token: String = "pct_post_kitchen", key: String? = nil,
        answers: AdminResponses = AdminResponses(change: { receipt() }, find: { .message(record, nil) })
    ) async throws -> (TestResponse, [ScriptedStore.Call]) {
        let relay = try TokenAccessTests.relay(
            ScriptedStore(post: Sample.receipt, admin: answers, real: RealStore(tokens: TokenAccessTests.tokens())))
        var headers: HTTPFields = [.authorization: "Bearer \(token)"]
        if body != nil { headers[.contentType] = type }
        headers[.idempotencyKey] = key
        let answer = try await relay.send(method, path, headers: headers, body: body.map { Array($0.utf8) })
        return (answer, relay.store.calls)
    }

    private static var record: MessageRecord { MessageRecord(message: message, room: room) }

    private static func author(
        _ token: Int64 = 11, room: SecretCode? = room, moderator: String? = nil
    ) -> ChangeAuthor {
        ChangeAuthor(
            writer: .program(token: token), isAdmin: moderator != nil, room: room,
            moderator: moderator.map { Moderator(name: $0, address: nil) })
    }

    private static func key(_ text: String) -> MessageReference { .key(MessageKey(stored: text)) }

    private static func content(_ text: String, tags: [String] = []) throws -> MessageContent {
        try MessageContent(parsing: text, extras: MessageExtras(tags: tags))
    }

    // MARK: - Posting

    @Test("A post with a key reaches the store with all its fields, as JSON and as text", arguments: [true, false])
    func keyed(isJSON: Bool) async throws {
        let (answer, calls) =
            isJSON
            ? try await Self.call(
                .post, "/v1/messages",
                #"{"text":"down","key":"db1","renotify":true,"tags":["warning","db"],"markdown":true,"icon":"https://example.org/i.png"}"#,
                key: "k1", answers: AdminResponses(change: { Self.receipt(change: nil, revision: 1, isNew: true) }))
            : try await Self.call(
                .post,
                "/v1/messages?key=db1&renotify=true&tags=warning,db&markdown=true&icon=https://example.org/i.png",
                "down", type: "text/plain", key: "k1",
                answers: AdminResponses(change: { Self.receipt(change: nil, revision: 1, isNew: true) }))
        #expect(answer.status == .created && answer.text == #"{"id":42,"room":"kitchen","revision":1}"#)
        #expect(answer.header("Location")?.hasSuffix("/v1/messages/42") == true)
        guard case .keyed(let post) = calls.first else {
            Issue.record("\(calls)")
            return
        }
        let extras = try MessageExtras(
            tags: ["warning", "db"], markdown: true, icon: "https://example.org/i.png")
        let request = PostRequest(
            member: .program(token: 11),
            program: PostRequest.Program(nickname: Nickname(stored: "cron11"), room: Self.room),
            content: try MessageContent(parsing: "down", extras: extras), idempotencyKey: "k1",
            client: post.request.client)
        #expect(post == KeyedPost(request, key: MessageKey(stored: "db1"), renotify: true) && calls.count == 1)
    }

    @Test("A post that replaces a message gets 200 and the number of the change")
    func replaced() async throws {
        let body = #"{"text":"up","key":"db1"}"#
        let (answer, _) = try await Self.call(.post, "/v1/messages", body)
        #expect(answer.status == .ok && answer.text == #"{"id":42,"room":"kitchen","revision":2,"change":57}"#)
        #expect(answer.header("Idempotency-Replayed") == nil)
        let (again, _) = try await Self.call(
            .post, "/v1/messages", body, answers: AdminResponses(change: { Self.receipt(isRepeat: true) }))
        #expect(again.header("Idempotency-Replayed") == "true")
    }

    @Test("A post without a key may have tags, and is posted as before")
    func plain() async throws {
        let (answer, calls) = try await Self.call(.post, "/v1/messages", #"{"text":"x","tags":["a"],"key":null}"#)
        #expect(answer.status == .created && answer.text == #"{"id":7,"room":"kitchen"}"#)
        guard case .post(let request) = calls.first else {
            Issue.record("\(calls)")
            return
        }
        #expect(try request.content == Self.content("x", tags: ["a"]))
    }

    @Test(
        "A wrong field is named with its rule",
        arguments: [
            (#"{"text":"x","key":"123"}"#, "key", "those are ids"),
            (#"{"text":"x","key":"a b"}"#, "key", "must have 1 to 64"),
            (#"{"text":"x","key":""}"#, "key", "must have 1 to 64"),
            (#"{"text":"x","key":7}"#, "key", "must be a string"),
            (#"{"text":"x","renotify":true}"#, "renotify", "needs a key"),
            (#"{"text":"x","renotify":1,"key":"a"}"#, "renotify", "must be true or false"),
            (#"{"text":"x","tags":"a"}"#, "tags", "must be an array"),
            (#"{"text":"x","tags":[1]}"#, "tags[0]", "must be a string"),
            (#"{"text":"x","tags":[""]}"#, "tags", ""), (#"{"text":"x","icon":"javascript:1"}"#, "icon", "http"),
            (#"{"text":"x","markdown":"yes"}"#, "markdown", "must be true or false"),
            (#"{"text":"x","revision":1}"#, "revision", "is unknown"),
        ])
    func wrongPost(body: String, field: String, rule: String) async throws {
        let (answer, calls) = try await Self.call(.post, "/v1/messages", body)
        let problem = try #require(try JSONValue(parsing: answer.text).object)
        #expect(answer.status == .badRequest && calls.isEmpty && problem["field"]?.text == field, "\(answer.text)")
        #expect(rule.isEmpty || problem["detail"]?.text?.contains(rule) == true, "\(answer.text)")
    }

    @Test("More tags than the limit, and longer ones, are refused")
    func manyTags() async throws {
        for tags in [[String](repeating: "a", count: 21), [String](repeating: "a", count: 65).joined()] as [Any] {
            let list = (tags as? [String]) ?? [tags as? String ?? ""]
            let body = JSONValue.object(["text": .string("x"), "tags": .texts(list)]).description
            #expect(try await Self.call(.post, "/v1/messages", body).0.status == .badRequest)
        }
    }

    // MARK: - Changes

    @Test(
        "A message is changed by its id or its key",
        arguments: [
            (.put, "/v1/messages/42", #"{"text":"up"}"#, .id(42), .edit(try content("up"), revision: nil)),
            (
                .put, "/v1/messages/db1", #"{"text":"up","revision":3,"renotify":true,"tags":["ok"]}"#, key("db1"),
                .edit(try content("up", tags: ["ok"]), revision: 3, renotify: true)
            ),
            (.post, "/v1/messages/db1:clear", nil, key("db1"), .clear),
            (.post, "/v1/messages/42:resolve", nil, .id(42), .resolve(nil)),
            (.post, "/v1/messages/db1:resolve", "{}", key("db1"), .resolve(nil)),
            (
                .post, "/v1/messages/db1:resolve", #"{"text":"up","renotify":true}"#, key("db1"),
                .resolve(try content("up"), renotify: true)
            ),
        ] as [(HTTPRequest.Method, String, String?, MessageReference, MessageChangeRequest.Action)])
    func changes(
        method: HTTPRequest.Method, path: String, body: String?, message: MessageReference,
        action: MessageChangeRequest.Action
    ) async throws {
        let (answer, calls) = try await Self.call(method, path, body, key: "k2")
        #expect(answer.status == .ok && answer.text == #"{"id":42,"room":"kitchen","revision":2,"change":57}"#)
        #expect(
            calls == [.change(MessageChangeRequest(message, by: Self.author(), action, idempotencyKey: "k2"))])
        let (again, _) = try await Self.call(
            method, path, body, answers: AdminResponses(change: { Self.receipt(isRepeat: true) }))
        #expect(again.status == .ok && again.header("Idempotency-Replayed") == "true")
    }

    @Test("The new text may be the body, with the other fields in the query")
    func text() async throws {
        let (_, put) = try await Self.call(
            .put, "/v1/messages/db1?revision=3&renotify=true&tags=ok", "up", type: "text/plain")
        let edit = MessageChangeRequest.Action.edit(
            try Self.content("up", tags: ["ok"]), revision: 3, renotify: true)
        #expect(put == [.change(MessageChangeRequest(Self.key("db1"), by: Self.author(), edit))])
        let (_, resolve) = try await Self.call(
            .post, "/v1/messages/db1:resolve", "up", type: "application/x-www-form-urlencoded")
        #expect(
            resolve == [
                .change(MessageChangeRequest(Self.key("db1"), by: Self.author(), .resolve(try Self.content("up"))))
            ])
    }

    @Test("A deletion gets 204, also when it is repeated")
    func deletion() async throws {
        let (answer, calls) = try await Self.call(.delete, "/v1/messages/db1", key: "k3")
        #expect(answer.status == .noContent && answer.text.isEmpty)
        #expect(
            calls == [
                .change(MessageChangeRequest(Self.key("db1"), by: Self.author(), .delete, idempotencyKey: "k3"))
            ])
        let (again, _) = try await Self.call(
            .delete, "/v1/messages/db1", answers: AdminResponses(change: { Self.receipt(isRepeat: true) }))
        #expect(again.status == .noContent && again.header("Idempotency-Replayed") == "true")
    }

    @Test(
        "A key needs a room; an id does not; a token for one room has it",
        arguments: [
            ("pct_post", "/v1/messages/db1", 400, nil), ("pct_post", "/v1/messages/db1?room=kitchen", 204, author(1)),
            ("pct_post", "/v1/messages/42", 204, author(1, room: nil)),
            ("pct_post", "/v1/messages/42?room=kitchen", 204, author(1)),
            ("pct_post_kitchen", "/v1/messages/42", 204, author()),
            ("pct_post_kitchen", "/v1/messages/db1?room=hall", 403, nil),
            ("pct_post_kitchen", "/v1/messages/42?room=hall", 403, nil),
            ("pct_admin", "/v1/messages/42", 204, author(5, room: nil, moderator: "cron5")),
            ("pct_admin", "/v1/messages/db1", 400, nil),
            (
                "geheim", "/v1/messages/42", 204,
                ChangeAuthor(writer: .administrator, isAdmin: true, moderator: Moderator(name: "admin", address: nil))
            ),
        ] as [(String, String, Int, ChangeAuthor?)])
    func authors(token: String, path: String, status: Int, author: ChangeAuthor?) async throws {
        let (answer, calls) = try await Self.call(.delete, path, token: token)
        #expect(answer.status.code == status, "\(answer.text)")
        let message: MessageReference = path.contains("42") ? .id(42) : Self.key("db1")
        #expect(calls == (author.map { [.change(MessageChangeRequest(message, by: $0, .delete))] } ?? []))
        if status == 400 { #expect(answer.text.contains(#""field":"room""#)) }
    }

    @Test(
        "A wrong change is refused with the field",
        arguments: [
            (.put, "/v1/messages/db1", "{}", "text"), (.put, "/v1/messages/db1", #"{"text":""}"#, "text"),
            (.put, "/v1/messages/db1", #"{"text":"x","revision":0}"#, "revision"),
            (.put, "/v1/messages/db1", #"{"text":"x","revision":"3"}"#, "revision"),
            (.put, "/v1/messages/db1", #"{"text":"x","revision":1.5}"#, "revision"),
            (.put, "/v1/messages/db1", #"{"text":"x","name":"n"}"#, "name"),
            (.put, "/v1/messages/db1", #"{"text":"x","key":"n"}"#, "key"),
            (.put, "/v1/messages/a%20b", #"{"text":"x"}"#, "id"), (.delete, "/v1/messages/a.b", nil, "id"),
            (.post, "/v1/messages/db1:resolve", #"{"title":"x"}"#, "title"),
            (.post, "/v1/messages/db1:resolve?urgent=true", nil, "urgent"),
            (.post, "/v1/messages/db1:clear?text=x", nil, "text"), (.get, "/v1/messages/db1?since=1", nil, "since"),
        ] as [(HTTPRequest.Method, String, String?, String)])
    func wrongChange(method: HTTPRequest.Method, path: String, body: String?, field: String) async throws {
        let (answer, calls) = try await Self.call(method, path, body)
        #expect(answer.status == .badRequest && calls.isEmpty, "\(answer.text)")
        #expect(try JSONValue(parsing: answer.text).object?["field"]?.text == field, "\(answer.text)")
    }

    @Test("The names of keys and calls do not mix")
    func paths() async throws {
        for (method, path, status) in [
            (.put, "/v1/messages/db1:clear", 405), (.post, "/v1/messages/db1", 405),
            (.get, "/v1/messages/db1:resolve", 405),
            (.post, "/v1/messages/clear", 405), (.post, "/v1/messages/db1:close", 405),
            (.post, "/v1/messages/:clear", 400),
        ] as [(HTTPRequest.Method, String, Int)] {
            // Only administrators learn which methods a path has.
            let (answer, calls) = try await Self.call(
                method, path, "{}", token: status == 405 ? "geheim" : "pct_post_kitchen")
            #expect(answer.status.code == status && calls.isEmpty, "\(method) \(path): \(answer.text)")
        }
        let (_, calls) = try await Self.call(.post, "/v1/messages/clear:clear")
        #expect(calls == [.change(MessageChangeRequest(Self.key("clear"), by: Self.author(), .clear))])
    }

    @Test("If several authors have the key, the response has the ids to choose from")
    func ambiguous() async throws {
        let (answer, _) = try await Self.call(
            .delete, "/v1/messages/db1?room=kitchen", token: "geheim",
            answers: AdminResponses(change: { () throws(ChatError) in
                var error = ChatError(.conflict, "Several authors have the key", field: "id")
                error.ids = [42, 45]
                throw error
            }))
        let problem = try #require(try JSONValue(parsing: answer.text).object)
        #expect(answer.status == .conflict && problem["ids"] == .array([.number(42), .number(45)]))
    }

    @Test("Changes count towards the limit of members, as posts do")
    func limit() async throws {
        var relay = try TokenAccessTests.relay(
            ScriptedStore(
                admin: AdminResponses(change: { Self.receipt() }), real: RealStore(tokens: TokenAccessTests.tokens())))
        relay.settings.memberRate = RateLimit(perSecond: 0.001, burst: 2)
        let statuses = try await relay.requests { send in
            var statuses: [Int] = []
            for _ in 0..<3 {
                statuses.append(
                    try await send(
                        .post, "/v1/messages/42:clear", [.authorization: "Bearer pct_post"], nil
                    ).status.code)
            }
            return statuses
        }
        #expect(statuses == [200, 200, 429])
    }

    // MARK: - Messages for later

    @Test(
        "A post may name a time, as text or in seconds; the response has it",
        arguments: [#""2026-05-28T20:26:41Z""#, #""2026-05-28T22:26:41+02:00""#, "1780000001"])
    func later(time: String) async throws {
        let due = Sample.time + .seconds(1)
        let receipt = ChangeReceipt(message: 42, room: Self.room, time: Sample.time, isNew: true, due: due)
        let (answer, calls) = try await Self.call(
            .post, "/v1/messages", #"{"text":"x","not_before":\#(time)}"#, answers: AdminResponses(change: { receipt }))
        #expect(answer.status == .created)
        #expect(
            answer.text == #"{"id":42,"room":"kitchen","revision":1,"not_before":"2026-05-28T20:26:41.000Z"}"#)
        guard case .keyed(let post) = calls.first else {
            Issue.record("\(calls)")
            return
        }
        #expect(post.notBefore == due && post.key == nil)
        let (_, plain) = try await Self.call(
            .post, "/v1/messages?not_before=1780000001&key=a", "x", type: "text/plain",
            answers: AdminResponses(change: { receipt }))
        guard case .keyed(let post) = plain.first else {
            Issue.record("\(plain)")
            return
        }
        #expect(post.notBefore == due && post.key?.text == "a")
        let (_, put) = try await Self.call(.put, "/v1/messages/a", #"{"text":"x","not_before":\#(time)}"#)
        let edit = MessageChangeRequest.Action.edit(try Self.content("x"), notBefore: due)
        #expect(put == [.change(MessageChangeRequest(Self.key("a"), by: Self.author(), edit))])
    }

    @Test("A time that is none is refused", arguments: [#""soon""#, "1.5", "-1", "true", #""""#, "99999999999999"])
    func wrongTime(time: String) async throws {
        let (answer, calls) = try await Self.call(
            .post, "/v1/messages", #"{"text":"x","not_before":\#(time)}"#)
        #expect(answer.status == .badRequest && calls.isEmpty)
        #expect(answer.text.contains(#""field":"not_before""#), "\(answer.text)")
    }

    @Test(
        "A program lists its own scheduled messages, an administrator those of the room",
        arguments: [("pct_post_kitchen", MemberID.program(token: 11)), ("geheim", nil)] as [(String, MemberID?)])
    func schedules(token: String, author: MemberID?) async throws {
        let message = ScheduledMessage(
            id: 42, room: Self.room, author: .administrator, nickname: "Relay", key: nil,
            content: MessageContent(stored: "x"), due: Sample.time)
        let answers = AdminResponses(scheduled: { Page(items: [message], next: 42) })
        let (answer, calls) = try await Self.call(
            .get, "/v1/messages?scheduled=true&room=kitchen&limit=5&cursor=3", token: token, answers: answers)
        #expect(answer.text.hasPrefix(#"{"scheduled":[{"id":42,"#) && answer.text.hasSuffix(#"],"next":42}"#))
        #expect(calls == [.scheduled(Self.room, author, after: 3, limit: 5)])
        for (wrong, status) in [
            ("scheduled=false", 400), ("scheduled=true&since=1", 400),
            ("scheduled=true&room=hall", token == "geheim" ? 200 : 403),
        ] {
            let (answer, _) = try await Self.call(
                .get, "/v1/messages?\(wrong)" + (wrong.contains("room") ? "" : "&room=kitchen"), token: token,
                answers: answers)
            #expect(answer.status.code == status, "\(wrong)")
        }
    }

    // MARK: - Reading

    @Test("An author reads its own message")
    func ownMessage() async throws {
        let (answer, calls) = try await Self.call(.get, "/v1/messages/db1")
        #expect(calls == [.find(Self.key("db1"), Self.author())])
        #expect(
            answer.text
                == #"{"id":42,"room":"kitchen","name":"cron11","bytes":2,"sent_at":"2026-05-28T20:26:40.000Z","#
                + #""program":true,"text":"up","title":"db1","link":null,"tags":["ok"],"key":"db1","revision":2,"#
                + #""edited_at":"x"}"#)
    }

    @Test("A scheduled message is shown with its time")
    func scheduled() async throws {
        let message = ScheduledMessage(
            id: 42, room: Self.room, author: .program(token: 11), nickname: "cron11", key: MessageKey(stored: "late"),
            content: MessageContent(stored: "wake up"), due: Sample.time)
        let (answer, _) = try await Self.call(
            .get, "/v1/messages/42", answers: AdminResponses(find: { .scheduled(message) }))
        #expect(
            answer.text
                == #"{"id":42,"room":"kitchen","name":"cron11","text":"wake up","title":null,"link":null,"revision":1,"#
                + #""not_before":"2026-05-28T20:26:40.000Z","held":false,"key":"late"}"#)
    }

    @Test("An administrator gets the progress of a message, by its id, its key, and the number of its schedule")
    func progress() async throws {
        let progress = MessageProgress(
            message: Self.record, isQueueing: false, counts: [.sent: 2], readers: 2, shown: 0, fetched: 0, fetchedBy: []
        )
        let answers = AdminResponses(
            progress: { progress }, messageDeliveries: { Page(items: [], next: nil) },
            find: { .message(Self.record, nil) })
        let admin = ChangeAuthor(
            writer: .administrator, isAdmin: true, room: Self.room, moderator: Moderator(name: "admin", address: nil))
        let (byID, calls) = try await Self.call(.get, "/v1/messages/42?limit=5", token: "geheim", answers: answers)
        #expect(byID.text.contains(#""counts":{"#) && !byID.text.contains(#""text""#))
        #expect(calls == [.progress(42), .messageDeliveries(42, after: nil, limit: 5)])
        let (byKey, keyCalls) = try await Self.call(
            .get, "/v1/messages/db1?room=kitchen&limit=5", token: "geheim", answers: answers)
        #expect(byKey.text == byID.text)
        #expect(
            keyCalls == [.find(Self.key("db1"), admin), .progress(42), .messageDeliveries(42, after: nil, limit: 5)])
        let (missing, _) = try await Self.call(
            .get, "/v1/messages/7", token: "geheim",
            answers: AdminResponses(
                progress: { () throws(ChatError) in throw .notFound("message") },
                find: { () throws(ChatError) in throw .notFound("message") }))
        #expect(missing.status == .notFound)
    }
}
