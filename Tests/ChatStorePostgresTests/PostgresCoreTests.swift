import ChatDomain
import ChatSQL
import Foundation
import Logging
import Synchronization
import TestSupport
import Testing

@testable import ChatStorePostgres
@testable import TestStores

/// Tests the foundation of the stores on PostgreSQL: connections, transactions, announcements and starts.
@Suite("PostgreSQL: connections, group commit, announcements, starts", .timeLimit(.minutes(2)))
struct PostgresCoreTests {
    private static let logger = Logger.silent

    private func database(_ fixture: PostgresFixture, schema: String? = nil) throws -> PostgresDatabase {
        try PostgresDatabase(
            configuration: PostgresConfiguration(url: fixture.url, schema: schema, connections: 3), now: Timestamp.now,
            logger: Self.logger)
    }

    @Test("Values read back unchanged")
    func values() async throws {
        let fixture = try PostgresFixture()
        let database = try database(fixture)
        defer { database.close() }
        let texts = ["", "a,b", "{\"c\\d\"}", "NULL", "ü\u{1F600}\n'"]
        let moment = Timestamp(milliseconds: 1_800_000_000_123)
        let matches = try await database.read { transaction in
            let row = try transaction.row(
                """
                SELECT $1::bigint, $2::text, $3::bytea, $4::boolean, $5::bigint[], $6::text[], ms(at($7::bigint)),
                    $8::bigint, ($6::text[])[3], ($9::text[])[2] IS NULL, ms('1969-12-31 23:59:59.999+00'::timestamptz)
                """,
                [
                    .int(.min), .text(texts[4]), .bytes([0, 255, 92]), true, .ints([1, -2]), .texts(texts),
                    .time(moment), .null, .optionalTexts(["x", nil]),
                ])
            guard let row else { return [Bool]() }
            return [
                try row.int(0) == .min, try row.text(1) == texts[4], try row.bytes(2) == [0, 255, 92],
                try row.bool(3), try row.text(4) == "{1,-2}", try row.time(6) == moment, row.isNull(7),
                try row.text(8) == texts[2], try row.bool(9), try row.int(10) == -1,
            ]
        }
        #expect(matches == [Bool](repeating: true, count: 10))
    }

    @Test(
        "While one search or list is stuck, others wait or are refused, and all other reads go on",
        arguments: [LongRead.search, .administration])
    func readBurst(kind: LongRead) async throws {
        let store = try await PostgresFixture().open()
        defer { store.close() }
        #expect(try await ReadBurst(of: kind, on: store.database, store.ports, extra: 8) == .expected(extra: 8))
    }

