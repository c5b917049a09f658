import ChatDomain
import Synchronization
import Testing

@testable import ChatStorePostgres
@testable import TestStores

/// Tests the queue beside programs that write many rows at once, choose their ids, or lock them.
@Suite("PostgreSQL: many writes of other programs", .timeLimit(.minutes(2)))
struct PostgresScriptTests {
    private static let token = "lpad(i::text, 64, 'a')"

    @Test("Thousands of rows that are made due again at once are moved in steps")
    func revived() async throws {
        let relays = try await Relays()
        try relays.fixture.query(
            """
            INSERT INTO push_queue (device_token, payload, state, settled_on)
                SELECT \(Self.token), '{"aps":{}}', 'failed', '2027-01-15' FROM generate_series(1, 2500) i;
            UPDATE push_queue SET state = 'pending';
            """)
        try await relays.first.upkeep.queue.look()
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue_due WHERE settled_on IS NULL") == 2500)
        #expect(try await relays.deliver() == 2500)
    }

    @Test("Thousands of retries that wait for too long become due at once; clocks may differ by a minute")
    func mended() async throws {
        let relays = try await Relays()
        let last = (relays.fixture.time.now + PushLifeCycle.longestWait).milliseconds
        try relays.fixture.query(
            """
            INSERT INTO push_queue (device_token, payload, attempts, not_before)
                SELECT \(Self.token), '{"aps":{}}', 1, \(last) + CASE WHEN i > 2500 THEN 50000 ELSE 70000 END
                FROM generate_series(1, 2600) i
            """)
        try await relays.first.upkeep.queue.look()
        #expect(try await relays.deliver() == 2500)
    }

    @Test("Thousands of rows that are made due again get new ids if theirs are in use by now")
    func revivedTaken() async throws {
        let relays = try await Relays()
        for day in ["2027-01-15", "2027-01-16"] {
            try relays.fixture.query(
                """
                INSERT INTO push_queue (message_id, device_token, payload, state, settled_on)
                    SELECT i, \(Self.token), '{"aps":{}}', 'failed', '\(day)' FROM generate_series(1, 1500) i
                """)
        }
        try relays.fixture.query(
            """
            UPDATE push_queue SET state = 'pending';
            INSERT INTO push_queue (message_id, device_token, payload)
                SELECT i, \(Self.token), '{"aps":{}}' FROM generate_series(1, 1500) i;
            """)
        try await relays.first.upkeep.queue.look()
        #expect(try relays.fixture.value("SELECT count(DISTINCT message_id) FROM push_queue_due") == 4500)
    }

    @Test("A day is not dropped while a row of it has been made due again")
    func dropped() async throws {
        let relays = try await Relays()
        try relays.fixture.query(
            """
            INSERT INTO push_queue (device_token, payload, state, settled_on)
                SELECT \(Self.token), '{"aps":{}}', 'failed', '2027-01-15' FROM generate_series(1, 3) i;
            UPDATE push_queue SET state = 'pending' WHERE message_id = 2;
            """)
        let partitions = relays.first.queue.partitions
        #expect(try await partitions.drop(before: "2027-01-16") == 0)
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue") == 3)
        try await relays.first.upkeep.queue.look()
        // A partition that another session is reading stays until the next call.
        var rows = 0
        while rows == 0 { rows = try await partitions.drop(before: "2027-01-16") }
        #expect(rows == 2)
        #expect(try await relays.deliver() == 1)
    }

    @Test("An infinite time, which no relay could read, is rejected")
    func endless() async throws {
        let relays = try await Relays()
        #expect(throws: PostgresServer.Failed.self) {
            try relays.fixture.query(
                "INSERT INTO push_queue (device_token, payload, time_queued) VALUES ('aa', '{}', 'infinity')")
        }
    }

    @Test("Rows with ids that the sequence has not reached do not block messages or devices")
    func numbersToCome() async throws {
        let relays = try await Relays()
        for number in 1...3 {
            try await relays.register(number)
            try await relays.first.rooms.join(StoreFixture.join(number))
        }
        func takeNumbers(_ count: Int) throws {
            try relays.fixture.query(
                """
                INSERT INTO push_queue (message_id, device_token, payload, app)
                    SELECT last_value + i, \(Self.token), '{"aps":{}}', 'other'
                    FROM push_queue_message_id_seq, generate_series(1, \(count)) i
                """)
        }
        try takeNumbers(2)
        let notification = try await relays.send(.all).id
        try takeNumbers(500)
        _ = try await relays.first.rooms.post(StoreFixture.post(1, "hello"))
        try takeNumbers(1)
        let second = try await relays.send(.all).id
        try await relays.work()
        for id in [notification, second] { #expect(try await relays.deliveries(id).count == 3) }
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue WHERE chat_message IS NOT NULL") == 2)
    }

    @Test("A message is deleted while relays settle its pushes")
    func deleted() async throws {
        let relays = try await Relays()
        for number in 1...9 { try await relays.first.rooms.join(StoreFixture.join(number)) }
        _ = try await relays.first.rooms.post(StoreFixture.post(1, "hello"))
        let numbers = try relays.fixture.query("SELECT message_id FROM push_queue ORDER BY 1").split(separator: "\n")
        let other = try PostgresConnection(url: relays.fixture.url)
        other.deadline = .now + .seconds(60)
        let isDeleted = Atomic(false)
        async let deletion: Void = {
            defer { isDeleted.store(true, ordering: .sequentiallyConsistent) }
            try await relays.first.moderation.delete(1, by: Moderator(name: "admin", address: nil))
        }()
        // A transaction makes at most five attempts. This is one round more.
        for number in numbers.prefix(6) {
            try other.run("BEGIN")
            try other.run(
                """
                UPDATE push_queue SET state = 'sent', time_sent = now(), settled_on = '2027-01-15'
                WHERE message_id = \(number) AND state = 'pending'
                """)
            let waiting = """
                SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                """
            while !isDeleted.load(ordering: .sequentiallyConsistent), try relays.fixture.value(waiting) == 0 {
                try await Task.sleep(for: .milliseconds(5))
            }
            try other.run("COMMIT")
        }
        try await deletion
        #expect(try relays.fixture.value("SELECT count(*) FROM messages") == 0)
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue WHERE state IN ('sent', 'cancelled')") == 8)
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue WHERE state = 'cancelled'") >= 2)
        #expect(try relays.fixture.value("SELECT count(*) FROM push_queue WHERE payload <> ''") == 0)
    }
}
