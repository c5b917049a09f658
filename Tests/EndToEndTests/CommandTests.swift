import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Tests how commands fail and what they leave behind, which the examples in the docs cannot show.
    @Suite("The command line")
    struct CommandTests {
        private static func pushchat(_ arguments: String..., within limit: Int = 40) async throws -> ClientProgram {
            try await ClientProgram.run([Running.executable.path] + arguments, within: limit)
        }

        @Test("A send that waits reports the outcome for every device, also by its exit status")
        func wait() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            try relay.register(2)
            let address = ["--relay", "http://127.0.0.1:\(relay.port)"]
            func send(_ arguments: String...) async throws -> ClientProgram {
                try await ClientProgram.run([Running.executable.path, "send"] + address + arguments)
            }

            let good = try await send("--all", "--alert", "x", "--wait")
            #expect((good.status, good.text) == (0, "notification 1: 2 devices, 2 sent\n"), "\(good.errors)")

            try await sandbox.fault(
                ["action": "status", "status": 400, "reason": "BadDeviceToken", "token": Name.token(1)],
                protocol: "http2")
            let bad = try await send("--all", "--alert", "x", "--wait")
            #expect(bad.status == 1)
            #expect(
                bad.text.hasPrefix(
                    "notification 2: 2 devices, 1 sent, 1 failed\n\(Name.token(1)) failed BadDeviceToken"))

            try await sandbox.fault(["action": "stop_reading"], protocol: "http2")
            let late = try await send("--all", "--alert", "x", "--wait", "--timeout", "1s", "--json")
            #expect(late.status == 1 && late.errors.contains("it is still"), "\(late.text) \(late.errors)")
            let json = try #require(try JSONSerialization.jsonObject(with: late.output) as? [String: Any])
            #expect(json["id"] as? Int == 3)

            let nobody = try await send("--user", "nobody", "--alert", "x", "--wait")
            #expect(nobody.status == 1 && nobody.errors.contains("no device matches"), "\(nobody.errors)")

            let first = try await send("--all", "--alert", "y", "--idempotency-key", "k")
            let again = try await send("--all", "--alert", "y", "--idempotency-key", "k")
            #expect((first.status, again.status) == (0, 0) && first.text == again.text)
            let other = try await send("--all", "--alert", "z", "--idempotency-key", "k")
            #expect(other.status == 1 && other.errors.contains("Idempotency-Key"), "\(other.errors)")
        }

        @Test(
            "A relay that cannot listen ends with status 1 and one sentence that says why",
            arguments: ["serve", "dev"])
        func cannotListen(command: String) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let taken = "\(sandbox.control)"
            for (host, port, reason) in [
                ("127.0.0.1", taken, "Error: cannot listen on 127.0.0.1:\(taken): another program uses this port"),
                ("300.1.1.1", "0", "Error: http.host, http.port: cannot listen on 300.1.1.1:0: "),
                ("example.invalid", "0", "Error: http.host, http.port: cannot listen on example.invalid:0: "),
            ] {
                let own =
                    command == "serve"
                    ? ["--config", configuration.path, "--database", folder.file("relay.db").path]
                    : ["--directory", folder.file("dev").path] + (try SandboxPorts()).flags
                let ran = try await ClientProgram.run(
                    [Running.executable.path, command, "--host", host, "--port", port, "--log-level", "warning"] + own,
                    within: 60)
                let errors = ran.errors.split(separator: "\n").filter { $0.hasPrefix("Error:") }
                #expect(ran.status == 1 && errors.count == 1, "\(ran.status) \(ran.errors)")
                #expect(errors.first?.hasPrefix(reason) == true, "\(ran.errors)")
            }
        }

        @Test(
            "With --free-ports several pushchat dev run side by side, and commands call the one of their folder",
            .onlySQLite("pushchat dev has a file"))
        func freePorts() async throws {
            func start(in folder: Folder) async throws -> (Folder, Running, address: String) {
                let dev = try Running(["dev", "--free-ports"], in: folder, name: "dev")
                let file = folder.file(".pushchat/address")
                try await eventually("its address is written") {
                    guard dev.isRunning else { throw Child.Failure(description: "\(dev.log().map(\.message))") }
                    return FileManager.default.fileExists(atPath: file.path)
                }
                return (folder, dev, try String(contentsOf: file, encoding: .utf8).trimmingCharacters(in: .newlines))
            }
            func run(in folder: Folder, _ arguments: String..., input: String = "") async throws -> ClientProgram {
                let variables = ["-C", folder.url.path, "XDG_STATE_HOME=\(folder.file("state").path)"]
                return try await ClientProgram.run(
                    ["env"] + variables + [Running.executable.path] + arguments, input: Data(input.utf8))
            }
            let (first, second) = (try await start(in: Folder()), try await start(in: Folder()))
            #expect(first.address != second.address)
            let posted = try await run(in: first.0, "post", "tea", "hello", "--name", "kettle")
            #expect(
                posted.status == 0 && posted.errors.contains("using \(first.address), the relay"), "\(posted.errors)")
            #expect(try await run(in: first.0, "messages", "tea").text.contains("kettle"))
            #expect(try await !run(in: second.0, "messages", "tea").text.contains("kettle"))
            let sent = try await run(in: second.0, "send", "--all", "--alert", "x")
            #expect(sent.status == 0 && sent.errors.contains("using \(second.address), the relay"), "\(sent.errors)")

            let ready = try await run(in: first.0, "check", "--ready")
            #expect(ready.status == 0 && ready.text.contains("\(first.address) is ready"), "\(ready.text)")
            let checked = try await run(in: first.0, "check")
            #expect(checked.errors.contains("pushchat dev at \(first.address)"), "\(checked.errors)")
            #expect(checked.errors.contains("using .pushchat/pushchat.db"), "\(checked.errors)")
            _ = try await run(in: first.0, "webhooks", "create", "http://127.0.0.1:9/nobody")
            for failures in 1...3 {
                _ = try await run(in: first.0, "webhooks", "test", "1")
                try await eventually("the receiver fails") {
                    try await run(in: first.0, "webhooks", "--json").text.contains("\"failures\":\(failures)")
                }
            }
            let listed = try await run(in: first.0, "webhooks")
            #expect(listed.text.contains("\tfailing\t"), "\(listed.text)")
            let warned = try await run(in: first.0, "check")
            #expect(warned.text.contains("warn  webhooks: 1 failing"), "\(warned.text) \(warned.errors)")
            let chat = try await run(in: first.0, "chat", "tea", "--name", "Ann", input: "one\n")
            #expect(chat.status == 0, "\(chat.errors)")

            first.1.kill(SIGTERM)
            #expect(try await first.1.ended() == 0)
            #expect(!FileManager.default.fileExists(atPath: first.0.file(".pushchat/address").path))
            // On its new port the relay still has the same members.
            let again = try await start(in: first.0)
            #expect(try await run(in: first.0, "chat", "tea", "--name", "Ann", input: "two\n").status == 0)
            let members = try await run(in: first.0, "members", "tea")
            #expect(members.status == 0 && members.text.matches(of: /\bAnn\b/).count == 1, "\(members.text)")
            again.1.kill(SIGTERM)
            #expect(try await again.1.ended() == 0)
            // A killed one leaves its file, which no longer counts.
            second.1.kill(SIGKILL)
            try await second.1.ended()
            #expect(FileManager.default.fileExists(atPath: second.0.file(".pushchat/address").path))
            let after = try await run(in: second.0, "messages", "tea")
            #expect(!after.errors.contains(second.address), "\(after.errors)")
        }

        @Test("If this user may not read the configuration, the error says how to run the command")
        func forbidden() async throws {
            let folder = try Folder()
            let file = folder.file("relay.yaml")
            try Data("environment: production\n".utf8).write(to: file)
            try FileManager.default.setAttributes([.posixPermissions: 0], ofItemAtPath: file.path)
            // In another user namespace, root may not read everything either.
            let user = geteuid() == 0 ? ["unshare", "--user"] : []
            let ran = try await ClientProgram.run(user + [Running.executable.path, "config", "--config", file.path])
            #expect(
                ran.status == 1 && ran.errors.contains("may not read") && ran.errors.contains("sudo -u pushchat"),
                "\(ran.errors)")
        }

        @Test("check --send proves a key and its topic or reports what is wrong; no device receives anything")
        func proofs() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder, ["--strict"])
            let names = try sandbox.names()
            let file = folder.file("relay.yaml")
            func app(_ settings: String) -> String {
                "{trust: \(sandbox.authority), host: localhost, port: \(sandbox.http2), \(settings)}"
            }
            let key = "key: \(sandbox.providerKey), team_id: \(names.teamID)"
            try Data(
                """
                apps:
                  good: \(app("topic: com.example.PushChat, \(key), key_id: \(names.keyID)"))
                  old: {gateway: binary, trust: \(sandbox.authority), host: 127.0.0.1, port: \(sandbox.binary),
                        certificate: \(sandbox.credential), settle: 1s, feedback_interval: off}
                  key: \(app("topic: com.example.PushChat, \(key), key_id: WRONGKEYID"))
                  topic: \(app("topic: com.example.Other, \(key), key_id: \(names.keyID)"))
                  none: {topic: com.example.PushChat}
                """.utf8
            ).write(to: file)
            let check = try await folder.store("a.db").pushchat(
                "check", "--send", "--config", file.path, within: 120)
            #expect(check.status == 1)
            let lines = check.text.split(separator: "\n").filter { $0.contains(" push: ") }
            #expect(lines.count == 4, "\(check.text) \(check.errors)")
            for (line, expected) in zip(
                lines,
                [
                    "ok    app good push: key and topic are accepted: only the token of this test was refused (BadDeviceToken)",
                    "ok    app old push: certificate and topic are accepted: only the token of this test was refused (InvalidToken)",
                    "FAIL  app key push: InvalidProviderToken: key, key id and team id do not belong together",
                    "FAIL  app topic push: TopicDisallowed: the key is not for the topic com.example.Other",
                ])
            {
                #expect(line.hasPrefix(expected), "\(line)")
            }
            #expect(try await sandbox.accepted() == [:])
        }

        @Test(
            "An import beside a running relay accepts a whole file or nothing; importing the file again changes nothing"
        )
        func imports() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let relay = try await RelayProcess.start(folder, configuration: configuration)
            let dump = folder.file("dump.sql")
            func run(_ arguments: String...) async throws -> ClientProgram {
                try await ClientProgram.run(relay.store.command(arguments + ["--config", configuration.path]))
            }
            let members = (1...600).map { "('\(Name.udid($0))','\(Name.token($0))','n\($0)','room \($0 % 7)','')" }
            let wrong = "('x','0','Ann','tea','')"
            let pushes = (1...5).map { "(\($0),'\(Name.token($0))','{\\\"aps\\\":{}}','2013-01-02 03:04:05',NULL)" }
            let sent = "(6,'\(Name.token(6))','{}','2013-01-02 03:04:05','2013-01-02 03:04:06')"
            func write(_ members: [String]) throws {
                try Data(
                    """
                    INSERT INTO `active_users` VALUES
                    \(members.joined(separator: ",\n"));
                    INSERT INTO `push_queue` VALUES \((pushes + [sent]).joined(separator: ","));
                    """.utf8
                ).write(to: dump)
            }
            func count() throws -> [Int] {
                [
                    try relay.count("SELECT count(*) FROM active_users"),
                    try relay.count("SELECT count(*) FROM push_queue"),
                ]
            }
            try write(members + [wrong])
            let refused = try await run("import", dump.path)
            #expect(refused.status == 1 && refused.text.isEmpty)
            #expect(
                refused.errors.contains("dump.sql, line 602: active_users, row 601: Invalid udid: must be 32 or 40"),
                "\(refused.errors)")
            #expect(try count() == [0, 0])
            let dry = try await run("import", dump.path, "--dry-run", "--skip-wrong")
            #expect(
                dry.text
                    == "nothing was imported; the file has members: 600, pushes that wait: 5, pushes that were sent: 1, "
                    + "wrong rows: 1\n", "\(dry.errors)")
            #expect(try count() == [0, 0])

            try write(members)
            let done = try await run("import", dump.path)
            #expect(
                done.text == "imported: members: 600, pushes queued: 5, pushes left out, sent already: 1\n",
                "\(done.errors)")
            try await relay.drained()
            #expect(try await sandbox.notifications().count == 5)
            let again = try await run("import", dump.path)
            #expect(
                again.text.hasPrefix(
                    "imported: members left out, here already: 600, pushes that were imported before: 5, ")
                    && again.status == 0, "\(again.text) \(again.errors)")
            #expect(try count() == [600, 5])
            // One device now has another name, which the import keeps.
            try await relay.call([
                "cmd": "join", "udid": Name.udid(8), "token": Name.token(8), "name": "later", "code": "room 1",
            ])
            #expect(try await run("import", dump.path).status == 0)
            #expect(
                try relay.count(
                    "SELECT count(*) FROM active_users WHERE udid = '\(Name.udid(8))' AND nickname = 'later'")
                    == 1)
            let (status, text) = try await relay.call(["cmd": "message", "udid": Name.udid(7), "text": "hi"])
            #expect(status == 200, "\(text)")
            // The relay queues the pushes after its response.
            try await eventually("each in the room has a push") {
                try relay.count("SELECT count(*) FROM push_queue WHERE chat_message IS NOT NULL") == 84
            }
            try await relay.drained()

            // Export the devices, import them into another database, and export them again: both files are the same.
            _ = try relay.query(
                "UPDATE devices SET time_deactivated = '2026-01-01 00:00:00.000', deactivated_reason = 'Unregistered', "
                    + "user_reference = 'a,\"b\"', client_info = 'x\ny' WHERE device_id % 100 = 1")
            _ = try relay.query(
                "INSERT INTO device_tags (tag, device_id) SELECT 'a;b\\c', device_id FROM devices LIMIT 9")
            let exported = try await run("devices", "export")
            #expect(exported.status == 0, "\(exported.errors)")
            let table = folder.file("devices.csv")
            try exported.output.write(to: table)
            let copy = try folder.store("copy.db")
            func other(_ arguments: String...) async throws -> ClientProgram {
                try await ClientProgram.run(copy.command(arguments + ["--config", configuration.path]))
            }
            let taken = try await other("devices", "import", table.path)
            #expect(taken.text == "imported: new devices: 600\n", "\(taken.errors)")
            let back = try await other("devices", "export").text
            // PostgreSQL stores imported devices in the order of their tokens.
            func lines(_ text: String) -> [Substring] { text.split(separator: "\n").sorted() }
            #expect(StoreKind.ofThisRun == .sqlite ? back == exported.text : lines(back) == lines(exported.text))
            #expect(
                try await other("import", table.path, "--skip-wrong").text
                    == "imported: devices that were known: 600\n")
            let all = "SELECT * FROM devices ORDER BY device_id"
            let devices = try await relay.store.script(all)
            #expect(try await run("devices", "import", table.path).text == "imported: devices that were known: 600\n")
            #expect(try await relay.store.script(all) == devices)
            // One device was deactivated later, and the import keeps that.
            _ = try relay.query(
                "UPDATE devices SET time_deactivated = '2099-01-01 00:00:00.000', deactivated_reason = 'Unregistered' "
                    + "WHERE device_token = '\(Name.token(2))'")
            #expect(
                try await run("devices", "import", table.path).text
                    == "imported: devices that were known: 599, devices left out, newer here: 1\n")
            #expect(
                try relay.count("SELECT count(*) FROM devices WHERE time_deactivated = '2099-01-01 00:00:00.000'") == 1)
        }

        @Test("Without a relay, or without its token, the command says what to do")
        func unreachable() async throws {
            let nobody = try await Self.pushchat("send", "--relay", "http://127.0.0.1:1", "--all", "--alert", "x")
            #expect(nobody.status == 1 && nobody.errors.contains("no relay answers at http://127.0.0.1:1: start one"))
            let wrong = try await Self.pushchat("send", "--relay", "ftp://x", "--all", "--alert", "x")
            #expect(wrong.status == 64 && wrong.errors.contains("must be a URL like"), "\(wrong.errors)")

            let folder = try Folder()
            let file = folder.file("relay.yaml")
            try Data("admin: {token: the-right-token-16b}\n".utf8).write(to: file)
            let relay = try await RelayProcess.start(folder, configuration: file)
            let address = "http://127.0.0.1:\(relay.port)"
            let without = try await Self.pushchat("devices", "--relay", address)
            #expect(without.status == 1 && without.errors.contains("--admin-token-file"), "\(without.errors)")
            try Data("the-right-token-16b\n".utf8).write(to: folder.file("token"))
            let with = try await Self.pushchat(
                "devices", "--relay", address, "--admin-token-file", folder.file("token").path)
            #expect(with.status == 0, "\(with.errors)")
            let configured = try await Self.pushchat("devices", "--config", file.path, "--relay", address)
            #expect(configured.status == 0, "\(configured.errors)")
        }

        @Test(
            "Over TLS the relay must present the configured certificate; its names and issuer do not matter")
        func certificate() async throws {
            let folder = try Folder()
            let (certificate, key) = (folder.file("server.pem").path, folder.file("server.key").path)
            /// Creates a certificate of an authority that is not in the file.
            func make(_ name: String) async throws {
                let common = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=\(name)"]
                let authority = ["-keyout", "ca.key", "-out", "ca.pem"].map {
                    $0.contains(".") ? folder.file($0).path : $0
                }
                try await tool("openssl", common + authority)
                try await tool(
                    "openssl",
                    common + [
                        "-keyout", key, "-out", certificate, "-CA", folder.file("ca.pem").path, "-CAkey",
                        folder.file("ca.key").path, "-addext", "subjectAltName=DNS:\(name)",
                    ])
            }
            try await make("chat.example.com")
            let port = try ReservedPort()
            let file = folder.file("relay.yaml")
            try Data(
                """
                http: {certificate: \(certificate), key: \(key), host: 127.0.0.1, port: \(port.number)}
                admin: {token: the-token-of-this-test}
                """.utf8
            ).write(to: file)
            let relay = try await RelayProcess.start(folder, configuration: file, port: port)
            func list() async throws -> ClientProgram { try await Self.pushchat("devices", "--config", file.path) }
            let good = try await list()
            #expect(good.status == 0, "\(good.errors)")
            // An attacker on the same port could present this certificate, even with the same name.
            try await make("chat.example.com")
            let other = try await list()
            #expect(other.status == 1 && other.errors.contains("shows another certificate"), "\(other.errors)")
            relay.process.kill(SIGHUP)
            try await eventually("the relay shows the new one") { try await list().status == 0 }
            // Without a configuration the system's authorities decide, and they do not know the certificate.
            let unknown = try await Self.pushchat("devices", "--relay", "https://127.0.0.1:\(port.number)")
            #expect(unknown.status == 1, "\(unknown.text)")
        }

        @Test(
            "A direct send reports a push that the gateway rejects as refused, and one without a response as unknown",
            .onlySQLite("no relay takes part"))
        func direct() async throws {
            try await sideBySide(["binary", "http2"], sendDirectly)
        }

        private func sendDirectly(gateway: String) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let port = gateway == "binary" ? sandbox.binary : sandbox.http2
            func send(_ arguments: String...) async throws -> [String: [String: Any]] {
                let run = try await ClientProgram.run(
                    [
                        Running.executable.path, "send", "--direct", "--certificate",
                        folder.file("sandbox/client.p12").path, "--passphrase", "pushchat", "--trust",
                        folder.file("sandbox/ca.pem").path, "--host", "127.0.0.1", "--port", "\(port)", "--gateway",
                        gateway, "--alert", "x", "--json",
                    ] + arguments)
                let results = try JSONSerialization.jsonObject(with: run.output) as? [[String: Any]] ?? []
                #expect((run.status == 0) == results.allSatisfy { $0["outcome"] as? String == "accepted" })
                return Dictionary(uniqueKeysWithValues: results.map { ($0["token"] as? String ?? "", $0) })
            }
            let (first, second) = (Name.token(1), Name.token(2))

            let clean = try await send("--token", first, "--token", second, "--token", first)
            #expect(clean.count == 2 && clean.values.allSatisfy { $0["attempts"] as? Int == 1 })

            // A push that makes the gateway close the connection does not fail the other one.
            try await sandbox.fault(["action": "close", "token": first, "times": 20], protocol: gateway)
            let mixed = try await send("--token", first, "--token", second, "--timeout", "30s")
            #expect(
                mixed[first]?["outcome"] as? String == "unknown" && mixed[second]?["outcome"] as? String == "accepted")
            try await sandbox.heal()

            let passing: [String: any Sendable] =
                gateway == "binary"
                ? ["action": "reset", "times": 1]
                : ["action": "status", "status": 503, "reason": "ServiceUnavailable", "times": 1]
            try await sandbox.fault(passing, protocol: gateway)
            let repeated = try await send("--token", first)
            #expect(repeated[first]?["outcome"] as? String == "accepted" && repeated[first]?["attempts"] as? Int == 2)
            try await sandbox.heal()

            try await sandbox.fault(["action": "stop_reading"], protocol: gateway)
            let silent = try await send("--token", first, "--timeout", "1s")
            #expect(["unknown", "unsent"].contains(silent[first]?["outcome"] as? String ?? ""), "\(silent)")
        }

        @Test("Commands change the queue beside a running relay, which continues at once")
        func queue() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            try await sandbox.fault(
                ["action": "status", "status": 400, "reason": "BadCollapseId", "times": 1000], protocol: "http2")
            try relay.queue((1...3).map(Name.token))
            try await relay.drained()
            func queue(_ arguments: String...) async throws -> ClientProgram {
                try await ClientProgram.run(relay.store.command(["queue"] + arguments))
            }
            #expect(try await queue("list", "--state", "failed").text.split(separator: "\n").count == 3)
            try await sandbox.heal()
            #expect(try await queue("retry", "1").text == "1 push retried\n")
            #expect(try await queue("retry", "--state", "failed").text == "2 pushes retried\n")
            try await relay.drained()
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent'") == 3)
            let nothing = try await queue("retry", "1", "77")
            #expect((nothing.status, nothing.text) == (1, "0 pushes retried\n"))
            #expect(try await queue("show", "77").status == 1)
            #expect(try await queue("cancel").status == 64)
            #expect(try await queue("purge", "--token", Name.token(1), "--json").text == "{\"purged\":1}\n")
            #expect(try relay.count("SELECT count(*) FROM push_queue") == 2)
            let none = try await ClientProgram.run(
                [Running.executable.path, "queue", "--database", folder.file("none.db").path])
            #expect(none.status == 1 && none.errors.contains("does not exist"), "\(none.errors)")
        }

        @Test(
            "A backup beside a relay that accepts messages is complete, and overwrites no file",
            .onlySQLite("pg_dump makes the backups of PostgreSQL"))
        func backup() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let relay = try await RelayProcess.start(folder, configuration: configuration)
            for number in 1...3 {
                let (status, _) = try await relay.call([
                    "cmd": "join", "udid": Name.udid(number), "token": Name.token(number), "name": "n\(number)",
                    "code": "r",
                ])
                #expect(status == 200)
            }
            let file = folder.file("copy.db").path
            let writing = Task {
                var count = 0
                while !Task.isCancelled {
                    // The last call ends with the task.
                    let answer = try? await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "m\(count)"])
                    if answer?.0 == 200 { count += 1 }
                }
                return count
            }
            try await eventually("messages come in") { try relay.count("SELECT count(*) FROM messages") > 20 }
            let made = try await Self.pushchat("backup", file, "--database", relay.database)
            #expect(made.status == 0, "\(made.errors)")
            writing.cancel()
            #expect(await writing.value > 20)
            #expect(try await Self.pushchat("backup", file, "--database", relay.database).status == 1)
            let mode = try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int
            #expect(mode == 0o600)
            let checked = try await tool(
                "sqlite3",
                [
                    file,
                    """
                    PRAGMA integrity_check; PRAGMA foreign_key_check;
                    SELECT count(*) >= 20 FROM messages;
                    SELECT count(*) = 2 * (SELECT count(*) FROM messages) FROM push_queue;
                    """,
                ])
            #expect(checked == "ok\n1\n1\n")
            try await tool("env", ["-C", folder.url.path, "sha256sum", "--check", "--strict", "copy.db.sha256"])
            let verified = try await Self.pushchat("backup", "--verify", file, "--database", relay.database)
            #expect(verified.status == 0 && verified.text.contains("messages\t"), "\(verified.errors)")
            _ = try await tool("sqlite3", [file, "DELETE FROM messages WHERE message_id = 2"])
            let changed = try await Self.pushchat("backup", "--verify", file, "--database", relay.database)
            #expect(
                changed.status == 1 && changed.errors.contains("has changed since it was made"), "\(changed.errors)")
            try FileManager.default.removeItem(atPath: file + ".sha256")
            let lacking = try await Self.pushchat("backup", "--verify", file, "--database", relay.database)
            #expect(lacking.status == 1 && lacking.errors.contains("messages 1"), "\(lacking.errors)")
        }

        @Test("check --ready says whether the relay of the configuration is ready")
        func ready() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            func check(_ port: Int) async throws -> ClientProgram {
                try await Self.pushchat("check", "--ready", "--port", "\(port)", "--database", folder.file("x.db").path)
            }
            let ready = try await check(relay.port)
            #expect(ready.status == 0 && ready.text.hasPrefix("ok    relay: "), "\(ready.errors)")
            #expect(try await check(sandbox.control).status == 0)
            let other = try await check(sandbox.http2)
            #expect(other.status == 1 && other.text.hasPrefix("FAIL  relay: "), "\(other.text)")
        }

        @Test(
            "The completion scripts have no syntax error", .onlySQLite("no relay takes part"),
            arguments: ["bash", "zsh", "fish"])
        func completions(shell: String) async throws {
            let script = try await Self.pushchat("--generate-completion-script", shell)
            #expect(script.status == 0 && script.text.contains("collapse-id"))
            guard shell == "bash" else { return }
            let checked = try await ClientProgram.run(["bash", "-n"], input: script.output)
            #expect(checked.status == 0, "\(checked.errors)")
        }
    }
}