    @Test("After a write without space on the server's disk, the relay takes writes once a new page fits on it")
    func fullDisk() async throws {
        let fixture = try PostgresFixture()
        let database = try database(fixture)
        defer { database.close() }
        // Rows of this table and new tables have no space. Updates in place go on, as on a full disk.
        try fixture.query("CREATE TABLE numbers (number bigint)")
        for (name, kind) in [("no_rows", "trigger"), ("no_tables", "event_trigger")] {
            try fixture.query(
                """
                CREATE FUNCTION \(name)() RETURNS \(kind) LANGUAGE plpgsql AS
                    $$BEGIN RAISE 'No space left on device' USING ERRCODE = 'disk_full'; END$$
                """)
        }
        try fixture.query("CREATE TRIGGER no_rows BEFORE INSERT ON numbers EXECUTE FUNCTION no_rows()")
        try fixture.query(
            """
            CREATE EVENT TRIGGER no_tables ON ddl_command_start WHEN TAG IN ('CREATE TABLE AS')
                EXECUTE FUNCTION no_tables()
            """)
        try await database.tryWriting()
        for _ in 0..<2 {
            let error = await #expect(throws: ChatError.self) {
                try await database.write { try $0.run("INSERT INTO numbers VALUES (1)") }
            }
            #expect(error?.code == .unavailable)
            // It stays so without further writes.
            for _ in 0..<2 {
                let error = await #expect(throws: ChatError.self) { try await database.tryWriting() }
                #expect(error?.code == .unavailable)
            }
        }
        try fixture.query("DROP EVENT TRIGGER no_tables")
        try await database.tryWriting()
        #expect(try fixture.query("SELECT 1 FROM pg_class WHERE relname = 'pushchat_probe'").isEmpty)
    }

    @Test("A refused statement rolls back its transaction, and its error names the constraint")
    func refused() async throws {
        let fixture = try PostgresFixture()
        let database = try database(fixture)
        defer { database.close() }
        try fixture.query("CREATE TABLE numbers (number bigint CONSTRAINT only_once UNIQUE)")
        let caught = Mutex(false)
        let error = await #expect(throws: ChatError.self) {
            try await database.write { transaction in
                transaction.pipeline("INSERT INTO numbers VALUES (1)")
                do {
                    try transaction.run("INSERT INTO numbers VALUES (1)")
                } catch let error as PostgresError {
                    caught.withLock { $0 = error.isUniqueViolation("only_once") }
                }
            }
        }
        // Catching the error does not make the transaction succeed.
        #expect(error?.code == .internalError)
        #expect(caught.withLock { $0 })
        await #expect(throws: ChatError.self) {
            try await database.write { transaction in
                try transaction.run("INSERT INTO numbers VALUES (2)")
                throw ChatError.notJoined()
            }
        }
        #expect(try fixture.value("SELECT count(*) FROM numbers") == 0)
        await #expect(throws: ChatError.self) {
            try await database.read { transaction in try transaction.run("INSERT INTO numbers VALUES (3)") }
        }
    }

    @Test("A transaction that loses its connection or deadlocks is retried")
    func repeats() async throws {
        let fixture = try PostgresFixture()
        let database = try database(fixture)
        defer { database.close() }
        try fixture.query("CREATE TABLE numbers (number bigint PRIMARY KEY, count bigint)")
        try fixture.query("INSERT INTO numbers VALUES (1, 0), (2, 0)")
        let attempts = Mutex(0)
        try await database.write { transaction in
            try transaction.run("UPDATE numbers SET count = count + 1 WHERE number = 1")
            let isFirst = attempts.withLock { attempts in
                attempts += 1
                return attempts == 1
            }
            if isFirst {
                // Only in this test's database: other tests use the same server.
                try fixture.query(
                    """
                    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE application_name = 'pushchat' AND datname = current_database()
                    """)
            }
            // The connection is lost before COMMIT, so the commit is not in doubt.
            try transaction.run("SELECT 1")
        }
        #expect(try fixture.query("SELECT count FROM numbers WHERE number = 1") == "1")
        try await withThrowingTaskGroup(of: Void.self) { group in
            for order in [[1, 2], [2, 1], [1, 2], [2, 1]] {
                group.addTask {
                    try await database.write(order[0] == 1 ? .answer : .upkeep) { transaction in
                        for number in order {
                            try transaction.run(
                                "UPDATE numbers SET count = count + 1 WHERE number = $1::bigint", [.int(number)])
                            usleep(20_000)
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(try fixture.query("SELECT sum(count) FROM numbers") == "9")
    }

    @Test("Requests share transactions, and a refused one does not affect the others")
    func groupCommit() async throws {
        let fixture = try PostgresFixture()
        let database = try database(fixture)
        defer { database.close() }
        try fixture.query("CREATE TABLE numbers (number bigint CHECK (number <> 50))")
        let transactions = Mutex(0)
        let commit = GroupCommit<Int, Int>(database: database) { requests, transaction in
            transactions.withLock { $0 += 1 }
            try transaction.run("INSERT INTO numbers SELECT unnest($1::bigint[])", [.ints(requests.map(Int64.init))])
            return requests.map { $0 == 7 ? .failure(.notJoined()) : .success($0 * 2) }
        }
        let results = await withTaskGroup(of: (Int, ChatError.Code?).self) { group in
            for number in 0..<100 {
                group.addTask {
                    do throws(ChatError) {
                        let answer = try await commit(number)
                        return (number, answer == number * 2 ? nil : .internalError)
                    } catch {
                        return (number, error.code)
                    }
                }
            }
            return await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
        }
        #expect(results == [7: .notJoined, 50: .internalError])
        #expect(try fixture.value("SELECT count(*) FROM numbers") == 99)
    }

    @Test("A relay's commits are announced to the other; a very large change is announced as a change of everything")
    func announcements() async throws {
        let fixture = try PostgresFixture()
        let (one, other) = (try database(fixture), try database(fixture))
        defer {
            one.close()
            other.close()
        }
        try await one.beginStart()
        try await other.beginStart()
        #expect(one.start != other.start && one.holdsLeases)
        var heard = other.announcements().makeAsyncIterator()
        for rooms in [1, 600, 100_000] {
            let names = Set((0..<rooms).map { "room \($0) 123456" })
            try await one.write { transaction in
                transaction.announcement.messages = names
                try transaction.run("SELECT 1")
            }
            var (found, isEverything) = (Set<String>(), false)
            while found != names, !isEverything {
                let next = try #require(await heard.next())
                // Until notifications are known to arrive, the stream reports every second that everything may have
                // changed.
                if next.everything { isEverything = rooms > 1000 }
                found.formUnion(next.messages)
            }
        }
    }

    @Test("A listening connection keeps notifications that arrive with results; other connections do not")
    func notifications() throws {
        let fixture = try PostgresFixture()
        let connections = try (0..<2).map { _ in try PostgresConnection(url: fixture.url) }
        for connection in connections { connection.deadline = .now + .seconds(30) }
        try connections[0].listen(in: "one \"channel\"")
        // As behind a pooler, which may assign a connection on which another client listens.
        try connections[1].run("LISTEN \"one \"\"channel\"\"\"")
        for (number, connection) in connections.enumerated() {
            try connection.run("SELECT pg_notify('one \"channel\"', 'from ' || $1)", [.text("\(number)")])
            try connection.run("SELECT 1")
        }
        var heard: [PostgresNotification] = []
        while heard.count < 2, connections[0].deadline > .now { heard += try connections[0].nextNotifications() }
        #expect(heard.map(\.payload) == ["from 0", "from 1"])
        #expect(heard.map(\.provesListening) == [true, true])
        connections[1].deadline = .now
        #expect(try connections[1].nextNotifications().isEmpty)
    }

    @Test("Relays that start at the same time create the tables once in each schema")
    func schemas() async throws {
        let fixture = try PostgresFixture(isEmpty: true)
        let versions = try await withThrowingTaskGroup(of: [UInt8].self) { group in
            for number in 0..<4 {
                group.addTask {
                    let database = try self.database(fixture, schema: number < 3 ? "relay_a" : "relay_b")
                    defer { database.close() }
                    return database.idKey
                }
            }
            return try await group.reduce(into: Set<[UInt8]>()) { $0.insert($1) }
        }
        #expect(versions.count == 2)
        #expect(try fixture.value("SELECT count(*) FROM pg_tables WHERE tablename = 'push_queue'") == 2)
        try fixture.query("UPDATE relay_a.relay_schema SET version = 99")
        #expect(throws: PostgresConfiguration.Unusable.self) { try database(fixture, schema: "relay_a") }
        try fixture.query("CREATE TABLE active_users (id bigint)")
        #expect(throws: PostgresConfiguration.Unusable.self) { try database(fixture) }
    }

    @Test("A relay begins a new start after another program ended its start")
    func takenOver() async throws {
        let fixture = try PostgresFixture()
        let database = try database(fixture)
        try await database.beginStart()
        let first = database.start
        try fixture.query("UPDATE relay_starts SET time_ended = now()")
        while database.start == first { try await Task.sleep(for: .milliseconds(50)) }
        #expect(database.start > first)
        database.close()
        #expect(try fixture.value("SELECT count(*) FROM relay_starts WHERE time_ended IS NULL") == 0)
    }

    @Test("A call without a server fails soon, with a clear error")
    func away() async throws {
        let postgres = PostgresConfiguration(url: "postgres://relay@127.0.0.1:1/nothing")
        let error = #expect(throws: ChatError.self) {
            try PostgresDatabase(configuration: postgres, now: Timestamp.now, logger: Self.logger)
        }
        #expect(error?.code == .unavailable)
        #expect(throws: PostgresConfiguration.Unusable.self) { try postgres.inspect() }
    }

    @Test("Problems of the server are found before any table is made")
    func inspected() async throws {
        let fixture = try PostgresFixture(isEmpty: true)
        let postgres = PostgresConfiguration(url: fixture.url)
        #expect(try postgres.inspect().text.contains("no tables yet"))
        try database(fixture).close()
        let found = try postgres.inspect()
        #expect(found.text.contains("schema version 9, 0 relays, 0 members") && found.problems.isEmpty)

        let other = "\(fixture.database)_ascii"
        try fixture.query("CREATE DATABASE \(other) TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
        defer { try? fixture.server.drop(other) }
        let ascii = PostgresConfiguration(url: fixture.server.url(other))
        #expect { try ascii.inspect() } throws: { "\($0)".contains("its encoding is SQL_ASCII") }
        #expect { try PostgresSchema.current.bringUpToDate(ascii) } throws: { "\($0)".contains("SQL_ASCII") }
    }

    @Test(
        "An upgrade from an earlier version gives the tables of a new database, with its rooms",
        arguments: [1, 2, 3, 4, 5, 6, 7, 8])
    func upgraded(version: Int) async throws {
        let (fixture, new) = (try PostgresFixture(isEmpty: true), try PostgresFixture(isEmpty: true))
        try fixture.query(EarlierSchema.sql("postgres-\(version)"))
        try fixture.query(
            """
            INSERT INTO relay_schema (id, version) VALUES (1, \(version));
            INSERT INTO active_users (udid, nickname, secret_code, time_joined)
            SELECT repeat(n::text, 40), 'n', CASE WHEN n < 3 THEN 'a' ELSE 'b' END, now() - n * interval '1 hour'
            FROM generate_series(1, 3) n;
            INSERT INTO messages (secret_code, udid, nickname, text, time_sent)
            VALUES ('c', 'u', 'n', 't', now() - interval '4 hours'), ('c', 'u', 'n', 't', now());
            INSERT INTO bans (secret_code) VALUES ('shut');
            INSERT INTO api_tokens (name, hash, scopes) VALUES ('t', decode(repeat('ab', 32), 'hex'), '["read"]');
            """)
        // The upgrade to version 2 makes these.
        if version > 1 { try fixture.query("INSERT INTO rooms (secret_code) VALUES ('c'), ('b'), ('a')") }
        let store = try await fixture.open()
        try await new.open().close()
        let structure = """
            SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text, a.attidentity,
                (SELECT collname FROM pg_collation o WHERE o.oid = a.attcollation),
                pg_get_expr(d.adbin, d.adrelid), row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum)::text
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
            UNION ALL
            SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '', '', '', ''
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
            UNION ALL
            SELECT 'index', tablename, indexname, indexdef, '', '', '', '', '' FROM pg_indexes WHERE schemaname = 'public'
            ORDER BY 1, 2, 3
            """
        let wanted = try new.query(structure)
        #expect(wanted.contains("bans_address") && wanted.contains("credentials_member"))
        #expect(try fixture.query(structure) == wanted)
        #expect(try fixture.value("SELECT version FROM relay_schema") == 9)
        #expect(try fixture.query("SELECT room_id, secret_code FROM rooms ORDER BY 1") == "1|c\n2|b\n3|a")
        await #expect(throws: ChatError.self) { try await store.rooms.join(StoreFixture.join(5, "shut")) }
        try await store.rooms.join(StoreFixture.join(5, "d"))
        #expect(try fixture.value("SELECT room_id FROM rooms WHERE secret_code = 'd'") == 4)
        let alias = try await store.clients.alias(of: SecretCode(stored: "b"))
        #expect(try await store.clients.room(aliased: alias) == SecretCode(stored: "b"))
        for owner in [.member(try StoreFixture.member(5)), .token(1)] as [CredentialOwner] {
            let created = try await store.clients.createCredential(Credential.name("phone"), for: owner)
            #expect(try await store.clients.credential(of: created.secret) == created.credential)
        }
        store.close()
    }

    @Test("After a commit in doubt, earlier announcements count as another relay's")
    func forgotten() throws {
        let channel = AnnouncementChannel(schema: "public", secret: [UInt8](0..<16))
        let earlier = channel.payload(.everything)
        #expect(channel.announcement(earlier) == nil)
        channel.forgetOwn()
        #expect(channel.announcement(earlier) == .everything)
        #expect(channel.announcement(channel.payload(.everything)) == nil)
    }

    @Test("A notification shows no credential, and only the database's key can make or change one")
    func sealed() throws {
        let secret = [UInt8](repeating: 7, count: 16)
        let (sender, receiver) = (
            AnnouncementChannel(schema: "public", secret: secret), AnnouncementChannel(schema: "public", secret: secret)
        )
        var announcement = Announcement()
        announcement.members = ["0123456789abcdef0123456789abcdef01234567"]
        announcement.messages = ["a room's code"]
        announcement.deleted = ["a room's code": [4711]]
        let payload = sender.payload(announcement)
        #expect(receiver.announcement(payload) == announcement && sender.announcement(payload) == nil)
        #expect(payload != sender.payload(announcement))
        for hidden in ["0123456789abcdef", "room", "4711"] { #expect(!payload.contains(hidden)) }

        let others = [
            AnnouncementChannel(schema: "public", secret: [UInt8](repeating: 8, count: 16)).payload(announcement),
            AnnouncementChannel(schema: "other", secret: secret).payload(announcement),
            // The format of the previous version.
            #"{"from":"abc","deleted":{"a room's code":[4711]},"removed":["0123456789abcdef"]}"#,
            payload.replacingOccurrences(of: "v2.", with: "v2.x"), String(payload.dropLast(8)), "", "v2", "v2..", "..",
        ]
        for other in others { #expect(receiver.announcement(other) == .everything, "\(other)") }
        #expect(sender.values(announcement).allSatisfy { $0.count == 2 })
    }

    @Test("No error, and no response to a client, contains a row's values")
    func discreet() async throws {
        let fixture = try PostgresFixture()
        let database = try database(fixture)
        defer { database.close() }
        try fixture.query("CREATE TABLE people (name text UNIQUE, number bigint CHECK (number > 0))")
        try fixture.query("INSERT INTO people VALUES ('Secret', 1)")
        for sql in [
            "INSERT INTO people VALUES ('Secret', 2)", "INSERT INTO people VALUES ('Secret', -1)",
            "SELECT name::bigint FROM people", "SELECT 'Secret'::json", "SELECT to_date('Secret', 'YYYY')",
        ] {
            let error = await #expect(throws: ChatError.self) {
                try await database.write { transaction in _ = try transaction.rows(sql) }
            }
            let text = "\(try #require(error)) \(error?.cause ?? "") \(error?.message ?? "")"
            #expect(!text.contains("Secret"), "\(text)")
        }
    }

    @Test("A remote server must prove its name, unless the connection string says otherwise")
    func trust() {
        struct Case {
            let string: String
            var environment: [String: String] = [:]
            var files: Set<String> = ["/etc/ssl/certs/ca-certificates.crt"]
            let parameters: [String: String]
            var isWeak = false
        }
        let bundle = "/etc/ssl/certs/ca-certificates.crt"
        let full = ["sslmode": "verify-full", "sslrootcert": bundle]
        let cases = [
            Case(string: "postgres://relay@db.example.org/pushchat", parameters: full),
            Case(string: "postgres://relay@10.0.0.5:5433/pushchat", parameters: full),
            Case(string: "host=db.example.org dbname=pushchat", parameters: full),
            Case(string: "postgres://relay@localhost,db.example.org/pushchat", parameters: full),
            Case(string: "postgres://localhost/pushchat?hostaddr=10.0.0.5", parameters: full),
            Case(string: "postgres:///pushchat?service=main", parameters: ["sslmode": "verify-full"]),
            Case(string: "dbname=pushchat", environment: ["PGHOST": "db.example.org"], parameters: full),
            Case(string: "postgres://db/pushchat", files: [], parameters: ["sslmode": "verify-full"]),
            Case(
                string: "postgres://db/pushchat", environment: ["HOME": "/home/relay"],
                files: [bundle, "/home/relay/.postgresql/root.crt"], parameters: ["sslmode": "verify-full"]),
            Case(
                string: "postgres://db/pushchat", files: ["/etc/ssl/ca-bundle.pem"],
                parameters: ["sslmode": "verify-full", "sslrootcert": "/etc/ssl/ca-bundle.pem"]),
            Case(string: "postgres://db/pushchat?sslmode=verify-full", parameters: ["sslrootcert": bundle]),
            Case(string: "postgres://db/pushchat?sslrootcert=/etc/db.pem", parameters: ["sslmode": "verify-full"]),
            Case(string: "postgres://db/pushchat?sslmode=require", parameters: [:], isWeak: true),
            Case(string: "postgres://db/pushchat?sslmode=disable", parameters: [:], isWeak: true),
            Case(string: "host=db sslmode=verify-ca", parameters: [:], isWeak: true),
            Case(
                string: "postgres://db/pushchat", environment: ["PGSSLMODE": "prefer"], parameters: [:], isWeak: true),
            Case(string: "postgres:///pushchat", parameters: [:]),
            Case(string: "postgres://relay@localhost/pushchat", parameters: [:]),
            Case(string: "postgres://127.0.0.2,[::1]/pushchat", parameters: [:]),
            Case(string: "postgres:///pushchat?host=/run/postgresql", parameters: [:]),
            Case(string: "postgres://db/pushchat?hostaddr=127.0.0.1", parameters: [:]),
            Case(string: "postgres://localhost/pushchat?sslmode=disable", parameters: [:]),
        ]
        for example in cases {
            let trust = ServerTrust(
                of: example.string, environment: example.environment, exists: example.files.contains)
            #expect(Dictionary(uniqueKeysWithValues: trust.parameters) == example.parameters, "\(example.string)")
            #expect((trust.weakness != nil) == example.isWeak, "\(example.string)")
        }
    }
}
