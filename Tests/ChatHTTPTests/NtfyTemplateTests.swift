import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

/// Deliveries to a topic that one of ntfy's own templates reads.
@Suite("ntfy's templates", .timeLimit(.minutes(1)))
struct NtfyTemplateTests {
    private struct Kitchen: Sendable {
        let real: RealStore
        let relay: Relay

        init(rate: RateLimit? = nil) throws {
            real = try RealStore(tokens: TokenAccessTests.tokens())
            try real.member(Sample.member, in: SecretCode(stored: "kitchen"))
            try real.credential("pcc_ann", id: 9)
            var settings = ChatHTTPSettings(adminTokens: ["geheim"])
            if let rate { settings.memberRate = rate }
            relay = Relay(ScriptedStore(real: real, isReal: true), settings: settings)
        }

        func send(
            _ query: String, _ body: [UInt8], method: HTTPRequest.Method = .post, token: String = "pct_post_kitchen",
            headers: HTTPFields = [:]
        ) async throws -> TestResponse {
            var headers = headers
            headers[.authorization] = "Bearer \(token)"
            return try await relay.send(method, "/ntfy/kitchen\(query)", headers: headers, body: body)
        }

        func json(_ query: String, _ body: [UInt8], token: String = "pct_post_kitchen", headers: HTTPFields = [:])
            async throws -> JSONObject
        {
            let answer = try await send(query, body, token: token, headers: headers)
            #expect(answer.status == .ok, "\(query): \(answer.text)")
            return try #require(try JSONValue(parsing: answer.text).object)
        }

        var messages: [String] {
            get throws {
                try real.query("SELECT coalesce(title || ': ', '') || text FROM messages ORDER BY message_id")
            }
        }
    }

    private static func header(_ name: String, _ value: String) throws -> HTTPFields {
        [try #require(HTTPField.Name(name)): value]
    }

    @Test("Firing, changed and resolved is one message of a token, under every spelling of the parameter")
    func life() async throws {
        let kitchen = try Kitchen()
        let first = try await kitchen.json("?template=alertmanager", HooksTests.alerts(["nas"]))
        #expect(first["title"]?.text == "Disk" && first["message"]?.text == "nas is full")
        let name = try #require(first["sequence_id"]?.text)
        #expect(name.hasPrefix("am_"))
        let steps: [(String, HTTPFields, [UInt8])] = [
            ("", try Self.header("X-Template", "alertmanager"), HooksTests.alerts(["nas", "db"])),
            ("", try Self.header("Template", "alertmanager"), HooksTests.alerts(["db"], resolved: ["nas"])),
            ("?tpl=alertmanager", [:], HooksTests.alerts([], resolved: ["db"])),
        ]
        for (query, headers, body) in steps {
            #expect(try await kitchen.json(query, body, headers: headers)["sequence_id"]?.text == name)
        }
        #expect(try kitchen.messages == ["Resolved: Disk: db is full"])
        // A second attempt, as at a webhook.
        let again = try await kitchen.json("?template=alertmanager", HooksTests.alerts([], resolved: ["db"]))
        #expect(again["ignored"] != nil && again["event"] == nil)
        #expect(try kitchen.messages.count == 1)
        // The name is one of ntfy's.
        _ = try await kitchen.json("?template=alertmanager", HooksTests.alerts(["db"]))
        let deleted = try await kitchen.send("/\(name)", [], method: .delete)
        #expect(deleted.status == .ok)
        #expect(try kitchen.messages == ["Resolved: Disk: db is full"])
    }

    @Test("A sender may name the message itself, and callers without a token get a message for each delivery")
    func names() async throws {
        let kitchen = try Kitchen()
        for body in [HooksTests.alerts(["nas"]), HooksTests.alerts([], resolved: ["nas"])] {
            let json = try await kitchen.json("?template=alertmanager&sid=disk", body)
            #expect(json["sequence_id"]?.text == "disk")
        }
        #expect(try kitchen.messages == ["Resolved: Disk: nas is full"])
        for token in ["geheim", "pcc_ann"] {
            let count = try kitchen.messages.count
            for body in [HooksTests.alerts(["nas"]), HooksTests.alerts([], resolved: ["nas"])] {
                #expect(
                    try await kitchen.json("?template=alertmanager", body, token: token)["event"]?.text == "message")
            }
            #expect(try kitchen.messages.count == count + 2, "\(token)")
        }
    }

