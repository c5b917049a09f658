import Foundation
import TestSupport
import Testing

extension Scripts {
    /// Runs scripts that write into `push_queue` with the `sqlite3` program or with `psql`.
    @Suite("Rows that scripts insert")
    struct ScriptRowTests {
        private static func insert(_ number: Int64? = nil, token: Int) -> String {
            """
            INSERT INTO push_queue (\(number == nil ? "" : "message_id, ")device_token, payload)
            VALUES (\(number.map { "\($0), " } ?? "")'\(Name.token(token))', '{"aps":{"alert":"script"}}');
            """
        }

        private static func join(_ relay: RelayProcess) async throws {
            for number in 1...2 {
                let (status, text) = try await relay.call([
                    "cmd": "join", "udid": Name.udid(number), "token": Name.token(number), "name": "n\(number)",
                    "code": "c",
                ])
                try #require(status == 200, "\(text)")
            }
        }

        @Test("The relay finds and sends a row that another program inserts")
        func foreignRow() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            try await eventually("the relay is connected") {
                try await sandbox.stats().http2.connections.open > 0
            }
            try await relay.store.script(Self.insert(token: 1))
            try await eventually("it is in the inbox") { try await !sandbox.notifications().isEmpty }
        }

        @Test(
            "Rows with push ids chosen by a script are delivered, and messages are accepted, also after a restart"
        )
        func numbers() async throws {
            let numbers: [[Int64]] =
                switch StoreKind.ofThisRun {
                case .sqlite: [[0, -5, .max, 1 << 62], [(1 << 62) - 1], [-(1 << 62), 1 << 40, .max]]
                case .postgres: [[0, -5, (1 << 62) - 1], [-(1 << 62), 1 << 40]]
                }
            let cases = numbers.flatMap { numbers in ["http2", "binary"].map { (numbers, $0) } }
            try await sideBySide(cases) { try await numbered($0.0, gateway: $0.1) }
        }

        private func numbered(_ numbers: [Int64], gateway: String) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration(gateway: gateway)
            var relay = try await RelayProcess.start(folder, configuration: configuration)
            try await Self.join(relay)
            func post(_ text: String) async throws {
                // Until the relay has replaced the highest push id, no higher one exists.
                try await eventually("\(text) is accepted", within: .seconds(60)) {
                    let (status, answer) = try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": text])
                    #expect(status == 200 || status == 503, "\(answer)")
                    return status == 200
                }
            }
            try await post("before")
            for (index, number) in numbers.enumerated() {
                try await relay.store.script(Self.insert(number, token: 100 + index))
            }
            // The sweep through the whole queue finds rows below the others.
            try await relay.drained(within: .seconds(180))
            try await post("after")
            try await relay.drained()

            relay.process.kill(SIGTERM)
            #expect(try await relay.process.ended() == 0)
            relay = try await RelayProcess.start(folder, configuration: configuration)
            try await post("again")
            try await relay.store.script(Self.insert(token: 200))
            try await relay.drained()
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state <> 'sent'") == 0)
            var expected = [Name.token(2): 3, Name.token(200): 1]
            for index in numbers.indices { expected[Name.token(100 + index)] = 1 }
            #expect(try await sandbox.accepted() == expected)
        }

        @Test(
            "Rows whose push ids are too low fail, and no other rows do", .onlySQLite("PostgreSQL rejects such a row"),
            arguments: [-(1 << 62) - 1, .min] as [Int64])
        func tooLow(number: Int64) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            try await relay.store.script(Self.insert(number, token: 1) + Self.insert(token: 2))
            try await relay.drained(within: .seconds(180))
            let rows = try relay.query("SELECT state, reason FROM push_queue ORDER BY message_id")
            #expect(rows.map { $0[0] as String } == ["failed", "sent"])
            #expect(rows.map { $0[1] as String? } == ["InvalidMessageID", nil])
            #expect(try await sandbox.accepted() == [Name.token(2): 1])
        }

        @Test(
            "PostgreSQL rejects push ids out of range, and a push id that is used twice delays nothing",
            .onlyPostgreSQL("SQLite accepts any unique push id"))
        func refused() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            for number in [-(1 << 62) - 1, .min, 1 << 62, .max] as [Int64] {
                await #expect(throws: Child.Failure.self) {
                    try await relay.store.script(Self.insert(number, token: 1))
                }
            }
            try await relay.store.script(Self.insert(2, token: 2))
            try await relay.drained()
            // The second of these rows reaches the id that is already used.
            for token in [4, 5, 6] { try await relay.store.script(Self.insert(token: token)) }
            try await relay.drained()
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent'") == 4)
            let tokens = [2, 4, 5, 6].map(Name.token)
            #expect(try await sandbox.accepted() == Dictionary(uniqueKeysWithValues: tokens.map { ($0, 1) }))
        }

        @Test(
            "A settled row that a script makes pending is sent again: with not_before at once, otherwise within a minute"
        )
        func pendingAgain() async throws {
            try await sideBySide(["http2", "binary"], settledAgain)
        }

        private func settledAgain(gateway: String) async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(
                folder, configuration: try await sandbox.relayConfiguration(gateway: gateway))
            try relay.queue((1...10).map(Name.token))
            try await relay.drained()
            let again = "UPDATE push_queue SET state = 'pending', time_sent = NULL, time_settled = NULL"
            // Use one transaction, so that finding the first row at once does not help to find the second.
            try await relay.store.script(
                """
                BEGIN;
                \(again), not_before = \(Int(Date().timeIntervalSince1970) * 1000) WHERE message_id = 3;
                \(again) WHERE message_id = 5;
                COMMIT;
                """)
            try await eventually("the one that has a time is sent", within: .seconds(60)) {
                try relay.count("SELECT count(*) FROM push_queue WHERE message_id = 3 AND state = 'sent'") == 1
            }
            try await relay.drained(within: .seconds(180))
            var expected = Dictionary(uniqueKeysWithValues: (1...10).map { (Name.token($0), 1) })
            expected[Name.token(3)] = 2
            expected[Name.token(5)] = 2
            #expect(try await sandbox.accepted() == expected)
            #expect(try relay.count("SELECT count(*) FROM push_queue WHERE state = 'sent' AND attempts = 2") == 2)
        }
    }
}
