import Foundation
import Testing

extension Waiting {
    /// Tests the promises of docs/https.md and docs/postgresql.md with Debian's proxies (Tests/Clients/proxies.py).
    @Suite("HTTPS through proxies", .onlySQLite("it tests the way to the relay, not the store"))
    struct ProxyTests {
        private static let proxies = Page.root.appending(path: ".build/proxies")

        @Test(
            "Each recipe works as printed: forms, pages, addresses, limits, streams beyond the proxy's timeout, renewal"
        )
        func recipes() async throws {
            // Run them concurrently, because each waits for longer than a proxy's timeout.
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (proxy, checks) in [("caddy", 45), ("nginx", 45), ("haproxy", 45)] {
                    group.addTask { try await Self.play(proxy, checks: checks) }
                }
                try await group.waitForAll()
            }
        }

        @Test(
            "Each recipe for a path below a site works as printed, with the pages in a browser",
            arguments: ["caddy", "nginx", "haproxy"])
        func subPath(proxy: String) async throws { try await Self.play("sub-path-" + proxy, checks: 30) }

        @Test("certbot's hook gives the relay a renewed certificate, and open streams continue")
        func hook() async throws { try await Self.play("own", checks: 10) }

        @Test("check reports a proxy's mistakes")
        func findings() async throws { try await Self.play("findings", checks: 20) }

        @Test(
            "The check finds nothing to improve in the configurations of init: browsers, iPhones, behind Caddy, PostgreSQL"
        )
        func initial() async throws { try await Self.play("initial", checks: 12) }

        @Test("With two relays on one PostgreSQL behind Caddy, streams continue when one relay dies and one hangs")
        func relays() async throws { try await Self.play("relays", checks: 55) }

        /// - Parameter checks: The minimum number of checks that the script must have made.
        private static func play(_ part: String, checks: Int) async throws {
            try #require(
                FileManager.default.fileExists(atPath: proxies.appending(path: "complete").path),
                "\(proxies.path) is missing: run make setup")
            let folder = try Folder()
            let played = try await Python.run(
                "proxies.py", [part, Running.executable.path, folder.url.path], input: Data(), within: 240)
            #expect(
                played.status == 0,
                "\(part): \(played.text.split(separator: "\n").suffix(3)) \(played.errors.suffix(3000))")
            #expect(played.text.split(separator: "\n").count >= checks, "\(part)")
        }
    }
}
