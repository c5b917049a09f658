import ChatDomain
import Foundation
import GRDB
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Fan-outs of notifications", .timeLimit(.minutes(1)))
struct FanoutTests {
    let bench: NotificationFixture

    init() throws {
        bench = try NotificationFixture()
    }

    @Test("A fan-out to twenty thousand devices runs in steps after the response")
    func large() async throws {
        try bench.fill(20_000, everyInactive: 100)
        let receipt = try await bench.send(.all)
        #expect(receipt.devices == 20_000 - 200)
        #expect(try bench.fixture.value("SELECT work_until FROM notifications") == 20_000)
        try await bench.register([1])
        let status = try await bench.finish(receipt.id)
        #expect(status.counts[.pending] == receipt.devices)
        #expect(
            try bench.fixture.value("SELECT count(DISTINCT device) FROM push_queue WHERE notification IS NOT NULL")
                == receipt.devices)
        // A device that registers later gets no push.
        #expect(try bench.fixture.value("SELECT max(device) FROM push_queue") < 20_000)
    }

    @Test("Other writes come between the steps of a fan-out")
    func between() async throws {
        try bench.fill(10_000)
        for number in 1...2 { try await bench.store.rooms.join(StoreFixture.join(number)) }
        let id = try await bench.store.accept(bench.request(.all), steps: 0)
        bench.store.jobs.start(.notification(id))
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "between"))
        #expect(try await bench.finish(id).counts[.pending] == 10_002)
        let place = try bench.fixture.value("SELECT message_id FROM push_queue WHERE chat_message IS NOT NULL")
        #expect(place < 10_002)
    }

    @Test(
        "Interrupted work beyond the limit of one round is resumed when the first part is done", .timeLimit(.minutes(2))
    )
    func manyJobs() async throws {
        _ = try bench.fixture.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
            INSERT INTO messages (secret_code, udid, nickname, text, fanout_after, fanout_until)
            SELECT 'room', 'u', 'n', 't', 0, 0 FROM n
            """)
        let open = "SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL"
        var watch = SQLiteUpkeep.Watch()
        try await bench.store.upkeep.look(&watch)
        while try bench.fixture.value(open) > 200 { try await bench.store.rooms.ping() }
        #expect(try bench.fixture.value(open) == 200)
        // From this round on, the watch resumes work only because more is left. The periodic resume comes rounds later.
        watch.endRound()
        while try bench.fixture.value(open) > 0 { try await bench.store.upkeep.look(&watch) }
    }

    @Test("A store that ended in the middle of a fan-out continues there: each device has one push", arguments: 0...5)
    func crash(steps: Int) async throws {
        try bench.fill(2200, everyInactive: 10)
        let id = try await bench.store.accept(bench.request(.all), steps: steps)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == [0, 450, 900, 1350, 1800, 1980][steps])
        try bench.store.close()
        let store = try bench.fixture.open()
        // This device registers in between, and gets no push.
        _ = try await store.devices.register(RegistrationRequest(token: StoreFixture.token(1), app: .default))
        try await store.jobs.resume()
        try await store.jobs.resume()
        while try await store.notifications.notification(id).state == .queueing { try await store.rooms.ping() }
        #expect(try bench.fixture.value("SELECT count(DISTINCT device) FROM push_queue") == 1980)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 1980)
        #expect(try await store.notifications.notification(id).counts[.pending] == 1980)
    }

    @Test("A store that is closed during a fan-out loses nothing")
    func closed() async throws {
        try bench.fill(5000)
        let id = try await bench.send(.all).id
        try bench.store.close()
        let store = try bench.fixture.open()
        let watch = Task { await store.upkeep.watch() }
        defer { watch.cancel() }
        while try await store.notifications.notification(id).state == .queueing { try await store.rooms.ping() }
        #expect(try bench.fixture.value("SELECT count(DISTINCT device) FROM push_queue") == 5000)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 5000)
    }

    @Test("No device gets two pushes from overlapping tags, over several steps", arguments: [nil, "default", "other"])
    func overlapping(app: String?) async throws {
        try bench.fill(900)
        try bench.fill(900, app: "other")
        _ = try bench.fixture.query(
            """
            INSERT INTO device_tags (tag, device_id)
            SELECT t.tag, d.device_id FROM devices d, (SELECT 'a' AS tag, 2 AS n UNION ALL SELECT 'b', 3
                UNION ALL SELECT 'c', 1) t WHERE d.device_id % t.n = 0
            """)
        let receipt = try await bench.send(.tags(["a", "b", "c"].map(ChatDomain.Tag.init(stored:))), app: app)
        let status = try await bench.finish(receipt.id)
        let expected = app == nil ? 1800 : 900
        #expect(status.counts[.pending] == expected)
        #expect(try bench.fixture.value("SELECT count(DISTINCT device) FROM push_queue") == expected)
        #expect(receipt.devices >= expected)
    }

    @Test("A step covers several users, and a user with many devices takes several steps")
    func users() async throws {
        try bench.fill(1700)
        _ = try bench.fixture.query(
            "UPDATE devices SET user_reference = CASE WHEN device_id <= 900 THEN device_id ELSE 'many' END")
        let names = (1...999).map { UserReference(stored: "\($0)") } + [UserReference(stored: "many")]
        let id = try await bench.store.accept(bench.request(.users(names)), steps: 2)
        #expect(try bench.fixture.value("SELECT work_item FROM notifications") == 999)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 901)
        try await bench.store.jobs.resume()
        #expect(try await bench.finish(id).counts[.pending] == 1700)
    }

    @Test("Each of a thousand tokens gets one push, registered or not")
    func tokens() async throws {
        try bench.fill(500)
        let tokens = try (1...1000).map { try DeviceToken(parsing: String(format: "%064x", $0)) }
        let receipt = try await bench.send(.tokens(tokens))
        #expect(receipt.devices == 1000)
        #expect(try await bench.finish(receipt.id).counts[.pending] == 1000)
        #expect(try bench.fixture.value("SELECT count(DISTINCT device_token) FROM push_queue") == 1000)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE device IS NULL") == 500)
    }

    @Test("A room that is larger than a step gets all its pushes")
    func room() async throws {
        _ = try bench.fixture.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
            INSERT INTO active_users (udid, nickname, secret_code, device_token)
            SELECT printf('%040d', i), 'n', 'room', printf('%064x', i) FROM n
            """)
        try bench.fill(600)
        let receipt = try await bench.send(.room(SecretCode(stored: "room")))
        #expect(receipt.devices == 1200)
        #expect(try await bench.finish(receipt.id).counts[.pending] == 1200)
    }

    @Test("Cancelling a notification during its fan-out queues nothing more, and cancels the pushes that wait")
    func cancelledWhileQueueing() async throws {
        try bench.fill(3000)
        let id = try await bench.store.accept(bench.request(.all), steps: 3)
        _ = try await bench.queue.lease(StoreFixture.slot(room: 100))
        let status = try await bench.store.notifications.cancel(id)
        #expect(status.state == .cancelled)
        #expect(status.cancelledAt == bench.now)
        // These pushes are not leased, whether or not the sweep has reached them.
        #expect(try await bench.queue.lease(StoreFixture.slot(2)).pushes.isEmpty)
        let end = try await bench.finish(id)
        #expect(end.counts[.cancelled] == 1400)
        // 100 pushes are with the gateway.
        #expect(end.counts[.pending] == 100)
        #expect(try await bench.store.notifications.cancel(id).state == .cancelled)
        // A leased push that comes back is not sent again.
        _ = try await bench.queue.settle([
            DeliveryReport(connection: ConnectionID(1), identifiers: 1...60, outcome: .notProcessed),
            DeliveryReport(connection: ConnectionID(1), identifiers: 61...100, outcome: .accepted),
        ])
        let lease = try await bench.queue.lease(StoreFixture.slot(3))
        #expect(lease.pushes.isEmpty)
        #expect(lease.refused.count == 60)
        #expect(Set(lease.refused.map(\.transition.state)) == [.cancelled])
        #expect(
            try await bench.store.notifications.notification(id).counts
                == [.pending: 0, .sent: 40, .failed: 0, .expired: 0, .cancelled: 1460])
        let counted = bench.store.metrics.outcomes().filter { $0.state == .cancelled }
        #expect(counted.map(\.total) == [1460])
    }

    @Test("A cancellation that a crash interrupted is resumed")
    func interruptedSweep() async throws {
        try bench.fill(1800)
        let id = try await bench.store.accept(bench.request(.all), steps: 4)
        _ = try bench.fixture.query(
            """
            UPDATE notifications SET time_cancelled = '2027-01-15 08:00:00.000', work = 'cancel', work_item = 0,
                work_after = 700, work_until = 1800
            """)
        _ = try bench.fixture.query("UPDATE push_queue SET state = 'cancelled' WHERE message_id <= 700")
        _ = try bench.fixture.query("UPDATE notification_counts SET cancelled = 700")
        try await bench.store.jobs.resume()
        #expect(try await bench.finish(id).counts[.cancelled] == 1800)
    }

    @Test("Cancelling a notification that is done changes nothing")
    func cancelledLate() async throws {
        try bench.fill(2)
        let id = try await bench.send(.all).id
        _ = try await bench.queue.lease(StoreFixture.slot())
        _ = try await bench.queue.settle([
            DeliveryReport(connection: ConnectionID(1), identifiers: 1...2, outcome: .accepted)
        ])
        let status = try await bench.store.notifications.cancel(id)
        #expect(status.state == .done)
        #expect(status.cancelledAt == nil)
    }

    @Test("The dispatcher is woken after each step of a fan-out, not before the first")
    func arrivals() async throws {
        try bench.fill(600)
        var arrivals = bench.store.queue.arrivals(of: .default).makeAsyncIterator()
        let id = try await bench.send(.all).id
        await arrivals.next()
        #expect(try await bench.queue.lease(StoreFixture.slot(room: 10)).pushes.count == 10)
        _ = try await bench.finish(id)
    }
}
