import APNSGateway
import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

@Suite("/v1/activities, activity_token")
struct ActivitiesTests {
    private static let start = #"""
        {"event":"start","tag":"order-17","to":{"room":"kitchen"},"state":{"title":"Baking","progress":0.5},\#
        "attributes":{"number":17},"alert":{"title":"Order 17"},"priority":10,"stale_date":"2026-06-01T10:00:00Z"}
        """#

    private static func post(_ relay: Relay, _ json: String) async throws -> TestResponse {
        try await AdminTests.call(.post, "/v1/activities", json, to: relay)
    }

    @Test("A call is stored with all that it says, and its response has the activity")
    func accepted() async throws {
        let relay = Relay(ScriptedStore())
        let answer = try await Self.post(relay, Self.start)
        #expect(answer.status == .accepted)
        #expect(answer.headers[.location] == "../v1/activities/1")
        let request = try #require(relay.store.activities.requests.first)
        #expect(request.tag.text == "order-17" && request.app == .default && request.isAdministrator)
        #expect(request.audience == .room(SecretCode(stored: "kitchen")))
        #expect(request.content.event == .start && request.content.priority == 10)
        #expect(request.content.staleDate == Timestamp(rfc3339: "2026-06-01T10:00:00Z"))
        #expect(request.content.type == ActivityLimits.standardType)
        #expect(
            answer.text
                == #"{"id":1,"tag":"order-17","app":"default","event":"start","#
                + #""state":{"title":"Baking","progress":0.5},"to":{"room":"kitchen"},"#
                + #""type":"PushChatActivityAttributes","channel":null,"revision":1,"devices":0,"notifications":[],"#
                + #""created_at":"2026-05-28T20:26:40.000Z","updated_at":"2026-05-28T20:26:40.000Z","ended_at":null}"#)
        let update = try await Self.post(relay, #"{"event":"update","tag":"order-17","state":{}}"#)
        #expect(update.status == .accepted)
        #expect(relay.store.activities.requests.last?.content.priority == 5)
    }

    @Test("A start with a channel is stored as such, and its response has the channel's state")
    func channel() async throws {
        let relay = Relay(ScriptedStore())
        let answer = try await Self.post(relay, #"{"channel":true,\#(Self.start.dropFirst())"#)
        #expect(answer.status == .accepted)
        #expect(relay.store.activities.requests.first?.wantsChannel == true)
        #expect(answer.text.contains(#""channel":{"state":"wanted""#), "\(answer.text)")
    }

    @Test("A registration of a phone passes its push-to-start tokens on")
    func startTokens() async throws {
        let (order, timer) = (String(repeating: "a1", count: 32), String(repeating: "c3", count: 32))
        for (method, path, token) in [
            (HTTPRequest.Method.post, "/v1/devices", #""token":"\#(Sample.token)","#),
            (.put, "/v1/devices/\(Sample.token)", ""),
        ] {
            let relay = Relay(ScriptedStore(register: { .created }))
            let answer = try await AdminTests.call(
                method, path,
                #"{\#(token)"os_version":"iOS 18.1","start_tokens":{"Order":"\#(order)","Timer":"\#(timer)"}}"#,
                to: relay)
            #expect(answer.status == .created, "\(answer.text)")
            #expect(
                try relay.store.activities.reports
                    == [("Order", order), ("Timer", timer)].map { type, token in
                        ActivityTokenReport(token: try DeviceToken(parsing: token), use: .start(type: type), system: 18)
                    })
        }
    }

    @Test(
        "A wrong push-to-start token registers nothing",
        arguments: [
            (#"["a1"]"#, "start_tokens"), (#"{"a b":"a1"}"#, "start_tokens"), (#"{"Order":1}"#, "start_tokens.Order"),
            (#"{"Order":"a1b2"}"#, "start_tokens.Order"),
            ("{\((1...9).map { #""T\#($0)":"a1""# }.joined(separator: ","))}", "start_tokens"),
        ])
    func badStartTokens(tokens: String, field: String) async throws {
        let relay = Relay(ScriptedStore())
        let answer = try await AdminTests.call(
            .put, "/v1/devices/\(Sample.token)", #"{"start_tokens":\#(tokens)}"#, to: relay)
        #expect(answer.status == .badRequest && answer.text.contains(#""field":"\#(field)""#), "\(answer.text)")
        #expect(relay.store.calls == [])
    }

    @Test(
        "The error names the field and the rule",
        arguments: [
            (#"{"tag":"a"}"#, "event"), (#"{"event":"begin","tag":"a"}"#, "event"), (#"{"event":"end"}"#, "tag"),
            (#"{"event":"end","tag":"a b"}"#, "tag"),
            (#"{"event":"end","tag":"\#(String(repeating: "a", count: 65))"}"#, "tag"),
            (#"{"event":"update","tag":"a"}"#, "state"), (#"{"event":"update","tag":"a","state":1}"#, "state"),
            (#"{"event":"start","tag":"a","state":{}}"#, "alert"),
            (#"{"event":"end","tag":"a","alert":{"text":"x"}}"#, "alert"),
            (#"{"event":"end","tag":"a","alert":{"title":1}}"#, "alert.title"),
            (#"{"event":"end","tag":"a","to":{"all":true}}"#, "to"), (#"{"event":"end","tag":"a","type":"A"}"#, "type"),
            (#"{"event":"end","tag":"a","attributes":{}}"#, "attributes"),
            (#"{"event":"start","tag":"a","state":{},"alert":{},"type":"a b"}"#, "type"),
            (
                #"{"event":"start","tag":"a","state":{},"alert":{},"dismissal_date":"2026-06-01T10:00:00Z"}"#,
                "dismissal_date"
            ),
            (#"{"event":"end","tag":"a","priority":1}"#, "priority"),
            (#"{"event":"end","tag":"a","stale_date":"soon"}"#, "stale_date"),
            (#"{"event":"end","tag":"a","relevance_score":"1"}"#, "relevance_score"),
            (#"{"event":"end","tag":"a","app":"none"}"#, "app"), (#"{"event":"end","tag":"a","name":"x"}"#, "name"),
            (#"{"event":"update","tag":"a","state":{"t":"\#(String(repeating: "x", count: 4096))"}}"#, "state"),
        ])
    func errors(json: String, field: String) async throws {
        let relay = Relay(ScriptedStore())
        let answer = try await Self.post(relay, json)
        #expect(answer.status == .badRequest)
        #expect(answer.text.contains(#""field":"\#(field)""#), "\(answer.text)")
        #expect(relay.store.activities.requests.isEmpty)
    }

    @Test("An app without HTTP/2 has no Live Activities")
    func binary() async throws {
        var relay = Relay(ScriptedStore())
        relay.formats[.default] = APNSFormat(.binary, payloadLimit: 2048)
        let answer = try await Self.post(relay, #"{"event":"update","tag":"a","state":{}}"#)
        #expect(answer.status == .badRequest)
        #expect(answer.text.contains(#""field":"app""#), "\(answer.text)")
    }

    @Test("A token sees only its own activities, and starts them only for its audience")
    func tokens() async throws {
        let relay = try TokenAccessTests.relay()
        func status(
            _ token: String, _ method: HTTPRequest.Method, _ path: String = "/v1/activities", _ json: String = ""
        ) async throws -> (Int, String) {
            let answer = try await relay.send(
                method, path, headers: [.contentType: "application/json", .authorization: "Bearer \(token)"],
                body: Array(json.utf8))
            return (answer.status.code, answer.text)
        }
        #expect(try await status("pct_send", .get).1.contains("order-17"))
        #expect(try await status("pct_send_ann", .get).1 == #"{"activities":[],"next":null}"#)
        #expect(try await status("pct_send", .get, "/v1/activities/1").0 == 200)
        #expect(try await status("pct_send_ann", .get, "/v1/activities/1").0 == 404)
        #expect(try await status("geheim", .get, "/v1/activities/2").0 == 404)
        #expect(try await status("pct_send_ann", .post, "/v1/activities", Self.start).0 == 403)
        let toAnn = Self.start.replacing(#"{"room":"kitchen"}"#, with: #"{"users":["ann"]}"#)
        #expect(try await status("pct_send_ann", .post, "/v1/activities", toAnn).0 == 202)
        let toNobody = Self.start.replacing(#""to":{"room":"kitchen"},"#, with: "")
        #expect(try await status("pct_send_ann", .post, "/v1/activities", toNobody).0 == 403)
        #expect(try await status("pct_send", .post, "/v1/activities", toNobody).0 == 202)
        #expect(relay.store.activities.requests.map(\.token) == [13, 3])
    }

    @Test("Apps report tokens for updates and for starts")
    func reports() async throws {
        let relay = Relay(ScriptedStore())
        let form = "cmd=activity_token&udid=\(Sample.udid)&token=\(Sample.token)"
        #expect(try await relay.form(form + "&tag=order-17&os_version=17.6.1").text == "OK\n")
        #expect(try await relay.form(form + "&type=Score").text == "OK\n")
        #expect(try await relay.form(form + "&os_version=iOS+18.0").text == "OK\n")
        let token = try Sample.device
        #expect(
            relay.store.activities.reports == [
                ActivityTokenReport(token: token, use: .update(ActivityTag(stored: "order-17")), system: 17),
                ActivityTokenReport(token: token, use: .start(type: "Score"), system: nil),
                ActivityTokenReport(token: token, use: .start(type: ActivityLimits.standardType), system: 18),
            ])
        for wrong in ["&tag=a&type=b", "&tag=a+b", "&type=a+b", "&token=xy"] {
            let answer = try await relay.form(
                wrong.hasPrefix("&token") ? "cmd=activity_token&udid=\(Sample.udid)\(wrong)" : form + wrong)
            #expect(answer.status == .badRequest, "\(wrong)")
        }
        #expect(relay.store.activities.reports.count == 3)
    }

    @Test("A report with a session prolongs the member's credentials for other apps")
    func session() async throws {
        var relay = Relay(ScriptedStore())
        relay.sessions = OneSession()
        let form = "cmd=activity_token&udid=\(Sample.udid)&token=\(Sample.token)"
        #expect(try await relay.form(form).status == .unauthorized)
        #expect(try await relay.form(form, headers: [.authorization: "Bearer good"]).status == .ok)
        #expect(relay.store.clients.state.withLock { $0.sessions.values.map(\.text) } == ["alice"])
    }
}
