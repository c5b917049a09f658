import ChatDomain
import Synchronization
import Testing

@testable import TestStores

/// Tests the commands on the queue of every store, beside a relay that has it open.
@Suite("The queue, for the command line", .timeLimit(.minutes(2)))
struct QueueAdministrationTests {
    private static let payload = #"{"aps":{"alert":"hello"}}"#
    private static let nobody: @Sendable (Int) -> Void = { _ in }

    /// Inserts pushes 1 to 8, two of each settled state, and two pending ones.
    private func populated(_ kind: StoreKind) async throws -> TestedStore {
        let store = try await kind.make()
        for (number, state) in ["sent", "failed", "expired", "cancelled"].enumerated() {
            for place in 1...2 {
                _ = try store.query(
                    """
                    INSERT INTO push_queue (device_token, payload, state, app, reason, attempts, unanswered, refused, hint,
                        time_sent, time_settled, expires_at)
                    VALUES ('\(StoreFixture.token(number * 2 + place))', '{"aps":{}}', '\(state)',
                        '\(place == 1 ? "default" : "other")', 'why', 7, 2, 3, 'hint',
                        \(state == "sent" ? store.time(store.now()) : "NULL"),
                        \(store.time(store.now() - .seconds(place * 1000))),
                        \(state == "expired" ? "\(store.now().seconds - 5)" : "NULL"))
                    """)
            }
        }
        _ = try store.query("INSERT INTO push_queue (device_token, payload) VALUES ('aa', '{}'), ('aa', '{}')")
        try await store.notice()
        return store
    }

    private func states(_ store: TestedStore) throws -> String {
        try store.query("SELECT state FROM push_queue ORDER BY message_id").map { $0[0].prefix(2) }
            .joined(separator: " ")
    }

    private func register(_ numbers: ClosedRange<Int>, in store: TestedStore) async throws {
        for number in numbers {
            _ = try await store.stores.devices.register(
                RegistrationRequest(token: StoreFixture.token(number), app: .default))
        }
    }

    private func send(in store: TestedStore, notBefore: Timestamp? = nil) async throws -> NotificationID {
        try await store.stores.notifications.send(
            NotificationRequest(audience: .all, payload: Self.payload, notBefore: notBefore)
        ).id
    }

    /// Returns the pushes of the app `default` that a relay can lease now.
    private func leased(_ store: TestedStore) async throws -> [Int64] {
        try await store.notice()
        return try await store.lease().map(\.id)
    }

    @Test("A filter selects pushes, in pages", arguments: StoreKind.allCases)
    func pushes(kind: StoreKind) async throws {
        let store = try await populated(kind)
        let queue = try store.queue()
        func all(_ filter: QueueFilter) async throws -> [Int64] {
            try await Page.all { try await queue.pushes(filter, after: $0, limit: 2) }.map(\.id)
        }
        #expect(try await all(QueueFilter()) == Array(1...10))
        #expect(try await all(QueueFilter(app: AppName("other"))) == [2, 4, 6, 8])
        #expect(try await all(QueueFilter(states: [.failed, .cancelled])) == [3, 4, 7, 8])
        #expect(try await all(QueueFilter(app: .default, states: [.failed])) == [3])
        #expect(try await all(QueueFilter(token: StoreFixture.token(5))) == [5])
        try await register(1...2, in: store)
        let id = try await send(in: store)
        #expect(try await all(QueueFilter(notification: id)) == [11, 12])
        #expect(try await all(QueueFilter(notification: id + 1)) == [])
        #expect(try await all(QueueFilter(token: StoreFixture.token(2), notification: id)) == [12])
        #expect(try await queue.pushes(QueueFilter(), after: 10, limit: 2).next == nil)
        _ = try store.query(
            "INSERT INTO push_queue (message_id, device_token, payload) VALUES (0, 'aa', '{}'), (-7, '<A A>', '{}')")
        #expect(try await all(QueueFilter()) == [-7, 0] + Array(1...12))
    }

