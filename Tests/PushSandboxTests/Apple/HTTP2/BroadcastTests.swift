import Foundation
import NIOHPACK
import PushWire
import Testing

@testable import PushSandbox

/// Tests channel management and broadcasts as a client sees them.
@Suite("Broadcasts and channels", .serialized, .timeLimit(.minutes(10)))
struct BroadcastTests {
    private static let app = SandboxConfiguration.defaultTopic
    private static let update = #"{"aps":{"timestamp":10,"event":"update","content-state":{"n":1}}}"#
    private static let create = #"{"message-storage-policy":0,"push-type":"LiveActivity"}"#

    /// Two connections of one provider.
    private struct Provider {
        let sender: HTTP2Client
        let manager: HTTP2Client

        init(_ sandbox: TestSandbox, authorization: String? = nil) async throws {
            sender = try await sandbox.provider(authorization: authorization)
            manager = try await sandbox.manager(authorization: authorization)
        }

        func manage(
            _ method: String, _ headers: [(String, String)] = [], path: String = "/1/apps/\(app)/channels",
            body: String = ""
        ) async throws -> HTTP2Client.Response {
            try await manager.request(
                manager.headers("", [("apns-topic", "")] + headers, method: method, path: path), body: body)
        }

        /// Returns the id of a new channel.
        func channel(policy: Int = 0) async throws -> String {
            let body = #"{"message-storage-policy":\#(policy),"push-type":"LiveActivity"}"#
            let answer = try await manage("POST", body: body)
            try #require(answer.status == 201, "\(answer.body)")
            return try #require(answer.headers["apns-channel-id"])
        }

        func broadcast(
            _ channel: String, _ changes: [String: String] = [:], path: String = "/4/broadcasts/apps/\(app)",
            method: String = "POST", body: String = update
        ) async throws -> HTTP2Client.Response {
            let headers = [
                "apns-channel-id": channel, "apns-push-type": "liveactivity", "apns-expiration": "0",
                "apns-priority": "5",
            ].merging(changes) { $1 }
            let fields = [("apns-topic", "")] + headers.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
            return try await sender.request(sender.headers("", fields, method: method, path: path), body: body)
        }
    }

    @Test("A channel is created, read, listed and deleted")
    func life() async throws {
        try await TestSandbox.with { sandbox in
            let provider = try await Provider(sandbox)
            let id = "0f7e2c9a-5b1d-4c3e-8f6a-7d9b2e4c1a05"
            let created = try await provider.manage("POST", [("apns-request-id", id)], body: Self.create)
            #expect((created.status, created.body) == (201, ""))
            #expect(created.isBare)
            #expect(created.headers["apns-request-id"] == id)
            #expect(created.headers["apns-unique-id"] == nil)
            let channel = try #require(created.headers["apns-channel-id"])
            #expect(channel.utf8.count == 24 && Data(base64Encoded: channel)?.count == 16)
            let read = try await provider.manage("GET", [("apns-channel-id", channel)])
            #expect((read.status, read.body) == (200, Self.create))
            let second = try await provider.channel(policy: 1)
            let all = try await provider.manage("GET", path: "/1/apps/\(Self.app)/all-channels")
            let list = try JSONDecoder().decode([String: [String]].self, from: Data(all.body.utf8))
            #expect((all.status, list) == (200, ["channels": [channel, second]]))
            let other = try await provider.manage("GET", path: "/1/apps/com.example.Other/all-channels")
            #expect(other.body == #"{"channels":[]}"#)
            let deleted = try await provider.manage("DELETE", [("apns-channel-id", channel)])
            #expect((deleted.status, deleted.body) == (204, ""))
            // As the live service was observed to answer.
            let again = try await provider.manage("DELETE", [("apns-channel-id", channel)])
            #expect((again.status, again.reason) == (404, "BadPath"))
            let gone = try await provider.manage("GET", [("apns-channel-id", channel)])
            #expect((gone.status, gone.reason) == (400, "ChannelNotRegistered"))
            let shown = try await sandbox.control(.get, "/channels")
            let channels = try #require(try shown.object()["channels"] as? [[String: Any]])
            #expect(channels.map { $0["id"] as? String } == [second])
            #expect(channels.map { $0["policy"] as? Int } == [1])
            // The inbox has only notifications.
            #expect(try await sandbox.notifications().isEmpty)
            let stats = try await sandbox.control(.get, "/stats").object()
            let counts = try #require(stats["channels"] as? [String: Any])
            #expect(counts["count"] as? Int == 1)
            #expect(counts["answers"] as? [String: Int] == ["accepted": 6, "BadPath": 1, "ChannelNotRegistered": 1])
        }
    }

