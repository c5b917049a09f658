import Foundation
import TestSupport
import Testing

extension Waiting {
    @Suite("Monitoring")
    struct MonitoringTests {
        private static func text(_ name: String) throws -> String {
            try String(contentsOf: Page.root.appending(path: "docs/monitoring/\(name)"), encoding: .utf8)
        }

        @Test(
            "promtool accepts the metrics, alerts, alert tests and dashboard, which name only metrics that exist",
            .onlySQLite("the alerts include the file's disk"))
        func promtool() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            try await converse(relay)
            try await relay.drained()
            let metrics = try await HTTP.get("http://127.0.0.1:\(relay.port)/metrics")
            let checked = try await Prometheus.run("promtool", ["check", "metrics"], input: metrics)
            #expect(checked.status == 0 && checked.text.isEmpty && checked.errors.isEmpty, "\(checked)")

            let alerts = Page.root.appending(path: "docs/monitoring/alerts").path
            for arguments in [
                ["check", "rules", "--lint-fatal", alerts + ".yml"], ["test", "rules", alerts + ".test.yml"],
            ] {
                let run = try await Prometheus.run("promtool", arguments)
                #expect(run.status == 0, "\(run.text) \(run.errors)")
            }

            // Check the dashboard's expressions as rules.
            let expressions = try dashboard()
            #expect(expressions.count > 30)
            let rules = expressions.enumerated().map { number, expression in
                let query = expression.replacing("$__rate_interval", with: "5m").replacing("$instance", with: ".*")
                    .replacing("$job", with: "pushchat")
                return "  - record: dashboard:\(number)\n    expr: '\(query)'\n"
            }
            let file = folder.file("dashboard.yml")
            try ("groups:\n- name: dashboard\n  rules:\n" + rules.joined())
                .write(to: file, atomically: true, encoding: .utf8)
            let run = try await Prometheus.run("promtool", ["check", "rules", file.path])
            #expect(run.status == 0, "\(run.text) \(run.errors)")

