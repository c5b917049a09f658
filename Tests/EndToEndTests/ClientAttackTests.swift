import Foundation
import Testing

extension Clients {
    @Suite("Attacks with the calls of ntfy and Gotify")
    struct ClientAttackTests {
        @Test("No topic, alias, id, time or path gives access to a foreign room, or to one that a member has left")
        func attack() async throws {
            let folder = try Folder()
            let file = folder.file("relay.yaml")
            try Data(
                """
                http: {host: 127.0.0.1, ntfy_at_root: on, gotify_at_root: on}
                admin: {token: the-token-of-this-test}
                log: {level: trace}
                """.utf8
            ).write(to: file)
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file.path)
            let database = folder.file("pushchat.db").path
            let store = try folder.store(at: database)
            let played = try await ClientProgram.run(
                [
                    "python3", ClientProgram.sources.appending(path: "client_attacks.py").path,
                    folder.file("relay.log").path,
                ] + store.variables + [
                    Running.executable.path, "serve", "--config", file.path, "--database", database,
                    "--log-format", "json",
                ], within: 120)
            let lines = played.text.split(separator: "\n")
            #expect(played.status == 0, "\(lines.suffix(3)) \(played.errors)")
            #expect(lines.count > 100)
        }
    }
}
