import Foundation
import Testing

extension Clients {
    @Suite("The clients of the other tutorials")
    struct DocumentClientTests {
        @Test(
            "A script plays each client's registration and sending",
            arguments: ["binary", "http2"])
        func play(gateway: String) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration(gateway: gateway, "    payload_limit: 4096\n")
            let relay = try await RelayProcess.start(
                folder, configuration: configuration, ["--set", "apps.default.feedback_interval=1s"])
            let shell = String(decoding: try JSONEncoder().encode(relay.store.shell), as: UTF8.self)
            let played = try await ClientProgram.run(
                [
                    "python3", ClientProgram.sources.appending(path: "document_clients.py").path,
                    Running.executable.path,
                    "http://127.0.0.1:\(relay.port)", sandbox.base, "\(sandbox.binary)", "\(sandbox.http2)",
                    folder.file("sandbox").path, shell,
                ], within: 300)
            #expect(played.status == 0, "\(played.text.split(separator: "\n").suffix(3)) \(played.errors)")
            #expect(played.text.split(separator: "\n").count > 35)
        }
    }
}
