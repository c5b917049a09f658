import ChatDomain
import ChatHooks
import Crypto
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Webhooks of other programs")
struct HooksTests {
    private static let room = SecretCode(stored: "ops")

    static func hook(_ format: String, secret: String? = nil, template: String? = nil) throws -> AccessGrant {
        let template = try template.map { try HookTemplate(parsing: $0) }
        let settings = try HookFormats.settings(format: format, secret: secret, template: template)
        return try AccessGrant(scopes: [.post], room: room, hook: HookGrant(stored: settings.stored))
    }

    /// The secrets of the tokens begin with `pct_`, and end with the format.
    private static func tokens() throws -> [String: AccessToken] {
        var tokens: [String: AccessToken] = [:]
        for (index, format) in HookFormats.all.enumerated() {
            tokens["pct_\(format.name)"] = AccessToken(
                id: Int64(index + 1), name: Nickname(stored: "from \(format.name)"), grant: try hook(format.name),
                createdAt: Sample.time)
        }
        tokens["pct_signed"] = AccessToken(
            id: 90, name: Nickname(stored: "signed"), grant: try hook("github", secret: "kitchen-secret"),
            createdAt: Sample.time)
        tokens["pct_post"] = AccessToken(
            id: 91, name: Nickname(stored: "post"), grant: try AccessGrant(scopes: [.post]), createdAt: Sample.time)
        tokens["pct_admin"] = AccessToken(
            id: 92, name: Nickname(stored: "boss"), grant: try AccessGrant(scopes: [.admin]), createdAt: Sample.time)
        return tokens
    }

    /// A relay over a real store, whose clock both share.
    static func relay(_ settings: ChatHTTPSettings = ChatHTTPSettings(adminTokens: ["geheim"])) throws -> Relay {
        let real = try RealStore(tokens: tokens())
        var relay = Relay(ScriptedStore(real: real, isReal: true), settings: settings)
        relay.now = real.sqlite.database.now
        return relay
    }

    /// The messages of the room, the oldest first.
    static func messages(_ relay: Relay) throws -> [String] {
        try relay.store.real.query("SELECT coalesce(title || ': ', '') || text FROM messages ORDER BY message_id")
    }

    static func alerts(_ firing: [String], resolved: [String] = [], severity: String = "warning") -> [UInt8] {
        func alert(_ name: String, _ status: String) -> String {
            """
            {"status":"\(status)","labels":{"alertname":"Disk","instance":"\(name)","severity":"\(severity)"},\
            "annotations":{"summary":"\(name) is full"},"fingerprint":"\(name)"}
            """
        }
        let all = firing.map { alert($0, "firing") } + resolved.map { alert($0, "resolved") }
        return Array(
            """
            {"version":"4","groupKey":"{}:{alertname=Disk}","status":"\(firing.isEmpty ? "resolved" : "firing")",\
            "groupLabels":{"alertname":"Disk"},"commonLabels":{},"alerts":[\(all.joined(separator: ","))]}
            """.utf8)
    }

    private static let json: HTTPFields = [.contentType: "application/json"]

    // MARK: - Access

