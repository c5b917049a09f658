import ChatDomain
import Testing

@testable import ChatStorePostgres
@testable import TestStores

@Suite("Scheduled messages of several relays", .timeLimit(.minutes(2)))
struct PostgresScheduleTests {
    private static let count = 30

    /// Schedules messages for all relays, and makes them due.
    private func schedule(_ relays: Relays) async throws {
        for number in 0..<Self.count {
            let request = PostRequest(
                member: .administrator,
                program: PostRequest.Program(
                    nickname: Nickname(stored: "admin"), room: SecretCode(stored: "room \(number % 3)")),
                content: try MessageContent(parsing: "message \(number)"))
            let due = relays.fixture.time.now + .milliseconds(1 + Int64(number / 5))
            _ = try await relays.first.changes.post(KeyedPost(request, notBefore: due))
        }
        relays.fixture.advance(.seconds(1))
    }

    private func expectEachOnce(_ relays: Relays) throws {
        let posted = try relays.fixture.query("SELECT count(*), count(DISTINCT text) FROM messages")
        #expect(posted == "\(Self.count)|\(Self.count)")
        #expect(try relays.fixture.value("SELECT count(*) FROM scheduled_messages") == 0)
        #expect(try relays.fixture.value("SELECT count(DISTINCT message_id) FROM posted_schedules") == Self.count)
    }

    @Test("Two relays post each message once")
    func concurrently() async throws {
        let relays = try await Relays(2)
        try await schedule(relays)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for relay in [relays.first, relays.second, relays.first, relays.second] {
                group.addTask { while try await relay.changes.performDue() {} }
            }
            try await group.waitForAll()
        }
        try expectEachOnce(relays)
    }

    @Test("Connections that end in the middle of the work neither lose a message nor repeat one")
    func killed() async throws {
        let relays = try await Relays(2)
        try await schedule(relays)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for relay in relays.all {
                // A transaction whose connection has ended throws. The relay then looks again.
                group.addTask { while await (try? relay.changes.performDue()) ?? true {} }
            }
            for count in [5, 10, 15, 20] {
                while try relays.fixture.value("SELECT count(*) FROM messages") < count { await Task.yield() }
                try relays.fixture.query(
                    """
                    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()
                    """)
            }
            try await group.waitForAll()
        }
        try expectEachOnce(relays)
    }

    @Test("The check counts held and overdue messages")
    func inspected() async throws {
        let relays = try await Relays(1)
        try await schedule(relays)
        // Some are due tomorrow, and one is held.
        let tomorrow = (Timestamp.now() + .seconds(86_400)).milliseconds
        try relays.fixture.query(
            "UPDATE scheduled_messages SET due = CASE WHEN scheduled_id % 3 = 0 THEN 1 ELSE \(tomorrow) END")
        try relays.fixture.query(
            """
            UPDATE scheduled_messages SET is_held = true
            WHERE scheduled_id = (SELECT min(scheduled_id) FROM scheduled_messages WHERE due = 1)
            """)
        let found = try PostgresConfiguration(url: relays.fixture.url).inspect()
        #expect(found.scheduled == ScheduledMessage.Backlog(held: 1, overdue: Self.count / 3 - 1))
    }
}
