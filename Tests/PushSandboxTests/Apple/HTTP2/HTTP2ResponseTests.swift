import Foundation
import NIOCore
import PushWire
import Testing

@testable import PushSandbox

/// Tests which requests are accepted, the responses, and the inbox.
@Suite("HTTP/2: responses", .serialized, .timeLimit(.minutes(10)))
struct HTTP2ResponseTests {
    private static let id = "eabeae54-14a8-11e5-b60b-1697f925ec7b"

    @Test("Success is a 200 without a body, with the given id or a new one, and a unique id")
    func success() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let given = try await client.push(HTTP2Client.token, [("apns-id", Self.id)])
            #expect(given.status == 200)
            #expect(given.isBare)
            #expect(Set(given.headers.keys) == [":status", "apns-id", "apns-unique-id"])
            #expect(given.headers["apns-id"] == Self.id)
            let made = try await client.push()
            let ids = [made.headers["apns-id"], made.headers["apns-unique-id"], given.headers["apns-unique-id"]]
            #expect(Set(ids).count == 3)
            let uuid = /[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/
            for id in ids { #expect(try #require(id).wholeMatch(of: uuid) != nil) }
        }
    }

    @Test("A rejection is JSON with the reason, and has the given id")
    func refusal() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let response = try await client.push("zz", [("apns-id", Self.id)])
            #expect(response.body == #"{"reason":"BadDeviceToken"}"#)
            #expect(
                response.headers == [":status": "400", "content-type": "application/json", "apns-id": Self.id])
        }
    }

    @Test("The inbox shows notifications of both protocols, and never the provider token")
    func inbox() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            _ = try await client.push(
                HTTP2Client.token.uppercased(),
                [
                    ("apns-id", Self.id), ("apns-push-type", "alert"), ("apns-priority", "5"), ("apns-novel", "x"),
                    ("user-agent", "test"),
                ], payload: #"{"aps":{"alert":"Grüße"}}"#)
            _ = try await client.push("abc")
            let binary = try await sandbox.gateway()
            try await binary.send(.good(7))
            _ = try await binary.finish()
            let certificate = try await sandbox.provider(certificate: .client)
            #expect(try await certificate.push().status == 200)

            let body = try await sandbox.control(.get, "/notifications").body
            #expect(!body.contains("bearer"))
            let found = try await sandbox.notifications()
            #expect(found.map { $0["protocol"] as? String } == ["http2", "http2", "binary", "http2"])
            var first = found[0]
            #expect(first.removeValue(forKey: "received_at") is String)
            #expect(
                first["headers"] as? [String: String] == [
                    "apns-id": Self.id, "apns-push-type": "alert", "apns-priority": "5", "apns-novel": "x",
                    "apns-topic": "com.example.PushChat",
                ])
            #expect(first["apns_id"] as? String == Self.id)
            #expect(first["push_type"] as? String == "alert")
            #expect(first["authentication"] as? String == "token " + sandbox.credentials.keyID)
            #expect(first["token"] as? String == HTTP2Client.token)
            #expect(first["topic"] as? String == "com.example.PushChat")
            #expect(first["payload"] as? String == #"{"aps":{"alert":"Grüße"}}"#)
            #expect(first["stream"] as? Int == 1)
            #expect(first["connection"] as? Int == 1)
            #expect(first["identifier"] == nil)
            #expect(found[1]["token"] as? String == "")
            #expect(found[1]["answer"] as? String == "BadDeviceToken")
            #expect(found[3]["authentication"] as? String == "certificate")

            #expect(try await sandbox.notifications("?protocol=binary").map { $0["id"] as? Int } == [3])
            #expect(try await sandbox.notifications("?answer=BadDeviceToken").map { $0["id"] as? Int } == [2])
            #expect(try await sandbox.notifications("?protocol=http2&answer=accepted").count == 2)
            #expect(try await sandbox.control(.get, "/notifications?protocol=smtp").status == 400)
        }
    }

    @Test(
        "Each push type is accepted with its topic", arguments: PushType.documented.map(\.key))
    func pushTypes(type: PushType) async throws {
        try await TestSandbox.with {
            $0.strict = type != .mdm
        } _: { sandbox in
            let made = try await sandbox.control(.post, "/devices", json: #"{"token":"\#(HTTP2Client.token)"}"#)
            #expect(made.status == 201)
            let client = try await sandbox.provider()
            let topic = type.topic(bundleID: SandboxConfiguration.defaultTopic)
            let good = try await client.push(
                HTTP2Client.token, [("apns-topic", topic), ("apns-push-type", type.rawValue)])
            #expect(good.status == 200, "\(good.body)")
            let plain = try await client.push(HTTP2Client.token, [("apns-push-type", type.rawValue)])
            #expect((plain.status == 200) == type.topicSuffix.isEmpty, "\(plain.body)")
        }
    }

    @Test(
        "An unknown push type is accepted with a warning, with or without its own topic, and rejected by --strict"
    )
    func novelType() async throws {
        for isStrict in [false, true] {
            try await TestSandbox.with {
                $0.strict = isStrict
            } _: { sandbox in
                let made = try await sandbox.control(.post, "/devices", json: #"{"token":"\#(HTTP2Client.token)"}"#)
                #expect(made.status == 201)
                let client = try await sandbox.provider()
                for suffix in ["", ".push-type.novel"] {
                    let response = try await client.push(
                        HTTP2Client.token,
                        [("apns-topic", SandboxConfiguration.defaultTopic + suffix), ("apns-push-type", "novel")])
                    #expect(response.status == (isStrict ? 400 : 200), "\(response.body)")
                    #expect(response.body.contains("InvalidPushType") == isStrict)
                }
                #expect(try await client.push().status == 200)
                let warnings = try await sandbox.notifications("").map { $0["warning"] as? String }
                #expect(warnings.map { $0?.contains("novel") == true } == [!isStrict, !isStrict, false])
            }
        }
    }

    @Test("Requests that Apple accepts are accepted")
    func taken() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let app = SandboxConfiguration.defaultTopic
            for changes in [
                [("apns-topic", app + ".h.complication"), ("apns-push-type", "complication")],
                [("apns-push-type", "background"), ("apns-priority", "5")], [("apns-priority", "1")],
                [("apns-expiration", "0")], [("apns-expiration", "4102444800")],
                [("apns-collapse-id", String(repeating: "x", count: 64))],
                [("apns-id", Self.id.uppercased())], [("apns-topic", "com.example.Other")],
            ] {
                let response = try await client.push(HTTP2Client.token, changes)
                #expect(response.status == 200, "\(changes) \(response.body)")
            }
            #expect(try await client.push(payload: String(repeating: "x", count: 4096)).status == 200)
            let voip = [("apns-topic", app + ".voip"), ("apns-push-type", "voip")]
            let longest = String(repeating: "x", count: 5120)
            #expect(try await client.push(HTTP2Client.token, voip, payload: longest).status == 200)
            #expect(try await client.push(HTTP2Client.token, voip, payload: longest + "x").status == 413)
            #expect(try await client.push("ab").status == 200)
        }
    }

    @Test(
        "Requests that Apple rejects are rejected",
        arguments: [
            ([("apns-push-type", "background"), ("apns-priority", "10")], "BadPriority"),
            ([("apns-push-type", "voip")], "BadTopic"),
            ([("apns-topic", ".voip"), ("apns-push-type", "voip")], "BadTopic"),
            ([("apns-expiration", "-1")], "BadExpirationDate"), ([("apns-expiration", "1.5")], "BadExpirationDate"),
            ([("apns-id", "eabeae54-14a8-11e5-b60b-1697f925ec7g")], "BadMessageId"),
            ([("apns-id", "eabeae5414a811e5b60b1697f925ec7b")], "BadMessageId"),
            ([("authorization", "bearer x")], "DuplicateHeaders"),
        ] as [([(String, String)], String)])
    func refused(changes: [(String, String)], reason: String) async throws {
        try await TestSandbox.with { sandbox in
            let response = try await sandbox.provider().push(HTTP2Client.token, changes)
            #expect(response.reason == reason)
        }
    }

    @Test("A strict sandbox accepts only devices that it created, for its own app, with tokens of 32 bytes")
    func strict() async throws {
        try await TestSandbox.with {
            $0.strict = true
        } _: { (sandbox) async throws in
            let client = try await sandbox.provider()
            #expect(try await client.push().reason == "BadDeviceToken")
            #expect(try await client.push("abab").reason == "BadDeviceToken")
            #expect(
                try await client.push(HTTP2Client.token, [("apns-topic", "com.example.Other")]).reason
                    == "TopicDisallowed")
        }
    }

    @Test("A token of production is rejected")
    func environment() async throws {
        try await TestSandbox.with { sandbox in
            let json = #"{"token":"\#(HTTP2Client.token)","environment":"production"}"#
            let made = try await sandbox.control(.post, "/devices", json: json)
            #expect(try made.object()["environment"] as? String == "production")
            #expect(try await sandbox.provider().push().reason == "BadDeviceToken")
            let binary = try await sandbox.gateway()
            try await binary.send(.good(1))
            #expect(try await binary.end().bytes == [8, 8, 0, 0, 0, 1])
        }
    }

    @Test("The feedback service also reports a removed device")
    func feedback() async throws {
        try await TestSandbox.with { sandbox in
            _ = try await sandbox.control(.delete, "/devices/" + HTTP2Client.token)
            #expect(try await sandbox.provider().push().status == 410)
            let feedback = try await sandbox.feedback().finish()
            #expect(feedback.bytes.suffix(32) == [UInt8](repeating: 0xAB, count: 32)[...])
        }
    }

    @Test("An endless body is rejected before it has arrived")
    func endless() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let stream = try await client.send(
                client.headers(), body: String(repeating: "x", count: 60_000), ends: false)
            #expect(try await client.response(to: stream).reason == "PayloadTooLarge")
            #expect(try await client.push().status == 200)
        }
    }

    @Test("A certificate that lists no topics is valid for its own app")
    func plainCertificate() async throws {
        try await TestSandbox.with { sandbox in
            let plain = try await sandbox.provider(certificateFor: SandboxConfiguration.defaultTopic)
            #expect(try await plain.push(HTTP2Client.token, [("apns-topic", "")]).status == 200)
            #expect(
                try await plain.push(HTTP2Client.token, [("apns-topic", "com.example.Other")]).reason
                    == "TopicDisallowed")
            // The usual certificate lists several topics, so the client has to choose one. The sandbox ignores a
            // provider token beside it.
            let client = try await sandbox.provider(certificate: .client)
            #expect(try await client.push(HTTP2Client.token, [("apns-topic", "")]).reason == "MissingTopic")
            #expect(try await client.push(HTTP2Client.token, [("authorization", "bearer x")]).status == 200)
        }
    }
}
