import APNSGateway
import ChatDomain
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP
@testable import TestStores

@Suite("/v1/activities, activity_token")
struct ActivitiesTests {
    private static let start = #"""
        {"event":"start","tag":"order-17","to":{"room":"kitchen"},"state":{"title":"Baking","progress":0.5},\#
        "attributes":{"number":17},"alert":{"title":"Order 17"},"priority":10,"stale_date":"2026-06-01T10:00:00Z"}
        """#

    private static func post(_ relay: Relay, _ json: String) async throws -> TestResponse {
        try await AdminTests.call(.post, "/v1/activities", json, to: relay)
    }

    private static func activity(_ relay: Relay) async throws -> ActivityRecord {
        try await relay.store.real.ports.activities.activity(1)
    }

    /// The reported tokens: the type or tag, the version of the system, the token, and the token of the device.
    private static func tokens(_ relay: Relay) throws -> [String] {
        try relay.store.real.query(
            """
            SELECT coalesce(attributes_type, tag), coalesce(system_version, '-'), activity_token, device_token
            FROM activity_tokens LEFT JOIN activities ON activity_id = activity ORDER BY 1
            """)
    }

    @Test("A call is stored with all that it says, and its response has the activity")
    func accepted() async throws {
        let relay = Relay(ScriptedStore())
        let answer = try await Self.post(relay, Self.start)
        #expect(answer.status == .accepted)
        #expect(answer.headers[.location] == "../v1/activities/1")
        let stored = try await Self.activity(relay)
        #expect(stored.tag.text == "order-17" && stored.app == .default && stored.token == nil)
        #expect(stored.audience == .room(SecretCode(stored: "kitchen")))
        #expect(stored.start.event == .start && stored.start.priority == 10)
        #expect(stored.start.staleDate == Timestamp(rfc3339: "2026-06-01T10:00:00Z"))
        #expect(stored.start.type == ActivityLimits.standardType)
        #expect(
            answer.text
                == #"{"id":1,"tag":"order-17","app":"default","event":"start","#
                + #""state":{"title":"Baking","progress":0.5},"to":{"room":"kitchen"},"#
                + #""type":"PushChatActivityAttributes","channel":null,"revision":1,"devices":0,"notifications":[],"#
                + #""created_at":"2026-05-28T20:26:40.000Z","updated_at":"2026-05-28T20:26:40.000Z","ended_at":null}"#)
        let update = try await Self.post(relay, #"{"event":"update","tag":"order-17","state":{}}"#)
        #expect(update.status == .accepted)
        #expect(try await Self.activity(relay).newest.priority == 5)
    }

    @Test("A start with a channel is stored as such, and its response has the channel's state")
    func channel() async throws {
        let relay = Relay(ScriptedStore())
        let answer = try await Self.post(relay, #"{"channel":true,\#(Self.start.dropFirst())"#)
        #expect(answer.status == .accepted)
        #expect(try await Self.activity(relay).channel != nil)
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
                try Self.tokens(relay) == ["Order 18 \(order) \(Sample.token)", "Timer 18 \(timer) \(Sample.token)"])
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
        #expect(try relay.store.real.query("SELECT 1 FROM activities").isEmpty)
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
        let toNobody = Self.start.replacing(#""to":{"room":"kitchen"},"#, with: "")
        #expect(try await status("pct_send", .post, "/v1/activities", toNobody).0 == 202)
        #expect(try await status("pct_send", .get).1.contains("order-17"))
        #expect(try await status("pct_send_ann", .get).1 == #"{"activities":[],"next":null}"#)
        #expect(try await status("pct_send", .get, "/v1/activities/1").0 == 200)
        #expect(try await status("pct_send_ann", .get, "/v1/activities/1").0 == 404)
        #expect(try await status("geheim", .get, "/v1/activities/2").0 == 404)
        #expect(try await status("pct_send_ann", .post, "/v1/activities", Self.start).0 == 403)
        let toAnn = Self.start.replacing(#"{"room":"kitchen"}"#, with: #"{"users":["ann"]}"#).replacing(
            "-17", with: "-18")
        #expect(try await status("pct_send_ann", .post, "/v1/activities", toAnn).0 == 202)
        #expect(try await status("pct_send_ann", .post, "/v1/activities", toNobody).0 == 403)
        #expect(try relay.store.real.query("SELECT tag, token FROM activities") == ["order-17 3", "order-18 13"])
    }

    @Test("Apps report tokens for updates and for starts")
    func reports() async throws {
        let relay = Relay(ScriptedStore())
        try await relay.store.real.ports.rooms.join(StoreFixture.join(1, "kitchen"))
        let (device, udid) = (try StoreFixture.token(1), try StoreFixture.member(1).text)
        #expect(try await Self.post(relay, Self.start).status == .accepted)
        func form(_ number: Int) throws -> String {
            "cmd=activity_token&udid=\(udid)&token=\(try StoreFixture.token(number))"
        }
        for (number, more) in [(2, "&tag=order-17&os_version=17.6.1"), (3, "&type=Score"), (4, "&os_version=iOS+18.0")]
        {
            #expect(try await relay.form(form(number) + more).text == "OK\n")
        }
        let types = ["\(ActivityLimits.standardType) 18", "Score -", "order-17 17"]
        let reported = try zip(types, [4, 3, 2]).map { "\($0) \(try StoreFixture.token($1)) \(device)" }
        #expect(try Self.tokens(relay) == reported)
        for wrong in ["&tag=a&type=b", "&tag=a+b", "&type=a+b", "&token=xy"] {
            let answer = try await relay.form(
                wrong.hasPrefix("&token") ? "cmd=activity_token&udid=\(udid)\(wrong)" : form(5) + wrong)
            #expect(answer.status == .badRequest, "\(wrong)")
        }
        #expect(try Self.tokens(relay) == reported)
    }

    @Test("A report with a session prolongs the member's credentials for other apps")
    func session() async throws {
        let real = try RealStore(credentialLifetime: .seconds(86_400))
        try await real.ports.rooms.join(StoreFixture.join(1))
        try real.credential("pcc_phone", id: 1)
        try real.query("UPDATE credentials SET user_reference = 'alice'")
        var relay = Relay(ScriptedStore(real: real))
        relay.sessions = OneSession()
        let form = "cmd=activity_token&udid=\(try StoreFixture.member(1))&token=\(Sample.token)"
        #expect(try await relay.form(form).status == .unauthorized)
        #expect(try await relay.form(form, headers: [.authorization: "Bearer good"]).status == .ok)
        try await real.sqlite.clients.flush()
        #expect(try await real.ports.clients.credential(of: "pcc_phone")?.sessionAt == Sample.time)
    }
}
