import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("Webhooks, under /v1")
struct WebhooksTests {
    private let relay: Relay

    init() throws {
        relay = try TokenAccessTests.relay(ScriptedStore(real: RealStore(tokens: TokenAccessTests.tokens())))
    }

    private func call(
        _ method: HTTPRequest.Method, _ path: String = "", _ body: String? = nil, token: String = "pct_admin"
    ) async throws -> (status: Int, json: JSONObject) {
        var headers: HTTPFields = [.authorization: "Bearer \(token)"]
        if body != nil { headers[.contentType] = "application/json" }
        let response = try await relay.send(
            method, "/v1/webhooks" + path, headers: headers, body: body.map { Array($0.utf8) })
        let text = String(buffer: response.body)
        return (response.status.code, text.isEmpty ? [:] : try JSONValue(parsing: text).object ?? [:])
    }

    @Test("A webhook is created, shown without its secret, changed, paused, resumed and deleted")
    func life() async throws {
        let made = try await call(
            .post, "",
            body(#""url":"https://example.org/hook?key=1","room":"kitchen","bot":"Bot","only_mentions":true"#))
        #expect(made.status == 201)
        let secret = try #require(made.json["secret"]?.text)
        #expect(secret.hasPrefix("whsec_") && secret.utf8.count == 50)
        #expect(made.json["events"] == .texts(["message.posted"]) && made.json["state"] == .string("active"))
        let shown = try await call(.get, "/1").json
        #expect(shown["secret"] == nil && shown["url"] == .string("https://example.org/hook?key=1"))
        #expect(try await call(.get).json["webhooks"]?.array?.count == 1)
        #expect(try await call(.get, "?room=other").json["webhooks"]?.array?.count == 0)

        let changed = try await call(.patch, "/1", #"{"bot":null,"only_mentions":false,"room":null,"state":"paused"}"#)
            .json
        #expect(changed["bot"] == .null && changed["room"] == .null && changed["state"] == .string("paused"))
        #expect(changed["reason"] == .string("by cron5") && changed["events"] == .texts(["message.posted"]))
        #expect(try await call(.post, "/1:test").status == 409)
        #expect(try await call(.patch, "/1", #"{"state":"active"}"#).json["reason"] == .null)
        let rotated = try await call(.post, "/1:rotate").json
        #expect(rotated["secret"]?.text != secret && rotated["old_secret_until"] != .null)

        let test = try await call(.post, "/1:test")
        #expect(test.status == 202 && test.json["event"] == .number(1))
        let deliveries = try await call(.get, "/1/deliveries?state=waiting").json["deliveries"]?.array
        #expect(deliveries?.first?.object?["type"] == .string("webhook.test"))
        #expect(try await call(.post, "/1:redeliver", #"{"events":[1]}"#).json == ["events": .number(0)])
        #expect(try await call(.delete, "/1").status == 204)
        #expect(try await call(.get, "/1").status == 404)
        #expect(try await call(.delete, "/1").status == 404)
        // No line of the log has the path.
        #expect(!relay.log.lines.contains { "\($0)".contains("key=1") })
    }

    private func body(_ members: String) -> String { "{\(members)}" }

    @Test(
        "A wrong body names field and rule",
        arguments: [
            ("{}", "url"), (#"{"url":"http://example.org/"}"#, "url"), (#"{"url":7}"#, "url"),
            (#"{"url":"https://a.b/","events":["x"]}"#, "events[0]"),
            (#"{"url":"https://a.b/","events":[]}"#, "events"),
            (#"{"url":"https://a.b/","token":"x"}"#, "token"),
            (#"{"url":"https://a.b/","only_mentions":true}"#, "only_mentions"),
            (#"{"url":"https://a.b/","bot":"a: b"}"#, "bot"), (#"{"url":"https://a.b/","secret":"x"}"#, "secret"),
            (#"{"url":"https://a.b/","room":"r","events":["device.gone"]}"#, "events"),
        ])
    func wrong(body: String, field: String) async throws {
        let answer = try await call(.post, "", body)
        #expect(answer.status == 400 && answer.json["field"] == .string(field), "\(answer)")
    }

    @Test("Only administrators see webhooks, and unknown ones and wrong choices are rejected")
    func rejected() async throws {
        #expect(try await call(.get, token: "pct_read").status == 403)
        for path in ["/7:rotate", "/7:test", "/7:redeliver"] {
            let body = path == "/7:redeliver" ? #"{"state":"failed"}"# : "{}"
            #expect(try await call(.post, path, body).status == 404)
        }
        #expect(try await call(.patch, "/7", "{}").status == 404)
        #expect(try await call(.get, "/7/deliveries").status == 404)
        #expect(try await call(.post, "", #"{"url":"https://a.b/"}"#).status == 201)
        #expect(try await call(.patch, "/1", #"{"state":"ended"}"#).json["field"] == .string("state"))
        #expect(try await call(.get, "/1/deliveries?state=x").json["field"] == .string("state"))
        for body in ["{}", #"{"events":[1],"state":"failed"}"#, #"{"events":["x"]}"#] {
            #expect(try await call(.post, "/1:redeliver", body).json["field"] == .string("events"))
        }
        #expect(try await call(.post, "", #"{"url":"https://a.b/","token":99}"#).status == 404)
    }
}
