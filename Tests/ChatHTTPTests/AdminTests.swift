import APNSGateway
import ChatDomain
import Foundation
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ChatHTTP

/// Sample values of the admin API's tests.
enum Given {
    static var device: Device {
        get throws {
            Device(
                id: 7, token: try Sample.device, app: .default, user: UserReference(stored: "alice"),
                clientInfo: "iPhone", serverInfo: nil,
                client: ClientInfo(appVersion: "2.1"), tags: [Tag(stored: "beta"), Tag(stored: "news")],
                createdAt: Timestamp(seconds: 1), registeredAt: Timestamp(seconds: 2),
                seenAt: Timestamp(seconds: 3), deactivatedAt: nil, deactivatedReason: nil)
        }
    }
    static let delivery = Delivery(
        id: 17, notification: 5, message: nil, token: Sample.token, app: .default, state: .failed,
        reason: "BadDeviceToken", hint: "wrong environment?", attempts: 1, queuedAt: Timestamp(seconds: 3),
        notBefore: nil, sentAt: Timestamp(seconds: 4), settledAt: Timestamp(seconds: 5), apnsID: "id")
    static let notification = NotificationStatus(
        id: 5,
        request: NotificationRequest(
            audience: .tags([Tag(stored: "news")]), payload: #"{"aps":{"badge":1}}"#, expiration: 0, priority: 5),
        createdAt: Timestamp(seconds: 3), cancelledAt: nil, state: .done, counts: [.failed: 1, .sent: 2], skipped: 4,
        devices: 3)
    static let answers = AdminResponses(
        unregister: { true }, edit: { () throws(ChatError) in try Self.checked { try device } },
        device: { () throws(ChatError) in try Self.checked { try device } },
        devices: { () throws(ChatError) in Page(items: [try Self.checked { try device }], next: 7) },
        deliveries: { Page(items: [delivery], next: 17) },
        send: { NotificationReceipt(id: 5, devices: 3, isRepeat: false) }, notification: { notification },
        cancel: { notification },
        depths: {
            [
                QueueDepth(app: .default, due: 1, delayed: 2, written: 3, oldest: Sample.time - .seconds(10)),
                QueueDepth(app: AppName("gone"), due: 4),
            ]
        },
        totals: { StoreTotals() },
        usage: {
            [
                DeviceDay(day: "2026-05-27", app: .default, kind: nil, value: .nothing, devices: 2),
                DeviceDay(day: "2026-05-27", app: .default, kind: .appVersion, value: .text("2.0"), devices: 2),
                DeviceDay(day: "2026-05-28", app: .default, kind: nil, value: .nothing, devices: 4),
                DeviceDay(day: "2026-05-28", app: .default, kind: .appVersion, value: .text("2.1"), devices: 1),
                DeviceDay(day: "2026-05-28", app: .default, kind: .appVersion, value: .nothing, devices: 2),
                DeviceDay(day: "2026-05-28", app: .default, kind: .appVersion, value: .others, devices: 1),
                DeviceDay(day: "2026-06-01", app: .default, kind: nil, value: .nothing, devices: 9),
            ]
        },
        outcomes: [
            OutcomeCount(app: .default, state: .failed, reason: "a\"b\\c\nd", total: 9, lastMinute: 1)
        ])

    private static func checked<Value>(_ body: () throws -> Value) throws(ChatError) -> Value {
        do { return try body() } catch { throw ChatError(.internalError, "\(error)") }
    }
}

@Suite("The admin API")
struct AdminTests {
    private static let settings = ChatHTTPSettings(adminTokens: ["t"])

    static func call(
        _ method: HTTPRequest.Method, _ path: String, _ json: String? = nil, headers: HTTPFields = [:],
        to relay: Relay
    ) async throws -> TestResponse {
        var relay = relay
        relay.settings.adminTokens = ["t"]
        var headers = headers
        headers[.authorization] = "Bearer t"
        if json != nil, headers[.contentType] == nil { headers[.contentType] = "application/json" }
        return try await relay.send(method, path, headers: headers, body: json.map { Array($0.utf8) })
    }

