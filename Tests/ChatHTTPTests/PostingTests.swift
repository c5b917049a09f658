import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import NIOCore
import Testing

@testable import ChatHTTP

@Suite("Messages of programs by our own call, Gotify's and ntfy's")
struct PostingTests {
    private static func send(
        _ path: String, _ body: String, by method: HTTPRequest.Method = .post, type: String? = "text/plain",
        token: String? = "pct_post_kitchen", headers: HTTPFields = [:]
    ) async throws -> (TestResponse, PostRequest?) {
        let relay = try TokenAccessTests.relay()
        var headers = headers
        if let type { headers[.contentType] = type }
        if let token { headers[.authorization] = "Bearer \(token)" }
        let answer = try await relay.send(method, path, headers: headers, body: Array(body.utf8))
        guard case .post(let request) = relay.store.calls.first else { return (answer, nil) }
        return (answer, request)
    }

    private static func program(
        name: String = "cron11", room: String = "kitchen"
    ) -> PostRequest.Program {
        PostRequest.Program(nickname: Nickname(stored: name), room: SecretCode(stored: room))
    }

    // MARK: - POST /v1/messages

    @Test("A message can be posted as JSON with every field")
    func json() async throws {
        let (answer, request) = try await Self.send(
            "/v1/messages",
            #"{"room":" kitchen ","text":" done ","title":"Backup","name":"srv","link":"https://example.org/x","priority":5,"sound":""}"#,
            type: "application/json; charset=utf-8", headers: [.idempotencyKey: "k1"])
        #expect(answer.status == .created && answer.text == #"{"id":7,"room":"kitchen"}"#)
        #expect(answer.header("Location") == "../v1/messages/7")
        let content = try MessageContent(
            parsing: "done", title: "Backup", link: "https://example.org/x", priority: 5, sound: "")
        #expect(
            request
                == PostRequest(
                    member: MemberID(stored: "token:11"), program: Self.program(name: "srv"), content: content,
                    idempotencyKey: "k1",
                    client: request?.client ?? ClientInfo()))
    }

    @Test(
        "A message can be posted as plain text, under every content type that curl uses",
        arguments: ["text/plain", "application/x-www-form-urlencoded", nil])
    func plain(type: String?) async throws {
        let (answer, request) = try await Self.send(
            "/v1/messages?title=All+well&priority=10&sound=ping", "a=b&c%20d\n", type: type)
        #expect(answer.status == .created)
        #expect(request?.program == Self.program())
        let content = try MessageContent(parsing: "a=b&c%20d", title: "All well", priority: 10, sound: "ping")
        #expect(request?.content == content)
        #expect(request?.idempotencyKey == nil)
    }

    @Test("The administrator names the room, and the message has the relay's name")
    func administrator() async throws {
        let (answer, request) = try await Self.send("/v1/messages?room=hall", "x", token: "geheim")
        #expect(answer.status == .created)
        #expect(request?.program == Self.program(name: "Relay", room: "hall") && request?.member.text == "admin")
    }

    @Test(
        "The error names an invalid field",
        arguments: [
            (#"{"room":"hall","text":"x"}"#, 403, "room"), (#"{"text":""}"#, 400, "text"), ("{}", 400, "text"),
            (#"{"text":7}"#, 400, "text"), (#"{"text":"x","title":""}"#, 400, "title"),
            (#"{"text":"x","name":"a: b"}"#, 400, "name"),
            (#"{"text":"x","name":"a: \u0308b"}"#, 400, "name"), (#"{"text":"x","link":"javascript:1"}"#, 400, "link"),
            (#"{"text":"x","priority":7}"#, 400, "priority"), (#"{"text":"x","priority":"5"}"#, 400, "priority"),
            (#"{"text":"x","sound":"\#(String(repeating: "s", count: 65))"}"#, 400, "sound"),
            (#"{"text":"x","urgent":1}"#, 400, "urgent"),
            (#"{"text":"x","urgent":true,"priority":5}"#, 400, "priority"), (#"{"text":"x","txet":"y"}"#, 400, "txet"),
            (#"{"text":"\#(String(repeating: "t", count: 4001))"}"#, 400, "text"),
            (#"{"text":"x","title":"\#(String(repeating: "t", count: 256))"}"#, 400, "title"),
        ])
    func invalid(json: String, status: Int, field: String) async throws {
        let (answer, request) = try await Self.send("/v1/messages", json, type: "application/json")
        #expect(answer.status.code == status && request == nil, "\(answer.text)")
        #expect(try JSONValue(parsing: answer.text).object?["field"]?.text == field)
    }

    @Test("Other content types and text that is not UTF-8 are refused")
    func types() async throws {
        #expect(try await Self.send("/v1/messages", "x", type: "multipart/form-data; boundary=b").0.status.code == 415)
        #expect(try await Self.send("/v1/messages", "x", headers: [.contentEncoding: "gzip"]).0.status.code == 415)
        let relay = try TokenAccessTests.relay()
        let answer = try await relay.send(
            .post, "/v1/messages", headers: [.authorization: "Bearer pct_post_kitchen"], body: [0xFF])
        #expect(answer.status == .badRequest)
        #expect(try await Self.send("/v1/messages?rom=x", "x").0.status == .badRequest)
        #expect(try await Self.send("/v1/messages?priority=x", "x").0.status == .badRequest)
    }

    @Test("A token's messages count towards the limit of members; the administrator's do not")
    func rate() async throws {
        var relay = try TokenAccessTests.relay()
        relay.settings.memberRate = RateLimit(perSecond: 0.001, burst: 2)
        let server = relay.server()
        for (token, expected) in [("pct_post_kitchen", [201, 201, 429]), ("geheim", [201, 201, 201])] {
            let statuses = try await server.application().test(.router) { client in
                var statuses: [Int] = []
                for _ in 0..<3 {
                    let answer = try await client.execute(
                        uri: "/v1/messages?room=kitchen", method: .post, headers: [.authorization: "Bearer \(token)"],
                        body: ByteBuffer(string: "x"))
                    statuses.append(answer.status.code)
                }
                return statuses
            }
            #expect(statuses == expected)
        }
    }

    // MARK: - Gotify

    @Test(
        "Gotify: JSON and forms are accepted, with the token in a header or in the query",
        arguments: [
            (#"{"message":"done","title":"T","priority":8}"#, "application/json", "", ["X-Gotify-Key"], 8),
            (#"{"message":"done","title":"T"}"#, "application/json", "?token=pct_post_kitchen", [], 5),
            ("message=done&title=T&priority=2", "application/x-www-form-urlencoded", "", ["X-Gotify-Key"], 2),
            ("message=done&title=T", "application/x-www-form-urlencoded", "", ["Authorization"], 5),
        ])
    func gotify(body: String, type: String, query: String, header: [String], priority: Int64) async throws {
        var headers: HTTPFields = [:]
        for name in header.compactMap({ HTTPField.Name($0) }) {
            headers[name] = (name == .authorization ? "Bearer " : "") + "pct_post_kitchen"
        }
        let (answer, request) = try await Self.send(
            "/gotify/message" + query, body, type: type, token: nil, headers: headers)
        #expect(answer.status == .ok, "\(answer.text)")
        let json = try #require(try JSONValue(parsing: answer.text).object)
        #expect(json["id"]?.integer == 7 && json["appid"]?.integer == 1 && json["priority"]?.integer == priority)
        #expect(json["message"]?.text == "done" && json["title"]?.text == "T")
        let isQuiet = priority <= 3
        #expect(
            try request?.content
                == MessageContent(
                    parsing: "done", title: "T", priority: isQuiet ? 5 : nil, sound: isQuiet ? "" : nil,
                    isUrgent: priority >= 8))
    }

    @Test(
        "A message is urgent with `urgent`, with ntfy's priority 5, and from Gotify's priority 8 on",
        arguments: [
            ("/v1/messages", #"{"text":"x","urgent":true}"#, true), ("/v1/messages?urgent=true", "x", true),
            ("/v1/messages", #"{"text":"x","urgent":true,"priority":10}"#, true),
            ("/v1/messages", #"{"text":"x","urgent":false,"priority":10}"#, false),
            ("/v1/messages?urgent=false", "x", false), ("/ntfy/kitchen?priority=5", "x", true),
            ("/ntfy/kitchen?priority=4", "x", false), ("/gotify/message", #"{"message":"x","priority":8}"#, true),
            ("/gotify/message", #"{"message":"x","priority":7}"#, false),
        ] as [(String, String, Bool)])
    func urgent(path: String, body: String, isUrgent: Bool) async throws {
        let type = body.hasPrefix("{") ? "application/json" : "text/plain"
        let (answer, request) = try await Self.send(path, body, type: type)
        #expect(answer.status.kind == .successful, "\(answer.text)")
        let content = try #require(request?.content)
        #expect(content.isUrgent == isUrgent && (content.priority == 10 || !isUrgent))
    }

    @Test("Gotify: values beyond our limits are adapted, and unknown members are ignored")
    func gotifyFitting() async throws {
        let (answer, request) = try await Self.send(
            "/gotify/message",
            #"{"message":"a\tb\u001b[0m\n\#(String(repeating: "ä", count: 3000))","title":" \n ","contentType":"x","#
                + #""extras":{"client::notification":{"click":{"url":"https://example.org/"}}}}"#,
            type: "application/json")
        #expect(answer.status == .ok, "\(answer.text)")
        let text = try #require(request?.content.text.text)
        #expect(text.hasPrefix("a\tb [0m\nää") && text.hasSuffix("ä…") && text.utf8.count <= 4000)
        #expect(request?.content == MessageContent(stored: text, link: "https://example.org/"))
    }

    @Test(
        "Gotify: errors have its own form",
        arguments: [("pct_wrong", 401), ("", 401), ("pct_read", 403), ("pct_post", 403), ("geheim", 401)])
    func gotifyRefused(token: String, status: Int) async throws {
        let (answer, _) = try await Self.send(
            "/gotify/message", #"{"message":"x"}"#, type: "application/json", token: nil,
            headers: [.gotifyKey: token])
        #expect(answer.status.code == status)
        let json = try #require(try JSONValue(parsing: answer.text).object)
        #expect(json["errorCode"]?.integer == Int64(status) && json["errorDescription"]?.text != nil)
    }

    @Test("The checks that Gotify's and ntfy's clients make for a server succeed")
    func lookingFirst() async throws {
        for (path, text) in [
            ("/gotify/version", #"{"version":"1.2.3","commit":"","buildDate":""}"#),
            ("/gotify/health", #"{"health":"green","database":"green"}"#), ("/ntfy/v1/health", #"{"healthy":true}"#),
        ] {
            let answer = try await TokenAccessTests.relay().send(.get, path)
            #expect(answer.status == .ok && answer.text == text)
        }
    }

    // MARK: - ntfy

    private static func credentials(_ text: String) -> String { Data(text.utf8).base64EncodedString() }

    @Test(
        "ntfy: the token is accepted as Bearer, as password, and in the query",
        arguments: [
            ("Bearer pct_post_kitchen", ""), ("Basic \(credentials("ann:pct_post_kitchen"))", ""),
            ("basic \(credentials(":pct_post_kitchen"))", ""), ("Basic \(credentials("pct_post_kitchen:"))", ""),
            (nil, "?auth=" + credentials("Bearer pct_post_kitchen").replacing("=", with: "")),
            (nil, "?auth=" + credentials("Basic " + credentials("ann:pct_post_kitchen")).replacing("=", with: "")),
        ] as [(String?, String)])
    func ntfyTokens(header: String?, query: String) async throws {
        var headers: HTTPFields = [:]
        if let header { headers[.authorization] = header }
        let (answer, request) = try await Self.send("/ntfy/kitchen" + query, "done", token: nil, headers: headers)
        #expect(answer.status == .ok, "\(answer.text)")
        #expect(request?.program == Self.program())
    }

    @Test(
        "ntfy: title, priority and click are read by all their names",
        arguments: [
            ("?title=T&priority=4&click=https://example.org/", [:]),
            ("?t=T&p=high&Click=https%3A%2F%2Fexample.org%2F", [:]),
            ("", ["X-Title": "T", "X-Priority": "4", "X-Click": "https://example.org/"]),
            ("", ["ti": "T", "prio": "HIGH", "Click": "https://example.org/", "Priority": "u=4"]),
            ("", ["Title": "=?UTF-8?B?VA==?=", "Priority": "high", "click": "https://example.org/"]),
            ("", ["Title": "=?utf-8?q?=54?=", "Priority": "4", "click": "https://example.org/", "Markdown": "0"]),
        ] as [(String, [String: String])])
    func ntfyParameters(query: String, named: [String: String]) async throws {
        var headers: HTTPFields = [:]
        for (name, value) in named { headers[try #require(HTTPField.Name(name))] = value }
        let (answer, request) = try await Self.send("/ntfy/kitchen" + query, "done", by: .put, headers: headers)
        #expect(answer.status == .ok, "\(answer.text)")
        #expect(
            try request?.content
                == MessageContent(parsing: "done", title: "T", link: "https://example.org/", priority: 10))
        #expect(
            answer.text
                == #"{"id":"m00000000007","time":1780000000,"event":"message","topic":"kitchen","message":"done","priority":4,"#
                + #""title":"T","click":"https://example.org/"}"#)
    }

    @Test(
        "ntfy: JSON of any media type is accepted at its own address and at the server's",
        arguments: ["/ntfy", "/ntfy/", "/"], ["application/json", "text/plain", "application/x-www-form-urlencoded"])
    func ntfyJSON(path: String, type: String) async throws {
        let (answer, request) = try await Self.send(
            path, #"{"topic":"kitchen","message":"done","priority":1,"tags":["a"],"actions":[]}"#,
            type: type, headers: [HTTPField.Name("X-Title")!: "T"])
        #expect(answer.status == .ok, "\(answer.text)")
        let content = try MessageContent(
            parsing: "done", title: "T", priority: 1, sound: "", extras: MessageExtras(tags: ["a"]))
        #expect(request?.content == content)
    }

    @Test(
        "ntfy: tags, Markdown and icon are kept under all their names",
        arguments: [
            ("?tags=skull,+a+b&markdown=yes&icon=https://example.org/i.png", [:], "text/plain"),
            ("?ta=skull,a+b,&md=1&Icon=https://example.org/i.png", [:], "text/plain"),
            (
                "", ["X-Tag": "skull,a b", "X-Markdown": "true", "X-Icon": "https://example.org/i.png"],
                "application/octet-stream"
            ),
            ("", ["Tags": "skull, a b", "icon": "https://example.org/i.png"], "text/markdown; charset=utf-8"),
        ] as [(String, [String: String], String)])
    func ntfyExtras(query: String, named: [String: String], type: String) async throws {
        var headers: HTTPFields = [:]
        for (name, value) in named { headers[try #require(HTTPField.Name(name))] = value }
        let (answer, request) = try await Self.send(
            "/ntfy/kitchen" + query, "done", by: .put, type: type, headers: headers)
        let extras = try MessageExtras(tags: ["skull", "a b"], markdown: true, icon: "https://example.org/i.png")
        #expect(answer.status == .ok && request?.content.extras == extras, "\(answer.text)")
        #expect(
            answer.text.hasSuffix(
                #""icon":"https://example.org/i.png","tags":["skull","a b"],"content_type":"text/markdown"}"#),
            "\(answer.text)")
    }

    @Test(
        "ntfy: in JSON too, and what exceeds a limit is left out instead of the message",
        arguments: [
            (#""tags":["a","b, c"],"markdown":true,"icon":"http://example.org/"}"#, ["a", "b, c"], true, true, nil),
            (#""tags":null,"markdown":null,"icon":null,"sequence_id":null}"#, [], false, false, nil),
            (#""tags":[],"markdown":false,"icon":"","sequence_id":""}"#, [], false, false, nil),
            (#""tags":"a,b","markdown":"x"}"#, ["a", "b"], false, false, nil),
            (#""tags":["a","","\u0007",7]}"#, ["a", "7"], false, false, ["tags"]),
            (
                #""tags":["\#(String(repeating: "ä", count: 40))"]}"#, [String(repeating: "ä", count: 30) + "…"], false,
                false, nil
            ),
            (#""icon":"icon.png"}"#, [], false, false, ["icon"]),
        ] as [(String, [String], Bool, Bool, [String]?)])
    func ntfyExtrasInJSON(
        members: String, tags: [String], isMarkdown: Bool, hasIcon: Bool, leftOut: [String]?
    ) async throws {
        let (answer, request) = try await Self.send("/ntfy", #"{"topic":"kitchen","message":"m","# + members)
        let extras = try MessageExtras(
            tags: tags, markdown: isMarkdown, icon: hasIcon ? "http://example.org/" : nil)
        #expect(answer.status == .ok && request?.content.extras == extras, "\(answer.text)")
        #expect(try JSONValue(parsing: answer.text).object?["left_out"] == leftOut.map { .texts($0) })
    }

    @Test("ntfy: of many tags, the first 20 are kept")
    func ntfyManyTags() async throws {
        let (answer, request) = try await Self.send(
            "/ntfy/kitchen?tags=" + (1...21).map { "t\($0)" }.joined(separator: ","), "x")
        #expect(request?.content.extras.tags == (1...20).map { "t\($0)" }, "\(answer.text)")
        #expect(answer.text.hasSuffix(#","left_out":["tags"]}"#))
    }

    @Test(
        "ntfy: JSON is read as leniently as by a server in Go",
        arguments: [
            (#"{"topic":"kitchen","message":"cut \ud83d"}"#, "cut \u{FFFD}"),
            ("\u{FEFF}" + #"{"topic":"kitchen","message":"a"}"#, "a"),
            (#"{"topic":"kitchen","message":"a","message":"b"}"#, "b"), (#"{"Topic":"kitchen","MESSAGE":"a"}"#, "a"),
            (#"{"topic":"kitchen","message":"a\\nb","priority":0,"title":"","delay":null,"call":7}"#, "a\\nb"),
        ])
    func ntfyCareless(json: String, text: String) async throws {
        let (answer, request) = try await Self.send("/ntfy", json)
        #expect(answer.status == .ok, "\(answer.text)")
        #expect(request?.content == MessageContent(stored: text))
        #expect(request?.program == Self.program())
    }

    @Test("JSON that Gotify's server would read is read, and /v1 says where it is wrong")
    func careless() async throws {
        for (member, problem) in [
            (#""\udc00 x""#, "half of a surrogate pair at byte 13"),
            (#""a","MEMBER":"\ufffd x""#, "duplicate member name at byte 16"),
        ] {
            let (answer, request) = try await Self.send(
                "/gotify/message", "{\"message\":\(member.replacing("MEMBER", with: "message"))}",
                type: "application/json",
                token: nil, headers: [.gotifyKey: "pct_post_kitchen"])
            #expect(answer.status == .ok && request?.content.text.text == "\u{FFFD} x", "\(answer.text)")
            let strict = try await Self.send(
                "/v1/messages", "{\"text\":   \(member.replacing("MEMBER", with: "text"))}", type: "application/json"
            ).0
            #expect(strict.status == .badRequest && strict.text.contains(problem), "\(strict.text)")
        }
        let marked = try await Self.send("/v1/messages", "\u{FEFF}{}", type: "application/json").0
        #expect(marked.status == .badRequest && marked.text.contains("byte order mark"), "\(marked.text)")
    }

    @Test(
        "A body in a declared charset is converted",
        arguments: [
            ("/v1/messages", "text/plain; charset=ISO-8859-1", ""),
            ("/ntfy/kitchen", "text/plain;charset=\"latin1\"", ""),
            ("/ntfy/kitchen", "text/plain; charset=windows-1252", ""),
            ("/v1/messages", "application/json; charset=iso-8859-1", "text"),
            ("/ntfy", "text/plain; charset=iso-8859-1", "message"),
            ("/gotify/message", "application/json; charset=iso-8859-1", "message"),
        ])
    func charsets(path: String, type: String, member: String) async throws {
        let relay = try TokenAccessTests.relay()
        let text = Array("gr".utf8) + [0xF6, 0xDF] + Array("er".utf8)
        let start = member == "text" ? #"{"text":""# : #"{"topic":"kitchen","\#(member)":""#
        let answer = try await relay.send(
            .post, path, headers: [.contentType: type, .authorization: "Bearer pct_post_kitchen"],
            body: member.isEmpty ? text : Array(start.utf8) + text + Array("\"}".utf8))
        #expect(answer.status.code / 100 == 2, "\(answer.text)")
        guard case .post(let request) = relay.store.calls.first else {
            Issue.record("nothing was posted")
            return
        }
        #expect(request.content.text.text == "größer")
    }

    @Test(
        "ntfy: encoded words are read in each charset that forms may have",
        arguments: [
            ("=?ISO-8859-1?Q?gr=F6=DFer_als?= x", "größer als x"), ("=?iso-8859-1?B?Z3L232Vy?=", "größer"),
            ("=?windows-1252?Q?5_=80?=", "5 €"), ("=?utf-8*en?Q?=E2=82=AC?= =?ISO-8859-1?Q?=F6?=", "€ö"),
            ("=?utf-8?B?gICA?=", "=?utf-8?B?gICA?="), ("=?koi8-r?Q?=F6?=", "=?koi8-r?Q?=F6?="),
        ])
    func encodedWords(header: String, title: String) async throws {
        let (_, request) = try await Self.send("/ntfy/kitchen", "x", headers: [HTTPField.Name("Title")!: header])
        #expect(request?.content.title == title)
    }

    @Test(
        "ntfy: a message with a file is posted without the file, and the answer says so",
        arguments: [
            ("?message=Door+open&filename=pic.jpg&title=T", [0xFF, 0xD8, 0, 1], "Door open", true),
            ("?m=Door+open&f=notes.txt", Array("text".utf8), "Door open", true),
            ("?filename=notes.txt", Array("text".utf8), "text", false),
            ("?message=m", Array("body".utf8), "body", false),
            ("", [0xFF, 0xD8], "A file was sent, which this relay does not keep", true),
            ("?file=pic.jpg", [0x50, 0x4B, 0, 0], "A file was sent, which this relay does not keep: pic.jpg", true),
            ("?message=one%5Cntwo&filename=a", [0], "one\ntwo", true), ("?filename=a.jpg&message=m", [], "m", false),
        ] as [(String, [UInt8], String, Bool)])
    func ntfyFile(query: String, body: [UInt8], text: String, hasFile: Bool) async throws {
        let relay = try TokenAccessTests.relay()
        let answer = try await relay.send(
            .put, "/ntfy/kitchen" + query, headers: [.authorization: "Bearer pct_post_kitchen"], body: body)
        #expect(answer.status == .ok, "\(answer.text)")
        guard case .post(let request) = relay.store.calls.first else {
            Issue.record("nothing was posted")
            return
        }
        #expect(request.content.text.text == text)
        let leftOut = try JSONValue(parsing: answer.text).object?["left_out"]
        #expect(leftOut == (hasFile ? .texts(["file"]) : nil))
    }

    @Test("ntfy: a large file does not prevent its message, and a long text is cut within no character")
    func ntfyLargeFile() async throws {
        let relay = try TokenAccessTests.relay()
        for (query, body, text) in [
            ("?message=m&filename=a.mp4", [UInt8](repeating: 0xFF, count: 200_000), "m"),
            ("?filename=log.txt", Array("x".utf8) + Array(String(repeating: "ä", count: 100_000).utf8), nil),
        ] {
            let answer = try await relay.send(
                .put, "/ntfy/kitchen" + query, headers: [.authorization: "Bearer pct_post_kitchen"], body: body)
            #expect(answer.status == .ok, "\(answer.text)")
            guard case .post(let request) = relay.store.calls.last else {
                Issue.record("nothing was posted")
                return
            }
            #expect(text.map { request.content.text.text == $0 } ?? request.content.text.text.hasSuffix("ä…"))
        }
    }

    @Test(
        "ntfy: a click may also call, write or show a place, and the response names the rest",
        arguments: [
            ("click=tel:%2B4930123", "tel:+4930123", nil), ("click=mailto:a@example.org", "mailto:a@example.org", nil),
            ("click=geo:52.5,13.4", "geo:52.5,13.4", nil), ("click=javascript:1", nil, ["click"]),
            ("click=tel:", nil, ["click"]),
            ("attach=https://example.org/a.jpg&actions=view&e=a@example.org", nil, ["attach", "actions", "email"]),
        ] as [(String, String?, [String]?)])
    func ntfyClick(query: String, link: String?, leftOut: [String]?) async throws {
        let (answer, request) = try await Self.send("/ntfy/kitchen?" + query, "x")
        #expect(answer.status == .ok && request?.content.link == link, "\(answer.text)")
        #expect(try JSONValue(parsing: answer.text).object?["left_out"] == leftOut.map { .texts($0) })
    }

    @Test("ntfy: a message can be sent by GET and without a text")
    func ntfyGet() async throws {
        let (answer, request) = try await Self.send("/ntfy/kitchen/publish?message=a+b%2Bc", "", by: .get)
        #expect(answer.status == .ok && request?.content.text.text == "a b+c")
        #expect(try await Self.send("/ntfy/kitchen", "").1?.content.text.text == "triggered")
        for call in ["publish", "send", "trigger"] {
            let (answer, request) = try await Self.send("/ntfy/kitchen/\(call)?message=a", "", by: .head)
            #expect(answer.status == .methodNotAllowed && request == nil)
        }
    }

    @Test("ntfy: a room's code may be any text")
    func ntfyTopic() async throws {
        let (answer, request) = try await Self.send("/ntfy/our%20r%C3%B6%2Fom%2B", "done", token: "pct_post")
        #expect(answer.status == .ok, "\(answer.text)")
        #expect(request?.program?.room.text == "our rö/om+")
    }

    @Test(
        "ntfy: errors have its own form",
        arguments: [
            ("/ntfy/kitchen", "pct_wrong", 401), ("/ntfy/kitchen", nil, 403), ("/ntfy/kitchen", "pct_read", 403),
            ("/ntfy/hall", "pct_post_kitchen", 403), ("/ntfy/kitchen?priority=9", "pct_post_kitchen", 400),
            ("/ntfy/kitchen?delay=tomorrow", "pct_post_kitchen", 400), ("/", "pct_wrong", 401),
        ] as [(String, String?, Int)])
    func ntfyRefused(path: String, token: String?, status: Int) async throws {
        let (answer, request) = try await Self.send(path, "x", token: token)
        #expect(answer.status.code == status && request == nil)
        let json = try #require(try JSONValue(parsing: answer.text).object)
        #expect(json["http"]?.integer == Int64(status) && json["error"]?.text != nil && json["code"]?.integer != nil)
    }
}
