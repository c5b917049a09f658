import Foundation
import TestSupport
import Testing

extension Clients {
    /// Runs published client libraries, unchanged, against the sandbox alone.
    @Suite("FCM clients", .onlySQLite("no relay takes part"))
    struct FCMClientTests {
        /// Runs a script with the ready file of a new sandbox, and expects it to print a number of lines.
        private static func play(_ script: String, checks: Int) async throws {
            let folder = try Folder()
            let file = folder.file("ready.json")
            let sandbox = try Running(
                ["sandbox", "--free-ports", "--ready-file", file.path, "--directory", folder.file("sandbox").path],
                in: folder, name: "sandbox")
            try await eventually("it is ready") {
                try #require(sandbox.isRunning)
                return FileManager.default.fileExists(atPath: file.path)
            }
            let played = try await Python.run(script, [file.path], input: Data(), within: 120)
            #expect(played.status == 0, "\(played.text.suffix(500)) \(played.errors)")
            #expect(played.text.split(separator: "\n").count == checks)
        }

        @Test("google-api-python-client gets an access token and sends messages, and understands each refusal")
        func google() async throws {
            try await Self.play("fcm_client.py", checks: 9)
        }

        @Test("firebase-admin, PyFCM, httpx and pywebpush reach the sandbox through its proxy")
        func proxy() async throws {
            try await Self.play("proxy_clients.py", checks: 18)
        }
    }
}