    @Test("A push is shown with its payload, wherever that is stored", arguments: StoreKind.allCases)
    func push(kind: StoreKind) async throws {
        let store = try await populated(kind)
        let queue = try store.queue()
        #expect(try await queue.push(3)?.payload == #"{"aps":{}}"#)
        #expect(try await queue.push(3)?.delivery.reason == "why")
        #expect(try await queue.push(5)?.expiration == store.now().seconds - 5)
        #expect(try await queue.push(77) == nil)
        try await register(1...1, in: store)
        _ = try await send(in: store)
        #expect(try await queue.push(11)?.payload == Self.payload)
        #expect(try await queue.push(11)?.pushType == "alert")
    }

    @Test(
        "Retry makes failed, expired and cancelled pushes pending as if new, and touches nothing else",
        arguments: StoreKind.allCases)
    func retry(kind: StoreKind) async throws {
        let store = try await populated(kind)
        let queue = try store.queue()
        let now = store.now()
        #expect(try await queue.retry(.matching(QueueFilter(app: .default)), progress: Self.nobody) == 3)
        #expect(try states(store) == "se se pe fa pe ex pe ca pe pe")
        #expect(try await queue.retry(.ids([1, 2, 4, 9, 10, 77]), progress: Self.nobody) == 1)
        #expect(
            try store.value(
                """
                SELECT count(*) FROM push_queue WHERE reason = 'why' AND attempts = 0 AND unanswered = 0 AND refused = 0
                    AND hint IS NULL AND time_settled IS NULL AND expires_at IS NULL
                    AND not_before = \(now.milliseconds)
                """) == 4)
        #expect(try await leased(store) == [3, 5, 7, 9, 10])
    }

    @Test("A push that another program cancelled without a reason can be retried", arguments: StoreKind.allCases)
    func retryWithoutReason(kind: StoreKind) async throws {
        let store = try await populated(kind)
        _ = try store.query("UPDATE push_queue SET state = 'cancelled' WHERE state = 'pending'")
        #expect(try await store.queue().retry(.ids([9, 10]), progress: Self.nobody) == 2)
    }

    @Test(
        "Retry makes waiting retries due at once, but not scheduled pushes or leased ones",
        arguments: StoreKind.allCases)
    func retryDelayed(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...1, in: store)
        _ = try await send(in: store)
        let wait = Transition(
            .waiting(until: store.now() + .seconds(900), reason: "Busy"), adding: PushHistory(attempts: 1))
        try await store.settle(try await store.lease(), wait)
        _ = try await send(in: store, notBefore: store.now() + .seconds(500))
        #expect(try await leased(store) == [])
        #expect(try await store.queue().retry(.matching(QueueFilter()), progress: Self.nobody) == 1)
        #expect(try await leased(store) == [1])
    }

    @Test(
        "A push of a cancelled notification stays cancelled, even if the command names it",
        arguments: StoreKind.allCases)
    func retryCancelled(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...2, in: store)
        let id = try await send(in: store)
        _ = try await store.stores.notifications.cancel(id)
        let queue = try store.queue()
        #expect(try await queue.retry(.matching(QueueFilter(notification: id)), progress: Self.nobody) == 0)
        #expect(try await queue.retry(.ids([1]), progress: Self.nobody) == 0)
        #expect(try states(store) == "ca ca")
    }

    @Test(
        "Pushes for an unregistered device or of a deleted message stay cancelled",
        arguments: StoreKind.allCases)
    func retryForgotten(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1...1, in: store)
        _ = try await send(in: store)
        _ = try await store.stores.devices.unregister(StoreFixture.token(1), app: nil)
        for number in 2...3 { try await store.stores.rooms.join(StoreFixture.join(number)) }
        _ = try await store.stores.rooms.post(StoreFixture.post(2, "hi"))
        try await store.stores.moderation.delete(1, by: Moderator(name: "admin", address: nil))
        try await store.notice()
        #expect(try states(store) == "ca ca")
        #expect(try await store.queue().retry(.matching(QueueFilter()), progress: Self.nobody) == 0)
        #expect(try await store.queue().retry(.ids([1, 2]), progress: Self.nobody) == 0)
    }

    @Test("Cancel cancels pending pushes, and their notification counts them", arguments: StoreKind.allCases)
    func cancel(kind: StoreKind) async throws {
        let store = try await populated(kind)
        try await register(1...2, in: store)
        let id = try await send(in: store)
        let queue = try store.queue()
        #expect(try await queue.cancel(.ids([1, 9, 11]), progress: Self.nobody) == 2)
        #expect(try await queue.cancel(.matching(QueueFilter()), progress: Self.nobody) == 2)
        #expect(try states(store) == "se se fa fa ex ex ca ca ca ca ca ca")
        #expect(try await leased(store) == [])
        let status = try await store.stores.notifications.notification(id)
        #expect(status.counts[.cancelled] == 2)
        #expect(status.state == .done)
        #expect(try await queue.push(11)?.delivery.reason == PushLifeCycle.cancelled)
        #expect(try await queue.push(11)?.delivery.settledAt == store.now())
        #expect(try await queue.retry(.ids([11]), progress: Self.nobody) == 1)
        #expect(try await store.stores.notifications.notification(id).counts[.cancelled] == 1)
        #expect(try await leased(store) == [11])
    }

    @Test(
        "Purge deletes settled pushes, optionally only old ones, but none that a fan-out in progress needs",
        arguments: StoreKind.allCases)
    func purge(kind: StoreKind) async throws {
        let store = try await populated(kind)
        let queue = try store.queue()
        #expect(
            try await queue.purge(.matching(QueueFilter()), olderThan: .seconds(1500), progress: Self.nobody) == 4)
        #expect(try await queue.purge(.ids([1, 9, 10]), olderThan: nil, progress: Self.nobody) == 1)
        #expect(try states(store) == "fa ex ca pe pe")
        try await register(1...3, in: store)
        _ = try await send(in: store)
        _ = try store.query("UPDATE notifications SET work = 'queue'")
        _ = try store.query("UPDATE push_queue SET state = 'failed' WHERE notification IS NOT NULL")
        #expect(try await queue.purge(.matching(QueueFilter()), olderThan: nil, progress: Self.nobody) == 3)
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE notification IS NOT NULL") == 3)
    }

    @Test("Long work runs in steps and reports its progress", arguments: StoreKind.allCases)
    func steps(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try store.query(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2200)
            INSERT INTO push_queue (device_token, payload, app) SELECT 'aa', '{}', 'other' FROM n
            """)
        let queue = try store.queue()
        let seen = Mutex<[Int]>([])
        #expect(
            try await queue.cancel(.matching(QueueFilter())) { count in seen.withLock { $0.append(count) } } == 2200)
        #expect(seen.withLock { $0 } == [1000, 2000, 2200])
        try await store.notice()
        #expect(try await queue.retry(.ids(Array(1...1500)), progress: Self.nobody) == 1500)
        #expect(try await queue.purge(.matching(QueueFilter()), olderThan: nil, progress: Self.nobody) == 700)
        #expect(try store.query("SELECT state, count(*) FROM push_queue GROUP BY state") == [["pending", "1500"]])
    }

    @Test("A few pushes among many are found", arguments: StoreKind.allCases)
    func few(kind: StoreKind) async throws {
        let store = try await kind.make()
        // More rows than one page looks at.
        _ = try store.query(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
            INSERT INTO push_queue (device_token, payload, app)
            SELECT 'aa', '{}', CASE WHEN i IN (1, 7000, 12000) THEN 'rare' ELSE 'other' END FROM n
            """)
        let queue = try store.queue()
        let rare = QueueFilter(app: AppName("rare"))
        let found = try await Page.all { try await queue.pushes(rare, after: $0, limit: 2) }
        #expect(found.map(\.id) == [1, 7000, 12_000])
        #expect(try await queue.cancel(.matching(rare), progress: Self.nobody) == 3)
        #expect(try store.query("SELECT count(*) FROM push_queue WHERE state = 'cancelled'") == [["3"]])
    }

    @Test("A retry removes the expiration of expired pushes, and of no others", arguments: StoreKind.allCases)
    func retryAndExpiration(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try store.query(
            """
            INSERT INTO push_queue (device_token, payload, state, expires_at, time_settled) VALUES
                ('aa', '{}', 'failed', 5, '2027-01-01'), ('aa', '{}', 'expired', 5, '2027-01-01')
            """)
        try await store.notice()
        #expect(try await store.queue().retry(.matching(QueueFilter()), progress: Self.nobody) == 2)
        #expect(
            try store.query("SELECT coalesce(expires_at, 0) FROM push_queue ORDER BY message_id") == [["5"], ["0"]])
    }
}
