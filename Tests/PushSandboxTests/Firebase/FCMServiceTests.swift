import Crypto
import CryptoExtras
import Foundation
import HTTPTypes
import NIOCore
import PushWire
import Testing

@testable import PushSandbox

/// Tests FCM and the token endpoint through their socket, as a sender sees them.
@Suite("FCM: the service", .timeLimit(.minutes(10)))
struct FCMServiceTests {
    private static let send = "/v1/projects/\(ServiceAccount.defaultProject)/messages:send"

    /// Calls the service over HTTP/1.1.
    private static func call(
        _ sandbox: TestSandbox, _ path: String, _ body: String, authorization: String? = nil,
        type: String = "application/json"
    ) async throws -> TestSandbox.Answer {
        var headers: HTTPFields = [.contentType: type]
        headers[.authorization] = authorization
        return try await sandbox.https(
            .post, path, port: sandbox.addresses[.fcm].port, headers: headers, body: ByteBuffer(string: body))
    }

    /// Asks for an access token, as Google's libraries do.
    private static func grant(_ sandbox: TestSandbox) async throws -> TestSandbox.Answer {
        let file = try Data(contentsOf: URL(fileURLWithPath: sandbox.credentials.serviceAccountFile))
        let account = try #require(ServiceAccount(Array(file)))
        #expect(account.tokenURL == "https://localhost:\(sandbox.addresses[.fcm].port)/token")
        let now = Int64(sandbox.state.now().timeIntervalSince1970)
        let parts = [
            #"{"alg":"RS256","typ":"JWT","kid":"\#(account.privateKeyID)"}"#,
            #"{"iss":"\#(account.clientEmail)","aud":"\#(ServiceAccount.audience)","iat":\#(now),"exp":\#(now + 3600),"#
                + #""scope":"https://www.googleapis.com/auth/cloud-platform"}"#,
        ].map { Base64URL.text(Array($0.utf8)) }
        let text = parts.joined(separator: ".")
        let signature = try _RSA.Signing.PrivateKey(pemRepresentation: account.privateKey)
            .signature(for: Data(text.utf8), padding: .insecurePKCS1v1_5)
        let assertion = text + "." + Base64URL.text(Array(signature.rawRepresentation))
        return try await call(
            sandbox, "/token",
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=\(assertion)",
            type: "application/x-www-form-urlencoded")
    }