    static func scripted(_ register: DeviceRegistration = .created) -> Relay {
        Relay(ScriptedStore(register: { register }, admin: Given.answers))
    }

    private static let device = "/v1/devices/\(Sample.token)"

    @Test("PUT registers; absent fields stay, null removes")
    func put() async throws {
        for (json, edit, app) in [
            (nil, DeviceEdit(), AppName.default), ("{}", DeviceEdit(), .default),
            (
                #"{"app":"98Z3R5XU29.com.51work6.PushChat","user_reference":"alice","client_info":"x","app_version":"2.1","#
                    + #""os_version":null,"device_model":" ","tags":["b","a","b"]}"#,
                DeviceEdit(
                    user: .set(UserReference(stored: "alice")), clientInfo: .set("x"),
                    client: ClientInfo(appVersion: "2.1"),
                    tags: [Tag(stored: "a"), Tag(stored: "b")]), AppName("second")
            ),
            (
                #"{"user_reference":null,"client_info":" ","tags":null}"#,
                DeviceEdit(user: .remove, clientInfo: .remove, tags: []), .default
            ),
        ] as [(String?, DeviceEdit, AppName)] {
            let relay = Self.scripted()
            let answer = try await Self.call(.put, Self.device, json, to: relay)
            #expect(answer.status == .created, "\(answer.text)")
            #expect(
                try relay.store.calls == [.register(RegistrationRequest(token: Sample.device, app: app, edit: edit))])
            #expect(answer.text == #"{"token":"\#(Sample.token)","app":"\#(app)","result":"created"}"#)
        }
        #expect(try await Self.call(.put, Self.device, to: Self.scripted(.unchanged)).status == .ok)
    }

