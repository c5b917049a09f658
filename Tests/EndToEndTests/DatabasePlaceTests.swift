import Foundation
import TestSupport
import Testing

extension Waiting {
    /// Tests what operators do to the database file and to the names of its apps.
    @Suite("The database file and its apps")
    struct DatabasePlaceTests {
        private static func pushchat(_ arguments: String...) async throws -> ClientProgram {
            try await ClientProgram.run([Running.executable.path] + arguments)
        }

        @Test(
            "While the file is deleted or replaced, the relay responds 503 and is not ready; putting it back loses nothing",
            .onlySQLite("it tests the database file"))
        func gone() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration("admin: {token: the-token-of-this-test}\n")
            let relay = try await RelayProcess.start(folder, configuration: configuration)
            try await relay.join(1...2)
            func post(_ text: String) async throws -> Int {
                try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": text]).0
            }
            #expect(try await post("one") == 200)
            try await relay.drained()
            let kept = folder.file("kept.db").path
            func losses() -> Int { relay.process.log().filter { $0.fields["file"] == relay.database }.count }
            for (index, replacement) in ([nil, Data(), Data("not a database".utf8)] as [Data?]).enumerated() {
                try FileManager.default.moveItem(atPath: relay.database, toPath: kept)
                try replacement?.write(to: URL(filePath: relay.database))
                #expect(try await post("refused") == 503)
                let (status, answer) = try await relay.admin(
                    "GET", "/readyz", headers: [("Authorization", "Bearer the-token-of-this-test")])
                #expect(status == 503 && answer.contains("was deleted, moved or replaced"), "\(answer)")
                #expect(try await relay.admin("GET", "/healthz").0 == 200)
                try await eventually("it is in the log") { losses() == index + 1 }
                if replacement != nil { try FileManager.default.removeItem(atPath: relay.database) }
                try FileManager.default.moveItem(atPath: kept, toPath: relay.database)
                // The relay checks the disk once a second.
                try await eventually("it is ready again") { try await relay.admin("GET", "/readyz").0 == 200 }
                try await eventually("that it is back, too") {
                    relay.process.log().filter { $0.message == "the database's files are back" }.count == index + 1
                }
            }
            #expect(try await post("two") == 200)
            try await relay.drained()
            #expect(try await sandbox.accepted() == [Name.token(2): 2])

            // If the file is gone for good, the relay stops in order and creates no new file.
            try FileManager.default.removeItem(atPath: relay.database)
            #expect(try await post("refused") == 503)
            relay.process.kill(SIGTERM)
            #expect(try await relay.process.ended() == 0)
            #expect(!FileManager.default.fileExists(atPath: relay.database))
        }

        @Test(
            "A second relay on the same file is refused, whatever link it uses; another program's file stays unchanged",
            .onlySQLite("it tests the database file"))
        func links() async throws {
            let folder = try Folder()
            let configuration = folder.file("relay.yaml")
            try Data("environment: development\n".utf8).write(to: configuration)
            let relay = try await RelayProcess.start(folder, configuration: configuration)
            func serve(_ name: String) async throws -> ClientProgram {
                try await Self.pushchat(
                    "serve", "--config", configuration.path, "--port", "0", "--database", folder.file(name).path)
            }
            try FileManager.default.createSymbolicLink(
                atPath: folder.file("symbolic.db").path, withDestinationPath: relay.database)
            try FileManager.default.linkItem(atPath: relay.database, toPath: folder.file("hard.db").path)
            for name in ["pushchat.db", "symbolic.db", "hard.db"] {
                let second = try await serve(name)
                #expect(second.status == 1 && second.errors.contains("by another pushchat"), "\(second.errors)")
            }

            let theirs = folder.file("theirs.db")
            try await tool("sqlite3", [theirs.path, "CREATE TABLE theirs (x)"])
            try FileManager.default.setAttributes([.posixPermissions: 0o640], ofItemAtPath: theirs.path)
            let before = try Data(contentsOf: theirs)
            let refused = try await serve("theirs.db")
            #expect(refused.status == 1 && refused.errors.contains("another program"), "\(refused.errors)")
            #expect(try FileManager.default.attributesOfItem(atPath: theirs.path)[.posixPermissions] as? Int == 0o640)
            #expect(try Data(contentsOf: theirs) == before)
            let names = try FileManager.default.contentsOfDirectory(atPath: folder.url.path)
            #expect(names.filter { $0.hasPrefix("theirs") } == ["theirs.db"])
        }

        @Test(
            "An app that gets a name keeps its members, devices and pending pushes; the relay reports a name that is gone"
        )
        func renamed() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            // The relay sends nothing while the gateway does not respond.
            try await sandbox.fault(["action": "stop_reading"], protocol: "http2")
            var relay = try await RelayProcess.start(folder, configuration: configuration)
            try await relay.join(1...3)
            #expect(try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "before"]).0 == 200)
            _ = try relay.query("INSERT INTO push_queue (device_token, payload, app) VALUES ('aa', '{}', 'old')")
            relay.process.kill(SIGKILL)
            _ = try await relay.process.ended()

            let text = try String(contentsOf: configuration, encoding: .utf8)
            try text.replacingOccurrences(of: "  default:", with: "  news:")
                .write(to: configuration, atomically: true, encoding: .utf8)
            let checked = try await relay.store.pushchat("check", "--config", configuration.path)
            #expect(
                checked.text.contains(#"warn  app "old": is not configured; pushes that wait for it: 1, members: 0"#),
                "\(checked.text)")
            #expect(!checked.text.contains(#"app "default""#), "\(checked.text)")

            try await sandbox.heal()
            relay = try await RelayProcess.start(folder, configuration: configuration)
            try await eventually("what waited is sent") {
                try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent' AND app = 'news'") == 2
            }
            try await eventually("the app that is not there is said in the log") {
                relay.process.log().contains { $0.fields["apps"] == #""old""# }
            }
            try await sandbox.removeApp(token: Name.token(3))
            #expect(try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "after"]).0 == 200)
            try await eventually("the device without the app is deactivated") {
                try relay.count("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL AND app = 'news'") == 1
            }
            #expect(try relay.count("SELECT count(*) FROM active_users WHERE app = 'news'") == 3)
        }

        @Test("The relay loads PostgreSQL's library only if it stores in PostgreSQL")
        func library() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            try await relay.join()
            #expect(try relay.process.hasLoaded("libpq.so") == (StoreKind.ofThisRun == .postgres))
        }
    }
}
