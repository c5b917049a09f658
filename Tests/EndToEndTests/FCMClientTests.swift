import Foundation
import TestSupport
import Testing

extension Clients {
    /// Runs Google's own client library against the sandbox's FCM.
    @Suite("FCM clients", .onlySQLite("no relay takes part"))
    struct FCMClientTests {
        @Test("google-api-python-client gets an access token and sends messages, and understands each refusal")
        func google() async throws {
            let folder = try Folder()
            let file = folder.file("ready.json")
            let sandbox = try Running(
                ["sandbox", "--free-ports", "--ready-file", file.path, "--directory", folder.file("sandbox").path],
                in: folder, name: "sandbox")
            try await eventually("it is ready") {
                try #require(sandbox.isRunning)
                return FileManager.default.fileExists(atPath: file.path)
            }
            let played = try await Python.run("fcm_client.py", [file.path], input: Data())
            #expect(played.status == 0, "\(played.text.suffix(500)) \(played.errors)")
            #expect(played.text.split(separator: "\n").count == 9)
        }
    }
}
