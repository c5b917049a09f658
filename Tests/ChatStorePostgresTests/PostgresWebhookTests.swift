import ChatDomain
import ChatStorePostgres
import Foundation
import Testing

@testable import TestStores

/// Tests webhooks with several relays, and with other programs' transactions.
@Suite("PostgreSQL: webhooks of several relays", .timeLimit(.minutes(2)))
struct PostgresWebhookTests {
    private static let moderator = Moderator(name: "ann", address: nil)

    private func webhook(_ events: Set<WebhookEventKind>, in stores: PostgresStores) async throws -> Webhook {
        try await stores.ports.webhooks.create(
            WebhookSettings(url: "https://example.org/", events: events), secret: .random(), by: Self.moderator)
    }

    private func settle(_ attempt: WebhookAttempt, in stores: PostgresStores, at now: Timestamp) async throws {
        let settlement = WebhookLifeCycle.settlement(
            of: .answered(status: 200), attempts: attempt.event.attempts, failures: attempt.failures, now: now,
            random: 0)
        try await stores.ports.webhooks.settle(
            attempt, settlement, WebhookEvent.Response(status: 200, duration: .zero))
    }

    @Test("Transactions that report gone devices and failed pushes do not wait for each other")
    func folds() async throws {
        let fixture = try PostgresFixture()
        let stores = try await fixture.open()
        defer { stores.close() }
        for _ in 1...2 { _ = try await webhook([.pushFailed, .deviceGone], in: stores) }
        for number in 1...3 { try await stores.ports.rooms.join(StoreFixture.join(number)) }
        let message = try await stores.ports.rooms.post(StoreFixture.post(1, "hello")).message
        func changes(_ row: String) -> [String] {
            [
                """
                UPDATE devices SET time_deactivated = now(), deactivated_reason = 'Unregistered'
                WHERE device_id = (SELECT \(row)(device_id) FROM devices)
                """,
                """
                UPDATE push_queue SET state = 'failed', reason = 'Unregistered', time_settled = now()
                WHERE message_id = (SELECT \(row)(message_id) FROM push_queue)
                """,
            ]
        }
        let holder = PostgresClient(url: fixture.url)
        try holder.rows("BEGIN")
        for change in changes("min") { try holder.rows(change) }
        for change in changes("max") { try fixture.query("SET statement_timeout = '10s'; \(change)") }
        try holder.rows("COMMIT")
        var events: [WebhookEvent] = []
        while case let attempts = try await stores.ports.webhooks.lease(), !attempts.isEmpty {
            for attempt in attempts {
                events.append(attempt.event)
                try await settle(attempt, in: stores, at: fixture.time.now)
            }
        }
        #expect(events.count == 4 && events.allSatisfy { $0.count == 2 })
        let (gone, failed) = (events.filter { $0.type == "device.gone" }, events.filter { $0.type == "push.failed" })
        #expect(gone.count == 2 && gone.allSatisfy { $0.details["devices"]?.array?.count == 2 })
        #expect(failed.count == 2 && failed.allSatisfy { $0.message == message })
    }

