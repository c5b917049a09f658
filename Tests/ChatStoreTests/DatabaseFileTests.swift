import ChatDomain
import ChatStore
import Foundation
import GRDB
import Testing

@Suite("The database file")
struct DatabaseFileTests {
    let fixture: StoreFixture

    init() throws {
        fixture = try StoreFixture()
    }

    @Test("It and its side files are for the owner only, also when they were not before")
    func modes() async throws {
        #expect(
            FileManager.default.createFile(
                atPath: fixture.path, contents: nil, attributes: [.posixPermissions: 0o644]))
        let store = try fixture.open()
        try await store.join(StoreFixture.join(1))
        for name in ["", "-wal", "-shm"] {
            let attributes = try FileManager.default.attributesOfItem(atPath: fixture.path + name)
            #expect(attributes[.posixPermissions] as? Int == 0o600, "\(name)")
        }
    }

    @Test("Commits are durable: WAL, synchronous FULL, foreign keys")
    func pragmas() async throws {
        let store = try fixture.open()
        #expect(try await store.pragma("journal_mode") == "wal")
        #expect(try await store.pragma("synchronous") == "2")
        #expect(try await store.pragma("foreign_keys") == "1")
        #expect(try await store.pragma("user_version") == "4")
    }

    @Test("An older version is upgraded step by step")
    func upgrades() throws {
        _ = try fixture.open()
        let later = Schema(
            version: 6, sql: "", upgrades: [4: "CREATE TABLE second (x)", 5: "ALTER TABLE second ADD COLUMN y"])
        _ = try fixture.open(later)
        #expect(try fixture.value("SELECT count(*) FROM pragma_table_info('second')") == 2)
        #expect(try fixture.value("PRAGMA user_version") == 6)
    }

    @Test("A file of an earlier version becomes what a new one is, with all that it held", arguments: [1, 2, 3])
    func fromEarlier(version: Int) async throws {
        try createFile(ofVersion: version)
        let token = String(repeating: "ab", count: 32)
        for priority in ["5", "10", "NULL"] {
            _ = try fixture.query(
                "INSERT INTO push_queue (device_token, payload, priority) VALUES ('\(token)', '{}', \(priority))")
        }
        _ = try fixture.query("DELETE FROM push_queue WHERE message_id = 3")
        // What users have added is to stay.
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
        #expect(try fixture.value("PRAGMA user_version") == 4)
        let new = try StoreFixture()
        _ = try new.open()
        let structure = try Self.structure(fixture)
        let wanted = try Self.structure(new)
        #expect(wanted.count > 25)
        for (name, sql) in wanted { #expect(structure[name] == sql) }
        #expect(Set(structure.keys).subtracting(wanted.keys) == ["waiting", "theirs", "noted", "said"])
        #expect(try fixture.query("PRAGMA integrity_check")[0][0] == "ok")
        #expect(try fixture.value("SELECT count(*) FROM waiting") == 2)
        let slot = StoreFixture.slot()
        #expect(try await store.lease(app: .default, for: slot).pushes.map(\.entry) == [1, 2])
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

    /// As the release made it that had this version.
    private func createFile(ofVersion version: Int) throws {
        let folder = URL(filePath: #filePath).deletingLastPathComponent()
        let sql = try String(contentsOf: folder.appending(path: "schema-\(version).sql"), encoding: .utf8)
        _ = try fixture.query("PRAGMA journal_mode = WAL")
        var configuration = GRDB.Configuration()
        configuration.foreignKeysEnabled = false
        try DatabaseQueue(path: fixture.path, configuration: configuration).inDatabase { db in
            try db.execute(sql: sql)
            try db.execute(sql: "PRAGMA application_id = 0x50436874")
            try db.execute(sql: "PRAGMA user_version = \(version)")
        }
    }

    /// The SQL of every table and index, without comments, blanks and quotes, by its name.
    private static func structure(_ fixture: StoreFixture) throws -> [String: String] {
        let rows = try fixture.query("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return Dictionary(
            uniqueKeysWithValues: rows.map { row in
                let lines = (row[1] as String).split(separator: "\n").map { $0.split(separator: "--")[0] }
                return (row[0], lines.joined(separator: " ").filter { !$0.isWhitespace && $0 != "\"" })
            })
    }

    @Test("An upgrade that fails leaves the old version whole")
    func failedUpgrade() throws {
        _ = try fixture.open()
        let broken = Schema(version: 6, sql: "", upgrades: [4: "CREATE TABLE second (x)", 5: "NO SQL"])
        #expect(throws: (any Error).self) { try fixture.open(broken) }
        #expect(try fixture.value("PRAGMA user_version") == 4)
        #expect(try fixture.value("SELECT count(*) FROM sqlite_schema WHERE name = 'second'") == 0)
    }

    @Test("A newer version and another program's file are refused in words")
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

    @Test("One relay at a time, and the lock goes with its holder")
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

    @Test("While another process holds the write lock too long: 503, nothing accepted, and then it works")
    func locked() async throws {
        let store = try fixture.open()
        try await store.join(StoreFixture.join(1))
        var unsafe = GRDB.Configuration()
        unsafe.allowsUnsafeTransactions = true
        let other = try DatabaseQueue(path: fixture.path, configuration: unsafe)
        try await other.writeWithoutTransaction { db in
            try db.execute(sql: "BEGIN IMMEDIATE")
        }
        let error = await #expect(throws: ChatError.self) { try await store.post(StoreFixture.post(1, "hi")) }
        #expect(error?.code == .unavailable)
        #expect(error?.retryAfter != nil)
        #expect(try await store.messages(for: StoreFixture.member(1), since: nil, limit: 1).messages.isEmpty)
        try await other.writeWithoutTransaction { db in
            try db.execute(sql: "ROLLBACK")
        }
        _ = try await store.post(StoreFixture.post(1, "hi"))
        #expect(try fixture.value("SELECT count(*) FROM messages") == 1)
    }

    @Test("A file that cannot grow is a 503 that loses nothing, and service resumes by itself")
    func full() async throws {
        let store = try fixture.open()
        for number in 1...2 { try await store.join(StoreFixture.join(number)) }
        try await store.limitPages(spare: 3)
        var accepted = 0
        var refused = 0
        for number in 0..<200 {
            do {
                _ = try await store.post(
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
        _ = try await store.post(StoreFixture.post(1, "again"))
        #expect(try fixture.value("SELECT count(*) FROM messages") == accepted + 1)
    }
}