            // The rules, the dashboard and the page name only metrics that exist, and the page names all of them.
            var names: Set<String> = []
            let families = String(decoding: metrics, as: UTF8.self).matches(of: /# TYPE (\w+) (\w+)/)
            for family in families {
                names.insert(String(family.1))
                if family.2 == "histogram" {
                    names.formUnion(["_bucket", "_sum", "_count"].map { "\(family.1)\($0)" })
                }
            }
            let page = try Self.text("README.md")
            for (place, text) in [
                ("alerts.yml", try Self.text("alerts.yml")), ("alerts.test.yml", try Self.text("alerts.test.yml")),
                ("dashboard.json", expressions.joined(separator: "\n")), ("README.md", page),
            ] {
                let used = Set(text.matches(of: /\b(?:pushchat|process)_[a-z_]*[a-z]\b/).map { String($0.0) })
                #expect(!used.isEmpty && used.isSubset(of: names), "\(place): \(used.subtracting(names))")
            }
            for family in families { #expect(page.contains("`\(family.1)`"), "README.md has no \(family.1)") }
        }

        /// Returns the expressions of the dashboard's panels.
        private func dashboard() throws -> [String] {
            struct Dashboard: Decodable {
                struct Panel: Decodable {
                    struct Target: Decodable { let expr: String }
                    let targets: [Target]?
                }
                let panels: [Panel]
            }
            return try JSONDecoder().decode(Dashboard.self, from: Data(Self.text("dashboard.json").utf8))
                .panels.flatMap { $0.targets ?? [] }.map(\.expr)
        }

        /// Creates two members and posts a message.
        private func converse(_ relay: RelayProcess) async throws {
            try await relay.join()
            try await post(to: relay)
        }

        private func post(to relay: RelayProcess, _ headers: [(String, String)] = []) async throws {
            let (status, body) = try await relay.call(
                ["cmd": "message", "udid": Name.udid(1), "text": "hello"], headers: headers)
            #expect(status == 200, "\(body)")
        }

        @Test(
            "Each alert fires in Prometheus for its fault, none for a healthy relay, whose day survives a restart"
        )
        func alerts() async throws {
            let (one, two, three, four) = (try Folder(), try Folder(), try Folder(), try Folder())
            let sandbox = try await SandboxProcess.start(one)
            let dying = try await SandboxProcess.start(two)
            var disk: SmallDisk?
            // With PostgreSQL the server's disk is not the relay's matter.
            if StoreKind.ofThisRun == .sqlite, await SmallDisk.isAllowed { disk = try await SmallDisk() }
            let port = try ReservedPort()
            let healthy = try await sandbox.relayConfiguration()
            var well = try await RelayProcess.start(one, configuration: healthy, port: port)
            let cut = try await RelayProcess.start(two, configuration: try await dying.relayConfiguration())
            let ill = try RelayProcess.launch(
                three, configuration: try await illConfiguration(three, sandbox),
                database: (disk?.file("pushchat.db") ?? three.file("pushchat.db")).path)
            try await ill.listens()
            let shown = try await RelayProcess.start(four, configuration: try await httpsConfiguration(four, sandbox))
            let prometheus = try await Prometheus(
                watching: ["well": well, "cut": cut, "ill": ill], overHTTPS: ["shown": shown])

            try await converse(well)
            // One push for the gateway that will stop, one for the gateway that does not know the key.
            try ill.queue([Name.token(1)])
            try await prometheus.fires("PushchatCredentialsRefused", at: "ill", app: "default")
            try await prometheus.fires("PushchatCertificateEnds", at: "ill", app: "ends")
            try await prometheus.fires("PushchatHTTPCertificateEnds", at: "shown")
            try await eventually("the gateway is connected") {
                try await dying.stats().http2.connections.open > 0
            }
            dying.process.kill(SIGKILL)
            try await prometheus.fires("PushchatGatewayDead", at: "cut", app: "default")
            try cut.queue((1...1200).map(Name.token))
            var next = 1200
            try await prometheus.fires("PushchatQueueGrows", at: "cut", app: "default") {
                try cut.queue((next + 1...next + 50).map(Name.token))
                next += 50
            }
            if let disk {
                try disk.fill()
                try await prometheus.fires("PushchatDiskFull", at: "ill")
                try await prometheus.fires("PushchatDiskLow", at: "ill")
            }
            try await post(to: well)
            // On a busy machine a scrape may fail, and one failure is enough for an alert here. The machine's disk may
            // be low as well. So ignore these two alerts.
            let others = try await prometheus.alerts().filter {
                $0.labels["relay"] == "well"
                    && !["PushchatDown", "PushchatDiskLow"].contains($0.labels["alertname"])
            }
            #expect(others.isEmpty, "\(others)")

            // The first minute may end before any message was posted.
            try await eventually("a minute with messages is over", within: .seconds(150), every: .milliseconds(200)) {
                let text = (try? String(contentsOfFile: well.database + ".figures", encoding: .utf8)) ?? ""
                return text.contains(/"messages":[1-9]/)
            }
            well.process.kill(SIGKILL)
            try await prometheus.fires("PushchatDown", at: "well")
            try await well.process.ended()
            well = try await RelayProcess.start(one, configuration: healthy, port: port)
            let (_, stats) = try await well.admin("GET", "/v1/stats?minutes=1440")
            let history = try #require(stats.firstMatch(of: /"history":\[([^\]]*)\]/))
            #expect(history.1.contains(/"messages":[1-9]/), "\(stats)")
            try await prometheus.ends("PushchatDown", at: "well")
            let mode = try FileManager.default.attributesOfItem(atPath: well.database + ".figures")[.posixPermissions]
            #expect(mode as? Int == 0o600)
        }

        /// Returns a configuration with a key that Apple does not know and a certificate that expires within a week.
        private func illConfiguration(_ folder: Folder, _ sandbox: SandboxProcess) async throws -> URL {
            let target =
                "topic: com.example.PushChat, trust: \(sandbox.authority), host: localhost, port: \(sandbox.http2)"
            let (names, certificate) = (try sandbox.names(), try await sandbox.strangersCertificate())
            let file = folder.file("ill.yaml")
            try """
            environment: development
            apps:
              default: {\(target), key: \(sandbox.providerKey), team_id: \(names.teamID), key_id: WRONGKEYID}
              ends: {\(target), certificate: \(certificate)}
            """.write(to: file, atomically: true, encoding: .utf8)
            return file
        }

        /// Returns a configuration with HTTPS and a certificate that expires within a week.
        private func httpsConfiguration(_ folder: Folder, _ sandbox: SandboxProcess) async throws -> URL {
            let file = folder.file("https.yaml")
            try "http: {certificate: \(try await sandbox.strangersCertificate())}\n"
                .write(to: file, atomically: true, encoding: .utf8)
            return file
        }

        @Test("The log links a message's request to Apple's apns-id, by trace, message id and push id")
        func trace() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            try await converse(relay)
            let trace = "4bf92f3577b34da6a3ce929d0e0e4736"
            try await post(to: relay, [("traceparent", "00-\(trace)-00f067aa0ba902b7-01")])
            try await relay.drained()
            func logged(_ field: String, _ value: String, _ message: String) async throws -> Running.LogLine {
                var found: Running.LogLine?
                // The relay writes its log in the background.
                try await eventually("\(message) is logged") {
                    found = relay.process.log().first { $0.message == message && $0.fields[field] == value }
                    return found != nil
                }
                return try #require(found)
            }
            let accepted = try await logged("trace_id", trace, "message accepted")
            #expect(accepted.fields["request_id"] != nil)
            let message = try #require(accepted.fields["message_id"])
            let pushed = try await logged("message_id", message, "pushed")
            let apnsID = try #require(pushed.fields["apns_id"])
            #expect(try await sandbox.notifications().contains { $0.apnsID == apnsID })
            let (_, way) = try await relay.admin("GET", "/v1/messages/\(message)")
            let delivery = try #require(way.firstMatch(of: /"deliveries":\[\{"id":(\d+)/))
            #expect(pushed.fields["entry"] == String(delivery.1) && way.contains(#""apns_id":"\#(apnsID)""#))
            _ = try await logged("entry", "\(delivery.1)", "accepted by the gateway")
        }
    }
}

