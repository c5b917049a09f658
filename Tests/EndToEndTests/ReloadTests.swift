import Foundation
import Testing

extension EndToEnd {
    @Suite("SIGHUP")
    struct ReloadTests {
        private static let tokens = ["the-first-token-of-this-test", "the-second-token-of-this-test"]

        private func isAccepted(_ token: String, by relay: RelayProcess) async throws -> Bool {
            try await relay.admin("GET", "/v1/queue", headers: [("Authorization", "Bearer \(token)")]).0 == 200
        }

        @Test("The new admin token counts at once, while the old connections still wait for answers")
        func settings() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            func configure(_ token: String) async throws -> URL {
                try await sandbox.relayConfiguration("admin:\n  token: \(token)\n")
            }
            let relay = try await RelayProcess.start(folder, configuration: try await configure(Self.tokens[0]))
            #expect(try await isAccepted(Self.tokens[0], by: relay))
            // The drain of its connection takes seconds.
            try await sandbox.fault(["action": "stop_reading"], protocol: "http2")
            try relay.queue([Name.token(1)])
            try await eventually("it has arrived") { try await sandbox.notifications().count == 1 }

            _ = try await configure(Self.tokens[1])
            relay.process.kill(SIGHUP)
            try await eventually("the old token is refused") { try await !isAccepted(Self.tokens[0], by: relay) }
            #expect(
                try relay.count("SELECT count(*) FROM push_queue WHERE state = 'pending' AND attempts = 0") == 1,
                "the connection has ended before")
            #expect(try await isAccepted(Self.tokens[1], by: relay))
            try await relay.drained()
        }

        @Test(
            "Sent while the relay starts and the database is locked, it ends nothing, and counts once the relay listens"
        )
        func start() async throws {
            let folder = try Folder()
            let file = folder.file("relay.yaml")
            func configure(_ token: String) throws { try Data("admin: {token: \(token)}\n".utf8).write(to: file) }
            try configure(Self.tokens[0])
            let first = try await RelayProcess.start(folder, configuration: file)
            first.process.kill(SIGTERM)
            try await first.process.ended()

            let other = try await OtherProcess(database: first.database)
            let relay = try RelayProcess.launch(folder, configuration: file, database: first.database)
            try await eventually("it is prepared for the signal") { try relay.process.isPrepared(for: SIGHUP) }
            relay.process.kill(SIGHUP)
            try await eventually("it has read its configuration and waits for the database") {
                relay.process.log().contains { $0.message == "the database cannot be opened now, trying again" }
            }
            try configure(Self.tokens[1])
            relay.process.kill(SIGHUP)
            try other.release()
            try await relay.listens()
            try await eventually("the new token counts") { try await isAccepted(Self.tokens[1], by: relay) }
            #expect(try await !isAccepted(Self.tokens[0], by: relay))
        }

        @Test("To the other commands it means the end", .timeLimit(.minutes(1)))
        func others() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            sandbox.process.kill(SIGHUP)
            #expect(try await sandbox.process.ended() == -SIGHUP)
        }
    }
}
