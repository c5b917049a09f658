import ChatDomain
import ChatStore
import Foundation
import GRDB
import Logging
import TestSupport
import Testing

@testable import TestStores

@Suite("The database file")
struct DatabaseFileTests {
    let fixture: StoreFixture

    init() throws {
        fixture = try StoreFixture()
    }

    @Test("The file and its side files become private to the owner, even if an earlier file was not")
    func modes() async throws {
        #expect(
            FileManager.default.createFile(
                atPath: fixture.path, contents: nil, attributes: [.posixPermissions: 0o644]))
        let store = try fixture.open()
        try await store.rooms.join(StoreFixture.join(1))
        for name in ["", "-wal", "-shm"] {
            let attributes = try FileManager.default.attributesOfItem(atPath: fixture.path + name)
            #expect(attributes[.posixPermissions] as? Int == 0o600, "\(name)")
        }
    }

    @Test("Side files of an earlier process become private also if database.path is a symbolic link")
    func linkedModes() throws {
        let link = fixture.path + ".link"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: fixture.path)
        let names = ["", "-wal", "-shm"].map { fixture.path + $0 }
        for name in names {
            #expect(FileManager.default.createFile(atPath: name, contents: nil, attributes: [.posixPermissions: 0o644]))
        }
        let database = try SQLiteDatabase(
            file: DatabaseFile(path: link), logger: .silent)
        for name in names {
            let attributes = try FileManager.default.attributesOfItem(atPath: name)
            #expect(attributes[.posixPermissions] as? Int == 0o600, "\(name)")
        }
        try database.close()
    }

    @Test("Commits are durable: WAL, synchronous FULL, foreign keys")
    func pragmas() async throws {
        let store = try fixture.open()
        #expect(try await store.pragma("journal_mode") == "wal")
        #expect(try await store.pragma("synchronous") == "2")
        #expect(try await store.pragma("foreign_keys") == "1")
        #expect(try await store.pragma("user_version") == "16")
    }

    @Test("An older version is upgraded step by step, also across a gap in the versions")
    func upgrades() throws {
        _ = try fixture.open()
        let later = Schema(
            version: 19, sql: "", upgrades: [16: "CREATE TABLE second (x)", 18: "ALTER TABLE second ADD COLUMN y"])
        _ = try fixture.open(later)
        #expect(try fixture.value("SELECT count(*) FROM pragma_table_info('second')") == 2)
        #expect(try fixture.value("PRAGMA user_version") == 19)
        _ = try fixture.query("PRAGMA user_version = 17")
        #expect { try fixture.open(later) } throws: { "\($0)".contains("version 17, from which there is no upgrade") }
    }

    @Test(
        "An upgraded file has the same schema as a new one, and keeps its rows and the operator's own objects",
        arguments: [1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15])
    func fromEarlier(version: Int) async throws {
        try fixture.createFile(ofVersion: version)
        let token = String(repeating: "ab", count: 32)
        for priority in ["5", "10", "NULL"] {
            _ = try fixture.query(
                "INSERT INTO push_queue (device_token, payload, priority) VALUES ('\(token)', '{}', \(priority))")
        }
        _ = try fixture.query("DELETE FROM push_queue WHERE message_id = 3")
        // Objects that operators added must stay.
        _ = try fixture.query("CREATE VIEW waiting AS SELECT * FROM push_queue WHERE state = 'pending'")
        _ = try fixture.query("CREATE TABLE theirs (entry)")
        _ = try fixture.query(
            "CREATE TRIGGER noted AFTER INSERT ON push_queue BEGIN INSERT INTO theirs VALUES (new.message_id); END")
        _ = try fixture.query(
            """
            CREATE TRIGGER said AFTER DELETE ON messages BEGIN
                UPDATE push_queue SET reason = 'deleted' WHERE chat_message = old.message_id;
            END
            """)

        let store = try fixture.open()
        #expect(try fixture.value("PRAGMA user_version") == 16)
        let new = try StoreFixture()
        _ = try new.open()
        let structure = try Self.structure(fixture)
        let wanted = try Self.structure(new)
        #expect(wanted.count > 25)
        for (name, sql) in wanted { #expect(structure[name] == sql) }
        #expect(Set(structure.keys).subtracting(wanted.keys) == ["waiting", "theirs", "noted", "said"])
        #expect(try fixture.query("PRAGMA integrity_check")[0][0] == "ok")
        #expect(try fixture.value("SELECT count(*) FROM waiting") == 2)
        _ = try await store.upkeep.prepare()
        let lease = try await store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 1000)
        #expect(lease.pushes.map(\.id) == [1, 2])
        _ = try fixture.query("INSERT INTO push_queue (device_token, payload, priority) VALUES ('\(token)', '{}', 1)")
        #expect(try fixture.value("SELECT max(message_id) FROM push_queue") == 4)
        #expect(try fixture.value("SELECT max(entry) FROM theirs") == 4)
        _ = try fixture.query("UPDATE push_queue SET state = 'cancelled' WHERE message_id = 4")
        for bad in ["priority) VALUES ('\(token)', '{}', 2)", "state) VALUES ('\(token)', '{}', 'other')"] {
            #expect(throws: (any Error).self) {
                try fixture.query("INSERT INTO push_queue (device_token, payload, \(bad)")
            }
        }
    }

    @Test("An upgrade from version 8 creates the rooms that have members or messages; a closed room stays closed")
    func rooms() async throws {
        try fixture.createFile(ofVersion: 8)
        for (number, room, time) in [(1, "a", "09"), (2, "a", "08"), (3, "b", "07")] {
            _ = try fixture.query(
                "INSERT INTO active_users (udid, nickname, secret_code, time_joined) VALUES (?, 'n', ?, ?)",
                [try StoreFixture.member(number).text, room, "2026-01-\(time) 00:00:00.000"])
        }
        for (room, time) in [("c", "06"), ("a", "05"), ("c", "04")] {
            _ = try fixture.query(
                "INSERT INTO messages (secret_code, udid, nickname, text, time_sent) VALUES (?, 'u', 'n', 't', ?)",
                [room, "2026-01-\(time) 00:00:00.000"])
        }
        _ = try fixture.query("INSERT INTO bans (secret_code) VALUES ('shut')")
        let store = try fixture.open()
        let rooms = try fixture.query("SELECT room_id, secret_code, substr(time_created, 9, 2), history FROM rooms")
        #expect(rooms.map { [$0[0] as Int, Int($0[2] as String) ?? 0] } == [[1, 5], [2, 6], [3, 7]])
        #expect(rooms.map { $0[1] } == ["a", "c", "b"] && rooms.allSatisfy { $0.hasNull(atIndex: 3) })
        _ = try fixture.query("INSERT INTO bans (address) VALUES ('192.0.2.1')")
        for bad in ["INSERT INTO bans (reason) VALUES ('r')", "UPDATE rooms SET history = 'none'"] {
            #expect(throws: (any Error).self) { try fixture.query(bad) }
        }
        await #expect(throws: ChatError.self) { try await store.rooms.join(StoreFixture.join(5, "shut")) }
    }

    @Test("An upgrade from version 9 keeps rooms, members and tokens, to which aliases and credentials can be added")
    func clients() async throws {
        try fixture.createFile(ofVersion: 9)
        _ = try fixture.query(
            "INSERT INTO active_users (udid, nickname, secret_code) VALUES (?, 'n', 'a')",
            [try StoreFixture.member(1).text])
        _ = try fixture.query("INSERT INTO rooms (room_id, secret_code, history) VALUES (7, 'a', 'all')")
        _ = try fixture.query("INSERT INTO api_tokens (name, hash, scopes) VALUES ('t', randomblob(32), '[\"read\"]')")
        let store = try fixture.open()
        let (clients, code) = (store.clients, SecretCode(stored: "a"))
        #expect(try await clients.room(code).alias == nil)
        let alias = try await clients.alias(of: code)
        #expect(try await clients.room(id: 7)?.alias == alias)
        #expect(try fixture.value("SELECT history = 'all' FROM rooms") == 1)
        for owner in [.member(try StoreFixture.member(1)), .token(1)] as [CredentialOwner] {
            let created = try await clients.createCredential(Credential.name("phone"), for: owner)
            #expect(try await clients.credential(of: created.secret) == created.credential)
        }
        for bad in ["name, hash", "name, hash, member, token"] {
            #expect(throws: (any Error).self) {
                try fixture.query(
                    "INSERT INTO credentials (\(bad)) SELECT 'n', randomblob(32)\(bad.contains("token") ? ", 1, 1" : "")"
                )
            }
        }
    }

    @Test("Devices take over what version 3 stored about the clients of their members")
    func carriedOver() async throws {
        try fixture.createFile(ofVersion: 3)
        for number in 1...3 {
            let token = try StoreFixture.token(number).description
            _ = try fixture.query("INSERT INTO devices (app, device_token) VALUES ('default', ?)", [token])
            guard number < 3 else { continue }
            let (udid, version) = (try StoreFixture.member(number).text, number == 1 ? "2.1" : nil)
            _ = try fixture.query(
                """
                INSERT INTO active_users (udid, device_token, nickname, secret_code, app_version, device_model)
                VALUES (?, ?, 'n', 'room', ?, 'iPhone')
                """, [udid, token, version])
        }
        let store = try fixture.open()
        let clients = try await store.devices.devices(DeviceFilter(), after: nil, limit: 5).items.map(\.client)
        #expect(
            clients == [
                ClientInfo(appVersion: "2.1", deviceModel: "iPhone"), ClientInfo(deviceModel: "iPhone"), ClientInfo(),
            ])
        // Counts per day start with the upgrade.
        #expect(try fixture.value("SELECT count(*) FROM device_days") == 0)
    }

    /// Inserts pushes in every state of version 3. Pushes 4 and 5 are in flight.
    private func fillVersion3() throws {
        let token = String(repeating: "ab", count: 32)
        let time = "'2026-05-07 21:57:29.123'"
        let waiting = (fixture.time.now + .seconds(3600)).milliseconds
        for sql in [
            "INSERT INTO devices (device_id, app, device_token) VALUES (1, 'default', '\(token)')",
            "INSERT INTO messages (message_id, secret_code, udid, nickname, text) VALUES (7, 'room', 'a', 'a', 'hi')",
            """
            INSERT INTO notifications (push_type, devices, payload, audience)
            VALUES ('alert', 3, '{}', '{"all":true}'), ('alert', 0, '{}', '{"all":true}')
            """,
            "INSERT INTO notification_counts (notification_id, queued) VALUES (1, 3), (2, 0)",
            """
            INSERT INTO push_queue (device_token, payload, state, time_sent, time_settled, notification, device, attempts,
                connection_epoch, identifier, time_written)
            VALUES ('\(token)', '', 'sent', \(time), \(time), 1, 1, 1, 1000000001, 1, \(time))
            """,
            """
            INSERT INTO push_queue (device_token, payload, state, reason, time_settled, attempts)
            VALUES ('\(token)', '{}', 'failed', 'BadToken', \(time), 1)
            """,
            "INSERT INTO push_queue (device_token, payload, not_before) VALUES ('\(token)', '{}', \(waiting))",
            """
            INSERT INTO push_queue (device_token, payload, state, notification, attempts, connection_epoch, identifier,
                time_written)
            VALUES ('\(token)', '', 'written', 1, 1, 1000000001, 2, \(time))
            """,
            """
            INSERT INTO push_queue (device_token, payload, state, chat_message, device, connection_epoch, identifier)
            VALUES ('\(token)', '{}', 'written', 7, 1, 1000000001, 3)
            """,
            "INSERT INTO push_queue (device_token, payload, priority) VALUES ('\(token)', '{}', 5)",
        ] { _ = try fixture.query(sql) }
    }

    @Test("Pushes that version 3 had in flight are due again, and the other pushes are unchanged")
    func inFlight() async throws {
        try fixture.createFile(ofVersion: 3)
        try fillVersion3()
        let kept = """
            SELECT message_id, device_token, payload, time_queued, time_sent, app, reason, chat_message, expires_at, priority,
                not_before, unanswered, time_settled, hint, push_type, collapse_id, apns_id, refused, notification, device
            FROM push_queue ORDER BY message_id
            """
        let before = try fixture.query(kept)
        let store = try fixture.open()
        #expect(try fixture.query(kept) == before)
        let states = try fixture.query("SELECT state FROM push_queue ORDER BY message_id").map { $0[0] as String }
        #expect(states == ["sent", "failed", "pending", "pending", "pending", "pending"])
        let attempts = try fixture.query("SELECT attempts FROM push_queue ORDER BY message_id").map { $0[0] as Int }
        #expect(attempts == [1, 1, 0, 0, 0, 0])
        #expect(try fixture.value("SELECT settled_to FROM queue_state") == 3)
        #expect(try fixture.value("SELECT length(id_key) FROM queue_state") == 16)
        let pushes = try fixture.query(
            "SELECT first_push, last_push FROM notifications ORDER BY notification_id"
        ).map { [$0[0] as Int?, $0[1] as Int?] }
        #expect(pushes == [[1, 4], [nil, nil]])
        _ = try await store.upkeep.prepare()
        let lease = try await store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 1000)
        #expect(lease.pushes.map(\.id) == [4, 5, 6])
        #expect(try fixture.value("SELECT count(*) FROM push_queue WHERE bulk = 0 AND member IS NULL") == 6)
        #expect(try fixture.query("PRAGMA foreign_key_check").isEmpty)
        // The push still refers to its message.
        _ = try fixture.query("DELETE FROM messages")
        #expect(try fixture.value("SELECT count(*) FROM push_queue WHERE chat_message IS NOT NULL") == 0)
    }

    @Test(
        "The upgrade finds the last push before the first due one, and never counts beyond 62 bits",
        arguments: [
            ([], -1 << 62),
            (["(8, 'failed')", "(9, 'failed')"], 9),
            (["(8, 'failed')", "(9, 'pending')", "(10, 'failed')"], 8),
            (["(-9, 'pending')", "(10, 'failed')"], -10),
            (["(\(Int64.min), 'pending')"], -1 << 62),
            (["(\(Int64.min), 'failed')"], -1 << 62),
            (["(\(Int64.max), 'pending')"], 1 << 62 - 1),
            (["(\(Int64.max), 'failed')"], 1 << 62 - 1),
        ] as [([String], Int)])
    func settled(rows: [String], settledTo: Int) throws {
        try fixture.createFile(ofVersion: 3)
        for row in rows {
            _ = try fixture.query(
                """
                INSERT INTO push_queue (message_id, state, device_token, payload)
                SELECT column1, column2, 'aa', '{}' FROM (VALUES \(row))
                """)
        }
        _ = try fixture.open()
        #expect(try fixture.value("SELECT settled_to FROM queue_state") == settledTo)
    }

    @Test(
        "An operator's object that uses a removed column stops the upgrade, which names it and leaves the file unchanged",
        arguments: [
            (
                "trigger noted", "DROP TRIGGER noted",
                "CREATE TRIGGER noted AFTER UPDATE ON push_queue BEGIN SELECT new.time_written; END"
            ),
            (
                "view in flight", "DROP VIEW \"in flight\"",
                "CREATE VIEW \"in flight\" AS SELECT identifier FROM push_queue"
            ),
            ("index theirs", "DROP INDEX theirs", "CREATE INDEX theirs ON push_queue (connection_epoch)"),
            (
                "table push_queue", "ALTER TABLE push_queue DROP COLUMN day",
                "ALTER TABLE push_queue ADD COLUMN day TEXT AS (substr(time_written, 1, 10))"
            ),
        ])
    func obstacles(name: String, remedy: String, sql: String) throws {
        try fixture.createFile(ofVersion: 3)
        try fillVersion3()
        _ = try fixture.query(sql)
        func content() throws -> [[Row]] {
            try ["sqlite_schema", "push_queue", "notifications"].map { try fixture.query("SELECT * FROM \($0)") }
        }
        let before = try content()
        #expect {
            try fixture.open()
        } throws: { error in
            error is DatabaseFile.Unusable && "\(error)".contains(name) && "\(error)".contains("schema version 8")
        }
        #expect(try fixture.value("PRAGMA user_version") == 3)
        #expect(try content() == before)
        _ = try fixture.query(remedy)
        _ = try fixture.open()
        #expect(try fixture.value("PRAGMA user_version") == 16)
    }

    @Test(
        "A version that no release had is refused with the commit that upgrades it, and the file stays",
        arguments: 4...7)
    func unreleased(version: Int) throws {
        try fixture.createFile(ofVersion: 3)
        _ = try fixture.query("PRAGMA user_version = \(version)")
        let (file, manager) = (DatabaseFile(path: fixture.path), FileManager.default)
        let before = manager.contents(atPath: file.path)
        let uses: [() throws -> Void] = [
            { _ = try fixture.open() }, { try file.requireCurrent() }, { _ = try file.inspect() },
            { _ = try QueueFile(path: file.path) },
            { _ = try DatabaseCopy.restore(file.path, to: file.path + ".new", carrying: false) },
        ]
        for use in uses {
            #expect {
                try use()
            } throws: {
                $0 is DatabaseFile.Unusable && "\($0)".contains("schema version \(version)")
                    && "\($0)".contains("build commit 6e66b2bb1d75")
            }
            #expect(manager.contents(atPath: file.path) == before)
        }
        let names = try manager.contentsOfDirectory(atPath: fixture.directory.path)
        #expect(Set(names).isSubset(of: ["pushchat.db", "pushchat.db-wal", "pushchat.db-shm"]))
    }

    /// The SQL of every table and index by name, without comments, blanks and quotes.
    private static func structure(_ fixture: StoreFixture) throws -> [String: String] {
        let rows = try fixture.query("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return Dictionary(
            uniqueKeysWithValues: rows.map { row in
                let lines = (row[1] as String).split(separator: "\n").map { $0.split(separator: "--")[0] }
                return (row[0], lines.joined(separator: " ").filter { !$0.isWhitespace && $0 != "\"" })
            })
    }

    @Test("An upgrade that fails leaves the old version unchanged")
    func failedUpgrade() throws {
        _ = try fixture.open()
        let broken = Schema(version: 18, sql: "", upgrades: [16: "CREATE TABLE second (x)", 17: "NO SQL"])
        #expect(throws: (any Error).self) { try fixture.open(broken) }
        #expect(try fixture.value("PRAGMA user_version") == 16)
        #expect(try fixture.value("SELECT count(*) FROM sqlite_schema WHERE name = 'second'") == 0)
    }

    @Test("A newer version and another program's file are refused with a clear error")
    func refused() throws {
        _ = try fixture.open()
        _ = try fixture.query("PRAGMA user_version = 99")
        #expect { try fixture.open() } throws: { "\($0)".contains("schema version 99") && "\($0)".contains("newer") }

        let other = try StoreFixture()
        _ = try other.query("CREATE TABLE theirs (x)")
        #expect { try other.open() } throws: { "\($0)".contains("another program") }

        let text = try StoreFixture()
        try Data(repeating: 65, count: 5000).write(to: URL(filePath: text.path))
        #expect { try text.open() } throws: { "\($0)".contains("cannot be opened as a database") }
    }

    @Test(
        "A file that is not ours keeps its mode and its bytes, and no file appears beside it",
        arguments: ["DELETE", "WAL", "WAL, not copied yet", "another id", "text", "one byte", "folder"])
    func untouched(kind: String) throws {
        let path = fixture.path
        var connection: DatabaseQueue?
        switch kind {
        case "text": try Data(repeating: 65, count: 5000).write(to: URL(filePath: path))
        case "one byte": try Data([83]).write(to: URL(filePath: path))
        case "folder": try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        default:
            let queue = try DatabaseQueue(path: path)
            try queue.writeWithoutTransaction { db in
                if kind.hasPrefix("WAL") { try db.execute(sql: "PRAGMA journal_mode = WAL") }
                if kind == "another id" { try db.execute(sql: "PRAGMA application_id = 7") }
                try db.execute(sql: "CREATE TABLE theirs (x)")
            }
            // An open connection keeps the log.
            if kind == "WAL, not copied yet" { connection = queue } else { try queue.close() }
        }
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: path)
        func state() throws -> [String: Data?] {
            let manager = FileManager.default
            var state: [String: Data?] = [:]
            // SQLite keeps its locks in the -shm file.
            for name in try manager.contentsOfDirectory(atPath: fixture.directory.path) where !name.hasSuffix("-shm") {
                state[name] = manager.contents(atPath: fixture.directory.appending(path: name).path)
            }
            return state
        }
        let before = try state()
        #expect(throws: DatabaseFile.Unusable.self) { try fixture.open() }
        #expect(throws: DatabaseFile.Unusable.self) { _ = try DatabaseLock(path: path) }
        #expect(throws: DatabaseFile.Unusable.self) { _ = try QueueFile(path: path) }
        #expect(throws: DatabaseFile.Unusable.self) { try DatabaseFile(path: path).inspect() }
        #expect(try state() == before)
        #expect(try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o644)
        try connection?.close()
    }

    @Test("If a command cannot open the file because of a file beside it, the error does not blame the database")
    func besides() throws {
        do { _ = try fixture.open() }
        for name in ["-wal", "-shm"] { unlink(fixture.path + name) }
        // SQLite creates this file, so a folder of that name stops it as a missing right or a full disk does.
        try FileManager.default.createDirectory(atPath: fixture.path + "-shm", withIntermediateDirectories: false)
        let problem = "\(fixture.path) cannot be opened now: SQLite error"
        #expect { _ = try QueueFile(path: fixture.path) } throws: { "\($0)".hasPrefix(problem) }
        #expect { _ = try DatabaseFile(path: fixture.path).inspect() } throws: { "\($0)".hasPrefix(problem) }
    }

    @Test("A file of ours is served even if its first transaction is only in the log")
    func oursInLog() throws {
        let store = try fixture.open()
        let copy = try StoreFixture()
        for suffix in ["", "-wal"] {
            try FileManager.default.copyItem(atPath: fixture.path + suffix, toPath: copy.path + suffix)
        }
        _ = try copy.open()
        #expect(try copy.value("PRAGMA user_version") == 16)
        try store.close()
    }

    private static let losses: [@Sendable (_ path: String, _ away: String) throws -> Void] = [
        { path, away in try FileManager.default.moveItem(atPath: path, toPath: away) },
        { path, away in
            try FileManager.default.moveItem(atPath: path, toPath: away)
            try Data().write(to: URL(filePath: path))
        },
    ]

    @Test(
        "While a file is deleted or replaced, the store accepts nothing and is not ready; it recovers with the file",
        arguments: [0, 1], ["", "-wal"])
    func gone(loss: Int, suffix: String) async throws {
        let store = try fixture.open()
        try await store.rooms.join(StoreFixture.join(1))
        _ = try await store.rooms.post(StoreFixture.post(1, "before"))
        let (path, away) = (fixture.path + suffix, fixture.path + ".away")
        try Self.losses[loss](path, away)
        let calls: [@Sendable () async throws -> Void] = [
            { _ = try await store.rooms.post(StoreFixture.post(1, "lost")) }, { try await store.rooms.ping() },
            { _ = try await store.rooms.messages(for: StoreFixture.member(1), since: nil, limit: 9) },
        ]
        for call in calls {
            let error = await #expect(throws: ChatError.self) { try await call() }
            #expect(error?.code == .unavailable && error?.retryAfter != nil)
        }
        try? FileManager.default.removeItem(atPath: path)
        try FileManager.default.moveItem(atPath: away, toPath: path)
        for call in calls { try await call() }
        #expect(try await store.rooms.messages(for: StoreFixture.member(1), since: 0, limit: 9).messages.count == 2)
        try store.close()
    }

    @Test("A store whose file was replaced does not touch the new file when it closes")
    func replaced() async throws {
        let store = try fixture.open()
        try await store.rooms.join(StoreFixture.join(1))
        for suffix in ["", "-wal", "-shm"] {
            try FileManager.default.moveItem(atPath: fixture.path + suffix, toPath: fixture.path + ".old" + suffix)
        }
        let new = try fixture.open()
        for number in 1...2 { try await new.rooms.join(StoreFixture.join(number)) }
        try store.close()
        #expect(FileManager.default.fileExists(atPath: fixture.path + "-wal"))
        try new.close()
        #expect(try fixture.value("SELECT count(*) FROM active_users") == 2)
    }

    @Test("The content of a deleted log is in the file after an orderly close")
    func deletedLog() async throws {
        let store = try fixture.open()
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        try FileManager.default.removeItem(atPath: fixture.path + "-wal")
        await #expect(throws: ChatError.self) { try await store.rooms.join(StoreFixture.join(3)) }
        try store.close()
        #expect(try fixture.value("SELECT count(*) FROM active_users") == 2)
    }

    @Test("Only one relay at a time serves a file, also through a link", arguments: ["symbolic", "hard"])
    func links(kind: String) throws {
        let link = fixture.directory.appending(path: "link.db").path
        let lock = try DatabaseLock(path: fixture.path)
        if kind == "hard" {
            try FileManager.default.linkItem(atPath: fixture.path, toPath: link)
        } else {
            try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: fixture.path)
        }
        #expect {
            _ = try DatabaseLock(path: link)
        } throws: { error in
            "\(error)".contains("is being served by another pushchat")
                && "\(error)".contains("process \(getpid())") == (kind == "symbolic")
        }
        _ = consume lock
        _ = try DatabaseLock(path: link)
    }

    @Test("Only one lock at a time, and it ends with its holder")
    func lock() throws {
        func hold(_ body: () throws -> Void) throws {
            let lock = try DatabaseLock(path: fixture.path)
            try body()
            _ = consume lock
        }
        try hold {
            #expect(throws: DatabaseFile.Unusable.self) { _ = try DatabaseLock(path: fixture.path) }
        }
        try hold {}
    }

    @Test("While another process holds the write lock too long, posts fail with 503; then they work again")
    func locked() async throws {
        let store = try fixture.open()
        try await store.rooms.join(StoreFixture.join(1))
        var unsafe = GRDB.Configuration()
        unsafe.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: fixture.path, configuration: unsafe)
        try await other.writeWithoutTransaction { db in
            try db.execute(sql: "BEGIN IMMEDIATE")
        }
        let error = await #expect(throws: ChatError.self) { try await store.rooms.post(StoreFixture.post(1, "hi")) }
        #expect(error?.code == .unavailable)
        #expect(error?.retryAfter != nil)
        #expect(try await store.rooms.messages(for: StoreFixture.member(1), since: nil, limit: 1).messages.isEmpty)
        try await other.writeWithoutTransaction { db in
            try db.execute(sql: "ROLLBACK")
        }
        _ = try await store.rooms.post(StoreFixture.post(1, "hi"))
        #expect(try fixture.value("SELECT count(*) FROM messages") == 1)
    }

    @Test("If the file cannot grow, posts fail with 503, nothing is lost, and service resumes by itself")
    func full() async throws {
        let store = try fixture.open()
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        try await store.limitPages(spare: 3)
        var accepted = 0
        var refused = 0
        for number in 0..<200 {
            do {
                _ = try await store.rooms.post(
                    StoreFixture.post(1, "message \(number) " + String(repeating: "x", count: 150)))
                accepted += 1
            } catch let error as ChatError {
                #expect(error.code == .unavailable)
                refused += 1
            }
        }
        #expect(refused > 0)
        #expect(try fixture.value("SELECT count(*) FROM messages") == accepted)
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == accepted)
        try await store.limitPages(spare: 1_000_000)
        _ = try await store.rooms.post(StoreFixture.post(1, "again"))
        #expect(try fixture.value("SELECT count(*) FROM messages") == accepted + 1)
    }
}