    @Test("GitHub's and Grafana's bodies are read as at a webhook; the request's other values win")
    func values() async throws {
        let kitchen = try Kitchen()
        let push =
            #"{"ref":"refs/heads/main","after":"1","compare":"https://github.com/o/r/compare/1","commits":"#
            + #"[{"message":"Fix"}],"repository":{"full_name":"o/r"},"pusher":{"name":"ann"},"sender":{"login":"ann"}}"#
        var event = try Self.header("X-GitHub-Event", "push")
        event[try #require(HTTPField.Name("X-GitHub-Delivery"))] = "1"
        for _ in 0..<2 {
            let json = try await kitchen.json(
                "?template=github&priority=5&tags=ci&title=mine", Array(push.utf8), headers: event)
            #expect(json["priority"]?.integer == 5 && json["tags"] == .texts(["ci"]))
            #expect(json["click"]?.text == "https://github.com/o/r/compare/1")
            #expect(json["title"]?.text != "mine")
        }
        // A second attempt of one delivery.
        #expect(try kitchen.messages.count == 1)
        let ping = try await kitchen.json(
            "?template=github", Array(#"{"zen":"x"}"#.utf8), headers: try Self.header("X-GitHub-Event", "ping"))
        #expect(ping["ignored"]?.text != nil)
        let grafana =
            #"{"title":"T","message":"M","status":"firing","groupKey":"g","alerts":[{"status":"firing","#
            + #""fingerprint":"1","labels":{"severity":"critical"}}]}"#
        let json = try await kitchen.json("?template=grafana&click=https://example.org", Array(grafana.utf8))
        #expect(json["title"]?.text == "T" && json["message"]?.text == "M" && json["priority"]?.integer == 5)
        #expect(json["click"]?.text == "https://example.org")
        #expect(try kitchen.messages.count == 2)
    }

    @Test("A body that the template cannot read becomes a message that says so, and is counted")
    func unreadable() async throws {
        let kitchen = try Kitchen()
        for body in ["no JSON", "again", ""] { _ = try await kitchen.json("?template=grafana", Array(body.utf8)) }
        #expect(try kitchen.messages.count == 2)
        #expect(try kitchen.messages.allSatisfy { $0.hasPrefix("A delivery to grafana could not be read: ") })
        let list = try await kitchen.relay.send(.get, "/v1/tokens", headers: [.authorization: "Bearer geheim"]).text
        #expect(list.contains(#""unreadable":{"count":3,"#))
        #expect(
            try await kitchen.send("?template=grafana", [UInt8](repeating: 32, count: 1 << 20 + 1)).status.code == 413)
    }

    @Test(
        "Other templates are errors that name those that there are",
        arguments: [
            ("?template=yes", #"{"a":1}"#, "not supported"), ("?tpl=1", "{}", "not supported"),
            ("?template=sentry", "{}", "no other"), ("?template=../x", "{}", "no other"),
            ("?template=Grafana", "{}", "no other"),
        ])
    func unknown(query: String, body: String, reason: String) async throws {
        let kitchen = try Kitchen()
        let answer = try await kitchen.send(query, Array(body.utf8))
        #expect(answer.status == .badRequest && answer.text.contains(#""code":40047"#))
        #expect(answer.text.contains("alertmanager, github, grafana") && answer.text.contains(reason), "\(answer.text)")
        #expect(try kitchen.messages == [])
    }

    @Test("A template needs a body and the topic in the path, and rights in the room")
    func refused() async throws {
        let kitchen = try Kitchen()
        #expect(try await kitchen.send("/publish?template=grafana&message=x", [], method: .get).status == .badRequest)
        let json = try await kitchen.relay.send(
            .post, "/ntfy?template=grafana", headers: [.authorization: "Bearer pct_post_kitchen"],
            body: Array(#"{"topic":"kitchen","message":"{}"}"#.utf8))
        #expect(json.status == .badRequest)
        let other = try await kitchen.relay.send(
            .post, "/ntfy/hall?template=grafana", headers: [.authorization: "Bearer pct_post_kitchen"],
            body: Array("{}".utf8))
        #expect(other.status == .forbidden)
        #expect(try await kitchen.send("?template=grafana", [], token: "pct_read").status == .forbidden)
        #expect(try kitchen.messages == [])
    }

    @Test("Above the rate, a sender of a template tries again after 503")
    func rate() async throws {
        let kitchen = try Kitchen(rate: RateLimit(perSecond: 0.001, burst: 1))
        try await kitchen.relay.requests { request in
            let headers: HTTPFields = [.authorization: "Bearer pct_post_kitchen"]
            for status in [200, 503] {
                let body = HooksTests.alerts(["\(status)"])
                let answer = try await request(.post, "/ntfy/kitchen?template=alertmanager", headers, body)
                #expect(answer.status.code == status)
            }
            #expect(try await request(.post, "/ntfy/kitchen", headers, Array("x".utf8)).status.code == 429)
        }
    }
}
