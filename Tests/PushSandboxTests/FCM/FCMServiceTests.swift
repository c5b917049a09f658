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
            .post, path, port: sandbox.addresses.fcm.port, headers: headers, body: ByteBuffer(string: body))
    }

    /// Asks for an access token, as Google's libraries do.
    private static func grant(_ sandbox: TestSandbox) async throws -> TestSandbox.Answer {
        let file = try Data(contentsOf: URL(fileURLWithPath: sandbox.credentials.serviceAccountFile))
        let account = try #require(ServiceAccount(Array(file)))
        #expect(account.tokenURL == "https://localhost:\(sandbox.addresses.fcm.port)/token")
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
            try await sandbox.fault(#""action":"close""#, protocol: "fcm")
            await #expect(throws: (any Error).self) { try await sent() }
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
            ("/faults", #"{"protocol":"fcm","action":"status"}"#, "status: must be given"),
            ("/faults", #"{"protocol":"fcm","action":"status","reason":"X"}"#, "reason: must be one of"),
            ("/faults", #"{"protocol":"fcm","action":"goaway"}"#, "action: must be one of"),
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
