import ChatDomain
import GatewayPool
import Synchronization
import Testing

@testable import FCMGateway

@Suite("The responses of FCM")
struct FCMResponseTests {
    private static let now = Timestamp(seconds: 1_800_000_000)

    private func client(
        isReplacement: Bool = false, _ shared: FirebaseService.Shared = .init(),
        now: @escaping TimeSource = { FCMResponseTests.now }
    ) throws -> FCMClient {
        var token = try #require(
            OAuthToken(response: Array(#"{"access_token":"ya29.a","expires_in":3599}"#.utf8), now: Self.now))
        token.isReplacement = isReplacement
        return FCMClient(
            host: "fcm.googleapis.com", project: "example", token: token, shared: shared, now: now, random: { 0 })
    }

    private static func address(_ digit: Int = 1) throws -> Address {
        .token(try DeviceToken(parsing: "cAAAAAAAAAAAAAAAAAAAA\(digit)"))
    }

    private func response(
        _ status: Int, _ code: String? = nil, general: String = "STATUS", message: String = "text",
        retryAfter: String? = nil, device: Int = 1
    ) throws -> HTTP2Response {
        let details = code.map {
            #"{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"\#($0)"}"#
        }
        let body = """
            {"error":{"code":\(status),"message":"\(message)","status":"\(general)","details":[\(details ?? "")]}}
            """
        return HTTP2Response(
            status: status, retryAfter: retryAfter, body: Array(body.utf8), address: try Self.address(device),
            writtenAt: Self.now)
    }

    @Test("Only UNREGISTERED deactivates the device; other refusals fail the push")
    func finals() throws {
        let client = try client()
        #expect(
            client.answer(to: try response(404, "UNREGISTERED"))
                == HTTP2Answer(.unregistered(since: Self.now, reason: "UNREGISTERED"), .device))
        #expect(
            client.answer(to: try response(400, "INVALID_ARGUMENT", message: "not a valid FCM registration token"))
                == HTTP2Answer(
                    .rejected(reason: "INVALID_ARGUMENT", hint: "not a valid FCM registration token"), .push))
        let mismatch = client.answer(to: try response(403, "SENDER_ID_MISMATCH"))
        #expect(mismatch.subject == .push && mismatch.provesCredentials)
        guard case .rejected("SENDER_ID_MISMATCH", let hint?) = mismatch.outcome else {
            Issue.record("\(mismatch)")
            return
        }
        #expect(hint.contains("another Firebase project than example"))
        #expect(client.answer(to: try response(401, "THIRD_PARTY_AUTH_ERROR")).subject == .push)
    }

    @Test("The first invalid field of a request is the hint")
    func fields() throws {
        let body = #"""
            {"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT","details":[{"@type":
            "type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message.data[0].value",
            "description":"Invalid value at 'message.data[0].value' (TYPE_STRING), 12"}]}]}}
            """#
        let answer = try client().answer(
            to: HTTP2Response(status: 400, body: Array(body.utf8), address: Self.address(), writtenAt: Self.now))
        #expect(
            answer.outcome
                == .rejected(
                    reason: "INVALID_ARGUMENT", hint: "Invalid value at 'message.data[0].value' (TYPE_STRING), 12"))
    }

    @Test("A rejected access token is replaced once, and then the pushes wait")
    func expired() throws {
        let first = try client().answer(to: response(401, general: "UNAUTHENTICATED"))
        #expect(first.outcome == .sentBack(reason: "UNAUTHENTICATED") && !first.provesCredentials)
        guard case .credentials(let problem) = first.subject else {
            Issue.record("\(first)")
            return
        }
        #expect(problem.blamesToken && problem.endsConnection)
        let second = try client(isReplacement: true).answer(to: response(401, general: "UNAUTHENTICATED"))
        #expect(second.outcome == .notAuthorized(reason: "UNAUTHENTICATED"))

        // A token that FCM has accepted can expire early like any other.
        let proven = try client(isReplacement: true)
        proven.accepted()
        let third = proven.answer(to: try response(401, general: "UNAUTHENTICATED"))
        #expect(third.outcome == .sentBack(reason: "UNAUTHENTICATED"))
    }

    @Test("A role or API that is missing makes the pushes wait")
    func forbidden() throws {
        let answer = try client().answer(to: response(403, general: "PERMISSION_DENIED"))
        #expect(answer.outcome == .notAuthorized(reason: "PERMISSION_DENIED"))
        guard case .credentials(let problem) = answer.subject else {
            Issue.record("\(answer)")
            return
        }
        #expect(!problem.blamesToken && problem.advice?.contains("role") == true)
    }

    @Test(
        "Failures of the service are retried no sooner than Google asks for",
        arguments: [
            (500, "INTERNAL", nil, 10), (503, "UNAVAILABLE", "120", 120), (503, nil, nil, 10),
            (502, nil, "Tue, 19 Jan 2027 08:01:00 GMT", 3600), (404, nil, nil, 10), (302, nil, nil, 10),
            (421, nil, nil, 10), (425, nil, nil, 10), (406, nil, "30", 30), (408, "UNSPECIFIED_ERROR", "30", 30),
        ] as [(Int, String?, String?, Int)])
    func failures(_ status: Int, _ code: String?, _ retryAfter: String?, _ seconds: Int) throws {
        let answer = try client().answer(to: response(status, code, retryAfter: retryAfter))
        guard case .retry(_, let time?) = answer.outcome else {
            Issue.record("\(answer)")
            return
        }
        #expect(answer.subject == .service)
        let wait = Int(time.seconds - Self.now.seconds)
        #expect(wait == seconds || retryAfter?.contains("GMT") == true && (0...3600).contains(wait))
    }

    @Test("An HTML body, an empty one and a made-up code do no harm")
    func strange() throws {
        for body in ["<html>502</html>", "", #"{"error":"x"}"#, #"{"error":{"details":[{"@type":"FcmError"}]}}"#] {
            let answer = try client().answer(
                to: HTTP2Response(status: 502, body: Array(body.utf8), address: Self.address(), writtenAt: Self.now))
            #expect(answer.outcome == .retry(reason: "Status502", notBefore: Self.now + .seconds(10)))
        }
        #expect(try client().answer(to: response(418, "TEAPOT")).outcome == .rejected(reason: "TEAPOT", hint: "text"))
    }

    @Test("A quota delays its push, and may concern the device or the app")
    func quota() throws {
        let client = try client()
        func answer(_ retryAfter: String? = nil) throws -> HTTP2Answer {
            client.answer(to: try response(429, "QUOTA_EXCEEDED", retryAfter: retryAfter))
        }
        #expect(
            try answer()
                == HTTP2Answer(
                    .retry(reason: "QUOTA_EXCEEDED", notBefore: Self.now + .seconds(60)), .quota(pause: .seconds(60))))
        #expect(
            try answer("5")
                == HTTP2Answer(
                    .retry(reason: "QUOTA_EXCEEDED", notBefore: Self.now + .seconds(5)), .quota(pause: .seconds(5))))
    }

    @Test("The request names the project and the token")
    func request() throws {
        let push = Push(
            id: 1, identifier: 1, address: try Self.address(), payload: Array(#"{"android":{"priority":"HIGH"}}"#.utf8))
        let request = try client().request(for: push)
        #expect(request.headers.first(name: ":path") == "/v1/projects/example/messages:send")
        #expect(request.headers.first(name: "authorization") == "Bearer ya29.a")
        #expect(
            String(decoding: request.body, as: UTF8.self)
                == #"{"message":{"fid":"cAAAAAAAAAAAAAAAAAAAA1","android":{"priority":"HIGH"}}}"#)
    }
}
