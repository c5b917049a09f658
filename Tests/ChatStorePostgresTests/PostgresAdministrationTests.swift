import ChatDomain
import Synchronization
import Testing

@testable import ChatStorePostgres
@testable import TestStores

/// Tests the commands beside relays that store their leases in the rows, as only PostgreSQL's do.
/// ``QueueAdministrationTests`` tests the commands on every store.
@Suite("Commands beside relays on one PostgreSQL", .timeLimit(.minutes(2)))
struct PostgresAdministrationTests {
    private static let nobody: @Sendable (Int) -> Void = { _ in }
    private static let sent = Transition(.sent, adding: PushHistory(attempts: 1))

    /// Relays, and the queue as a command sees it.
    private final class CommandFixture: Sendable {
        let relays: Relays
        let queue: PostgresQueueAdministration
        var fixture: PostgresFixture { relays.fixture }

        init(_ count: Int = 1) async throws {
            let relays = try await Relays(count)
            self.relays = relays
            queue = try PostgresQueueAdministration(configuration: PostgresConfiguration(url: relays.fixture.url)) {
                relays.fixture.time.now
            }
        }

        deinit { queue.close() }

        func insert(_ count: Int) throws {
            try fixture.query(
                """
                INSERT INTO push_queue (device_token, payload)
                SELECT lpad(i::text, 64, 'a'), '{"aps":{}}' FROM generate_series(1, \(count)) i
                """)
        }

        func lease(_ limit: Int = 1000, relay: Int = 0) async throws -> [Int64] {
            try await relays.all[relay].queue.lease(app: .default, lanes: PushLane.allCases, limit: limit).pushes
                .map(\.id)
        }

        func settle(_ ids: ClosedRange<Int64>, _ transition: Transition, relay: Int = 0) async throws -> Int {
            try await relays.all[relay].queue.settle([Settlement(ids, transition)], app: .default)[0].count
        }

        func states() throws -> String {
            try fixture.query("SELECT string_agg(state, ' ' ORDER BY message_id) FROM push_queue")
        }
    }

    @Test("It opens existing tables of this version, makes none, and names the problem of any others")
    func opening() async throws {
        let fixture = try PostgresFixture(isEmpty: true)
        let postgres = PostgresConfiguration(url: fixture.url)
        func problem(_ configuration: PostgresConfiguration) -> String {
            do {
                try PostgresQueueAdministration(configuration: configuration).close()
                return ""
            } catch {
                return "\(error)"
            }
        }
        #expect(problem(postgres).contains("no relay's tables"))
        #expect(problem(PostgresConfiguration(url: fixture.url, schema: "other")).contains("no schema other"))
        #expect(try fixture.value("SELECT count(*) FROM pg_tables WHERE schemaname IN ('public', 'other')") == 0)
        let stores = try await fixture.open()
        defer { stores.close() }
        #expect(problem(postgres) == "")
        for (version, word) in [(0, "upgrades"), (99, "newer")] {
            try fixture.query("UPDATE relay_schema SET version = \(version)")
            #expect(problem(postgres).contains(word))
        }
    }

    @Test("A push that a relay is sending is not cancelled; one that a silent relay held is")
    func leased() async throws {
        let bench = try await CommandFixture(2)
        try bench.insert(6)
        #expect(try await bench.lease(2) == [1, 2])
        #expect(try await bench.lease(1, relay: 1) == [3])
        // A relay that fell silent an hour ago, which no relay has noticed, and one that is alive.
        try bench.fixture.query(
            """
            INSERT INTO relay_starts (start_id, host, time_seen) VALUES
                (1000, 'silent', now() - interval '1 hour'), (1001, 'heard', now() + interval '1 hour');
            UPDATE push_queue SET lease_start = message_id + 995 WHERE message_id IN (5, 6)
            """)
        #expect(try await bench.queue.cancel(.ids([1, 3, 6]), progress: Self.nobody) == 0)
        #expect(try await bench.queue.cancel(.matching(QueueFilter()), progress: Self.nobody) == 2)
        #expect(try bench.states() == "pending pending pending cancelled cancelled pending")
        #expect(try await bench.settle(1...2, Self.sent) == 2)
        #expect(try await bench.settle(3...3, Transition(.failed(reason: "Bad")), relay: 1) == 1)
        #expect(try bench.states() == "sent sent failed cancelled cancelled pending")
        #expect(try await bench.queue.purge(.matching(QueueFilter()), olderThan: nil, progress: Self.nobody) == 5)
    }