    @Test("POST registers a browser by its subscription, as an object or as text")
    func post() async throws {
        let quoted = JSONValue.string(OneSubscription.text)
        for json in [
            #"{"subscription":\#(OneSubscription.text),"user_reference":"alice","tags":["a"]}"#,
            #"{"app":"webpush","subscription":\#(quoted),"user_reference":"alice","tags":["a"]}"#,
        ] {
            var relay = Self.scripted()
            relay.browsers = OneSubscription()
            let answer = try await Self.call(.post, "/v1/devices", json, to: relay)
            #expect(answer.status == .created, "\(answer.text)")
            #expect(answer.text == #"{"token":"\#(Sample.token)","app":"webpush","result":"created"}"#)
            let edit = DeviceEdit(user: .set(UserReference(stored: "alice")), tags: [Tag(stored: "a")])
            #expect(
                try relay.store.calls == [
                    .keep(OneSubscription.known()),
                    .register(RegistrationRequest(token: Sample.device, app: .web, edit: edit)),
                ])
        }
    }

    @Test(
        "POST registers a phone by its token; PUT and POST select the app of an environment",
        arguments: [
            ("", "default"), (#","environment":"sandbox""#, "default"), (#","environment":"development""#, "default"),
            (#","environment":"production""#, "second"), (#","environment":null"#, "default"),
        ])
    func environment(member: String, app: String) async throws {
        let edit = DeviceEdit(user: .set(UserReference(stored: "alice")))
        for (method, path, token) in [
            (HTTPRequest.Method.post, "/v1/devices", #","token":"\#(Sample.token)""#), (.put, Self.device, ""),
        ] {
            let relay = Self.scripted()
            let answer = try await Self.call(method, path, #"{"user_reference":"alice"\#(token)\#(member)}"#, to: relay)
            #expect(answer.status == .created, "\(answer.text)")
            #expect(
                try relay.store.calls
                    == [.register(RegistrationRequest(token: Sample.device, app: AppName(app), edit: edit))])
        }
    }

    @Test(
        "The error names an environment that does not exist, or that has no app",
        arguments: [
            #""environment":"staging""#, #""environment":7"#,
            #""app":"98Z3R5XU29.com.51work6.PushChat","environment":"sandbox""#,
        ])
    func badEnvironment(members: String) async throws {
        let relay = Self.scripted()
        let answer = try await Self.call(.put, Self.device, "{\(members)}", to: relay)
        #expect(answer.status == .badRequest && answer.text.contains(#""field":"environment""#), "\(answer.text)")
        #expect(relay.store.calls == [])
    }

    @Test(
        "An invalid registration of a browser leaves no data behind",
        arguments: [
            ("{}", "subscription"), (#"{"subscription":null}"#, "subscription"),
            (#"{"subscription":"x"}"#, "subscription"), (#"{"subscription":[]}"#, "subscription"),
            (#"{"app":"default","subscription":\#(OneSubscription.text)}"#, "app"),
            (#"{"token":"aa","subscription":\#(OneSubscription.text)}"#, "token"),
            (#"{"subscription":\#(OneSubscription.text),"environment":"sandbox"}"#, "environment"),
            (#"{"token":"x"}"#, "token"), (#"{"subscription":\#(OneSubscription.text),"tags":["a",1]}"#, "tags[1]"),
        ])
    func badPost(json: String, field: String) async throws {
        var relay = Self.scripted()
        relay.browsers = OneSubscription()
        let answer = try await Self.call(.post, "/v1/devices", json, to: relay)
        #expect(answer.status == .badRequest)
        #expect(answer.text.contains(#""field":"\#(field)""#), "\(answer.text)")
        #expect(relay.store.calls == [])
    }

    @Test("A token in the path may be written as Apple prints it")
    func printedToken() async throws {
        let relay = Self.scripted()
        let path = "/v1/devices/%3C740F4707%20bebcf74f%209b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad%3E"
        #expect(try await Self.call(.delete, path, to: relay).status == .noContent)
        #expect(try relay.store.calls == [.unregister(Sample.device, nil)])
    }

    @Test("Devices can be listed, read with history, edited and deleted")
    func devices() async throws {
        let relay = Self.scripted()
        let list = try await Self.call(
            .get, "/v1/devices?user_reference=al%20ice&tag=news&active=false&limit=5&cursor=3", to: relay)
        #expect(list.status == .ok)
        let filter = DeviceFilter(
            user: UserReference(stored: "al ice"), tag: Tag(stored: "news"), isActive: false)
        let json = #"""
            {"token":"\#(Sample.token)","app":"default","active":true,"user_reference":"alice","client_info":"iPhone",
            "server_info":null,"app_version":"2.1","os_version":null,"device_model":null,"tags":["beta","news"],"created_at":"1970-01-01T00:00:01.000Z",
            "registered_at":"1970-01-01T00:00:02.000Z","seen_at":"1970-01-01T00:00:03.000Z","deactivated_at":null,"deactivated_reason":null
            """#.replacing("\n", with: "")
        #expect(list.text == #"{"devices":[\#(json)}],"next":7}"#)
        let delivery = #"""
            {"id":17,"notification":5,"message":null,"token":"\#(Sample.token)","app":"default","state":"failed",
            "reason":"BadDeviceToken","hint":"wrong environment?","attempts":1,"queued_at":"1970-01-01T00:00:03.000Z",
            "not_before":null,"sent_at":"1970-01-01T00:00:04.000Z","settled_at":"1970-01-01T00:00:05.000Z","apns_id":"id"}
            """#.replacing("\n", with: "")
        let one = try await Self.call(.get, Self.device + "?app=98Z3R5XU29.com.51work6.PushChat&cursor=9", to: relay)
        #expect(one.text == #"\#(json),"deliveries":[\#(delivery)],"next":17}"#)
        let edited = try await Self.call(.patch, Self.device, #"{"server_info":"s","tags":[]}"#, to: relay)
        #expect(edited.text == json + "}")
        #expect(try await Self.call(.delete, Self.device, to: relay).status == .noContent)
        #expect(
            try relay.store.calls == [
                .devices(filter, after: 3, limit: 5), .device(Sample.device, AppName("second")),
                .history(7, before: 9, limit: 100),
                .edit(Sample.device, nil, DeviceEdit(serverInfo: .set("s"), tags: [])),
                .unregister(Sample.device, nil),
            ])
    }

    @Test(
        "An expired notification is refused, but a repeat of one that was accepted in time gets its response",
        arguments: [true, false])
    func lateRepeat(isKnown: Bool) async throws {
        let relay = Relay(
            ScriptedStore(
                admin: AdminResponses(
                    earlier: { () throws(ChatError) in
                        isKnown ? NotificationReceipt(id: 9, devices: 2, isRepeat: true) : nil
                    })), settings: ChatHTTPSettings(adminTokens: ["geheim"]))
        let body = #"{"to":{"all":true},"alert":"x","expiration":1779999999}"#
        let answer = try await relay.send(
            .post, "/v1/notifications",
            headers: [
                .contentType: "application/json", .authorization: "Bearer geheim", .idempotencyKey: "k",
            ], body: Array(body.utf8))
        #expect(answer.status == (isKnown ? .accepted : .badRequest), "\(answer.text)")
        if !isKnown { #expect(answer.text.contains("must not lie in the past")) }
    }

    @Test("POST composes the payload of a notification, and the response has the address of its record")
    func send() async throws {
        let relay = Self.scripted()
        let answer = try await Self.call(
            .post, "/v1/notifications",
            #"{"to":{"tokens":["\#(Sample.token)"]},"alert":"Hi","badge":2,"expiration":0,"not_before":1780000060,"skip_unchanged":true}"#,
            headers: [.idempotencyKey: "k"], to: relay)
        #expect(answer.status == .accepted)
        #expect(answer.text == #"{"id":5,"devices":3}"#)
        #expect(answer.headers[.location] == "../v1/notifications/5")
        #expect(
            try relay.store.calls == [
                .send(
                    NotificationRequest(
                        audience: .tokens([Sample.device]), payload: #"{"aps":{"alert":"Hi","badge":2}}"#,
                        expiration: 0,
                        notBefore: Timestamp(seconds: 1_780_000_060), skipsUnchanged: true, idempotencyKey: "k"))
            ])
    }

    @Test(
        "Each form of audience reaches the store",
        arguments: [
            (#"{"users":["a","b"]}"#, Audience.users([UserReference(stored: "a"), UserReference(stored: "b")])),
            (#"{"tags":["x"]}"#, .tags([Tag(stored: "x")])),
            (#"{"room":" kitchen "}"#, .room(SecretCode(stored: "kitchen"))),
            (#"{"all":true}"#, .all),
        ])
    func audience(json: String, expected: Audience) async throws {
        let relay = Self.scripted()
        _ = try await Self.call(.post, "/v1/notifications", #"{"to":\#(json),"badge":1}"#, to: relay)
        #expect(relay.store.calls == [.send(NotificationRequest(audience: expected, payload: #"{"aps":{"badge":1}}"#))])
    }

    @Test("A batch has a result for each item, and an invalid item does not affect the others")
    func batch() async throws {
        let relay = Relay(ScriptedStore(admin: Given.answers))
        let answer = try await Self.call(
            .post, "/v1/notifications:batch",
            #"""
            {"notifications":[
            {"to":{"users":["ann"]},"badge":1,"idempotency_key":"k"},
            {"to":{"users":["bob"]},"badge":"2"},
            7,
            {"to":{"users":["bob"]},"badge":2,"skip_unchanged":true,"bagde":1},
            {"to":{"all":true},"alert":"Hi"}
            ]}
            """#, to: relay)
        #expect(answer.status == .ok, "\(answer.text)")
        let results = try #require(try JSONValue(parsing: answer.text).object?["results"]?.array)
        #expect(results.map { $0.object?["id"]?.integer } == [5, nil, nil, nil, 5])
        #expect(
            results.map { $0.object?["error"]?.object?["field"]?.text }
                == [nil, "badge", "notifications", "bagde", nil])
        #expect(results[1].object?["error"]?.object?["status"]?.integer == 400)
        #expect(relay.store.calls.count == 2)
        guard case .send(let first) = relay.store.calls[0] else { return #expect(Bool(false)) }
        #expect(first.idempotencyKey == "k" && first.payload == #"{"aps":{"badge":1}}"#)
        for (json, field) in [
            (#"{}"#, "notifications"), (#"{"notifications":[]}"#, "notifications"),
            (#"{"notifications":{}}"#, "notifications"),
            (#"{"notifications":[\#([String](repeating: "1", count: 1001).joined(separator: ","))]}"#, "notifications"),
            (#"{"messages":[1]}"#, "messages"),
        ] {
            let refused = try await Self.call(.post, "/v1/notifications:batch", json, to: Relay(ScriptedStore()))
            #expect(refused.status == .badRequest)
            #expect(try JSONValue(parsing: refused.text).object?["field"]?.text == field)
        }
    }

    @Test("An unknown push type is sent, and the response warns; in a batch, the item's result does")
    func novelType() async throws {
        let (novel, known) = (#"{"to":{"all":true},"badge":1,"push_type":"novel"}"#, #"{"to":{"all":true},"badge":1}"#)
        let relay = Self.scripted()
        let one = try JSONValue(parsing: try await Self.call(.post, "/v1/notifications", novel, to: relay).text).object
        #expect(one?["id"]?.integer == 5)
        #expect(one?["warning"]?.text?.hasPrefix("push type novel is not known") == true)
        let many = try await Self.call(
            .post, "/v1/notifications:batch", #"{"notifications":[\#(known),\#(novel)]}"#, to: relay)
        let results = try #require(try JSONValue(parsing: many.text).object?["results"]?.array)
        #expect(results.map { $0.object?["warning"] != nil } == [false, true])
        guard case .send(let sent) = relay.store.calls[0] else { return #expect(Bool(false)) }
        #expect(sent.pushType == "novel")
    }

    @Test("A notification's record can be read, and the notification cancelled")
    func record() async throws {
        let relay = Self.scripted()
        let answer = try await Self.call(.get, "/v1/notifications/5?state=failed&limit=1", to: relay)
        let json = #"""
            {"id":5,"state":"done","created_at":"1970-01-01T00:00:03.000Z","cancelled_at":null,"to":{"tags":["news"]},
            "app":null,"payload":{"aps":{"badge":1}},"push_type":"alert","expiration":0,"priority":5,"collapse_id":null,
            "not_before":null,"skip_unchanged":false,"devices":3,"counts":{"pending":0,"sent":2,"failed":1,
            "expired":0,"cancelled":0,"skipped":4}
            """#.replacing("\n", with: "")
        #expect(answer.text.hasPrefix(json + #","deliveries":[{"id":17,"#))
        #expect(try await Self.call(.delete, "/v1/notifications/5", to: relay).text == json + "}")
        #expect(relay.store.calls == [.notification(5), .deliveries(5, .failed, after: nil, limit: 1), .cancel(5)])
    }

    @Test("An app without any settings lacks credentials only while pushes wait")
    func browsersOnly() async throws {
        for (isForBrowsersOnly, due, expected) in [
            (false, 0, #""credentials""#), (true, 1, #""credentials""#), (true, 0, "null"),
        ] {
            var relay = Relay(
                ScriptedStore(admin: AdminResponses(depths: { [QueueDepth(app: .default, due: due)] })))
            relay.apps = [
                AppStatus(
                    app: .default, gateway: "http2", address: nil, topic: nil, isForBrowsersOnly: isForBrowsersOnly)
            ]
            let queue = try await Self.call(.get, "/v1/queue", to: relay)
            #expect(queue.text.contains(#""waits_for":\#(expected),"due":\#(due),"#), "\(queue.text)")
        }
    }

    @Test("Metrics are served as JSON and for Prometheus")
    func metrics() async throws {
        let queue = try await Self.call(.get, "/v1/queue", to: Self.scripted())
        #expect(
            queue.text
                == #"""
                {"depth":10,"oldest_age_seconds":10.0,"apps":[{"app":"default","gateway":"http2",
                "waits_for":"credentials","due":1,"delayed":2,"written":3,
                "oldest_queued_at":"2026-05-28T20:26:30.000Z","oldest_age_seconds":10.0,
                "paused_at":null,"paused_by":null,"pause_reason":null},{"app":"gone",
                "gateway":null,"waits_for":"configuration","due":4,"delayed":0,"written":0,"oldest_queued_at":null,"oldest_age_seconds":null,
                "paused_at":null,"paused_by":null,"pause_reason":null}]}
                """#.replacing("\n", with: ""))
        let stats = try await Self.call(.get, "/v1/stats", to: Self.scripted())
        #expect(
            stats.text.contains(#""outcomes":[{"state":"failed","reason":"a\"b\\c\nd","total":9,"last_minute":1}]"#))
        let relay = Self.scripted()
        let usage = try await Self.call(.get, "/v1/stats?days=2", to: relay)
        let none = #"{"values":[],"others":[0,0],"unknown":[0,0]}"#
        #expect(
            usage.text.contains(
                #""usage":{"days":["2026-05-27","2026-05-28"],"apps":[{"app":"default","devices":[2,4],"#
                    + #""app_version":{"values":[{"value":"2.0","devices":[2,0]},{"value":"2.1","devices":[0,1]}],"#
                    + #""others":[0,1],"unknown":[0,2]},"os_version":"# + none + #","device_model":"# + none + "}]}"),
            "\(usage.text)")
        #expect(relay.store.calls.contains(.usage("2026-05-27")))
        #expect(try await Self.call(.get, "/v1/stats", to: Self.scripted()).text.contains(#""days":["2026-05-28"]"#))
        for days in ["0", "91", "x"] {
            #expect(
                try await Self.call(.get, "/v1/stats?days=\(days)", to: Relay(ScriptedStore())).status == .badRequest)
        }
        let metrics = try await Self.call(.get, "/metrics", to: Self.scripted())
        #expect(metrics.headers[.contentType] == "text/plain; version=0.0.4; charset=utf-8")
        for line in [
            #"pushchat_pushes_total{app="default",gateway="http2",state="failed",reason="a\"b\\c\nd"} 9"#,
            #"pushchat_queue_entries{app="gone",state="due"} 4"#, #"pushchat_queue_oldest_seconds{app="default"} 10.0"#,
            #"pushchat_gateway_connections{app="default",gateway="http2"} 0"#, "pushchat_members 0",
            "# TYPE pushchat_pushes_total counter",
        ] {
            #expect(metrics.text.split(separator: "\n").contains(line[...]), "\(line)")
        }
    }

    @Test(
        "The error names an invalid value, and nothing is done",
        arguments: [
            ("PUT", device, "[]", nil), ("PUT", device, "{", nil), ("PUT", device, #"{"tag":1}"#, "tag"),
            ("PUT", device, #"{"app":""}"#, "app"), ("PUT", device, #"{"app":"x"}"#, "app"),
            ("PUT", device, #"{"user_reference":1}"#, "user_reference"),
            ("PUT", device, #"{"user_reference":""}"#, "user_reference"),
            ("PUT", device, #"{"user_reference":"\#(String(repeating: "é", count: 128))"}"#, "user_reference"),
            ("PUT", device, #"{"client_info":"\#(String(repeating: "x", count: 4097))"}"#, "client_info"),
            ("PUT", device, #"{"tags":"a"}"#, "tags"), ("PUT", device, #"{"tags":["a",1]}"#, "tags[1]"),
            ("PUT", device, #"{"tags":[\#((0...32).map { "\"\($0)\"" }.joined(separator: ","))]}"#, "tags"),
            ("PUT", "/v1/devices/xyz", "{}", "token"), ("PUT", device + "?x=1", "{}", "x"),
            ("PUT", device + "?app=98Z3R5XU29.com.51work6.PushChat", #"{"app":"x"}"#, "app"),
            ("PATCH", device, "{}", "server_info"), ("PATCH", device, #"{"user_reference":"a"}"#, "user_reference"),
            ("GET", "/v1/devices?limit=0", nil, "limit"), ("GET", "/v1/devices?limit=501", nil, "limit"),
            ("GET", "/v1/devices?limit=", nil, "limit"), ("GET", "/v1/devices?limit=1&limit=2", nil, "limit"),
            ("GET", "/v1/devices?cursor=-1", nil, "cursor"), ("GET", "/v1/devices?active=yes", nil, "active"),
            ("GET", "/v1/devices?app=no", nil, "app"), ("GET", "/v1/devices?tag=", nil, "tag"),
            ("GET", "/v1/devices?user=a", nil, "user"), ("GET", "/v1/notifications/x", nil, "id"),
            ("GET", "/v1/notifications/99999999999999999999", nil, "id"),
            ("GET", "/v1/notifications/5?state=gone", nil, "state"), ("GET", "/v1/queue?x", nil, "x"),
            ("POST", "/v1/notifications", #"{"alert":"a"}"#, "to"),
            ("POST", "/v1/notifications", #"{"to":"all","alert":"a"}"#, "to"),
            ("POST", "/v1/notifications", #"{"to":{},"alert":"a"}"#, "to"),
            ("POST", "/v1/notifications", #"{"to":{"all":true,"room":"x"},"alert":"a"}"#, "to"),
            ("POST", "/v1/notifications", #"{"to":{"all":false},"alert":"a"}"#, "to.all"),
            ("POST", "/v1/notifications", #"{"to":{"everyone":true},"alert":"a"}"#, "to.everyone"),
            ("POST", "/v1/notifications", #"{"to":{"tokens":[]},"alert":"a"}"#, "to.tokens"),
            ("POST", "/v1/notifications", #"{"to":{"tokens":["x"]},"alert":"a"}"#, "to.tokens[0]"),
            ("POST", "/v1/notifications", #"{"to":{"room":""},"alert":"a"}"#, "to.room"),
            (
                "POST", "/v1/notifications",
                #"{"to":{"tags":[\#((0...20).map { "\"\($0)\"" }.joined(separator: ","))]},"alert":"a"}"#, "to.tags"
            ),
            ("POST", "/v1/notifications", #"{"to":{"all":true}}"#, "alert"),
            ("POST", "/v1/notifications", #"{"to":{"all":true},"alert":"a","skip_unchanged":1}"#, "skip_unchanged"),
            (
                "POST", "/v1/notifications", #"{"to":{"all":true},"alert":"\#(String(repeating: "x", count: 4077))"}"#,
                "payload"
            ),
        ] as [(String, String, String?, String?)])
    func refused(method: String, path: String, json: String?, field: String?) async throws {
        let relay = Relay(ScriptedStore())
        let answer = try await Self.call(try #require(HTTPRequest.Method(method)), path, json, to: relay)
        #expect(answer.status == .badRequest, "\(answer.text)")
        #expect(answer.headers[.contentType] == "application/problem+json")
        let problem = try #require(try JSONValue(parsing: answer.text).object)
        #expect(problem["status"] == .number(400))
        #expect(problem["field"]?.text == field, "\(answer.text)")
        #expect(relay.store.calls.isEmpty)
    }

    @Test("A token that the named app's gateway does not take is refused")
    func otherTokens() async throws {
        let tokens = #""to":{"tokens":["\#(Sample.token)","cAAAAAAAAAAAAAAAAAAAA1:APA91bHexampleexample"]}"#
        let relay = Self.scripted()
        let answer = try await Self.call(
            .post, "/v1/notifications", #"{\#(tokens),"app":"98Z3R5XU29.com.51work6.PushChat","alert":"x"}"#, to: relay)
        #expect(answer.status == .badRequest && answer.text.contains(#""field":"to.tokens""#), "\(answer.text)")
        #expect(relay.store.calls.isEmpty)
        // Without an app, the store finds each token's app.
        let mixed = try await Self.call(.post, "/v1/notifications", #"{\#(tokens),"alert":"x"}"#, to: relay)
        #expect(mixed.status == .accepted)
    }

    @Test("The payload limit is that of the push type and of the named app")
    func sizes() async throws {
        var relay = Self.scripted()
        relay.apps = [
            AppStatus(app: .default, gateway: "http2", address: nil, topic: nil),
            AppStatus(app: AppName("second"), gateway: "binary", address: nil, topic: nil),
        ]
        relay.formats[AppName("second")] = APNSFormat(.binary, payloadLimit: 256)
        func status(_ size: Int, _ more: String) async throws -> Int {
            let text = String(repeating: "x", count: size - #"{"aps":{"alert":""}}"#.utf8.count)
            return try await Self.call(
                .post, "/v1/notifications", #"{"to":{"all":true},"alert":"\#(text)"\#(more)}"#, to: relay
            ).status.code
        }
        let second = #","app":"98Z3R5XU29.com.51work6.PushChat""#
        #expect(try await status(256, "") == 202)
        #expect(try await status(257, "") == 400)
        #expect(try await status(257, second) == 400)
        relay.apps.removeLast()
        #expect(try await status(4096, "") == 202)
        #expect(try await status(4097, "") == 400)
        #expect(try await status(5120, #","push_type":"voip""#) == 202)
        #expect(try await status(5121, #","push_type":"voip""#) == 400)
    }

    @Test("Other content types, methods and addresses, and bodies beyond the limit, are refused")
    func others() async throws {
        let relay = Relay(ScriptedStore())
        let form = try await Self.call(
            .post, "/v1/notifications", "to=all", headers: [.contentType: "text/plain"], to: relay)
        #expect(form.status == .unsupportedMediaType)
        let method = try await Self.call(.put, "/v1/notifications", "{}", to: relay)
        #expect(method.status == .methodNotAllowed)
        #expect(method.headers[.allow] == "GET, HEAD, POST")
        #expect(try await Self.call(.get, "/v1/nothing", to: relay).status == .notFound)
        let large = #"{"to":"\#(String(repeating: "x", count: HTTPLimits.adminBody))"}"#
        let answer = try await Self.call(.post, "/v1/notifications", large, to: relay)
        #expect(answer.status == .contentTooLarge)
        for answer in [form, method, answer] { #expect(answer.headers[.contentType] == "application/problem+json") }
    }

    @Test("A thousand of the longest tokens fit into one request")
    func largest() async throws {
        let tokens = (0..<1000).map { number in "\"" + String(repeating: "a", count: 196) + String(1000 + number) + "\""
        }
        let answer = try await Self.call(
            .post, "/v1/notifications", #"{"to":{"tokens":[\#(tokens.joined(separator: ", "))]},"badge":1}"#,
            to: Self.scripted())
        #expect(answer.status == .accepted, "\(answer.text)")
    }

    @Test("Each error of the store has its status")
    func errors() async throws {
        for (code, status) in [
            (ChatError.Code.notFound, 404), (.ambiguous, 409), (.unavailable, 503), (.idempotencyConflict, 422),
            (.internalError, 500),
        ] {
            var answers = AdminResponses()
            answers.device = { () throws(ChatError) in throw ChatError(code, "why", retryAfter: .seconds(2)) }
            let answer = try await Self.call(.get, Self.device, to: Relay(ScriptedStore(admin: answers)))
            #expect(answer.status.code == status)
            #expect(try JSONValue(parsing: answer.text).object?["code"]?.text == code.rawValue)
        }
    }
}
