import ChatDomain
import Foundation
import GRDB
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("The queue beside other programs, devices and feedback")
struct QueueUpkeepTests {
    let bench: QueueFixture

    init() throws {
        bench = try QueueFixture()
    }

    @Test("A token that is refused repeatedly is given up, but not if the certificate makes all tokens look bad")
    func refusals() async throws {
        for number in 1...3 { try await bench.store.rooms.join(StoreFixture.join(number, "room\(number)")) }
        let bad = try StoreFixture.token(1).description
        var connection: Int64 = 0
        func refuse() async throws {
            connection += 1
            _ = try bench.fixture.query("INSERT INTO push_queue (device_token, payload) VALUES (?, '{}')", [bad])
            _ = try await bench.lease(StoreFixture.slot(connection))
            _ = try await bench.settle(1...1, .badAddress(reason: "InvalidToken"), connection: connection)
        }
        for _ in 0..<8 { try await refuse() }
        let inactive = "SELECT count(*) FROM devices WHERE deactivated_reason = 'InvalidToken'"
        #expect(try bench.fixture.value(inactive) == 0)
        try bench.insert(1)
        _ = try bench.fixture.query(
            "UPDATE push_queue SET device_token = ? WHERE state = 'pending'", [StoreFixture.token(2).description])
        _ = try await bench.lease(StoreFixture.slot(100))
        _ = try await bench.settle(1...1, .accepted, connection: 100)
        try await refuse()
        #expect(try bench.fixture.value(inactive) == 1)
        try await bench.store.rooms.join(StoreFixture.join(1, "room1"))
        #expect(try bench.fixture.value(inactive) == 0)
        for _ in 0..<4 { try await refuse() }
        #expect(try bench.fixture.value(inactive) == 0)
    }

    @Test("A row without an app goes to the default app, whatever its name")
    func adoption() async throws {
        let other = try StoreFixture()
        let store = try other.open(defaultApp: AppName("news"))
        var watch = SQLiteUpkeep.Watch()
        try await store.upkeep.look(&watch)
        watch.endRound()
        _ = try other.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (?, '{}')", [StoreFixture.token(1).description])
        try await store.upkeep.look(&watch)
        let pushes = try await store.queue.lease(app: AppName("news"), lanes: PushLane.allCases, limit: 10).pushes
        #expect(pushes.count == 1)
        #expect(try other.query("SELECT app FROM push_queue")[0][0] == "news")
    }