/// A Prometheus with our alerts, which ends with the test. It scrapes every two seconds, and alerts wait for one second
/// at most.
private struct Prometheus {
    struct Alert: Decodable {
        let labels: [String: String]
        let state: String
    }

    private let folder: Folder
    private let child: Child
    private let port: ReservedPort

    private static func program(_ name: String) throws -> String {
        let program = Page.root.appending(path: ".build/test-prometheus/usr/bin/\(name)").path
        guard FileManager.default.isExecutableFile(atPath: program) else {
            throw Child.Failure(description: "\(program) is missing: run make setup")
        }
        return program
    }

    static func run(_ name: String, _ arguments: [String], input: Data = Data()) async throws -> ClientProgram {
        try await ClientProgram.run([program(name)] + arguments, input: input)
    }

    /// - Parameter relays: The relays, by the value of their label `relay`.
    init(watching relays: [String: RelayProcess], overHTTPS: [String: RelayProcess]) async throws {
        folder = try Folder()
        port = try ReservedPort()
        let rules = try String(contentsOf: Page.root.appending(path: "docs/monitoring/alerts.yml"), encoding: .utf8)
        try rules.replacing(/for: \d+m/, with: "for: 1s").replacing(/\[\d+m\]/, with: "[10s]")
            .write(to: folder.file("alerts.yml"), atomically: true, encoding: .utf8)
        func targets(_ relays: [String: RelayProcess], _ scheme: String) -> [String] {
            relays.map { "{targets: ['127.0.0.1:\($1.port)'], labels: {relay: \($0), __scheme__: \(scheme)}}" }
        }
        let all = (targets(relays, "http") + targets(overHTTPS, "https")).joined(separator: ", ")
        try """
        global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}
        rule_files: [alerts.yml]
        scrape_configs:
          - job_name: pushchat
            tls_config: {insecure_skip_verify: true}
            static_configs: [\(all)]
        """.write(to: folder.file("prometheus.yml"), atomically: true, encoding: .utf8)
        child = try Child(
            [
                Self.program("prometheus"), "--config.file", "prometheus.yml", "--storage.tsdb.path", "data",
                "--web.listen-address", "127.0.0.1:\(port.number)",
            ], in: folder.url, errors: folder.file("prometheus.log"))
        try await eventually("Prometheus listens") { [child, port] in
            guard child.status == nil else { throw Child.Failure(description: "Prometheus has ended") }
            return try port.isListening
        }
    }

    func alerts() async throws -> [Alert] {
        struct Answer: Decodable {
            struct List: Decodable { let alerts: [Alert] }
            let data: List
        }
        let body = try await HTTP.get("http://127.0.0.1:\(port.number)/api/v1/alerts")
        return (try? JSONDecoder().decode(Answer.self, from: body))?.data.alerts ?? []
    }

    private func isFiring(_ name: String, _ relay: String, _ app: String?) async throws -> Bool {
        try await alerts().contains {
            $0.state == "firing" && $0.labels["alertname"] == name && $0.labels["relay"] == relay
                && (app == nil || $0.labels["app"] == app)
        }
    }

    /// - Parameter meanwhile: An action to repeat until the alert fires.
    func fires(
        _ name: String, at relay: String, app: String? = nil, _ meanwhile: () async throws -> Void = {}
    ) async throws {
        do {
            try await eventually("\(name) fires", within: .seconds(90), every: .milliseconds(300)) {
                try await meanwhile()
                return try await isFiring(name, relay, app)
            }
        } catch let error as TimedOut {
            throw TimedOut(description: "\(error); there are \(try await alerts())")
        }
    }

    func ends(_ name: String, at relay: String) async throws {
        try await eventually("\(name) is over", within: .seconds(90), every: .milliseconds(300)) {
            try await !isFiring(name, relay, nil)
        }
    }
}
