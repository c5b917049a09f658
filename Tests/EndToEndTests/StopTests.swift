import Foundation
import TestSupport
import Testing

extension Waiting {
    /// Tests which work a stop waits for.
    @Suite("Stopping")
    struct StopTests {
        @Test("After SIGTERM the relay leases nothing more and ends, although a client's request body is incomplete")
        func unfinishedBody() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            try await eventually("the relay is connected") { try await sandbox.stats().http2.connections.open > 0 }
            // 100 Continue shows that the relay has read the request's head.
            let request =
                "POST /api.php HTTP/1.1\\r\\nHost: x\\r\\nExpect: 100-continue\\r\\nContent-Length: 9\\r\\n"
                + "Content-Type: application/x-www-form-urlencoded\\r\\n\\r\\n"
            let answer = folder.file("answer")
            let stranger = try Child(
                ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/\(relay.port); printf '\(request)' >&3; cat <&3"],
                output: answer)
            try await eventually("the stranger is told to go on") {
                try String(contentsOf: answer, encoding: .utf8).hasPrefix("HTTP/1.1 100")
            }

            relay.process.kill(SIGTERM)
            try await eventually("no new connections are accepted") { try !relay.isListening }
            try relay.queue([Name.token(1)])
            #expect(try await relay.process.ended() == 0)
            try await eventually("the stranger's connection is closed") { stranger.status != nil }
            #expect(try relay.remains("SELECT state FROM push_queue").map { $0[0] as String } == ["pending"])
            #expect(try await sandbox.notifications().isEmpty)
        }
    }
}