    @Test("Of two pushes with the same id, because a script reused it, only the intended one changes")
    func sameNumber() async throws {
        let bench = try await CommandFixture()
        try bench.insert(2)
        #expect(try await bench.lease() == [1, 2])
        #expect(try await bench.settle(1...2, Transition(.failed(reason: "Bad"))) == 2)
        try bench.fixture.query(
            """
            INSERT INTO push_queue (message_id, device_token, payload) SELECT i, 'aa', '{}' FROM generate_series(1, 2) i
            """)
        #expect(try await bench.queue.cancel(.ids([1]), progress: Self.nobody) == 1)
        #expect(try await bench.queue.purge(.ids([2]), olderThan: nil, progress: Self.nobody) == 1)
        #expect(try bench.states() == "cancelled failed pending" || bench.states() == "failed cancelled pending")
    }

    @Test("A retry succeeds where a due push has the same id")
    func retriedSameNumber() async throws {
        let bench = try await CommandFixture()
        try bench.insert(2)
        #expect(try await bench.lease() == [1, 2])
        #expect(try await bench.settle(1...2, Transition(.failed(reason: "Bad"))) == 2)
        try bench.fixture.query("INSERT INTO push_queue (message_id, device_token, payload) VALUES (1, 'aa', '{}')")
        #expect(try await bench.queue.retry(.ids([1, 2]), progress: Self.nobody) == 2)
        #expect(try bench.states() == "pending pending pending")
    }

    @Test("A retry that a relay has leased stays there; one that waits becomes due at once, for any relay")
    func retried() async throws {
        let bench = try await CommandFixture(2)
        try bench.insert(3)
        #expect(try await bench.lease() == [1, 2, 3])
        let wait = Transition(
            .waiting(until: bench.fixture.time.now + .seconds(60), reason: "Busy"),
            adding: PushHistory(attempts: 1))
        #expect(try await bench.settle(1...2, wait) == 2)
        #expect(try await bench.settle(3...3, Transition(.failed(reason: "Bad"))) == 1)
        bench.fixture.advance(.seconds(60))
        #expect(try await bench.lease(1) == [1])
        bench.fixture.advance(.seconds(-30))
        #expect(try await bench.queue.retry(.ids([1, 2, 3]), progress: Self.nobody) == 2)
        #expect(try await bench.lease(relay: 1) == [2, 3])
        // The first relay's outcomes no longer count for these pushes.
        #expect(try await bench.settle(2...3, Self.sent) == 0)
        #expect(try await bench.settle(2...3, Self.sent, relay: 1) == 2)
        #expect(try await bench.settle(1...1, Self.sent) == 1)
        #expect(try bench.states() == "sent sent sent")
    }

    @Test("Pushes that are due again are announced to the relays")
    func announced() async throws {
        let bench = try await CommandFixture()
        try bench.insert(1)
        #expect(try await bench.queue.cancel(.matching(QueueFilter()), progress: Self.nobody) == 1)
        // The relay has a start, so it is already listening.
        let announcements = bench.relays.first.database.announcements()
        #expect(try await bench.queue.retry(.ids([1]), progress: Self.nobody) == 1)
        var isAnnounced = false
        for await announcement in announcements where announcement.apps == ["default"] {
            isAnnounced = true
            break
        }
        #expect(isAnnounced)
    }

    @Test("Cancelling a notification also stops its fan-out, beside relays that perform it")
    func notification() async throws {
        for isRelayRunning in [false, true] {
            let bench = try await CommandFixture(2)
            try bench.relays.fill(3000)
            let id = try await bench.relays.send(.all).id
            #expect(try await bench.lease(20).count == 20)
            let cancel = { @Sendable in
                _ = try await bench.queue.cancel(.matching(QueueFilter(notification: id)), progress: Self.nobody)
            }
            if isRelayRunning { try await bench.relays.work(during: cancel) } else { try await cancel() }
            let status = try await bench.relays.second.notifications.notification(id)
            #expect(status.state == .cancelled && status.counts[.pending] == 20)
            let queued = try bench.fixture.value("SELECT count(*) FROM push_queue")
            #expect(status.counts[.cancelled] == queued - 20)
            #expect(isRelayRunning || queued == NotificationFanout.step)
            let again = QueueSelection.matching(QueueFilter(notification: id))
            #expect(try await bench.queue.cancel(again, progress: Self.nobody) == 0)
        }
    }