    private static func authorization(_ sandbox: TestSandbox) async throws -> String {
        let granted = try await grant(sandbox)
        #expect(granted.status == 200)
        return "Bearer " + (try #require(try granted.object()["access_token"] as? String))
    }

    private static func installation(_ sandbox: TestSandbox, _ json: String = "{}") async throws -> [String: Any] {
        let made = try await sandbox.control(.post, "/installations", json: json)
        #expect(made.status == 201, "\(made.body)")
        return try made.object()
    }

    private static func message(to target: [String: Any]) -> String {
        let name = target["fid"] == nil ? "token" : "fid"
        let value = (target["fid"] ?? target["registration_token"]) as? String ?? ""
        return #"{"message":{"\#(name)":"\#(value)","notification":{"title":"T","body":"B"},"android":{"ttl":"60s"}}}"#
    }

    @Test("A message with an access token is accepted and in the inbox; a removed app is unregistered")
    func delivery() async throws {
        try await TestSandbox.with { sandbox in
            let token = try await Self.authorization(sandbox)
            for kind in ["token", "fid"] {
                let phone = try await Self.installation(sandbox, #"{"kind":"\#(kind)"}"#)
                let path = kind == "fid" ? Self.send.replacing(":", with: "%3A") + "?alt=json" : Self.send
                let sent = try await Self.call(sandbox, path, Self.message(to: phone), authorization: token)
                #expect(sent.status == 200, "\(sent.body)")
                let name = try #require(try sent.object()["name"] as? String)
                #expect(name.hasPrefix("projects/\(ServiceAccount.defaultProject)/messages/0:"))
                let hash = try #require(phone["token"] as? String)
                let entry = try #require(try await sandbox.notifications("?protocol=fcm&token=\(hash)").first)
                #expect(entry["name"] as? String == name && entry["answer"] as? String == "accepted")
                #expect(entry["headers"] as? [String: String] == ["priority": "normal", "ttl": "60s"])
                let id = try #require(phone["id"] as? Int)
                #expect(try await sandbox.control(.delete, "/installations/\(id)").status == 200)
                let gone = try await Self.call(sandbox, Self.send, Self.message(to: phone), authorization: token)
                #expect(gone.status == 404 && gone.body.contains("UNREGISTERED"))
            }
            let stats = try await sandbox.control(.get, "/stats").object()
            #expect((stats["installations"] as? [String: Int]) == ["installed": 0, "removed": 2])
        }
    }

    /// Changes the state of a phone.
    private static func set(_ sandbox: TestSandbox, _ phone: [String: Any], _ json: String) async throws -> [String:
        Any]
    {
        let id = try #require(phone["id"] as? Int)
        let answer = try await sandbox.control(.post, "/installations/\(id)", json: json)
        #expect(answer.status == 200, "\(answer.body)")
        return try answer.object()
    }

    /// Returns the delivery of each message on its phones, oldest first: installation, state and receiver.
    private static func deliveries(_ sandbox: TestSandbox, _ page: String = "") async throws -> [[String]] {
        try await sandbox.notifications("?protocol=fcm" + page).map { entry in
            let phones = entry["phones"] as? [[String: Any]] ?? []
            return phones.map { phone in
                ["installation", "delivery", "receiver"].compactMap { phone[$0].map { "\($0)" } }.joined(separator: " ")
            }
        }
    }

    @Test("The inbox follows messages to a phone that is offline, and the phone tells what happened to it")
    func offline() async throws {
        try await TestSandbox.with { sandbox in
            let token = try await Self.authorization(sandbox)
            let phone = try await Self.installation(sandbox, #"{"kind":"fid"}"#)
            func send(_ rest: String, around: String = "") async throws {
                let sent = try await Self.call(
                    sandbox, Self.send, #"{"message":{"fid":"\#(phone["fid"] ?? "")",\#(rest)}\#(around)}"#,
                    authorization: token)
                #expect(sent.status == 200, "\(sent.body)")
            }
            #expect(
                try await Self.set(sandbox, phone, #"{"connection":"offline"}"#)["connection"] as? String == "offline")
            try await send(#""data":{"a":"b"},"android":{"collapse_key":"k"}"#)
            try await send(#""data":{"a":"c"},"android":{"collapse_key":"k"}"#)
            try await send(#""data":{},"android":{"ttl":"0s"}"#)
            try await send(#""notification":{"title":"T"}"#)
            try await send(#""data":{}"#, around: #","validate_only":true"#)
            #expect(
                try await Self.deliveries(sandbox) == [["1 replaced"], ["1 waiting"], ["1 expired"], ["1 waiting"], []])
            let online = try await Self.set(sandbox, phone, #"{"connection":"online","app":"foreground"}"#)
            #expect(online["stored"] as? Int == 0 && online["app"] as? String == "foreground")
            #expect(
                try await Self.deliveries(sandbox) == [
                    ["1 replaced"], ["1 delivered onMessageReceived"], ["1 expired"], ["1 delivered onMessageReceived"],
                    [],
                ])
            _ = try await Self.set(sandbox, phone, #"{"connection":"offline","app":"background"}"#)
            let fid = try #require(phone["fid"] as? String)
            let request = FCMRequest(
                project: ServiceAccount.defaultProject, authorization: token,
                body: Array(#"{"message":{"fid":"\#(fid)","data":{}}}"#.utf8))
            // A hundred requests over sockets would take much longer.
            sandbox.state.withLock { state in
                for _ in 0...FCMPhone.maxNonCollapsible {
                    _ = state.decide(request, at: sandbox.state.now(), randomBytes: SymmetricKey.randomBytes)
                }
            }
            let back = try await Self.set(sandbox, phone, #"{"connection":"online"}"#)
            #expect(back["deleted_messages_calls"] as? Int == 1)
            let dropped = try await Self.deliveries(sandbox, "&since=5&limit=1000")
            #expect(dropped == Array(repeating: ["1 dropped"], count: 101))
            #expect(try await sandbox.control(.delete, "/installations/1").status == 200)
            let gone = try await sandbox.control(.post, "/installations/1", json: "{}")
            #expect(gone.status == 404 && gone.body.contains("id: there is no such installation"))
        }
    }

    @Test("An app that is installed again has lost the messages that waited for it")
    func installedAgain() async throws {
        try await TestSandbox.with { sandbox in
            let token = try await Self.authorization(sandbox)
            let phone = try await Self.installation(sandbox, #"{"kind":"fid"}"#)
            let fid = try #require(phone["fid"] as? String)
            _ = try await Self.set(sandbox, phone, #"{"connection":"offline"}"#)
            let sent = try await Self.call(
                sandbox, Self.send, #"{"message":{"fid":"\#(fid)","data":{}}}"#, authorization: token)
            #expect(sent.status == 200)
            #expect(try await Self.deliveries(sandbox) == [["1 waiting"]])
            _ = try await Self.installation(sandbox, #"{"fid":"\#(fid)"}"#)
            #expect(try await Self.deliveries(sandbox).first?.first?.contains("waiting") == false)
        }
    }

    @Test("Apps subscribe to topics, and messages to topics and conditions reach them")
    func topics() async throws {
        try await TestSandbox.with { sandbox in
            let token = try await Self.authorization(sandbox)
            let phones = [
                try await Self.installation(sandbox, #"{"kind":"fid"}"#), try await Self.installation(sandbox),
                try await Self.installation(sandbox, #"{"project":"other-project"}"#),
            ]
            func subscription(
                _ method: HTTPRequest.Method, _ phone: [String: Any], _ rest: String = "",
                authorization: String? = token
            ) async throws -> TestSandbox.Answer {
                let target = (phone["fid"] ?? phone["registration_token"]) as? String ?? ""
                var headers: HTTPFields = [:]
                headers[.authorization] = authorization
                return try await sandbox.https(
                    method,
                    "/v1/projects/\(ServiceAccount.defaultProject)/registrations/"
                        + target.replacing(":", with: "%3A") + "/topicSubscriptions" + rest,
                    port: sandbox.addresses[.fcm].port, headers: headers, body: ByteBuffer())
            }
            let created = try await subscription(.post, phones[0], "?topic_name=news%7E1")
            #expect(try created.object()["topicName"] as? String == "news~1" && created.status == 200)
            #expect(try await subscription(.post, phones[0], "?topicName=news~1").status == 409)
            #expect(try await subscription(.post, phones[0], "?topic_name=a").status == 200)
            #expect(try await subscription(.post, phones[1], "?topic_name=a").status == 200)
            #expect(try await subscription(.post, phones[1], "?topic_name=a/b").status == 400)
            #expect(try await subscription(.post, phones[2], "?topic_name=a").status == 403)
            #expect(try await subscription(.post, ["fid": FCMMessageTests.installation], "?topic_name=a").status == 404)
            #expect(try await subscription(.post, phones[1], "?topic_name=b", authorization: nil).status == 401)
            #expect(try await subscription(.get, phones[0], "/news%7E1").status == 200)
            let list = try await subscription(.get, phones[0], "?page_size=1").object()
            #expect(list["nextPageToken"] as? String == "a")
            let rest = try await subscription(.get, phones[0], "?pageToken=a").object()
            #expect((rest["topicSubscriptions"] as? [[String: String]])?.map { $0["topicName"] } == ["news~1"])
            #expect(rest["nextPageToken"] == nil)
            for target in [
                #""topic":"a""#, #""topic":"none""#, #""condition":"'a' in topics && !('news~1' in topics)""#,
            ] {
                let sent = try await Self.call(
                    sandbox, Self.send, #"{"message":{\#(target),"data":{}}}"#, authorization: token)
                #expect(sent.status == 200, "\(sent.body)")
            }
            let received = "delivered onMessageReceived"
            #expect(try await Self.deliveries(sandbox) == [["1 \(received)", "2 \(received)"], [], ["2 \(received)"]])
            #expect(try await subscription(.delete, phones[0], "/news~1").status == 200)
            #expect(try await subscription(.get, phones[0], "/news~1").status == 404)
            #expect(try await subscription(.delete, phones[0], "/news~1").status == 404)
            #expect(try await subscription(.delete, phones[0], "/news~1?allow_missing=true").status == 200)
        }
    }

    @Test("Without a valid access token, for another project, and for another project's phone, a message is refused")
    func refusals() async throws {
        try await TestSandbox.with { sandbox in
            let phone = try await Self.installation(sandbox)
            let body = Self.message(to: phone)
            for wrong in [nil, "Bearer ya29.x"] {
                let refused = try await Self.call(sandbox, Self.send, body, authorization: wrong)
                #expect(refused.status == 401 && refused.body.contains("ACCESS_TOKEN_EXPIRED"))
            }
            let token = try await Self.authorization(sandbox)
            let other = try await Self.call(
                sandbox, "/v1/projects/other-project/messages:send", body, authorization: token)
            #expect(other.status == 403 && !other.body.contains("FcmError"))
            let foreign = try await Self.installation(sandbox, #"{"project":"other-project"}"#)
            let mismatch = try await Self.call(sandbox, Self.send, Self.message(to: foreign), authorization: token)
            #expect(mismatch.status == 403 && mismatch.body.contains("SENDER_ID_MISMATCH"))
            let wrong = try await Self.call(
                sandbox, Self.send, #"{"message":{"topic":"a","data":{"n":1}}}"#, authorization: token)
            #expect(wrong.status == 400 && wrong.body.contains("fieldViolations"))
            #expect(try await Self.call(sandbox, "/v1/projects/p/messages:sendAll", body).status == 404)
            let large = String(repeating: " ", count: FCMMessage.maxBody + 1)
            #expect(try await Self.call(sandbox, Self.send, large, authorization: token).status == 413)
        }
    }

    @Test("A strict sandbox knows only the phones that were created")
    func strict() async throws {
        let unknown = #"{"message":{"fid":"\#(FCMMessageTests.installation)","data":{}}}"#
        for isStrict in [false, true] {
            try await TestSandbox.with {
                $0.strict = isStrict
            } _: { sandbox in
                let token = try await Self.authorization(sandbox)
                let sent = try await Self.call(sandbox, Self.send, unknown, authorization: token)
                #expect(sent.status == (isStrict ? 404 : 200))
            }
        }
    }

    @Test("Faults give each error of FCM, Retry-After in both forms, an outage, and an expired token")
    func faults() async throws {
        try await TestSandbox.with { sandbox in
            let body = Self.message(to: try await Self.installation(sandbox))
            let token = try await Self.authorization(sandbox)
            func sent() async throws -> TestSandbox.Answer {
                try await Self.call(sandbox, Self.send, body, authorization: token)
            }
            for code in FCMRefusal.Code.allCases {
                try await sandbox.fault(#""action":"status","reason":"\#(code.rawValue)""#, protocol: "fcm")
                let refused = try await sent()
                #expect(refused.status == FCMRefusal(code).status && refused.body.contains(code.rawValue))
            }
            try await sandbox.fault(#""action":"status","reason":"QUOTA_EXCEEDED","retry_after":7"#, protocol: "fcm")
            #expect(try await sent().headers[.retryAfter] == "7")
            try await sandbox.fault(
                #""action":"status","status":503,"retry_after":7,"retry_after_form":"date""#, protocol: "fcm")
            let down = try await sent()
            #expect(down.status == 503 && down.body.contains("<!DOCTYPE html>"))
            #expect(down.headers[.retryAfter]?.hasSuffix(" GMT") == true)
            try await sandbox.fault(#""action":"delay","delay_ms":1"#, protocol: "fcm")
            #expect(try await sent().status == 200)
            for end in ["close", "reset", "goaway"] {
                try await sandbox.fault(#""action":"\#(end)""#, protocol: "fcm")
                await #expect(throws: (any Error).self) { try await sent() }
                #expect(try await sent().status == 200)
            }
            try await sandbox.fault(#""action":"expire_token""#, protocol: "fcm")
            #expect(try await sent().status == 401)
        }
    }

    @Test("The token endpoint refuses a forged request, and fails with a fault")
    func tokenEndpoint() async throws {
        try await TestSandbox.with { sandbox in
            let forged = try await Self.call(
                sandbox, "/token", "grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=a.b.c",
                type: "application/x-www-form-urlencoded")
            #expect(forged.status == 400)
            #expect(try forged.object()["error"] as? String == "invalid_grant")
            try await sandbox.fault(#""action":"status","reason":"invalid_scope""#, protocol: "fcm_token")
            #expect(try await Self.grant(sandbox).object()["error"] as? String == "invalid_scope")
            try await sandbox.fault(#""action":"status","status":500"#, protocol: "fcm_token")
            #expect(try await Self.grant(sandbox).status == 500)
            #expect(try await Self.grant(sandbox).status == 200)
        }
    }

    @Test(
        "A wrong installation or fault names the field",
        arguments: [
            ("/installations", #"{"kind":"x"}"#, "kind: must be fid or token"),
            ("/installations", #"{"fid":"x"}"#, "fid: must be 22"),
            ("/installations", #"{"registration_token":"x"}"#, "registration_token: must be a Firebase"),
            ("/installations/1", #"{"connection":"away"}"#, "connection: must be online or offline"),
            ("/installations/1", #"{"app":1}"#, "app: must be a string"),
            ("/faults", #"{"protocol":"fcm","action":"status"}"#, "status: must be given"),
            ("/faults", #"{"protocol":"fcm","action":"status","reason":"X"}"#, "reason: must be one of"),
            ("/faults", #"{"protocol":"fcm","action":"stop_reading"}"#, "action: must be one of"),
            ("/faults", #"{"protocol":"fcm_token","action":"goaway"}"#, "action: must be one of"),
            (
                "/faults", #"{"protocol":"fcm","action":"status","status":503,"retry_after_form":"date"}"#,
                "retry_after_form: only with retry_after"
            ),
        ])
    func wrongFields(_ path: String, _ json: String, _ rule: String) async throws {
        try await TestSandbox.with { sandbox in
            let refused = try await sandbox.control(.post, path, json: json)
            #expect(refused.status == 400 && refused.body.contains(rule), "\(refused.body)")
        }
    }
}
