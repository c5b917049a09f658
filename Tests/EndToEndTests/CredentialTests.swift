import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Credentials that can be guessed")
    struct CredentialTests {
        @Test("The administrator's token changes without a gap; a token that can be guessed prevents the start")
        func adminToken() async throws {
            let folder = try Folder()
            let (old, new) = ("the-old-token-16b", "the-new-token-16b")
            func write(_ tokens: String...) throws {
                try tokens.joined(separator: "\n").write(to: folder.file("tokens"), atomically: true, encoding: .utf8)
            }
            try "admin: {token_file: tokens}\n".write(
                to: folder.file("relay.yaml"), atomically: true, encoding: .utf8)
            try write("fifteen-letters")
            let weak = try await ClientProgram.run(
                [Running.executable.path, "serve", "--port", "0", "--config", folder.file("relay.yaml").path])
            #expect(weak.status == 1 && weak.errors.contains("admin.token"), "\(weak.errors)")
            #expect(weak.errors.contains("at least 16") && !weak.errors.contains("fifteen-letters"))

            try write(old)
            let relay = try await RelayProcess.start(folder, configuration: folder.file("relay.yaml"))
            func status(_ token: String) async throws -> Int {
                try await relay.admin("GET", "/v1/stats", headers: [("Authorization", "Bearer \(token)")]).0
            }
            #expect(try await (status(old), status(new)) == (200, 401))
            try write(old, new)
            relay.process.kill(SIGHUP)
            try await eventually("the new one is taken") {
                #expect(try await status(old) == 200)
                return try await status(new) == 200
            }
            try write(new)
            relay.process.kill(SIGHUP)
            try await eventually("the old one is refused") {
                #expect(try await status(new) == 200)
                return try await status(old) == 401
            }
            // A caller that continues with the old token is rate-limited.
            try await eventually("it is rate-limited") { try await status(old) == 429 }
        }

        @Test("Production stops a client that guesses room codes, and no other client")
        func roomCodes() async throws {
            let folder = try Folder()
            try """
            environment: production
            http: {host: 127.0.0.1, trusted_proxies: [127.0.0.1], joins_per_address: 3/h}
            """.write(to: folder.file("relay.yaml"), atomically: true, encoding: .utf8)
            let relay = try await RelayProcess.start(folder, configuration: folder.file("relay.yaml"))
            func join(_ number: Int, _ code: String, from address: String) async throws -> (Int, String) {
                try await relay.call(
                    ["cmd": "join", "udid": Name.udid(number), "token": "0", "name": "n", "code": code],
                    headers: [("X-Forwarded-For", address)])
            }
            #expect(try await join(1, "kitchen", from: "192.0.2.1").0 == 200)
            for number in 2...9 { #expect(try await join(number, "kitchen", from: "2001:db8::\(number)").0 == 200) }
            for guess in 1...3 { #expect(try await join(10, "guess\(guess)", from: "2001:db8::\(guess)").0 == 200) }
            for code in ["guess4", "kitchen"] {
                let (status, text) = try await join(10, code, from: "2001:db8::9")
                #expect(status == 429 && text.contains("Too many new rooms"), "\(text)")
            }
            #expect(try await join(10, "guess3", from: "2001:db8::9").0 == 200)
            #expect(try await join(1, "kitchen", from: "2001:db8::9").0 == 200)
            #expect(try await join(11, "garden", from: "192.0.2.1").0 == 200)
            #expect(try relay.count("SELECT count(*) FROM active_users WHERE secret_code = 'kitchen'") == 9)
        }
    }
}
