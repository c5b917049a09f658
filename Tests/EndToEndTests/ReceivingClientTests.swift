import Foundation
import Testing

extension Clients {
    /// Runs unmodified clients of ntfy and Gotify that receive. Each script starts, kills and restarts its own relay.
    @Suite("Clients of ntfy and Gotify")
    struct ReceivingClientTests {
        @Test("ntfpy, python-ntfy, Apprise and curl publish, listen and poll through two kills")
        func ntfy() async throws { try await play("ntfy_clients.py", checks: 80) }

        @Test("aiontfy listens over WebSockets through kills; Home Assistant is set up, and receives")
        func aiontfy() async throws { try await play("aiontfy_client.py", of: .newer, checks: 50) }

        @Test(
            "aiontfy updates, delays, clears and deletes messages through kills, and another aiontfy hears it",
            .onlySQLite("it runs over both databases"), arguments: [StoreKind.sqlite, .postgres])
        func updates(kind: StoreKind) async throws {
            try await play("aiontfy_updates.py", of: .newer, over: kind, checks: 80)
        }

        @Test("python-gotify posts, reads, deletes, and misses nothing through two kills")
        func gotify() async throws { try await play("gotify_client.py", checks: 50) }

        @Test("gotify-tray shows rooms and messages, and each missed message once after two kills")
        func tray() async throws {
            let home = try Folder()
            try await play("tray_client.py", [home.url.path], checks: 30)
        }

        @Test(
            "Alertmanager posts to a webhook from a firing to a resolved alert, and Apprise posts JSON",
            .enabled(if: FileManager.default.fileExists(atPath: alertmanager.path), "run make setup, which unpacks it"))
        func webhooks() async throws { try await play("hook_senders.py", [Self.alertmanager.path], checks: 17) }

        private static let alertmanager = Page.root.appending(
            path: ".build/test-alertmanager/usr/bin/prometheus-alertmanager")

        /// - Parameter checks: The minimum number of checks that the script must have made.
        private func play(
            _ script: String, _ arguments: [String] = [], of environment: Python.Environment = .usual,
            over kind: StoreKind = .ofThisRun, checks: Int
        ) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let store = try kind.makeStore(path: folder.file("pushchat.db").path)
            let played = try await Python.run(
                script,
                arguments + [
                    Running.executable.path, "serve", "--config", configuration.path, "--database", store.path,
                ], of: environment, variables: store.variables, input: Data(), within: 240)
            let lines = played.text.split(separator: "\n")
            #expect(played.status == 0, "\(lines.suffix(3)) \(played.errors.suffix(3000))")
            #expect(lines.count >= checks)
        }
    }
}