    @Test(
        "Management requests that break a rule get its reason",
        arguments: [
            ("PUT", "channels", "", [:], 405, "MethodNotAllowed"),
            ("POST", "all-channels", "", [:], 405, "MethodNotAllowed"),
            ("GET", "channel", "", [:], 404, "BadPath"), ("GET", "channels/x", "", [:], 404, "BadPath"),
            ("GET", "channels", "", ["apns-request-id": "1"], 400, "BadMessageId"),
            ("GET", "channels", "", [:], 400, "MissingChannelId"),
            ("DELETE", "channels", "", ["apns-channel-id": "test-231"], 400, "BadChannelId"),
            ("DELETE", "channels", "", ["apns-channel-id": String(repeating: "A", count: 132)], 400, "BadChannelId"),
            ("POST", "channels", "", [:], 400, "PayloadEmpty"),
            ("POST", "channels", "[]", [:], 400, "BadRequestPayload"),
            ("POST", "channels", "{", [:], 400, "BadRequestPayload"),
            ("POST", "channels", #"{"message-storage-policy":0}"#, [:], 400, "MissingPushType"),
            ("POST", "channels", #"{"message-storage-policy":0,"push-type":"alert"}"#, [:], 400, "InvalidPushType"),
            ("POST", "channels", #"{"push-type":"LiveActivity"}"#, [:], 400, "BadRequestParams"),
            (
                "POST", "channels", #"{"message-storage-policy":2,"push-type":"LiveActivity"}"#, [:], 400,
                "BadRequestParams"
            ),
            (
                "POST", "channels", #"{"message-storage-policy":0,"push-type":"LiveActivity","x":1}"#, [:], 400,
                "BadRequestParams"
            ),
        ] as [(String, String, String, [String: String], Int, String)])
    func management(
        method: String, path: String, body: String, headers: [String: String], status: Int, reason: String
    ) async throws {
        try await TestSandbox.with { sandbox in
            let answer = try await Provider(sandbox).manage(
                method, headers.map { ($0.key, $0.value) }, path: "/1/apps/\(Self.app)/\(path)", body: body)
            #expect((answer.status, answer.reason) == (status, reason))
            #expect(answer.headers["content-type"] == "application/json")
            #expect(answer.headers["apns-request-id"] != nil)
            #expect(answer.headers["apns-id"] == nil)
        }
    }

    @Test(
        "Broadcasts that break a rule get its reason, in the documented order",
        arguments: [
            // Each request also breaks all rules after its own, as far as one request can.
            (["apns-channel-id": "", "apns-push-type": "x"], update, "MissingChannelId"),
            (["apns-channel-id": "test-231", "apns-push-type": ""], update, "BadChannelId"),
            (["apns-push-type": "", "apns-expiration": ""], update, "MissingPushType"),
            (["apns-push-type": "alert", "apns-expiration": ""], update, "InvalidPushType"),
            (["apns-expiration": "", "apns-priority": ""], update, "BadExpirationDate"),
            (["apns-expiration": "-1", "apns-priority": ""], update, "BadExpirationDate"),
            // The channel's policy is 0, so nothing can be kept.
            (["apns-expiration": "2000000000", "apns-priority": "7"], "", "BadExpirationDate"),
            (["apns-priority": "", "apns-channel-id": "AAAA"], "", "BadPriority"),
            (["apns-priority": "7", "apns-channel-id": "AAAA"], "", "BadPriority"),
            (["apns-channel-id": "AAAA"], "", "ChannelNotRegistered"), ([:], "", "PayloadEmpty"),
            ([:], String(repeating: "x", count: 5121), "PayloadTooLarge"), ([:], "[]", "BadRequestPayload"),
            ([:], update.replacing("update", with: "start"), "BadRequestParams"),
            (["apns-request-id": "x", "apns-channel-id": ""], "", "BadMessageId"),
        ] as [([String: String], String, String)])
    func rules(changes: [String: String], body: String, reason: String) async throws {
        try await TestSandbox.with { sandbox in
            let provider = try await Provider(sandbox)
            let answer = try await provider.broadcast(try await provider.channel(), changes, body: body)
            #expect(answer.reason == reason)
            #expect(answer.status == BroadcastReason(rawValue: reason)?.status)
            #expect(try await sandbox.notifications().map { $0["answer"] as? String } == [reason])
        }
    }

    @Test("The client's identity, the path and the app come before all other rules")
    func identity() async throws {
        try await TestSandbox.with { sandbox in
            let forged = try await Provider(sandbox, authorization: "bearer nonsense")
            let first = try await forged.broadcast("", path: "/4/broadcasts/apps/", method: "GET", body: "")
            #expect(first.reason == "InvalidProviderToken")
            #expect(try await forged.manage("PUT", path: "/1/x").reason == "InvalidProviderToken")
            let provider = try await Provider(sandbox)
            let path = try await provider.broadcast("", path: "/4/broadcasts/apps/", method: "GET", body: "")
            #expect((path.status, path.reason) == (404, "BadPath"))
            let method = try await provider.broadcast(
                "", path: "/4/broadcasts/apps/a.push-type.liveactivity", method: "GET")
            #expect((method.status, method.reason) == (405, "MethodNotAllowed"))
            let suffix = try await provider.broadcast("", path: "/4/broadcasts/apps/a.push-type.liveactivity")
            #expect((suffix.status, suffix.reason) == (400, "TopicDisallowed"))
            // A certificate counts as well, for its own app.
            let client = try await sandbox.provider(certificate: .client)
            let headers = client.headers("", [("apns-topic", "")], path: "/4/broadcasts/apps/com.example.Other")
            let other = try await client.request(headers, body: Self.update)
            #expect((other.status, other.reason) == (403, "TopicMismatch"))
            // The two listeners do not serve each other's paths.
            #expect(try await provider.manager.push().reason == "BadPath")
            let onSender = provider.sender.headers("", method: "GET", path: "/1/apps/\(Self.app)/all-channels")
            #expect(try await provider.sender.request(onSender, body: "").reason == "BadPath")
        }
    }

    @Test("A missing capability has both names", arguments: SandboxConfiguration.Broadcasts.allCases.dropFirst())
    func capability(broadcasts: SandboxConfiguration.Broadcasts) async throws {
        try await TestSandbox.with {
            $0.broadcasts = broadcasts
        } _: { sandbox in
            let provider = try await Provider(sandbox)
            for answer in [
                try await provider.manage("POST", body: Self.create),
                try await provider.manage("GET", path: "/1/apps/\(Self.app)/all-channels"),
                try await provider.broadcast("AAAA"),
            ] {
                #expect((answer.status, answer.reason) == (400, broadcasts.rawValue))
            }
        }
    }

    @Test("An app has a limited number of channels")
    func limit() async throws {
        try await TestSandbox.with {
            $0.channelLimit = 2
        } _: { sandbox in
            let provider = try await Provider(sandbox)
            let first = try await provider.channel()
            _ = try await provider.channel()
            let third = try await provider.manage("POST", body: Self.create)
            #expect((third.status, third.reason) == (400, "CannotCreateChannelConfig"))
            let other = try await provider.manage("POST", path: "/1/apps/com.example.Other/channels", body: Self.create)
            #expect(other.status == 201)
            #expect(try await provider.manage("DELETE", [("apns-channel-id", first)]).status == 204)
            _ = try await provider.channel()
        }
    }

    @Test("An activity gets its channel's broadcasts, and a late one the newest that is kept")
    func delivery() async throws {
        try await TestSandbox.with { sandbox in
            let provider = try await Provider(sandbox)
            let channel = try await provider.channel(policy: 1)
            try await sandbox.startActivity(channel: channel)
            let expiration = Int(sandbox.state.now().timeIntervalSince1970) + 3600
            let answer = try await provider.broadcast(
                channel, ["apns-expiration": "\(expiration)", "apns-push-type": "LiveActivity"])
            #expect((answer.status, answer.body) == (200, ""))
            #expect(answer.headers["apns-request-id"] != nil && answer.headers["apns-unique-id"] != nil)
            #expect(answer.headers["apns-id"] == nil)
            try await sandbox.startActivity(channel: channel)
            // Not kept: the third listener still gets the message before it.
            let next = Self.update.replacing("10", with: "11").replacing("1}", with: "2}")
            #expect(try await provider.broadcast(channel, body: next).status == 200)
            try await sandbox.startActivity(channel: channel)
            #expect(
                try await sandbox.shownStates() == [
                    [#"{"n":1}"#, #"{"n":2}"#], [#"{"n":1}"#, #"{"n":2}"#], [#"{"n":1}"#],
                ])
            let notification = try #require(try await sandbox.notifications("?protocol=broadcast").first)
            #expect(notification["channel"] as? String == channel)
            #expect(notification["topic"] as? String == Self.app)
            #expect(notification["request_id"] as? String == answer.headers["apns-request-id"])
            #expect(notification["authentication"] as? String == "token " + sandbox.credentials.keyID)
            #expect(notification["warning"] == nil)
        }
    }

    @Test("A kept message expires after its time, and after eight hours at most")
    func expiry() throws {
        let start = Date(timeIntervalSince1970: 1_800_000_000)
        let payload = try #require(ActivityPayload(json: Data(Self.update.utf8)))
        for (expiration, until) in [(60.0, 60.0), (100_000, 8 * 3600)] {
            var state = SandboxState.forTests()
            state.channels.create(id: "AAAA", app: Self.app, policy: .storesNewest, at: start)
            var connection = SandboxConnection(
                number: 1, certificate: nil,
                authentication: SandboxAuthentication(keys: SandboxKeyring(teamID: "", keys: [:]), isStrict: false))
            let notification = SandboxState.CheckedRequest(
                request: SandboxRequest([:]), gateway: .broadcast, stream: 1, id: connection.newID(), receivedAt: start)
            let broadcast = BroadcastRules.Broadcast(
                app: Self.app, channel: "AAAA", expiration: Int64(start.timeIntervalSince1970 + expiration),
                payload: payload)
            #expect(state.deliver(broadcast, notification) == [])
            #expect(state.channels.newest(on: "AAAA", at: start + until - 1) != nil)
            #expect(state.channels.newest(on: "AAAA", at: start + until) == nil)
        }
    }

    @Test("Faults lose and reorder broadcasts")
    func order() async throws {
        try await TestSandbox.with { sandbox in
            let provider = try await Provider(sandbox)
            let channel = try await provider.channel()
            try await sandbox.startActivity(channel: channel)
            try await sandbox.fault(#""action":"lose","protocol":"broadcast""#, protocol: nil)
            try await sandbox.fault(#""action":"reorder","protocol":"broadcast","after":1"#, protocol: nil)
            for number in 1...4 {
                let body = Self.update.replacing("10", with: "1\(number)").replacing("1}", with: "\(number)}")
                #expect(try await provider.broadcast(channel, body: body).status == 200)
            }
            // The first is lost. The second arrives after the third, so the device ignores it.
            let states = try await sandbox.activities()[0].states
            #expect(states.map(\.contentState) == [#"{"n":3}"#, #"{"n":2}"#, #"{"n":4}"#])
            #expect(states.map(\.isShown) == [true, false, true])
        }
    }

    @Test(
        "A fault can give broadcasts and management any answer",
        arguments: [
            ("broadcast", "TooManyRequests", 429), ("channels", "TooManyRequests", 429),
            ("broadcast", "Service Unavailable", 503), ("channels", "Service Unavailable", 503),
            ("channels", "CannotCreateChannelConfig", 400), ("broadcast", "BroadcastFeatureNotEnabled", 400),
        ])
    func faults(name: String, reason: String, status: Int) async throws {
        try await TestSandbox.with { sandbox in
            let provider = try await Provider(sandbox)
            let channel = try await provider.channel()
            try await sandbox.fault(#""protocol":"\#(name)","action":"status","reason":"\#(reason)""#, protocol: nil)
            // Only the named protocol is hit.
            #expect(try await provider.sender.push().status == 200)
            let isBroadcast = name == "broadcast"
            let hit =
                isBroadcast
                ? try await provider.broadcast(channel) : try await provider.manage("POST", body: Self.create)
            #expect((hit.status, hit.reason) == (status, reason))
            let next =
                isBroadcast
                ? try await provider.broadcast(channel) : try await provider.manage("POST", body: Self.create)
            #expect(next.status == (isBroadcast ? 200 : 201))
        }
    }

    @Test("A fault for broadcasts has no token, and its actions belong to its protocol")
    func badFaults() async throws {
        try await TestSandbox.with { sandbox in
            for (fields, field) in [
                (#""protocol":"broadcast","action":"lose","token":"ab""#, "token"),
                (#""protocol":"channels","action":"lose""#, "action"),
                (#""protocol":"http2","action":"reorder""#, "action"),
                (#""protocol":"broadcast","action":"keep_token""#, "action"),
            ] {
                let answer = try await sandbox.control(.post, "/faults", json: "{\(fields)}")
                #expect(answer.status == 400)
                #expect((try answer.object()["error"] as? String)?.hasPrefix(field + ":") == true, "\(answer.body)")
            }
            let filter = try await sandbox.control(.get, "/notifications?protocol=channels")
            #expect(filter.body.contains("protocol: must be one of binary, http2, webpush, broadcast"))
        }
    }
}
