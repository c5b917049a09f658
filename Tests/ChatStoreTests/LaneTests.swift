import ChatDomain
import Foundation
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Bulk pushes let other pushes pass")
struct LaneTests {
    let bench: QueueFixture

    init() throws {
        bench = try QueueFixture()
    }

    private func lease(_ first: UInt32, room: Int) async throws -> [Int64] {
        try await bench.lease(StoreFixture.slot(first: first, room: room)).pushes.map(\.id)
    }

    private func mark(_ ids: ClosedRange<Int>) throws {
        _ = try bench.fixture.query(
            "UPDATE push_queue SET bulk = 1 WHERE message_id BETWEEN ? AND ?", [ids.lowerBound, ids.upperBound])
    }

    @Test("Normal pushes go first; the bulk lane has its turn after a lease that did not reach it")
    func turns() async throws {
        try bench.insert(10)
        try mark(1...5)
        #expect(try await lease(1, room: 2) == [6, 7])
        #expect(try await lease(3, room: 2) == [1, 2])
        #expect(try await lease(5, room: 2) == [8, 9])
        #expect(try await lease(7, room: 2) == [3, 4])
        // This lease reaches both lanes, so no lane is owed a turn, and the normal lane goes first again.
        #expect(try await lease(9, room: 2) == [10, 5])
        try bench.insert(2)
        try mark(11...11)
        #expect(try await lease(11, room: 1) == [12])
        #expect(try await lease(12, room: 1) == [11])
    }

    @Test("The retry lane has its turn as well, however many bulk pushes there are")
    func trouble() async throws {
        try bench.insert(9)
        try mark(2...9)
        _ = try bench.fixture.query("UPDATE push_queue SET refused = 1 WHERE message_id = 1")
        #expect(try await lease(1, room: 2) == [2, 3])
        #expect(try await lease(3, room: 2) == [1])
        #expect(try await lease(4, room: 9) == [4, 5, 6, 7, 8, 9])
    }

    /// Numbers of devices around the limits: of one step of a fan-out, and of several.
    private static let audiences = [
        PushLifeCycle.bulkFrom, PushLifeCycle.bulkFrom + 1, NotificationFanout.step, NotificationFanout.step + 1,
        2 * NotificationFanout.step + 1,
    ]

    private func expectOneKind(_ count: Int) throws {
        let kind = count > PushLifeCycle.bulkFrom ? 1 : 0
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE bulk = \(kind)") == count)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE bulk <> \(kind)") == 0)
    }

    @Test("All pushes of a message are bulk or none, by the size of the room", arguments: audiences)
    func message(devices: Int) async throws {
        _ = try bench.fixture.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO active_users (udid, nickname, secret_code, device_token)
            SELECT printf('%040d', i), 'n', 'room', printf('%064x', i) FROM n
            """, [devices])
        try await bench.store.rooms.join(StoreFixture.join(0, "room"))
        _ = try await bench.store.rooms.post(StoreFixture.post(0, "to all"))
        while try bench.fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await Task.sleep(for: .milliseconds(5))
        }
        try expectOneKind(devices)
    }

    @Test("All pushes of a notification are bulk or none, whatever the kind of audience", arguments: audiences)
    func notification(devices: Int) async throws {
        let bench = try NotificationFixture()
        try bench.fill(devices)
        _ = try bench.fixture.query("UPDATE devices SET user_reference = 'u'")
        _ = try bench.fixture.query("INSERT INTO device_tags (tag, device_id) SELECT 't', device_id FROM devices")
        let tokens = try (1...devices).map { try DeviceToken(parsing: String(format: "%064x", $0)) }
        let audiences: [Audience] = [
            .all, .users([UserReference(stored: "u")]), .tags([ChatDomain.Tag(stored: "t")]), .tokens(tokens),
        ]
        for audience in audiences {
            let id = try await bench.send(audience).id
            _ = try await bench.finish(id)
            let kind = devices > PushLifeCycle.bulkFrom ? 1 : 0
            let wrong = "SELECT count(*) FROM push_queue WHERE notification = \(id) AND bulk <> \(kind)"
            #expect(try bench.fixture.value(wrong) == 0, "\(audience.json)")
            let right = "SELECT count(*) FROM push_queue WHERE notification = \(id) AND bulk = \(kind)"
            #expect(try bench.fixture.value(right) == devices)
        }
    }

    @Test("A zero that a C program stored at the end of a string belongs to neither payload nor token")
    func endOfString() async throws {
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (? || char(0), '{\"aps\":{}}' || char(0))",
            [StoreFixture.token(1).description])
        let push = try #require(try await bench.lease(StoreFixture.slot()).pushes.first)
        #expect(push.address == .token(try StoreFixture.token(1)))
        #expect(push.payload == Array(#"{"aps":{}}"#.utf8))
    }
}
