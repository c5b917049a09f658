import Foundation
import NIOCore
import PushWire
import Testing

@testable import PushSandbox

/// Provokes every reason that Apple documents by its documented cause, through TLS and HTTP/2.
@Suite("HTTP/2: reasons", .serialized, .timeLimit(.minutes(10)))
struct HTTP2ReasonTests {
    private typealias Response = HTTP2Client.Response

    @Test("Each reason occurs under its condition", arguments: ProviderReason.allCases.filter { $0 != .idleTimeout })
    func reasons(_ reason: ProviderReason) async throws {
        try await TestSandbox.with { configuration in
            if reason == .tooManyRequests { configuration.deviceRate = 2 }
            // All pushes happen in the same second, while the certificates are valid.
            let now = Date()
            configuration.now = { now }
        } _: { sandbox in
            let response = try await provoke(reason, sandbox)
            #expect(response.reason == reason.rawValue)
            #expect(response.status == reason.status)
            #expect(response.headers["content-type"] == "application/json")
            #expect(response.headers["apns-id"]?.count == 36)
            #expect(response.headers["apns-unique-id"] == nil)
            #expect(response.body.contains("timestamp") == (reason.status == 410))
            let (entry, count) = sandbox.state.withLock { state in
                (state.inbox.page().entries.last, state.stats.http2.answers.others)
            }
            #expect(entry?.answer.name == reason.rawValue)
            #expect(count == [reason.rawValue: 1])
        }
    }

    private func provoke(_ reason: ProviderReason, _ sandbox: TestSandbox) async throws -> Response {
        let token = HTTP2Client.token
        func push(_ name: String, _ value: String) async throws -> Response {
            try await sandbox.provider().push(token, [(name, value)])
        }
        func push(_ payload: String) async throws -> Response { try await sandbox.provider().push(payload: payload) }
        func device(_ fields: String) async throws -> Response {
            let json = #"{"token":"\#(token)",\#(fields)}"#
            #expect(try await sandbox.control(.post, "/devices", json: json).status == 201)
            return try await sandbox.provider().push()
        }

        switch reason {
        case .badCollapseID: return try await push("apns-collapse-id", String(repeating: "ä", count: 32) + "x")
        case .badDeviceToken: return try await sandbox.provider().push("abc")
        case .badExpirationDate: return try await push("apns-expiration", "tomorrow")
        case .badMessageID: return try await push("apns-id", "1")
        case .badPriority: return try await push("apns-priority", "7")
        case .badTopic: return try await push("apns-topic", "com.example/PushChat")
        case .deviceTokenNotForTopic: return try await device(#""topic":"com.example.Other""#)
        case .duplicateHeaders:
            return try await sandbox.provider().push(token, [("apns-priority", "5"), ("apns-priority", "5")])
        case .idleTimeout: throw HTTP2Client.ConnectionEnded()
        case .invalidPushType: return try await push("apns-push-type", "a letter")
        case .missingDeviceToken: return try await sandbox.provider().push("")
        case .missingTopic: return try await push("apns-topic", "")
        case .payloadEmpty: return try await push("")
        case .topicDisallowed:
            return try await sandbox.provider(certificate: .client).push(token, [("apns-topic", "com.example.Other")])
        case .badCertificate: return try await sandbox.provider(certificateFor: nil).push()
        case .badCertificateEnvironment:
            return try await sandbox.provider(certificate: .files(sandbox.credentials.productionClientFile)).push()
        case .expiredProviderToken:
            return try await sandbox.provider(authorization: sandbox.authorization(age: 3700)).push()
        case .forbidden:
            return try await sandbox.provider(certificate: .client).push(
                token,
                [
                    ("apns-push-type", "liveactivity"),
                    ("apns-topic", SandboxConfiguration.defaultTopic + ".push-type.liveactivity"),
                ])
        case .invalidProviderToken: return try await sandbox.provider(authorization: "bearer nonsense").push()
        case .missingProviderToken:
            return try await HTTP2Client.connect(to: sandbox.addresses[.http2], sandbox.credentials).push()
        case .unrelatedKeyIDInToken:
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            let other = try ProviderKey(
                pem: String(contentsOfFile: sandbox.credentials.productionKeyFile, encoding: .utf8),
                keyID: "OTHERKEY00", teamID: sandbox.credentials.teamID)
            let value = try "bearer " + other.token(issuedAt: Int64(sandbox.state.now().timeIntervalSince1970))
            return try await client.with(authorization: value).push()
        case .badEnvironmentKeyIDInToken:
            let key = try ProviderKey(
                pem: String(contentsOfFile: sandbox.credentials.productionKeyFile, encoding: .utf8),
                keyID: sandbox.credentials.productionKeyID, teamID: sandbox.credentials.teamID)
            let value = try "bearer " + key.token(issuedAt: Int64(sandbox.state.now().timeIntervalSince1970))
            return try await sandbox.provider(authorization: value).push()
        case .badPath:
            let client = try await sandbox.provider()
            return try await client.request(client.headers(path: "/4/device/" + token), body: "{}")
        case .methodNotAllowed:
            let client = try await sandbox.provider()
            return try await client.request(client.headers(method: "GET"), body: "")
        case .expiredToken:
            let response = try await device(#""expires_at":"2026-01-31T09:30:00Z""#)
            #expect(response.body == #"{"reason":"ExpiredToken","timestamp":1769851800000}"#)
            return response
        case .unregistered:
            #expect(try await sandbox.control(.delete, "/devices/" + token).status == 200)
            let response = try await sandbox.provider().push()
            let time = try #require(ProviderRefusal(status: 410, body: Array(response.body.utf8)).timestamp)
            #expect(time == SandboxRules.milliseconds(sandbox.state.now()))
            return response
        case .payloadTooLarge: return try await push(String(repeating: "x", count: 4097))
        case .tooManyProviderTokenUpdates:
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            return try await client.with(authorization: sandbox.authorization(age: 600)).push()
        case .tooManyRequests:
            let client = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            #expect(try await client.push().status == 200)
            return try await client.push()
        case .shutdown:
            let client = try await sandbox.provider()
            let stream = try await client.send(client.headers(), body: "{", ends: false)
            #expect(try await client.isAlive())
            await sandbox.sandbox.stop()
            return try await client.response(to: stream)
        case .badEnvironmentKeyInToken, .internalServerError, .serviceUnavailable:
            // Only a fault produces these: the sandbox never has such problems, and never uses the other spelling.
            try await sandbox.fault(#""action":"status","reason":"\#(reason.rawValue)""#)
            return try await sandbox.provider().push()
        }
    }

    @Test("An idle connection gets a GOAWAY with its reason and is closed")
    func idleTimeout() async throws {
        try await TestSandbox.with {
            $0.http2IdleTimeout = .milliseconds(20)
        } _: { sandbox in
            let ending = try await sandbox.provider().end()
            #expect(ending.goAways == [.init(lastStream: 0, code: 0, text: #"{"reason":"IdleTimeout"}"#)])
            #expect(ending.isClean)
        }
    }
}
