import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("SIGHUP")
    struct ReloadTests {
        private static let tokens = ["the-first-token-of-this-test", "the-second-token-of-this-test"]

        private func isAccepted(_ token: String, by relay: RelayProcess) async throws -> Bool {
            try await relay.admin("GET", "/v1/queue", headers: [("Authorization", "Bearer \(token)")]).0 == 200
        }

        @Test("The new admin token is valid at once, while the old connections still wait for responses")
        func settings() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            func configure(_ token: String) async throws -> URL {
                try await sandbox.relayConfiguration("admin:\n  token: \(token)\n")
            }
            let relay = try await RelayProcess.start(folder, configuration: try await configure(Self.tokens[0]))
            #expect(try await isAccepted(Self.tokens[0], by: relay))
            _ = try await configure(Self.tokens[1])
            // The drain of the connection then takes seconds.
            try await sandbox.fault(["action": "stop_reading"], protocol: "http2")
            try relay.queue([Name.token(1)])
            try await eventually("it has arrived") { try await sandbox.notifications().count == 1 }
            relay.process.kill(SIGHUP)
            try await eventually("the old token is refused") { try await !isAccepted(Self.tokens[0], by: relay) }
            #expect(try await isAccepted(Self.tokens[1], by: relay))
            try await relay.drained()
            // Compare positions in the relay's log: on a busy machine the drain may end before this test looks.
            let connection = try await relay.process.field("connection", of: "pushed")
            func place(_ message: String, _ connection: String? = nil) -> Int? {
                relay.process.log().firstIndex {
                    $0.message == message && (connection == nil || $0.fields["connection"] == connection)
                }
            }
            try await eventually("its connection is closed") { place("disconnected", connection) != nil }
            let (reloaded, closed) = (place("configuration reloaded"), place("disconnected", connection))
            #expect((reloaded ?? .max) < (closed ?? -1), "the connection has ended before")
        }

        @Test(
            "A SIGHUP while the relay starts and the database is locked does not end it, and takes effect once it listens",
            .onlySQLite("another process locks the file"))
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

        @Test("Apps can be added, removed and added again; only the pushes of a removed app wait")
        func apps() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let names = try sandbox.names()
            let first = """
                {topic: com.example.PushChat, trust: \(sandbox.authority), host: localhost, port: \(sandbox.http2),
                     key: \(sandbox.providerKey), team_id: \(names.teamID), key_id: \(names.keyID)}
                """
            let old = """
                {gateway: binary, trust: \(sandbox.authority), host: 127.0.0.1, port: \(sandbox.binary),
                     feedback_host: 127.0.0.1, feedback_port: \(sandbox.feedback), feedback_interval: 1s,
                     certificate: \(sandbox.credential), settle: 1s}
                """
            let file = folder.file("apps.yaml")
            func configure(_ apps: String) throws { try Data("apps: {\(apps)}\n".utf8).write(to: file) }
            try configure("default: \(first)")
            let relay = try await RelayProcess.start(folder, configuration: file)
            func reload() async throws -> ClientProgram {
                try await ClientProgram.run([
                    Running.executable.path, "reload", "--config", file.path, "--database", relay.database,
                ])
            }
            func waiting() async throws -> [String: String] {
                let (_, text) = try await relay.admin("GET", "/v1/queue")
                let json = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
                let apps = json?["apps"] as? [[String: Any]] ?? []
                return Dictionary(
                    uniqueKeysWithValues: apps.map {
                        (
                            "\($0["app"] ?? "")",
                            "\($0["due"] ?? "") \($0["written"] ?? "") \($0["waits_for"] as? String ?? "nothing")"
                        )
                    })
            }
            try relay.queue([("news", Name.token(1), "{}")])

            // Add the app with the binary gateway: a lower text limit, a dispatcher and a feedback reader.
            try configure("default: \(first), news: \(old)")
            let added = try await reload()
            #expect(
                (added.status, added.text) == (0, "reloaded; changed: push.text_limit apps.news\n"), "\(added.errors)")
            try await relay.drained()
            let arrivals = try await sandbox.notifications()
            #expect(arrivals.map(\.token) == [Name.token(1)] && arrivals.map(\.protocol) == ["binary"])
            let (status, text) = try await relay.admin(
                "PUT", "/v1/devices/\(Name.token(1))", #"{"app": "news"}"#)
            #expect(status == 201, "\(text)")
            try await sandbox.removeApp(token: Name.token(1))
            try await eventually("the feedback service is read") {
                try relay.count("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 1
            }

            // Change the app's protocol.
            try configure("default: \(first), news: \(first)")
            #expect(try await reload().text.contains("apps.news.gateway"))
            try relay.queue([("news", Name.token(2), "{}")])
            try await relay.drained()
            #expect(try await sandbox.notifications().last?.protocol == "http2")

            // Remove the app: the push in flight gets its response, the others stay pending. The delay is shorter than
            // a connection's drain, which takes 8 s.
            try await sandbox.fault(["action": "delay", "delay_ms": 6000, "times": 1], protocol: "http2")
            try relay.queue([("news", Name.token(3), "{}")])
            try await eventually("it is under way") { try await waiting()["news"] == "0 1 nothing" }
            try configure("default: \(first)")
            #expect(try await reload().text == "reloaded; changed: apps.news\n")
            _ = try await relay.process.field(
                "waiting", of: "app removed: its connections are closed; its pushes wait until it is configured again")
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state <> 'sent'") == 0)
            try relay.queue([("news", Name.token(4), "{}"), ("default", Name.token(5), "{}")])
            try await eventually("the other app's is sent, and this one waits") {
                try await waiting() == ["default": "0 0 nothing", "news": "1 0 configuration"]
            }
            let unknown = try await relay.admin("PUT", "/v1/devices/\(Name.token(4))", #"{"app": "news"}"#)
            #expect(unknown.0 == 400 && unknown.1.contains("names no app of this relay"))

            // An invalid configuration changes nothing.
            try configure("news: {key: none.p8}, default: \(first)")
            let wrong = try await reload()
            #expect(wrong.status == 1 && wrong.errors.contains("none.p8"), "\(wrong.errors)")
            #expect(try await waiting()["news"] == "1 0 configuration")

            // Add the app again: it resumes its rows.
            try configure("news: \(first), default: \(first)")
            #expect(try await reload().status == 0)
            try await relay.drained()
            #expect(try await sandbox.accepted().values.allSatisfy { $0 == 1 })
            #expect(try await sandbox.accepted().count == 5)

            relay.process.kill(SIGTERM)
            #expect(try await relay.process.ended() == 0)
            #expect(!FileManager.default.fileExists(atPath: relay.database + ".reload"))
            let nobody = try await reload()
            #expect(nobody.status == 1 && nobody.errors.contains("no relay serves"), "\(nobody.errors)")
        }

        @Test("pushchat reload prints the errors that the relay found, and does not end pushchat dev")
        func refusals() async throws {
            let folder = try Folder()
            let file = folder.file("relay.yaml")
            let key = folder.file("key.pem")
            try Data("http: {port: 1}\nadmin: {token_file: \(key.path)}\n".utf8).write(to: file)
            try Data("a-token-of-sixteen\n".utf8).write(to: key)
            let relay = try await RelayProcess.start(folder, configuration: file)
            func reload(_ database: String, _ more: String...) async throws -> ClientProgram {
                try await ClientProgram.run([Running.executable.path, "reload", "--database", database] + more)
            }
            let same = try await reload(relay.database)
            #expect(
                (same.status, same.text) == (0, "reloaded; no setting has changed, credentials were read again\n"))
            // The command reads another configuration file than the relay.
            try FileManager.default.removeItem(at: key)
            let wrong = try await reload(relay.database)
            #expect(wrong.status == 1 && wrong.errors.contains("the relay keeps its configuration:"), "\(wrong.errors)")
            #expect(wrong.errors.contains(key.path))
            try Data("environment: production\n".utf8).write(to: file)
            #expect(try await reload(relay.database).errors.contains("needs a restart"))

            let ports = try SandboxPorts()
            let port = try ReservedPort()
            let dev = try Running(
                ["dev", "--directory", folder.file("dev").path, "--port", "\(port.number)"] + ports.flags, in: folder,
                name: "dev")
            try await dev.listens(on: [port])
            let refused = try await reload(folder.file("dev/pushchat.db").path)
            #expect(refused.status == 1 && refused.errors.contains("does not reload"), "\(refused.errors)")
            #expect(dev.isRunning)
        }

        @Test("SIGHUP ends the other commands", .timeLimit(.minutes(1)), .onlySQLite("no relay takes part"))
        func others() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            sandbox.process.kill(SIGHUP)
            #expect(try await sandbox.process.ended() == -SIGHUP)
        }
    }
}
