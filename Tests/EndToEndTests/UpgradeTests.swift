import Foundation
import GRDB
import TestStores
import TestSupport
import Testing

extension Databases {
    /// Tests a database of release 0.3.0 with a million rows in each large table (`make stress`).
    @Suite("Upgrade and back", .onlySQLite("PostgresCoreTests upgrades PostgreSQL's tables"))
    struct UpgradeTests {
        private static let waiting = 100
        private let rows = Stress.scaled(1_000_000)

        /// The moments at which the relay is killed.
        private enum Moment: CaseIterable {
            case whileCopying, afterCopying, whileWriting
        }

        @Test(
            "A relay that is killed three times during its upgrade loses nothing; its copy can be restored and upgraded"
        )
        func upgrade() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let configuration = try await sandbox.relayConfiguration()
            let database = folder.file("pushchat.db").path
            try fill(database)

            var hits: [Moment: Int] = [:]
            for moment in Moment.allCases {
                let relay = try RelayProcess.launch(folder, configuration: configuration, database: database)
                try await until(moment, relay)
                relay.process.kill(SIGKILL)
                try await relay.process.ended()
                let version: Int = try relay.remains("PRAGMA user_version")[0][0]
                hits[moment] = version
                try expectAll(relay)
            }
            // The first kill is early enough on every machine.
            #expect(hits[.whileCopying] == 3)

            let clock = ContinuousClock()
            let start = clock.now
            var relay = try await RelayProcess.start(folder, configuration: configuration)
            let versions = Moment.allCases.map { hits[$0] ?? 0 }
            print("upgrade of \(rows) rows a table: \(start.duration(to: clock.now)); killed at versions \(versions)")
            try await relay.drained()
            let texts = try await sandbox.notifications().filter { $0.answer == "accepted" }.compactMap(\.alert)
            #expect(Set(texts) == Set((1...Self.waiting).map { "waited \($0)" }))
            try expectAll(relay)
            try await relay.call(["cmd": "message", "udid": Name.udid(1), "text": "of the new version"])
            relay.process.kill(SIGTERM)
            #expect(try await relay.process.ended() == 0)

            // Go back as docs/production.md describes.
            let copy = database + ".version-3"
            try await tool(
                Running.executable.path, ["restore", "--config", configuration.path, "--database", database, copy])
            #expect(try relay.remains("PRAGMA user_version")[0][0] == 3)
            #expect(try relay.remains("SELECT count(*) FROM messages")[0][0] == rows)
            #expect(try relay.remains("SELECT count(*) FROM push_queue WHERE state = 'pending'")[0][0] == Self.waiting)
            try expectAll(relay)
            // Upgrade again. Later messages are in the replaced file.
            relay = try await RelayProcess.start(folder, configuration: configuration)
            #expect(try relay.count("PRAGMA user_version") > 3)
            try expectAll(relay)
            let replaced = try DatabaseQueue(path: database + ".replaced-1")
            #expect(
                try await replaced.read {
                    try Int.fetchOne($0, sql: "SELECT count(*) FROM messages WHERE text = 'of the new version'")
                } == 1)
        }

        /// Waits for the moment, or until the relay listens.
        private func until(_ moment: Moment, _ relay: RelayProcess) async throws {
            let draft = (relay.database as NSString).deletingLastPathComponent + "/.pushchat.db.version-3.part"
            let log = relay.database + "-wal"
            try await eventually("the relay upgrades", every: .milliseconds(1)) {
                guard relay.process.isRunning else {
                    throw Child.Failure(description: "it ended: \(relay.process.log().map(\.message))")
                }
                switch moment {
                case .whileCopying: if size(draft) != nil || size(relay.database + ".version-3") != nil { return true }
                case .afterCopying: if size(draft) == nil, size(relay.database + ".version-3") != nil { return true }
                case .whileWriting: if let size = size(log), size > 0 { return true }
                }
                return try relay.isListening
            }
        }

        private func size(_ file: String) -> Int? {
            var status = stat()
            return stat(file, &status) == 0 ? Int(status.st_size) : nil
        }

        private func expectAll(_ relay: RelayProcess) throws {
            let counts = try relay.remains(
                """
                SELECT (SELECT count(*) FROM active_users), (SELECT count(*) FROM devices),
                    (SELECT count(*) FROM push_queue), (SELECT count(*) FROM messages WHERE text LIKE 'text %')
                """)[0]
            #expect((0..<4).map { counts[$0] as Int } == [rows, rows, rows, rows])
            #expect(try relay.remains("PRAGMA quick_check")[0][0] == "ok")
        }

        private func fill(_ database: String) throws {
            try EarlierSchema.createFile(at: database, version: 3)
            let queue = try DatabaseQueue(path: database)
            try queue.writeWithoutTransaction { db in
                try db.execute(sql: "PRAGMA foreign_keys = OFF")
                try db.inTransaction {
                    let numbers = """
                        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < \(rows))
                        """
                    try db.execute(
                        sql: """
                            \(numbers) INSERT INTO active_users (udid, device_token, nickname, secret_code)
                            SELECT printf('%040d', n), printf('%064d', n), 'n' || n, 'room' || n / 2 FROM numbers;
                            \(numbers) INSERT INTO devices (app, device_token)
                            SELECT 'default', printf('%064d', n) FROM numbers;
                            \(numbers) INSERT INTO messages (secret_code, udid, nickname, text)
                            SELECT 'room' || n / 2, printf('%040d', n), 'n' || n, 'text ' || n FROM numbers;
                            \(numbers) INSERT INTO push_queue (device_token, payload, state, time_sent, time_settled)
                            SELECT printf('%064d', n), '{"aps":{"alert":"waited ' || n || '"}}',
                                iif(n > \(Self.waiting), 'sent', 'pending'),
                                iif(n > \(Self.waiting), strftime('%Y-%m-%d %H:%M:%f', 'now'), NULL),
                                iif(n > \(Self.waiting), strftime('%Y-%m-%d %H:%M:%f', 'now'), NULL) FROM numbers;
                            """)
                    return .commit
                }
            }
            try queue.close()
        }
    }
}