    /// The number of times that each push was sent.
    private final class Sent: Sendable {
        let times = Mutex<[Int64: Int]>([:])
    }

    @Test("Each push is sent once while a command cancels and retries repeatedly beside two relays")
    func beside() async throws {
        let bench = try await CommandFixture(2)
        let count = 2000
        try bench.insert(count)
        let (done, changes) = (Counter(), Counter())
        let sent = Sent()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for relay in 0...1 {
                group.addTask {
                    while done.value == 0 {
                        let ids = try await bench.lease(20, relay: relay)
                        for id in ids {
                            #expect(try await bench.settle(id...id, Self.sent, relay: relay) == 1)
                            sent.times.withLock { $0[id, default: 0] += 1 }
                        }
                        if ids.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
                    }
                }
                group.addTask {
                    while done.value == 0 { try await bench.relays.all[relay].lookForPushes() }
                }
            }
            // Cancels all pushes that have not been sent and retries them, a few times. In the end all are sent.
            for _ in 0..<5 {
                let cancelled = try await bench.queue.cancel(.matching(QueueFilter()), progress: Self.nobody)
                let left = try bench.fixture.value("SELECT count(*) FROM push_queue WHERE state = 'cancelled'")
                let retried = try await bench.queue.retry(
                    .matching(QueueFilter(states: [.cancelled])), progress: Self.nobody)
                #expect(cancelled == left && retried == left)
                changes.add(cancelled)
            }
            while try bench.fixture.value("SELECT count(*) FROM push_queue WHERE state = 'pending'") > 0 {
                try await Task.sleep(for: .milliseconds(5))
            }
            done.add()
            try await group.waitForAll()
        }
        #expect(changes.value > 0)
        #expect(sent.times.withLock { $0.count == count && $0.values.allSatisfy { $0 == 1 } })
        #expect(try bench.fixture.query("SELECT state, count(*) FROM push_queue GROUP BY state") == "sent|\(count)")
    }

    @Test("Two concurrent imports of the same devices create each device once")
    func imports() async throws {
        let relays = try await Relays(2)
        let records = try (1...400).map { DeviceRecord(token: try StoreFixture.token($0), app: .default) }
        let columns: Set<DeviceRecord.Column> = [.user, .tags]
        async let first = relays.first.imports.take(records, columns: columns)
        async let second = relays.second.imports.take(records.reversed(), columns: columns)
        let results = try await [first, second]
        #expect(results.map(\.created).reduce(0, +) == 400 && results.map(\.updated).reduce(0, +) == 400)
        #expect(try relays.fixture.value("SELECT count(*) FROM devices") == 400)
    }

    @Test("Transactions are measured by urgency and size, and refused ones are counted")
    func measures() async throws {
        let relays = try await Relays()
        let database = relays.first.database
        let before = relays.first.metrics.work()
        #expect(before.batches.map(\.kind) == ["answer", "upkeep", "background"])
        #expect(before.errors.map(\.kind) == ["lost", "in_doubt", "collision", "refused"])
        try await database.write(operations: 3) { _ = try $0.run("SELECT 1") }
        try await database.write(.background) { _ = try $0.run("SELECT 1") }
        _ = try await database.read { try $0.run("SELECT 1") }
        await #expect(throws: ChatError.self) { try await database.write { _ = try $0.run("SELECT 1 / 0") } }
        let collision = "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$"
        await #expect(throws: ChatError.self) { try await database.write { _ = try $0.run(collision) } }
        let work = relays.first.metrics.work()
        // The colliding write makes five attempts.
        #expect(zip(work.batches, before.batches).map { $0.sizes.count - $1.sizes.count }[0] == 7)
        #expect(zip(work.batches, before.batches).map { $0.sizes.sum - $1.sizes.sum }[0] == 9)
        #expect(work.batches[2].sizes.sum > before.batches[2].sizes.sum)
        #expect(work.batches.allSatisfy { $0.seconds.count == $0.sizes.count })
        #expect(zip(work.errors, before.errors).map { $0.count - $1.count } == [0, 0, 5, 1])
        #expect(work.failedBatches == before.failedBatches + 1 && work.refusedOperations == 0)
        #expect(work.connections.map(\.count).reduce(0, +) == 4)
        #expect(work.waitingCalls.map(\.kind) == ["answer", "read", "upkeep", "background"])
    }
}
