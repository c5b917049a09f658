import Foundation
import PushWire
import Testing

@testable import PushSandbox

/// Tests Live Activity pushes to devices, and the activities that the sandbox simulates.
@Suite("Live Activities", .serialized, .timeLimit(.minutes(10)))
struct LiveActivityTests {
    private static let topic = SandboxConfiguration.defaultTopic + ".push-type.liveactivity"
    private static let start = #"""
        {"aps":{"timestamp":10,"event":"start","content-state":{"n":1},"attributes-type":"RoomAttributes",\#
        "attributes":{"room":"kitchen"},"alert":{"title":"Kitchen","body":"Started"},"input-push-token":1}}
        """#

    private func push(
        _ client: HTTP2Client, _ token: String, _ payload: String, topic: String = LiveActivityTests.topic
    ) async throws -> HTTP2Client.Response {
        try await client.push(token, [("apns-push-type", "liveactivity"), ("apns-topic", topic)], payload: payload)
    }

    private static func update(_ event: String = "update", at timestamp: Int, _ state: String) -> String {
        #"{"aps":{"timestamp":\#(timestamp),"event":"\#(event)","content-state":\#(state)}}"#
    }

    private func device(_ sandbox: TestSandbox, _ fields: String = "") async throws -> String {
        let made = try await sandbox.control(.post, "/devices", json: "{\(fields)}")
        return try #require(try made.object()["token"] as? String)
    }

    @Test("A start makes an activity with an update token, which shows its states until the end")
    func life() async throws {
        try await TestSandbox.with {
            $0.strict = true
        } _: { sandbox in
            let client = try await sandbox.provider()
            let starting = try await device(sandbox)
            let started = try await push(client, starting, Self.start)
            #expect(started.status == 200)
            #expect(started.headers["apns-id"] != nil && started.headers["apns-unique-id"] != nil)
            let activity = try #require(try await sandbox.activities().first)
            #expect(activity.startToken == starting)
            #expect(activity.attributesType == "RoomAttributes")
            #expect(activity.attributes == #"{"room":"kitchen"}"#)
            let token = try #require(activity.token)
            #expect(token.utf8.count == 64 && token != starting)
            #expect(try await push(client, token, Self.update(at: 11, #"{"n":2}"#)).status == 200)
            #expect(try await push(client, token, Self.update("end", at: 12, #"{"n":3}"#)).status == 200)
            let ended = try #require(try await sandbox.activities().first)
            #expect(ended.states.map(\.contentState) == [#"{"n":1}"#, #"{"n":2}"#, #"{"n":3}"#])
            #expect(ended.states.map(\.event) == ["start", "update", "end"])
            #expect(ended.endedAt != nil)
            let late = try await push(client, token, Self.update(at: 13, #"{"n":4}"#))
            #expect((late.status, late.reason) == (410, "Unregistered"))
            #expect(try await sandbox.notifications().map { $0["activity"] as? Int } == [1, 1, 1, nil])
            #expect(try await sandbox.notifications().allSatisfy { $0["warning"] == nil })
            // A strict sandbox knows its tokens.
            #expect(try await push(client, String(repeating: "cd", count: 32), Self.start).reason == "BadDeviceToken")
        }
    }

    @Test("The topic needs its suffix, and the token's app")
    func topics() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let token = try await device(sandbox)
            #expect(try await push(client, token, Self.start, topic: "com.example.PushChat").reason == "BadTopic")
            #expect(try await push(client, token, Self.start).status == 200)
            let update = try #require(try await sandbox.activities().first?.token)
            let other = "com.example.Other.push-type.liveactivity"
            #expect(try await push(client, token, Self.start, topic: other).reason == "DeviceTokenNotForTopic")
            let response = try await push(client, update, Self.update(at: 1, "{}"), topic: other)
            #expect(response.reason == "DeviceTokenNotForTopic")
        }
    }

    @Test(
        "Mistakes that Apple does not report are warnings in the inbox",
        arguments: [
            ([#"{"aps":{"event":"update","content-state":{}}}"#], "timestamp is missing"),
            ([update(at: 5, "{}"), update(at: 4, "{}")], "timestamp 4 is older than 5"),
            ([update(at: 5, #"{"a":1}"#), update(at: 6, #"{"b":1}"#)], "content-state has other members than before"),
            ([update(at: 5, "{}"), update("end", at: 6, "{}"), update(at: 5, "{}")], ""),
            ([start.replacing("alert", with: "alter")], "alert is missing"),
            ([start.replacing("attributes-type", with: "type")], "attributes-type is missing"),
            ([start.replacing(#""attributes""#, with: #""attribute""#)], "attributes is missing"),
            ([update("finish", at: 5, "{}")], "event is not start, update or end"),
            ([#"{"aps":{"event":"update","timestamp":5}}"#], "content-state is missing"),
            (["{"], "the payload is not a JSON object"),
        ] as [([String], String)])
    func warnings(payloads: [String], warning: String) async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            for payload in payloads { _ = try await push(client, HTTP2Client.token, payload) }
            let last = try #require(try await sandbox.notifications().last)
            if warning.isEmpty {
                #expect(last["answer"] as? String == "Unregistered")
                #expect(last["warning"] == nil)
            } else {
                #expect(last["answer"] as? String == "accepted")
                #expect((last["warning"] as? String)?.contains(warning) == true, "\(last)")
            }
        }
    }

    @Test("A token of the wrong kind is a warning, and changes no activity")
    func wrongToken() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let starting = try await device(sandbox)
            #expect(try await push(client, starting, Self.update(at: 1, "{}")).status == 200)
            #expect(try await sandbox.activities().isEmpty)
            #expect(try await push(client, starting, Self.start).status == 200)
            let token = try #require(try await sandbox.activities().first?.token)
            #expect(try await push(client, token, Self.start).status == 200)
            #expect(try await sandbox.activities().map(\.states.count) == [1])
            let warnings = try await sandbox.notifications().map { $0["warning"] as? String }
            #expect(warnings[0]?.contains("needs an update token") == true)
            #expect(warnings[1] == nil)
            #expect(warnings[2]?.contains("needs a push-to-start token") == true)
        }
    }

    @Test("Only iOS 18 and later start an activity that listens to a channel")
    func channels() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let manager = try await sandbox.manager()
            let headers = manager.headers("", [("apns-topic", "")], path: "/1/apps/com.example.PushChat/channels")
            let made = try await manager.request(
                headers, body: #"{"message-storage-policy":0,"push-type":"LiveActivity"}"#)
            let channel = try #require(made.headers["apns-channel-id"])
            let payload = Self.start.replacing(#""input-push-token":1"#, with: #""input-push-channel":"\#(channel)""#)
            #expect(try await push(client, device(sandbox, #""system":17"#), payload).status == 200)
            #expect(try await sandbox.activities().isEmpty)
            #expect(try await push(client, device(sandbox, #""system":18"#), payload).status == 200)
            let activity = try #require(try await sandbox.activities().first)
            #expect(activity.channel == channel)
            #expect(activity.token == nil)
            let warnings = try await sandbox.notifications().map { $0["warning"] as? String }
            #expect(warnings == ["iOS 17 does not start an activity with input-push-channel", nil])
        }
    }

    @Test("The topic alone starts an activity, whose token is refused when its app was removed")
    func withoutType() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let started = try await client.push(device(sandbox), [("apns-topic", Self.topic)], payload: Self.start)
            #expect(started.status == 200)
            let token = try #require(try await sandbox.activities().first?.token)
            #expect(try await push(client, token, Self.update(at: 20, "{}")).status == 200)
            #expect(try await sandbox.control(.delete, "/devices/\(token)").status == 200)
            #expect(try await push(client, token, Self.update(at: 21, "{}")).reason == "Unregistered")
        }
    }

    @Test("Faults withhold the update token, and keep a token valid after the end")
    func faults() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let starting = try await device(sandbox)
            try await sandbox.fault(#""action":"no_update_token""#)
            try await sandbox.fault(#""action":"keep_token""#)
            // Neither is a start or an end.
            #expect(try await client.push().status == 200)
            #expect(try await push(client, starting, Self.start).status == 200)
            #expect(try await push(client, starting, Self.start).status == 200)
            let activities = try await sandbox.activities()
            #expect(activities.map { $0.token != nil } == [false, true])
            let token = try #require(activities[1].token)
            #expect(try await push(client, token, Self.update("end", at: 20, "{}")).status == 200)
            #expect(try await push(client, token, Self.update(at: 21, "{}")).status == 200)
            #expect(try await sandbox.activities()[1].states.count == 2)
            let last = try #require(try await sandbox.notifications().last)
            #expect((last["warning"] as? String)?.contains("the activity has ended") == true)
        }
    }

    @Test("The control API starts and ends activities as an app and its user do")
    func control() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let made = try await sandbox.control(.post, "/activities", json: "{}")
            #expect(made.status == 201)
            let token = try #require(try made.object()["token"] as? String)
            #expect(try await push(client, token, Self.update(at: 1, "{}")).status == 200)
            #expect(try await sandbox.control(.delete, "/activities/1").status == 200)
            #expect(try await push(client, token, Self.update(at: 2, "{}")).reason == "Unregistered")
            #expect(try await sandbox.control(.delete, "/activities/9").status == 404)
            let afterAll = try await sandbox.control(.get, "/activities?since=\(Int.max)")
            #expect(afterAll.body == #"{"activities":[],"next":1}"#)
            for list in ["activities", "browsers", "installations"] {
                for id in [Int.min, -1, 0, .max] {
                    #expect(try await sandbox.control(.delete, "/\(list)/\(id)").status == 404)
                }
            }
            for (fields, field) in [
                (#""channel":"AAAA""#, "channel"), (#""token":"x""#, "token"), (#""token":"\#(token)""#, "token"),
                (#""topic":"a b""#, "topic"), (#""name":"x""#, "name"),
            ] {
                let answer = try await sandbox.control(.post, "/activities", json: "{\(fields)}")
                #expect(answer.status == 400)
                #expect((try answer.object()["error"] as? String)?.hasPrefix(field + ":") == true, "\(answer.body)")
            }
            let stats = try #require(try await sandbox.control(.get, "/stats").object()["activities"] as? [String: Int])
            #expect(stats == ["active": 0, "ended": 1])
        }
    }
}