    @Test("A webhook's token is valid only in its address and format, and other tokens are not valid there")
    func access() async throws {
        let relay = try Self.relay()
        @Sendable func status(
            _ method: HTTPRequest.Method, _ path: String, _ token: String? = nil
        ) async throws -> Int {
            var headers = Self.json
            if let token { headers[.authorization] = "Bearer \(token)" }
            return try await relay.send(method, path, headers: headers, body: Array(#"{"text":"hi"}"#.utf8)).status.code
        }
        #expect(try await status(.post, "/hooks/pct_json/json") == 200)
        #expect(try await status(.put, "/hooks/pct_json/json") == 200)
        #expect(try Self.messages(relay) == ["hi", "hi"])
        // The credential of the header does not count.
        #expect(try await status(.post, "/hooks/pct_wrong/json", "geheim") == 404)
        for path in [
            "/hooks/pct_json/text", "/hooks/pct_json/nothing", "/hooks/pct_json", "/hooks/pct_json/", "/hooks/",
            "/hooks/pct_json/json/x", "//hooks/pct_json/json", "/hooks/pct_post/json", "/hooks/pct_admin/json",
            "/hooks/geheim/json", "/hooks/pct_/json", "/hooks/x/json",
            "/hooks/\(String(repeating: "pct_", count: 99))/json",
        ] {
            #expect(try await status(.post, path) == 404, "\(path)")
        }
        for method in [.get, .delete, .patch, .head, .options] as [HTTPRequest.Method] {
            #expect(try await status(method, "/hooks/pct_json/json") == 405, "\(method)")
            #expect(try await status(method, "/hooks/pct_post/json") == 404, "\(method)")
        }
        for (method, path) in [
            (.post, "/v1/messages"), (.get, "/v1/messages"), (.get, "/v1/stats"), (.post, "/ntfy/ops"),
            (.get, "/ntfy/v1/account"), (.post, "/ntfy/v1/account/token"), (.post, "/gotify/message"),
            (.get, "/gotify/current/user"),
        ] as [(HTTPRequest.Method, String)] {
            #expect(try await status(method, path, "pct_json") == 403, "\(path)")
        }
        #expect(try Self.messages(relay).count == 2)
    }

    @Test("Every route rejects a webhook's token", arguments: 0..<RoutesTests.routes.count)
    func routes(index: Int) async throws {
        let route = RoutesTests.routes[index]
        guard ![.anyone, .development, .hook].contains(route.access) else { return }
        let path = route.path.replacing("{token}", with: "aabb").replacing("{topic}", with: "ops")
            .replacing("{sequence}", with: "door").replacing("{id}", with: "1").replacing("{name}", with: "x")
        let headers: HTTPFields = [.authorization: "Bearer pct_json", .contentType: "application/json"]
        let answer = try await Self.relay().send(route.method, path, headers: headers, body: Array("{}".utf8))
        #expect(answer.status == .forbidden, "\(route.method) \(path)")
    }

    @Test("Wrong tokens in an address count against the limit of wrong tokens, and right ones are accepted above it")
    func guessing() async throws {
        try await Self.relay().requests { request in
            var last = 0
            for number in 0..<100 {
                last = try await request(.post, "/hooks/pct_\(number)/json", Self.json, Array("{}".utf8)).status.code
            }
            #expect(last == 429)
            let body = Array(#"{"text":"hi"}"#.utf8)
            #expect(try await request(.post, "/hooks/pct_json/json", Self.json, body).status == .ok)
        }
    }

    @Test("No log line, response or metric has the token, and a topic called hooks stays ntfy's")
    func secrecy() async throws {
        var settings = ChatHTTPSettings(adminTokens: ["geheim"])
        settings.ntfyAtRoot = true
        settings.memberRate = RateLimit(perSecond: 0.001, burst: 3)
        let relay = try Self.relay(settings)
        try await relay.requests { request in
            for (path, body) in [
                ("/hooks/pct_json/json", #"{"text":"hi"}"#), ("/hooks/pct_json/json", "no JSON"),
                ("/hooks/pct_json/json", #"{"text":"ok"}"#), ("/hooks/pct_json/json", "over the rate"),
                ("/hooks/pct_json/text", "x"), ("/hooks/pct_json", "x"), ("/hooks/pct_signed/github", "{}"),
                ("/hooks/pct_json/json/x", "x"), ("//hooks/pct_json/json", "x"), ("/hooks/pct_wrong/json", "x"),
            ] {
                let answer = try await request(.post, path, [.accept: "text/html"], Array(body.utf8))
                #expect(!"\(answer.headers) \(answer.text)".contains("pct_"), "\(path)")
            }
            let metrics = try await request(.get, "/metrics", [.authorization: "Bearer geheim"], nil).text
            #expect(metrics.contains(#"route="/hooks/{token}/{format}""#) && !metrics.contains("pct_"))
            let topic = try await request(.post, "/hooks", [.authorization: "Bearer pct_post"], Array("x".utf8))
            #expect(topic.status == .ok && topic.text.contains(#""topic":"hooks""#))
        }
        #expect(relay.log.lines.contains { $0.contains("message accepted") && $0.contains("from json") })
        #expect(relay.log.lines.contains { $0.contains("could not be read") })
        #expect(relay.log.lines.allSatisfy { !$0.contains("pct_") })
    }

    // MARK: - Alerts

    @Test("Firing, changed and resolved is one message; the next alarm is another")
    func life() async throws {
        let relay = try Self.relay()
        try await relay.requests { request in
            func send(_ body: [UInt8]) async throws -> Int64? {
                let answer = try await request(.post, "/hooks/pct_alertmanager/alertmanager", Self.json, body)
                #expect(answer.status == .ok)
                return try JSONValue(parsing: answer.text).object?["id"]?.integer
            }
            let first = try await send(Self.alerts(["nas"]))
            #expect(first != nil)
            #expect(try await send(Self.alerts(["nas", "db"])) == first)
            #expect(try await send(Self.alerts(["db"], resolved: ["nas"])) == first)
            #expect(try await send(Self.alerts([], resolved: ["db"])) == first)
            #expect(try Self.messages(relay) == ["Resolved: Disk: db is full"])
            #expect(
                try relay.store.real.query("SELECT is_open, change, revision FROM message_states") == ["0 resolved 4"])
            // Without ids of deliveries, a second attempt looks the same.
            #expect(try await send(Self.alerts([], resolved: ["db"])) == nil)
            #expect(try Self.messages(relay).count == 1)
            let second = try await send(Self.alerts(["db"]))
            #expect(second != nil && second != first)
            #expect(try Self.messages(relay).count == 2)
        }
    }

    @Test("The end of an unknown alert is one quiet message")
    func unseenEnd() async throws {
        let relay = try Self.relay()
        for _ in 0..<2 {
            let answer = try await relay.send(
                .post, "/hooks/pct_alertmanager/alertmanager", headers: Self.json,
                body: Self.alerts([], resolved: ["a"]))
            #expect(answer.status == .ok)
        }
        #expect(try Self.messages(relay) == ["Resolved: Disk: a is full"])
        #expect(try relay.store.real.query("SELECT priority || sound FROM messages") == ["5"])
    }

    @Test("A change rings for a new alert, a higher severity and a repetition; it is silent if alerts only end")
    func ringing() async throws {
        let real = try RealStore(tokens: Self.tokens())
        let receipt = ChangeReceipt(message: 1, room: Self.room, time: Sample.time)
        var relay = Relay(ScriptedStore(admin: AdminResponses(change: { receipt }), real: real))
        relay.now = real.sqlite.database.now
        var expected: [Bool] = []
        let steps: [(firing: [String], severity: String, pause: Int, rings: Bool)] = [
            (["a"], "warning", 0, true), (["a"], "warning", 5, false), (["a", "b"], "warning", 5, true),
            (["b"], "warning", 5, false), (["b"], "critical", 5, true), (["b"], "warning", 5, false),
            (["b"], "warning", 60, true), (["b"], "warning", 59, false), (["c"], "info", 5, true),
            (["c"], "info", 30, false), (["c"], "info", 30, true),
        ]
        for step in steps {
            real.advance(.seconds(step.pause))
            let answer = try await relay.send(
                .post, "/hooks/pct_alertmanager/alertmanager", headers: Self.json,
                body: Self.alerts(step.firing, severity: step.severity))
            #expect(answer.status == .ok)
            expected.append(step.rings)
        }
        let rings = relay.store.calls.compactMap { call -> Bool? in
            if case .keyed(let post) = call { post.renotify } else { nil }
        }
        #expect(rings == expected)
    }

    // MARK: - Failures on the way

    private static func send(_ relay: Relay, _ body: [UInt8], headers: HTTPFields = json) async throws -> Int {
        try await relay.send(.post, "/hooks/pct_alertmanager/alertmanager", headers: headers, body: body).status.code
    }

    private static func prevent(_ statement: String, _ relay: Relay) throws {
        try relay.store.real.query(
            "CREATE TRIGGER prevented BEFORE \(statement) BEGIN SELECT RAISE(ABORT, 'prevented'); END")
    }

    @Test("If the relay dies between a message and its memory, the next delivery rings once more and posts nothing")
    func deathAfterPost() async throws {
        let relay = try Self.relay()
        try Self.prevent("INSERT ON hook_memory", relay)
        #expect(try await Self.send(relay, Self.alerts(["nas"])) == 200)
        #expect(relay.log.lines.contains { $0.contains("a webhook's state could not be stored") })
        try relay.store.real.query("DROP TRIGGER prevented")
        for rings in [1, 1] {
            #expect(try await Self.send(relay, Self.alerts(["nas"])) == 200)
            #expect(try relay.store.real.query("SELECT count(*) FROM messages") == ["1"])
            #expect(try relay.store.real.query("SELECT count(*) FROM hook_memory") == ["\(rings)"])
        }
        #expect(try relay.store.real.query("SELECT revision FROM message_states") == ["3"])
    }

    @Test("If the relay dies before or after it forgets an alarm, the sender's next attempt ends the alarm once")
    func deathBeforeEnd() async throws {
        for statement in ["UPDATE ON hook_memory", "UPDATE ON message_states"] {
            let relay = try Self.relay()
            #expect(try await Self.send(relay, Self.alerts(["nas"])) == 200)
            try Self.prevent(statement, relay)
            #expect(try await Self.send(relay, Self.alerts([], resolved: ["nas"])) == 500)
            #expect(try Self.messages(relay) == ["Disk: nas is full"])
            try relay.store.real.query("DROP TRIGGER prevented")
            for _ in 0..<2 {
                #expect(try await Self.send(relay, Self.alerts([], resolved: ["nas"])) == 200)
                #expect(try Self.messages(relay) == ["Resolved: Disk: nas is full"], "\(statement)")
            }
        }
    }

    @Test("Replays, and other bodies with a known id, change neither the message nor the memory")
    func replays() async throws {
        let relay = try Self.relay()
        func send(_ id: String, _ status: String) async throws {
            var headers = Self.json
            headers[.idempotencyKey] = id
            let body = Array(#"{"key":"disk","title":"Disk","message":"\#(id)","status":"\#(status)"}"#.utf8)
            #expect(try await relay.send(.post, "/hooks/pct_json/json", headers: headers, body: body).status == .ok)
        }
        func memory() throws -> [String] { try relay.store.real.query("SELECT firing FROM hook_memory") }
        try await send("one", "down")
        let firing = try memory()
        try await send("two", "up")
        let ended = try memory()
        #expect(ended != firing)
        try await send("one", "down")
        try await send("two", "down")
        #expect(try memory() == ended)
        try await send("three", "down")
        #expect(try memory() == firing)
        try await send("two", "up")
        try await send("one", "up")
        #expect(try memory() == firing)
        #expect(try Self.messages(relay) == ["Disk: two", "Disk: three"])
        #expect(try relay.store.real.query("SELECT is_open FROM message_states ORDER BY message_id") == ["0", "1"])
    }

    @Test("Deliveries of one group at once are one message")
    func together() async throws {
        let relay = try Self.relay()
        // Each goes to another server over one database.
        try await withThrowingTaskGroup(of: Int.self) { tasks in
            for number in 0..<8 {
                tasks.addTask { try await Self.send(relay, Self.alerts(["nas\(number % 2)"])) }
            }
            for try await status in tasks { #expect(status == 200) }
        }
        #expect(try Self.messages(relay).count == 1)
    }

    @Test("If the database is unavailable, each sender gets an error in its form, after which it may send again")
    func unavailable() async throws {
        let failure = ChatError.unavailable(cause: "disk full")
        let real = try RealStore(tokens: Self.tokens())
        let relay = Relay(
            ScriptedStore(
                post: { () throws(ChatError) in throw failure },
                admin: AdminResponses(change: { () throws(ChatError) in throw failure }), real: real))
        for format in HookFormats.all {
            let answer = try await relay.send(
                .post, "/hooks/pct_\(format.name)/\(format.name)", headers: Self.json,
                body: Array(#"{"text":"hi","content":"hi"}"#.utf8))
            #expect(answer.status == .serviceUnavailable && answer.headers[.retryAfter] != nil, "\(format.name)")
            let form =
                switch format.name {
                case "slack": !answer.text.contains("{")
                case "discord": answer.text.contains(#""code":0"#)
                default: answer.text.contains(#""code":"unavailable""#)
                }
            #expect(form, "\(format.name): \(answer.text)")
        }
        #expect(relay.log.lines.contains { $0.hasPrefix("error request failed") && $0.contains("disk full") })
        #expect(relay.log.lines.allSatisfy { !$0.contains("pct_") })
    }

    @Test("A webhook posts where its room is now, and nothing once its token is revoked or expired")
    func end() async throws {
        let relay = try Self.relay()
        let real = relay.store.real
        #expect(try await Self.send(relay, Self.alerts(["nas"])) == 200)
        try real.query("UPDATE api_tokens SET time_expires = time_created WHERE name = 'from alertmanager'")
        #expect(try await Self.send(relay, Self.alerts(["db"])) == 404)
        try real.query("UPDATE api_tokens SET time_expires = NULL WHERE name = 'from alertmanager'")
        #expect(try await Self.send(relay, Self.alerts(["db"])) == 200)
        let admin: HTTPFields = [.authorization: "Bearer geheim", .contentType: "application/json"]
        let code = try await relay.send(
            .post, "/v1/rooms:recode", headers: admin, body: Array(#"{"room":"ops","code":"ops-2"}"#.utf8))
        #expect(code.status == .ok, "\(code.text)")
        #expect(try await Self.send(relay, Self.alerts(["third"])) == 200)
        let id = try real.query("SELECT token_id FROM api_tokens WHERE name = 'from alertmanager'")[0]
        #expect(try await relay.send(.delete, "/v1/tokens/\(id)", headers: admin).status == .noContent)
        #expect(try await Self.send(relay, Self.alerts([], resolved: ["db"])) == 404)
        #expect(try real.query("SELECT count(*) FROM hook_memory") == ["0"])
    }

    // MARK: - Errors

    @Test("A body that cannot be read becomes a message that says so, and is counted for the operator")
    func unreadable() async throws {
        let relay = try Self.relay()
        let long = "{" + String(repeating: "é`", count: 5000)
        for body in [Array("no JSON ``` <b>".utf8), [0xFF, 0, 1], [], Array(long.utf8)] {
            let answer = try await relay.send(
                .post, "/hooks/pct_alertmanager/alertmanager", headers: Self.json, body: body)
            #expect(answer.status == .ok)
        }
        let messages = try Self.messages(relay)
        #expect(messages.count == 3)
        let start = "A delivery to alertmanager could not be read: "
        #expect(messages.allSatisfy { $0.hasPrefix(start) })
        // The same problem again.
        #expect(messages[0].hasSuffix("\n(3 bytes that are not text)"))
        #expect(messages[1] == start + "the body is empty")
        #expect(messages[2].hasSuffix("…\n```") && messages[2].count < 700)
        let list = try await relay.send(.get, "/v1/tokens", headers: [.authorization: "Bearer geheim"]).text
        #expect(list.contains(#""unreadable":{"count":4,"#))
    }

    @Test("Bodies up to 1 MiB are read, and larger ones get 413")
    func size() async throws {
        let relay = try Self.relay()
        func status(_ size: Int) async throws -> Int {
            let text = Array(#"{"text":""#.utf8) + [UInt8](repeating: 0x61, count: size - 11) + Array(#""}"#.utf8)
            return try await relay.send(.post, "/hooks/pct_json/json", headers: Self.json, body: text).status.code
        }
        #expect(try await status(1 << 20) == 200)
        #expect(try await status((1 << 20) + 1) == 413)
        let bomb = try await relay.send(
            .post, "/hooks/pct_json/json", headers: [.contentType: "text/plain", .contentEncoding: "gzip"],
            body: Zeros.gzip(count: 2 << 20))
        #expect(bomb.status.code == 413)
        #expect(
            try Self.messages(relay).last
                == "A delivery to json could not be read: the body has more than 1048576 bytes")
    }

    @Test("Above the rate, senders that try again after 503 get that, and the others 429")
    func rate() async throws {
        let rate = RateLimit(perSecond: 0.001, burst: 1)
        let relay = try Self.relay(ChatHTTPSettings(memberRate: rate, adminTokens: ["geheim"]))
        try await relay.requests { request in
            for format in HookFormats.all {
                let path = "/hooks/pct_\(format.name)/\(format.name)"
                _ = try await request(.post, path, Self.json, Array("{}".utf8))
                let answer = try await request(.post, path, Self.json, Array("{}".utf8))
                #expect(answer.status.code == format.rateStatus, "\(format.name)")
                #expect(answer.headers[.retryAfter]?.isEmpty == false, "\(format.name)")
            }
            let metrics = try await request(.get, "/metrics", [.authorization: "Bearer geheim"], nil).text
            #expect(metrics.contains(#"status="429""#) && !metrics.contains(#"status="503""#))
        }
        #expect(relay.log.lines.allSatisfy { !$0.hasPrefix("error") })
    }

    // MARK: - Services

    @Test("A token with a secret accepts only signed bodies, and a second delivery of one id posts nothing")
    func signed() async throws {
        let relay = try Self.relay()
        let body =
            Array(
                #"{"action":"opened","issue":{"number":4,"title":"Bug","html_url":"https://github.com/o/r/issues/4","#
                    .utf8)
            + Array(#""user":{"login":"ann"}},"repository":{"full_name":"o/r"},"sender":{"login":"ann"}}"#.utf8)
        func status(_ secret: String?, id: String = "1") async throws -> Int {
            var headers = Self.json
            headers[HTTPField.Name("X-GitHub-Event")!] = "issues"
            headers[HTTPField.Name("X-GitHub-Delivery")!] = id
            if let secret {
                let code = HMAC<SHA256>.authenticationCode(for: body, using: SymmetricKey(data: Array(secret.utf8)))
                headers[HTTPField.Name("X-Hub-Signature-256")!] = "sha256=" + Hex.text(Array(code))
            }
            return try await relay.send(.post, "/hooks/pct_signed/github", headers: headers, body: body).status.code
        }
        #expect(try await status(nil) == 401)
        #expect(try await status("another-secret") == 401)
        #expect(try Self.messages(relay) == [])
        for _ in 0..<2 { #expect(try await status("kitchen-secret") == 200) }
        let messages = try Self.messages(relay)
        #expect(messages.count == 1 && messages[0].contains("Bug"))
        #expect(try relay.store.real.query("SELECT revision FROM message_states") == ["1"])
        // GitHub's signature does not cover the id.
        #expect(try await status("kitchen-secret", id: "2") == 200)
        #expect(try Self.messages(relay).count == 1)
        #expect(try relay.store.real.query("SELECT revision FROM message_states") == ["1"])
    }

    @Test("Slack's, Mattermost's and Discord's senders get the responses of these services")
    func services() async throws {
        let relay = try Self.relay()
        func send(
            _ path: String, _ body: String, method: HTTPRequest.Method = .post, type: String = "application/json"
        ) async throws -> TestResponse {
            let headers: HTTPFields = [.contentType: type]
            return try await relay.send(method, "/hooks/pct_" + path, headers: headers, body: Array(body.utf8))
        }
        let form = "payload=%7B%22text%22%3A%22*b*+%3Chttps%3A%2F%2Fexample.org%7Ca%3E%22%7D"
        for (type, body) in [
            ("application/json", #"{"text":"hi"}"#), ("application/x-www-form-urlencoded", form),
        ] {
            let answer = try await send("slack/slack", body, type: type)
            #expect(answer.status == .ok && answer.text == "ok")
            #expect(answer.headers[.contentType]?.hasPrefix("text/plain") == true)
        }
        let unlabelled = try await relay.send(.post, "/hooks/pct_mattermost/mattermost", body: Array(form.utf8))
        #expect(unlabelled.text == "ok")
        #expect(try Self.messages(relay)[1].contains("[a](https://example.org)"))
        let wrong = try await send("wrong/slack", "{}")
        #expect(wrong.status == .notFound && wrong.text == "no_service")

        #expect(try await send("discord/discord", #"{"content":"hi"}"#).status == .noContent)
        let waiting = try await send("discord/discord?wait=true", #"{"content":"hi"}"#)
        #expect(waiting.status == .ok && waiting.text.contains(#""id":"5""#))
        let parts =
            "--b\r\nContent-Disposition: form-data; name=\"payload_json\"\r\n\r\n{\"content\":\"part\"}\r\n--b--\r\n"
        let multipart = try await send("discord/discord", parts, type: "multipart/form-data; boundary=b")
        #expect(multipart.status == .noContent)
        #expect(try Self.messages(relay).last == "part")
        let shown = try await send("discord/discord", "", method: .get)
        #expect(shown.status == .ok && shown.text.contains(#""name":"from discord""#))
        let unknown = try await send("wrong/discord", "{}")
        #expect(unknown.status == .notFound && unknown.text.contains(#""code":10015"#))
        let query = "?msg=test&heartbeat=null&monitor=null"
        #expect(try await send("uptime-kuma/uptime-kuma" + query, "", method: .get).status == .ok)
        #expect(try Self.messages(relay).last == "test")
        #expect(try await send("uptime-kuma/uptime-kuma", "", method: .get).status == .methodNotAllowed)
    }

    // MARK: - The operator

    @Test("The operator makes a token for a webhook, and tries a template")
    func administration() async throws {
        let relay = try Self.relay(ChatHTTPSettings(publicURL: "https://chat.example.org", adminTokens: ["geheim"]))
        func call(_ method: HTTPRequest.Method, _ path: String, _ body: String? = nil) async throws -> TestResponse {
            try await relay.send(
                method, path, headers: [.authorization: "Bearer geheim", .contentType: "application/json"],
                body: body.map { Array($0.utf8) })
        }
        let made = try await call(
            .post, "/v1/tokens",
            #"{"name":"ci","room":"ops","hook":{"format":"gitea","secret":"long-enough"}}"#)
        let json = try #require(try JSONValue(parsing: made.text).object)
        let secret = try #require(json["token"]?.text)
        #expect(made.status == .created && json["url"]?.text == "https://chat.example.org/hooks/\(secret)/gitea")
        #expect(json["hook"]?.description == #"{"format":"gitea","signed":true}"#)
        #expect(json["scopes"]?.description == #"["post"]"#)
        #expect(!made.text.contains("long-enough"))
        for (body, field) in [
            (#"{"name":"a","hook":{"format":"gitea"}}"#, "room"),
            (#"{"name":"a","room":"ops","hook":{"format":"x"}}"#, "format"),
            (#"{"name":"a","room":"ops","hook":{"form":"x"}}"#, "hook.form"),
            (#"{"name":"a","room":"ops","hook":{}}"#, "format"),
            (#"{"name":"a","room":"ops","hook":{"format":"slack","secret":"long-enough"}}"#, "secret"),
            (#"{"name":"a","room":"ops","hook":{"format":"slack","template":{"text":"a"}}}"#, "template"),
            (#"{"name":"a","room":"ops","scopes":["read"],"hook":{"format":"slack"}}"#, "scopes"),
            (#"{"name":"a","room":"ops"}"#, "scopes"),
        ] {
            let answer = try await call(.post, "/v1/tokens", body)
            #expect(answer.status == .badRequest && answer.text.contains(#""field":"\#(field)""#), "\(body)")
        }
        let list = try await call(.get, "/v1/hooks").text
        #expect(list.contains(#"{"name":"github","title":"GitHub","signed":true}"#))

        let trial =
            #"{"format":"json","template":{"text":"{a.b}","key":"{id}"},"body":"{\"a\":{\"b\":\"hi\"},\"id\":3}"}"#
        let tried = try await call(.post, "/v1/hooks:try", trial)
        #expect(tried.status == .ok && tried.text.contains(#""text":"hi""#) && tried.text.contains(#""key":"js_"#))
        let failed = try await call(
            .post, "/v1/hooks:try", #"{"format":"github","body":"x","headers":{"X-GitHub-Event":"push"}}"#)
        #expect(failed.status == .ok && failed.text.contains(#""unreadable":"#))
        #expect(try Self.messages(relay) == [])
    }
}
