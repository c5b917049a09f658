import Foundation
import NIOCore
import PushWire
import TestSupport
import Testing

@testable import PushSandbox

/// Tests TLS, ALPN, and a third-party client.
@Suite("HTTP/2: transport", .serialized, .timeLimit(.minutes(10)))
struct HTTP2TransportTests {
    private func arguments(_ sandbox: TestSandbox, _ more: String...) -> [String] {
        [
            "--silent", "--show-error", "--max-time", "\(TestLimit.seconds)", "--cacert",
            sandbox.credentials.authorityFile,
            "--write-out", " %{http_version} %{http_code}",
        ] + more + ["https://localhost:\(sandbox.addresses[.http2].port)/3/device/" + HTTP2Client.token]
    }

    @Test("curl sends with a certificate", .enabled(if: CommandTool.curl.isPresent))
    func curlCertificate() async throws {
        try await TestSandbox.with { sandbox in
            let output = try await CommandTool.curl.run(
                arguments(
                    sandbox, "--http2", "--cert", sandbox.credentials.clientFile, "--header",
                    "apns-topic: com.example.PushChat", "--header", "apns-push-type: alert", "--data",
                    HTTP2Client.payload))
            #expect(output.text == " 2 200", "\(output.text)")
            let found = try #require(try await sandbox.notifications().first)
            #expect(found["payload"] as? String == HTTP2Client.payload)
            #expect(found["authentication"] as? String == "certificate")
        }
    }

    @Test(
        "curl sends with a provider token, and reads the reason of a rejection",
        .enabled(if: CommandTool.curl.isPresent))
    func curlToken() async throws {
        try await TestSandbox.with { sandbox in
            let authorization = try "authorization: " + sandbox.authorization()
            let output = try await CommandTool.curl.run(
                arguments(
                    sandbox, "--http2", "--header", authorization, "--data", HTTP2Client.payload))
            #expect(output.text == #"{"reason":"MissingTopic"} 2 400"#, "\(output.text)")
        }
    }

    @Test("HTTP/1.1 is refused with an explanation", .enabled(if: CommandTool.curl.isPresent))
    func http1() async throws {
        try await TestSandbox.with { sandbox in
            let output = try await CommandTool.curl.run(arguments(sandbox, "--http1.1", "--data", "{}"))
            #expect(output.text.contains("HTTP/2 only"), "\(output.text)")
            #expect(output.text.contains(" 505"), "\(output.text)")
            let (stats, inbox) = sandbox.state.withLock { ($0.stats, $0.inbox.count) }
            #expect(inbox == 0)
            #expect(stats.http2.connections.noPreface == 1)
            #expect(stats.refusals.map(\.reason) == [.noPreface])
            #expect(stats.refusals.first?.message.contains("POST /3/device/") == true)
        }
    }

    @Test("A client without ALPN is accepted by its HTTP/2 preface, with a token and with a certificate")
    func priorKnowledge() async throws {
        try await TestSandbox.with { sandbox in
            #expect(try await sandbox.provider(protocols: []).push().status == 200)
            let client = try await HTTP2Client.connect(
                to: sandbox.addresses[.http2], sandbox.credentials, .client, protocols: ["http/1.1"])
            #expect(try await client.push().status == 200)
            #expect(sandbox.state.withLock { $0.stats.refusals } == [])
        }
    }

    @Test("A strict sandbox refuses a client without ALPN, counts it and gives the reason")
    func strictALPN() async throws {
        try await TestSandbox.with {
            $0.strict = true
        } _: { (sandbox) async throws in
            await #expect(throws: HTTP2Client.ConnectionEnded.self) {
                try await sandbox.provider(protocols: []).push()
            }
            let stats = try await sandbox.control(.get, "/stats").object()
            let http2 = try #require(stats["http2"] as? [String: Any])
            #expect((http2["connections"] as? [String: Int])?["no_alpn"] == 1)
            let refusal = try #require((stats["refusals"] as? [[String: Any]])?.first)
            #expect(refusal["listener"] as? String == "http2")
            #expect(refusal["connection"] as? Int == 1)
            #expect(refusal["reason"] as? String == "no_alpn")
            #expect((refusal["message"] as? String)?.contains("--strict") == true)
            #expect(refusal["refused_at"] is String)
        }
    }

    @Test("The server's certificate is valid for Apple's names", arguments: ServiceHost.apple.map(\.name))
    func appleNames(name: String) async throws {
        try await TestSandbox.with { sandbox in
            let answer = try await sandbox.provider(name: name).push()
            #expect(answer.status == 200)
        }
    }

    @Test("A client certificate of another authority is rejected")
    func foreign() async throws {
        try await TestSandbox.with { sandbox in
            try await withTemporaryDirectory { directory in
                let foreign = try await SandboxCredentials.prepare(
                    directory: directory, topic: "com.example.PushChat", logger: .silent)
                await #expect(throws: (any Error).self) {
                    try await sandbox.provider(certificate: .files(foreign.clientFile)).push()
                }
            }
            try await eventually { sandbox.state.withLock { $0.stats.http2.connections.handshakesFailed } == 1 }
            let refusal = try #require(sandbox.state.withLock { $0.stats.refusals }.first)
            #expect(refusal.reason == .handshakeFailed)
            #expect(refusal.message.contains("TLS handshake failed"), "\(refusal.message)")
        }
    }

    @Test("An invalid frame ends its connection, and the sandbox announces its stop")
    func endings() async throws {
        try await TestSandbox.with { sandbox in
            let client = try await sandbox.provider()
            let hanging = try await sandbox.provider()
            #expect(try await client.push().status == 200)
            #expect(try await hanging.isAlive())
            // DATA on a stream that was never opened.
            try await client.channel.writeAndFlush(ByteBuffer(bytes: [0, 0, 1, 0, 0, 0, 0, 0, 99, 0]))
            #expect(try await client.end().goAways.count == 1)
            await sandbox.sandbox.stop()
            let ending = try await hanging.end()
            #expect(ending.goAways == [.init(lastStream: 0, code: 0, text: #"{"reason":"Shutdown"}"#)])
            #expect(ending.isClean)
        }
    }
}
