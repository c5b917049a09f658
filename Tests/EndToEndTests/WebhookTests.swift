import Foundation
import Testing

extension Clients {
    @Suite("Webhooks")
    struct WebhookTests {
        @Test(
            "Receivers that fail, and relays that are killed, get each event, with signatures that a library verifies")
        func receivers() async throws {
            let folder = try Folder()
            let database = folder.file("pushchat.db").path
            let store = try folder.store(at: database)
            let relays = StoreKind.ofThisRun == .postgres ? 2 : 1
            let played = try await Python.run(
                "webhooks.py",
                ["\(relays)", folder.file("relay.log").path] + store.variables + [
                    // A proxy of the environment would get the events, and fail.
                    "/usr/bin/env", "http_proxy=http://127.0.0.1:9", "https_proxy=http://127.0.0.1:9",
                    "all_proxy=http://127.0.0.1:9",
                    Running.executable.path, "serve",
                ] + (relays == 1 ? ["--database", database] : []), input: Data(), within: 560)
            let lines = played.text.split(separator: "\n")
            #expect(played.status == 0, "\(lines.suffix(3)) \(played.errors.suffix(3000))")
            #expect(lines.count >= 30)
        }
    }
}
