import ChatDomain
import Testing

@testable import ChatStore

@Suite("What is for very many lets the others pass")
struct LaneTests {
    let bench: QueueBench

    init() throws {
        bench = try QueueBench()
    }

    private func lease(_ first: UInt32, room: Int) async throws -> [Int64] {
        try await bench.lease(StoreFixture.slot(first: first, room: room)).pushes.map(\.entry)
    }

    private func mark(_ entries: ClosedRange<Int>) throws {
        _ = try bench.fixture.query(
            "UPDATE push_queue SET bulk = 1 WHERE message_id BETWEEN ? AND ?", [entries.lowerBound, entries.upperBound])
    }

    @Test("The others go first; what is for many has its turn after a lease that did not come to it")
    func turns() async throws {
        try bench.insert(10)
        try mark(1...5)
        #expect(try await lease(1, room: 2) == [6, 7])
        #expect(try await lease(3, room: 2) == [1, 2])
        #expect(try await lease(5, room: 2) == [8, 9])
        #expect(try await lease(7, room: 2) == [3, 4])
        // The lease comes to both: nobody is owed a turn, and who comes then goes first.
        #expect(try await lease(9, room: 2) == [10, 5])
        try bench.insert(2)
        try mark(11...11)
        #expect(try await lease(11, room: 1) == [12])
        #expect(try await lease(12, room: 1) == [11])
    }

    @Test("What has made trouble has its turn, too, however much there is for many")
    func trouble() async throws {
        try bench.insert(9)
        try mark(2...9)
        _ = try bench.fixture.query("UPDATE push_queue SET refused = 1 WHERE message_id = 1")
        #expect(try await lease(1, room: 2) == [2, 3])
        #expect(try await lease(3, room: 2) == [1])
        #expect(try await lease(4, room: 9) == [4, 5, 6, 7, 8, 9])
    }

    @Test(
        "A message to a large room, and a notification to many, is for very many; to a small room, or to few, it is not"
    )
    func whoIsMany() async throws {
        let many = PushLifeCycle.bulkFrom + 1
        for number in 0...many { try await bench.store.rooms.join(StoreFixture.join(number, "crowd")) }
        for number in 1000...1001 { try await bench.store.rooms.join(StoreFixture.join(number, "kitchen")) }
        _ = try await bench.store.rooms.post(StoreFixture.post(1000, "to one"))
        _ = try await bench.store.rooms.post(StoreFixture.post(0, "to many"))
        while try bench.fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await Task.sleep(for: .milliseconds(5))
        }
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE bulk = 0") == 1)
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE bulk = 1") == many)
    }

    @Test("What C wrote as the end of a string is none of the payload's or the token's")
    func endOfString() async throws {
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (? || char(0), '{\"aps\":{}}' || char(0))",
            [StoreFixture.token(1).description])
        let push = try #require(try await bench.lease(StoreFixture.slot()).pushes.first)
        #expect(push.address == .token(try StoreFixture.token(1)))
        #expect(push.payload == Array(#"{"aps":{}}"#.utf8))
    }
}
