import ChatDomain
import ChatStore
import Foundation
import GRDB
import Testing

@Suite("Pushes of the HTTP/2 provider API in the queue")
struct NamedPushTests {
    let bench: QueueBench

    init() throws {
        bench = try QueueBench()
    }

    private static func slot(_ connection: Int64 = 1) -> ConnectionSlot {
        ConnectionSlot(
            connection: ConnectionEpoch(connection), firstIdentifier: 1, room: 100, isFresh: true, payloadLimit: 4096,
            largerLimits: ["voip": 5120], namesPushes: true)
    }

    private func insert(_ columns: String, _ values: String, payload: String = #"{"aps":{"alert":"x"}}"#) throws {
        let token = String(repeating: "ab", count: 32)
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload, \(columns)) VALUES ('\(token)', ?, \(values))", [payload])
    }

    @Test("An entry has its id before it is written, and keeps it over repeats, restarts and protocols")
    func identity() async throws {
        try bench.insert(2)
        let first = try await bench.lease(Self.slot())
        let ids = try first.pushes.map { try #require($0.id) }
        #expect(Set(ids).count == 2)
        #expect(ids.allSatisfy { UUID(uuidString: $0)?.uuidString.lowercased() == $0 })
        #expect(try bench.fixture.query("SELECT apns_id FROM push_queue").map { $0[0] as String } == ids)

        _ = try await bench.settle(1...2, .unanswered(reason: "ConnectionLost"))
        #expect(try await bench.lease(Self.slot(2)).pushes.map(\.id) == ids)
        _ = try await bench.store.recover()
        #expect(try await bench.lease(StoreFixture.slot(3)).pushes.map(\.id) == [nil, nil])
        _ = try await bench.store.recover()
        #expect(try await bench.lease(Self.slot(4)).pushes.map(\.id) == ids)
    }

    @Test("An id that another program chose is kept; one that is no lower-case UUID poisons the entry")
    func givenIdentity() async throws {
        let id = "7c0e1f0a-32e8-4f14-9d8b-0a4a3a2f6c11"
        try insert("apns_id", "'\(id)'")
        try insert("apns_id", "'\(id.uppercased())'")
        try insert("apns_id", "'mine'")
        let lease = try await bench.lease(Self.slot())
        #expect(lease.pushes.map(\.id) == [id])
        #expect(lease.refused.map(\.reason) == ["BadMessageId", "BadMessageId"])
    }

    @Test(
        "The type is what the row says, else what the payload does",
        arguments: [
            ("NULL", #"{"aps":{"alert":"x"}}"#, "alert"), ("NULL", #"{"aps":{"content-available":1}}"#, "background"),
            ("NULL", #"{"aps":{"content-available":1,"sound":"a"}}"#, "alert"), ("NULL", #"{"aps":{}}"#, "alert"),
            ("'voip'", #"{"aps":{}}"#, "voip"), ("'background'", #"{"aps":{"alert":"x"}}"#, "background"),
        ])
    func types(column: String, payload: String, expected: String) async throws {
        try insert("push_type", column, payload: payload)
        #expect(try await bench.lease(Self.slot()).pushes.map(\.type) == [expected])
    }

    @Test("What cannot stand in a header poisons the entry, and not the connection")
    func headerTexts() async throws {
        try insert("push_type", "'al' || char(10) || 'ert'")
        try insert("push_type", "''")
        try insert("collapse_id", "'\(String(repeating: "c", count: 65))'")
        try insert("collapse_id", "'naïve'")
        try insert("collapse_id", "' leading'")
        try insert("collapse_id", "'score of today'")
        let lease = try await bench.lease(Self.slot())
        #expect(lease.pushes.map(\.collapseID) == ["score of today"])
        #expect(
            lease.refused.map(\.reason) == ["InvalidPushType", "InvalidPushType"]
                + Array(repeating: "BadCollapseId", count: 3))
    }

    @Test("The limit is the type's, and reasons are spelt as this gateway spells them")
    func limits() async throws {
        func payload(_ bytes: Int) -> String { #"{"a":"\#(String(repeating: "x", count: bytes - 8))"}"# }
        try insert("push_type", "'alert'", payload: payload(4096))
        try insert("push_type", "'alert'", payload: payload(4097))
        try insert("push_type", "'voip'", payload: payload(5120))
        try insert("push_type", "'voip'", payload: payload(5121))
        try insert("push_type", "'alert'", payload: "")
        _ = try bench.fixture.query("INSERT INTO push_queue (device_token, payload) VALUES ('none', '{}')")
        let lease = try await bench.lease(Self.slot())
        #expect(lease.pushes.map(\.payload.count) == [4096, 5120])
        #expect(
            lease.refused.map(\.reason) == ["PayloadTooLarge", "PayloadTooLarge", "PayloadEmpty", "BadDeviceToken"])
    }

    @Test("A refusal's hint is kept beside the gateway's own reason")
    func hint() async throws {
        try bench.insert(1)
        _ = try await bench.lease(Self.slot())
        _ = try await bench.settle(1...1, .rejected(reason: "BadDeviceToken", hint: "wrong environment?"))
        let row = try bench.fixture.query("SELECT reason, hint FROM push_queue")[0]
        #expect(row[0] == "BadDeviceToken")
        #expect(row[1] == "wrong environment?")
    }

    @Test("410 counts against the last registration to the millisecond", arguments: [-1, 0, 1])
    func registeredLater(milliseconds: Int) async throws {
        try await bench.store.join(StoreFixture.join(1))
        try await bench.store.join(StoreFixture.join(2))
        _ = try await bench.store.post(StoreFixture.post(1, "hi"))
        _ = try await bench.lease(Self.slot())
        let registered = bench.fixture.time.withLock { $0 }
        _ = try await bench.settle(
            1...1, .unregistered(since: registered + .milliseconds(milliseconds), reason: "Unregistered"))
        let isGone = try bench.fixture.value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 1
        #expect(isGone == (milliseconds >= 0))
    }

    @Test("A chat message's payload carries the number under which it is stored")
    func messageNumber() async throws {
        let store = try bench.fixture.open(namesMessage: true)
        try await store.join(StoreFixture.join(1))
        try await store.join(StoreFixture.join(2))
        for _ in 0..<3 {
            let receipt = try await store.post(StoreFixture.post(1, "hi"))
            let payload: String = try bench.fixture.query(
                "SELECT payload FROM push_queue WHERE chat_message = \(receipt.message)")[0][0]
            #expect(payload.hasSuffix(#"},"message_id":\#(receipt.message)}"#))
            // Numbers go on behind deleted messages.
            _ = try bench.fixture.query("DELETE FROM messages")
        }
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 3)
    }
}