    @Test("A device that the gateway reports as unregistered is deactivated, unless it registered later")
    func unregistered() async throws {
        try await bench.store.rooms.join(StoreFixture.join(1))
        try await bench.store.rooms.join(StoreFixture.join(2))
        let joined = bench.fixture.time.now
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "a"))
        _ = try await bench.lease(StoreFixture.slot())
        _ = try await bench.settle(1...1, .unregistered(since: joined - .seconds(60), reason: "Unregistered"))
        #expect(try bench.fixture.value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 0)
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "b"))
        _ = try await bench.lease(StoreFixture.slot(2))
        _ = try await bench.settle(1...1, .unregistered(since: joined, reason: "Unregistered"), connection: 2)
        #expect(try bench.fixture.value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 1)
        #expect(try await bench.store.rooms.post(StoreFixture.post(1, "c")).queued == 0)
        try await bench.store.rooms.update(
            StoreFixture.member(2), token: StoreFixture.token(2), client: ClientInfo(), user: nil)
        #expect(try await bench.store.rooms.post(StoreFixture.post(1, "d")).queued == 1)
    }

    @Test("A member from before its app had a name gets pushes of the present default app")
    func renamedApp() async throws {
        for number in 1...12 { try await bench.store.rooms.join(StoreFixture.join(number, number < 3 ? "two" : "ten")) }
        try bench.store.close()
        let store = try bench.fixture.open(defaultApp: AppName("chat"))
        _ = try await store.rooms.post(StoreFixture.post(1, "hi"))
        _ = try await store.rooms.post(StoreFixture.post(3, "hi"))
        while try bench.fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        let leased = try await store.queue.lease(app: AppName("chat"), lanes: PushLane.allCases, limit: 99)
        #expect(leased.pushes.count == 10)
    }

    @Test("Extreme counts that a script wrote into a row do no harm", arguments: ["attempts", "unanswered", "refused"])
    func extremeCounts(column: String) async throws {
        for number in [Int64.max, .min] {
            try bench.insert(1)
            _ = try bench.fixture.query("UPDATE push_queue SET \(column) = ? WHERE state = 'pending'", [number])
            let lease = try await bench.lease(StoreFixture.slot(number == .max ? 1 : 2))
            #expect(lease.pushes.count == 1)
            try await bench.settle(
                1...1, .unanswered(reason: "Lost"), connection: number == .max ? 1 : 2)
            _ = try bench.fixture.query("UPDATE push_queue SET state = 'cancelled' WHERE state = 'pending'")
        }
    }

    @Test("Ids at the limits of 64 bits do no harm before they are repaired")
    func extremeNumbers() async throws {
        for (number, time) in [(Int64.max, 1), (5, 2), (.min, 3), (6, 4)] {
            _ = try bench.fixture.query(
                "INSERT INTO push_queue (message_id, device_token, payload, not_before) VALUES (?, ?, '{}', ?)",
                [number, StoreFixture.token(1).description, time])
        }
        let leased = try await bench.store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9)
        #expect(leased.pushes.map(\.id) == [5, 6])
        try await bench.notice()
        // The row with the highest id got the next id. The row with the lowest id failed, alone.
        let rest = try await bench.store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9)
        #expect(rest.pushes.map(\.id) == [7])
        #expect(try bench.fixture.query("SELECT reason FROM push_queue WHERE state = 'failed'").count == 1)
    }

    @Test("After the highest possible id, even of a deleted row, new pushes get ids again")
    func highestNumber() async throws {
        for number in 1...2 { try await bench.store.rooms.join(StoreFixture.join(number)) }
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "before"))
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (message_id, device_token, payload) VALUES (?, 'aa', '{}')", [Int64.max])
        _ = try bench.fixture.query("DELETE FROM push_queue")
        await #expect(throws: ChatError.self) { try await bench.store.rooms.post(StoreFixture.post(1, "too early")) }
        var watch = SQLiteUpkeep.Watch()
        try await bench.store.upkeep.look(&watch)
        #expect(try await bench.store.rooms.post(StoreFixture.post(1, "hi")).queued == 1)
        #expect(try bench.fixture.value("SELECT message_id FROM push_queue") == 2)
    }

    @Test(
        "An extreme number in a column affects only its own row",
        arguments: ["not_before", "expires_at", "notification", "device"])
    func extremeColumns(column: String) async throws {
        for number in [Int64.max, .max - 1, 1 << 53, -1, .min + 1, .min] {
            _ = try bench.fixture.query(
                "INSERT INTO push_queue (device_token, payload, \(column)) VALUES (?, '{\"aps\":{}}', ?)",
                [StoreFixture.token(1).description, number])
        }
        try bench.insert(1)
        let good = try bench.fixture.value("SELECT max(message_id) FROM push_queue")
        var pushes: [Int64] = []
        for connection in 1...3 as ClosedRange<Int64> {
            let lease = try await bench.lease(StoreFixture.slot(connection))
            pushes += lease.pushes.map(\.id)
            guard !lease.pushes.isEmpty else { continue }
            try await bench.settle(1...UInt32(lease.pushes.count), .retry(reason: "Busy"), connection: connection)
            bench.fixture.advance(.seconds(7200))
        }
        #expect(pushes.contains(Int64(good)))
        _ = try await bench.store.metrics.queueDepths()
        _ = try await bench.store.queue.nextDue(app: .default)
        let records = try await QueueFile(path: bench.fixture.path).pushes(QueueFilter(), after: nil, limit: 99)
        for record in records.items { _ = JSONValue.object(record.json).description }
        #expect(records.items.count == 7)
    }

    @Test("Many pushes with the same due time are leased once, and later ones at their time")
    func manyDue() async throws {
        let now = bench.fixture.time.now
        for (count, time) in [(9000, now + .seconds(10)), (10, now + .seconds(7200))] {
            _ = try bench.fixture.query(
                """
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
                INSERT INTO push_queue (device_token, payload, not_before, app)
                SELECT printf('%064x', i), '{}', ? + i % 3, iif(i % 2, 'default', 'other') FROM n
                """, [count, time.milliseconds])
        }
        #expect(try await bench.lease(StoreFixture.slot()).pushes.isEmpty)
        // The later pushes do not count yet: the store looks again after an hour at the latest.
        #expect(try await bench.store.queue.nextDue(app: .default) == now + .seconds(10))
        bench.fixture.advance(.seconds(11))
        var count = 0
        for connection in 1...6 as ClosedRange<Int64> {
            count += try await bench.lease(StoreFixture.slot(connection)).pushes.count
        }
        #expect(count == 4500)
        bench.fixture.advance(.seconds(7200))
        #expect(try await bench.lease(StoreFixture.slot(9)).pushes.count == 5)
    }

    @Test("Retention deletes old settled pushes, and none that are still to be sent")
    func retention() async throws {
        try bench.insert(1200)
        _ = try await bench.lease(StoreFixture.slot())
        _ = try await bench.settle(1...1000, .accepted)
        try await bench.store.rooms.join(StoreFixture.join(1))
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "old"))
        bench.fixture.advance(.seconds(8 * 86_400))
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "new"))
        let first = try await bench.store.upkeep.applyRetention(
            messages: .seconds(30 * 86_400), queue: .seconds(7 * 86_400))
        #expect(first.pushes == 1000)
        #expect(first.messages == 0)
        bench.fixture.advance(.seconds(25 * 86_400))
        #expect(
            try await bench.store.upkeep.applyRetention(messages: .seconds(30 * 86_400), queue: .seconds(7 * 86_400))
                .messages
                == 1)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE state = 'pending'") == 200)
    }

    @Test("The next round finds and announces a row that another process inserted", .timeLimit(.minutes(1)))
    func foreignRows() async throws {
        var watch = SQLiteUpkeep.Watch()
        // The first round always signals.
        try await bench.store.upkeep.look(&watch)
        watch.endRound()
        let arrivals = bench.store.queue.arrivals(of: .default)
        try await bench.store.upkeep.look(&watch)
        watch.endRound()
        #expect(try await bench.store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes.isEmpty)
        try bench.insert(1)
        try await bench.store.upkeep.look(&watch)
        for await _ in arrivals { break }
        let pushes = try await bench.store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes
        #expect(pushes.map(\.id) == [1])
    }
}