    @Test("Two relays that settle failed pushes at once report each push to each webhook")
    func settlers() async throws {
        let relays = try await Relays(2)
        for _ in 1...2 { _ = try await webhook([.pushFailed], in: relays.first) }
        for number in 1...8 { try await relays.first.ports.rooms.join(StoreFixture.join(number)) }
        for text in ["a", "b", "c"] { _ = try await relays.first.ports.rooms.post(StoreFixture.post(1, text)) }
        // Each relay has pushes of all messages.
        var leased: [[QueuedPush]] = [[], []]
        for turn in 0..<7 {
            leased[turn % 2] += try await relays.all[turn % 2].ports.queue.lease(
                app: .default, lanes: PushLane.allCases, limit: 3
            ).pushes
        }
        #expect(leased.map(\.count) == [12, 9])
        let failed = Transition(.failed(reason: "Unregistered"), adding: PushHistory(attempts: 1))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (relay, pushes) in [(relays.first, leased[0]), (relays.second, leased[1].reversed())] {
                group.addTask {
                    for push in pushes {
                        let settlement = Settlement(push.id...push.id, failed, notification: push.notification)
                        let settled = try await relay.ports.queue.settle([settlement], app: .default)
                        #expect(settled.map(\.count) == [1])
                    }
                }
            }
            try await group.waitForAll()
        }
        var events: [WebhookEvent] = []
        while case let attempts = try await relays.first.ports.webhooks.lease(), !attempts.isEmpty {
            for attempt in attempts {
                events.append(attempt.event)
                try await settle(attempt, in: relays.second, at: relays.fixture.time.now)
            }
        }
        #expect(events.map(\.count) == Array(repeating: 7, count: 6))
    }

    @Test("Two relays that look for events at once lease each event once")
    func leases() async throws {
        let fixture = try PostgresFixture()
        let relays = [try await fixture.open(), try await fixture.open()]
        defer { for relay in relays { relay.close() } }
        for _ in 1...5 { _ = try await webhook([.joined], in: relays[0]) }
        for number in 1...6 { try await relays[0].ports.rooms.join(StoreFixture.join(number)) }
        var leased: [Int64] = []
        for _ in 1...200 where leased.count < 30 {
            async let first = relays[0].ports.webhooks.lease()
            async let second = relays[1].ports.webhooks.lease()
            for attempt in try await first + second {
                leased.append(attempt.event.id)
                #expect(attempt.event.attempts == 1)
                try await settle(attempt, in: relays[leased.count % 2], at: fixture.time.now)
            }
        }
        #expect(leased.count == 30 && Set(leased).count == 30)
    }

    @Test("While a script's transaction is open, no webhook begins, posts go on, and a relay starts")
    func script() async throws {
        let fixture = try PostgresFixture()
        let stores = try await fixture.open()
        defer { stores.close() }
        try await stores.ports.rooms.join(StoreFixture.join(1))
        let holder = PostgresClient(url: fixture.url)
        let insert = "INSERT INTO messages (secret_code, udid, nickname, text) VALUES ('room', 'admin', 'script', 'x')"
        try holder.rows("BEGIN")
        try holder.rows(insert)
        await #expect(throws: ChatError.self) { try await webhook([.posted], in: stores) }
        _ = try await stores.ports.rooms.post(StoreFixture.post(1, "hello"))
        try holder.rows("COMMIT")
        _ = try await webhook([.posted], in: stores)
        // A copy may have no triggers.
        try fixture.query("ALTER TABLE ONLY messages DISABLE TRIGGER USER")
        try holder.rows("BEGIN")
        try holder.rows(insert)
        let other = try await fixture.open()
        defer { other.close() }
        try holder.rows("COMMIT")
        try await other.ports.webhooks.dropExcess()
        _ = try await stores.ports.rooms.post(StoreFixture.post(1, "hello"))
        #expect(try fixture.value("SELECT count(*) FROM webhook_events") == 1)
    }

    @Test("The statements that docs/postgresql.md has for a restore hold what is due")
    func restored() async throws {
        let page = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../docs/postgresql.md")
        let text = try String(contentsOf: page.standardizedFileURL, encoding: .utf8)
        let start = try #require(text.range(of: "before a relay starts:\n\n```sql\n"))
        let sql = try #require(text[start.upperBound...].range(of: "```")).lowerBound
        let fixture = try PostgresFixture()
        // The statements read the server's clock. The copy is older than the retention.
        let now = Timestamp.now().milliseconds
        fixture.advance(.milliseconds(now - fixture.time.now.milliseconds) - .seconds(8 * 86_400))
        var stores = try await fixture.open()
        let webhook = try await webhook([.joined], in: stores)
        try await stores.ports.rooms.join(StoreFixture.join(1))
        let request = PostRequest(
            member: .administrator,
            program: PostRequest.Program(nickname: Nickname(stored: "admin"), room: SecretCode(stored: "room")),
            content: try MessageContent(parsing: "due"))
        for days: Int64 in [1, 9] {
            let due = fixture.time.now + .seconds(days * 86_400)
            _ = try await stores.ports.changes.post(KeyedPost(request, notBefore: due))
        }
        stores.close()
        fixture.advance(.seconds(8 * 86_400))
        try fixture.query(String(text[start.upperBound..<sql]))
        stores = try await fixture.open()
        defer { stores.close() }
        while try await stores.ports.changes.performDue() {}
        _ = try await stores.ports.upkeep.applyRetention(RetentionAges(messages: .seconds(9e8), queue: .seconds(60)))
        #expect(try fixture.query("SELECT is_held FROM scheduled_messages ORDER BY due") == "t\nf")
        #expect(try fixture.value("SELECT count(*) FROM messages") == 0)
        #expect(try await stores.ports.webhooks.lease().isEmpty)
        let restored = try await stores.ports.webhooks.webhook(webhook.id)
        #expect(restored?.state == .paused && restored?.reason == "restored from a copy")
        let events = try await stores.ports.webhooks.deliveries(of: webhook.id, in: nil, before: nil, limit: 9).items
        #expect(events.map(\.state) == [.held])
    }
}
