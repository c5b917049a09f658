import Foundation
import TestSupport
import Testing

extension Clients {
    /// Runs the programs in docs/examples that people copy.
    @Suite("Programs to copy")
    struct ProgramExampleTests {
        private static func command(_ file: String) throws -> [String] {
            [file.hasSuffix(".py") ? try Python.program("python") : "node"]
                + [Page.root.appending(path: "docs/examples/\(file)").path]
        }

        private let folder: Folder
        private let sandbox: SandboxProcess
        private let port: ReservedPort

        init() async throws {
            folder = try Folder()
            sandbox = try await SandboxProcess.start(folder)
            port = try ReservedPort()
        }

        private func relay() async throws -> RelayProcess {
            try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration(), port: port)
        }

        private func token(_ scopes: [String], at relay: RelayProcess) async throws -> String {
            let arguments = ["token", "create", "--name", "copy"] + scopes.flatMap { ["--may", $0] }
            return "PUSHCHAT_TOKEN=" + (try await relay.pushchat(arguments))
        }

        @Test("A program prints each message of a room once, also after a restart", arguments: ["wait.py", "wait.mjs"])
        func waits(file: String) async throws {
            let first = try await relay()
            let variable = try await token(["read"], at: first)
            let output = folder.file("printed")
            let program = try Child(
                ["env", variable] + Self.command(file)
                    + ["http://127.0.0.1:\(first.port)", "kitchen"], output: output)
            defer { program.kill(SIGTERM) }
            func post(_ text: String, at relay: RelayProcess) async throws {
                let (status, answer) = try await relay.admin(
                    "POST", "/v1/messages", #"{"room": "kitchen", "name": "Ann", "text": "\#(text)"}"#)
                #expect(status == 201, "\(answer)")
            }
            func prints(_ lines: String) async throws {
                try await eventually("\(lines) is printed") { try String(contentsOf: output, encoding: .utf8) == lines }
            }
            try await eventually("the stream is open") {
                try await first.admin("GET", "/metrics").1.contains("pushchat_event_streams 1")
            }
            try await post("one", at: first)
            try await prints("Ann: one\n")
            first.process.kill(SIGKILL)
            _ = try await first.process.ended()
            let second = try await relay()
            try await post("two", at: second)
            try await prints("Ann: one\nAnn: two\n")
        }

        @Test("A program notifies a user and waits for the outcome")
        func notifies() async throws {
            let relay = try await relay()
            let variable = try await token(["send"], at: relay)
            func notify(_ user: String) async throws -> ClientProgram {
                try await ClientProgram.run(
                    ["env", variable] + Self.command("notify.py")
                        + ["http://127.0.0.1:\(relay.port)", user, "Tea is ready"], within: 90)
            }
            let (status, answer) = try await relay.admin(
                "PUT", "/v1/devices/\(Name.token(1))", #"{"user_reference": "alice"}"#)
            #expect(status == 200 || status == 201, "\(answer)")
            let accepted = try await notify("alice")
            #expect((accepted.status, accepted.text) == (0, "\(Name.token(1).prefix(8)) sent \n"), "\(accepted.errors)")
            #expect(try await sandbox.notifications().count == 1)
            let nobody = try await notify("bob")
            #expect((nobody.status, nobody.text) == (1, ""), "\(nobody.errors)")
        }
    }
}
