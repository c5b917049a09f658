import Foundation
import HTTPTypes
import NIOCore
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

/// Tests the push service through its sockets, as a sender sees it.
@Suite("Web Push: the service", .timeLimit(.minutes(10)))
struct PushServiceTests {
    private let key = VAPIDKey()

    private func browser(_ sandbox: TestSandbox) async throws -> [String: Any] {
        let made = try await sandbox.control(
            .post, "/browsers", json: #"{"application_server_key":"\#(key.publicText)"}"#)
        #expect(made.status == 201)
        return try made.object()
    }

    /// Sends a message over HTTP/1.1.
    private func push(
        _ sandbox: TestSandbox, to browser: [String: Any], text: String = "hello", size: Int? = nil,
        method: HTTPRequest.Method = .post
    ) async throws -> TestSandbox.Answer {
        let subscription = try #require(browser["subscription"] as? [String: Any])
        let endpoint = try #require(URL(string: subscription["endpoint"] as? String ?? ""))
        let keys = try #require(subscription["keys"] as? [String: String])
        let subscriptionKeys = try SubscriptionKeys(
            publicKey: #require(Base64URL.bytes(keys["p256dh"] ?? "")),
            secret: #require(Base64URL.bytes(keys["auth"] ?? "")))
        let body =
            try size.map { [UInt8](repeating: 1, count: $0) }
            ?? MessageEncryption.encrypt(Array(text.utf8), for: subscriptionKeys)
        let port = try #require(endpoint.port)
        #expect(port == sandbox.addresses[.webPush].port)
        let now = Int64(sandbox.state.now().timeIntervalSince1970)
        var headers: HTTPFields = [.ttl: "60", .contentEncoding: "aes128gcm"]
        headers[.authorization] = try key.authorization(
            audience: "https://localhost:\(port)", expiresAt: now + 60, subject: nil)
        return try await sandbox.https(
            method, endpoint.path, port: port, headers: headers, body: ByteBuffer(bytes: body))
    }

    @Test("A message gets a 201 with Location and TTL, and is in the inbox; a removed browser gets a 410")
    func delivery() async throws {
        try await TestSandbox.with { sandbox in
            let browser = try await browser(sandbox)
            let answer = try await push(sandbox, to: browser)
            #expect(answer.status == 201)
            #expect(answer.headers[.location]?.hasPrefix("https://localhost:") == true)
            #expect(answer.headers[.ttl] == "60")
            let entry = try #require(try await sandbox.notifications("?protocol=webpush").first)
            #expect(entry["payload"] as? String == "hello")
            #expect(entry["token"] as? String == browser["token"] as? String)
            #expect(entry["headers"] as? [String: String] == ["ttl": "60"])

            let id = try #require(browser["id"] as? Int)
            #expect(try await sandbox.control(.delete, "/browsers/\(id)").object()["removed_at"] is String)
            let gone = try await push(sandbox, to: browser)
            #expect(gone.status == 410)
            #expect(
                gone.body == #"{"code":410,"errno":103,"error":"Gone","message":"the subscription was removed"}"#)
            let refused = try await sandbox.notifications("?answer=410")
            #expect(refused.map { $0["message"] as? String } == ["the subscription was removed"])
            let listed = try await sandbox.control(.get, "/browsers?since=0&limit=5").object()
            #expect((listed["browsers"] as? [[String: Any]])?.map { $0["id"] as? Int } == [id])
        }
    }

    @Test("4,096 bytes are accepted, more get a 413; another method gets a 404 or 405 in the same form")
    func sizes() async throws {
        try await TestSandbox.with { sandbox in
            let browser = try await browser(sandbox)
            #expect(try await push(sandbox, to: browser, text: String(repeating: "x", count: 3993)).status == 201)
            #expect(try await push(sandbox, to: browser, size: 4096).status == 400)
            #expect(try await push(sandbox, to: browser, size: 4097).status == 413)
            #expect(try await push(sandbox, to: browser, size: 1 << 20).status == 413)
            let other = try await push(sandbox, to: browser, method: .put)
            #expect([404, 405].contains(other.status))
            #expect(try other.object()["code"] as? Int == other.status)
        }
    }

    @Test(
        "A fault can give a status with Retry-After, delay a message, or close a connection; then the service continues"
    )
    func faults() async throws {
        try await TestSandbox.with { sandbox in
            let browser = try await browser(sandbox)
            func fault(_ fields: String) async throws {
                let made = try await sandbox.control(.post, "/faults", json: #"{"protocol":"webpush",\#(fields)}"#)
                #expect(made.status == 201, "\(made.body)")
            }
            try await fault(#""action":"status","status":503,"retry_after":7,"delay_ms":1"#)
            let late = try await push(sandbox, to: browser)
            #expect(late.status == 503)
            #expect(late.headers[.retryAfter] == "7")
            #expect(try late.object()["errno"] as? Int == 201)
            try await fault(#""action":"delay","delay_ms":1"#)
            #expect(try await push(sandbox, to: browser).status == 201)
            try await fault(#""action":"close""#)
            await #expect(throws: (any Error).self) { try await push(sandbox, to: browser) }
            #expect(try await push(sandbox, to: browser).status == 201)
            let names = try await sandbox.notifications("?protocol=webpush").map { $0["answer"] as? String }
            #expect(names == ["503", "accepted", "closed", "accepted"])
        }
    }

    @Test("A dropped message does not delay the stop of the sandbox")
    func stop() async throws {
        try await TestSandbox.with { sandbox in
            let browser = try await browser(sandbox)
            _ = try await sandbox.control(.post, "/faults", json: #"{"protocol":"webpush","action":"drop"}"#)
            async let waiting = try? push(sandbox, to: browser)
            try await eventually { try await sandbox.notifications("?answer=dropped").count == 1 }
            await sandbox.sandbox.stop()
            #expect(await waiting?.status != 201)
        }
    }
}
