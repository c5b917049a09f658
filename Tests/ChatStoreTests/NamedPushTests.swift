import ChatDomain
import ChatStore
import Foundation
import GRDB
import Testing

@testable import TestStores

@Suite("Pushes of the HTTP/2 provider API in the queue")
struct NamedPushTests {
    let bench: QueueFixture

    init() throws {
        bench = try QueueFixture()
    }

    private static func slot(_ connection: Int64 = 1) -> ConnectionSlot {
        ConnectionSlot(
            connection: ConnectionID(connection), firstIdentifier: 1, capacity: 100, isFresh: true, answersEach: true)
    }

    private func insert(_ columns: String, _ values: String, payload: String = #"{"aps":{"alert":"x"}}"#) throws {
        let token = String(repeating: "ab", count: 32)
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload, \(columns)) VALUES ('\(token)', ?, \(values))", [payload])
    }

    @Test("A push has its APNs id before it is written, and keeps it over retries, restarts and protocols")
    func identity() async throws {
        try bench.insert(2)
        let first = try await bench.lease(Self.slot(), .http2)
        let ids = try first.pushes.map { try #require($0.apnsID) }
        #expect(Set(ids).count == 2)
        #expect(ids.allSatisfy { UUID(uuidString: $0)?.uuidString.lowercased() == $0 })
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE apns_id IS NOT NULL") == 0)

        try await bench.settle(1...2, .unanswered(reason: "ConnectionLost"))
        #expect(try await bench.lease(Self.slot(2), .http2).pushes.map(\.apnsID) == ids)
        try await bench.settle(1...2, .notProcessed, connection: 2)
        #expect(try await bench.lease(StoreFixture.slot(3)).pushes.map(\.apnsID) == [nil, nil])
        try bench.store.close()
        let again = try QueueFixture(bench.fixture, bench.fixture.open())
        #expect(try await again.lease(Self.slot(4), .http2).pushes.map(\.apnsID) == ids)
        // The record of a sent push has the id as well.
        let file = try QueueFile(path: bench.fixture.path)
        #expect(try await file.pushes(.init(), after: nil, limit: 9).items.map(\.apnsID) == ids)
    }

    @Test("An APNs id that another program chose is kept in lower case; one that is not a UUID fails the push")
    func givenIdentity() async throws {
        let id = "7c0e1f0a-32e8-4f14-9d8b-0a4a3a2f6c11"
        try insert("apns_id", "'\(id)'")
        try insert("apns_id", "'\(id.uppercased())'")
        try insert("apns_id", "'mine'")
        let lease = try await bench.lease(Self.slot(), .http2)
        #expect(lease.pushes.map(\.apnsID) == [id, id])
        #expect(lease.reasons == ["BadMessageId"])
    }

    @Test(
        "The type comes from the row, or else from the payload",
        arguments: [
            ("NULL", #"{"aps":{"alert":"x"}}"#, "alert"), ("NULL", #"{"aps":{"content-available":1}}"#, "background"),
            ("NULL", #"{"aps":{"content-available":1,"sound":"a"}}"#, "alert"), ("NULL", #"{"aps":{}}"#, "alert"),
            ("'voip'", #"{"aps":{}}"#, "voip"), ("'background'", #"{"aps":{"alert":"x"}}"#, "background"),
        ])
    func types(column: String, payload: String, expected: String) async throws {
        try insert("push_type", column, payload: payload)
        #expect(try await bench.lease(Self.slot(), .http2).pushes.map(\.type) == [expected])
    }

    @Test("A value that a header cannot hold fails the push, and not the connection")
    func headerTexts() async throws {
        try insert("push_type", "'al' || char(10) || 'ert'")
        try insert("push_type", "''")
        try insert("collapse_id", "'\(String(repeating: "c", count: 65))'")
        try insert("collapse_id", "'naïve'")
        try insert("collapse_id", "' leading'")
        try insert("collapse_id", "'score of today'")
        let lease = try await bench.lease(Self.slot(), .http2)
        #expect(lease.pushes.map(\.collapseID) == ["score of today"])
        #expect(
            lease.reasons == ["InvalidPushType", "InvalidPushType"]
                + Array(repeating: "BadCollapseId", count: 3))
    }

    @Test("The size limit depends on the type, and reasons are spelled as the gateway spells them")
    func limits() async throws {
        func payload(_ bytes: Int) -> String { #"{"a":"\#(String(repeating: "x", count: bytes - 8))"}"# }
        try insert("push_type", "'alert'", payload: payload(4096))
        try insert("push_type", "'alert'", payload: payload(4097))
        try insert("push_type", "'voip'", payload: payload(5120))
        try insert("push_type", "'voip'", payload: payload(5121))
        try insert("push_type", "'alert'", payload: "")
        _ = try bench.fixture.query("INSERT INTO push_queue (device_token, payload) VALUES ('none', '{}')")
        let lease = try await bench.lease(Self.slot(), .http2)
        #expect(lease.pushes.map(\.payload.count) == [4096, 5120])
        #expect(
            lease.reasons == ["PayloadTooLarge", "PayloadTooLarge", "PayloadEmpty", "BadDeviceToken"])
    }

    @Test("A refusal's hint is kept beside the gateway's own reason")
    func hint() async throws {
        try bench.insert(1)
        _ = try await bench.lease(Self.slot(), .http2)
        _ = try await bench.settle(1...1, .rejected(reason: "BadDeviceToken", hint: "wrong environment?"))
        let row = try bench.fixture.query("SELECT reason, hint FROM push_queue")[0]
        #expect(row[0] == "BadDeviceToken")
        #expect(row[1] == "wrong environment?")
    }

    @Test("A 410 response is compared with the last registration to the millisecond", arguments: [-1, 0, 1])
    func registeredLater(milliseconds: Int) async throws {
        try await bench.store.rooms.join(StoreFixture.join(1))
        try await bench.store.rooms.join(StoreFixture.join(2))
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "hi"))
        _ = try await bench.lease(Self.slot(), .http2)
        let registered = bench.fixture.time.now
        _ = try await bench.settle(
            1...1, .unregistered(since: registered + .milliseconds(milliseconds), reason: "Unregistered"))
        let isGone = try bench.fixture.value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 1
        #expect(isGone == (milliseconds >= 0))
    }

    @Test("A chat message's payload carries the id of the stored message")
    func messageNumber() async throws {
        let store = try bench.fixture.open(namesMessage: true)
        try await store.rooms.join(StoreFixture.join(1))
        try await store.rooms.join(StoreFixture.join(2))
        for _ in 0..<3 {
            let receipt = try await store.rooms.post(StoreFixture.post(1, "hi"))
            let payload: String = try bench.fixture.query(
                "SELECT payload FROM push_queue WHERE chat_message = \(receipt.message)")[0][0]
            #expect(payload.contains(#"},"message_id":\#(receipt.message),"sender""#))
            // Message ids continue after deleted messages.
            _ = try bench.fixture.query("DELETE FROM messages")
        }
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue") == 3)
    }
}

@Suite("Suspect pushes")
struct TroubleTests {
    let bench: QueueFixture

    init() throws {
        bench = try QueueFixture()
    }

    private func lease(_ connection: Int64, room: Int = 100, fresh: Bool = true) async throws -> QueueFixture.Result {
        try await bench.lease(
            ConnectionSlot(
                connection: ConnectionID(connection), firstIdentifier: 1, capacity: room, isFresh: fresh,
                answersEach: true), .http2)
    }

    @Test("Suspect pushes go last, and have their turn after each lease of the others")
    func turns() async throws {
        try bench.insert(6)
        _ = try bench.fixture.query("UPDATE push_queue SET unanswered = 2 WHERE message_id = 1")
        _ = try bench.fixture.query("UPDATE push_queue SET refused = 1 WHERE message_id = 2")
        #expect(try await lease(1, room: 1).pushes.map(\.id) == [3])
        #expect(try await lease(1, room: 2).pushes.map(\.id) == [4, 5])
        // It is the retry lane's turn. Its first push must be sent alone, on a connection where nothing is in doubt.
        let waiting = try await lease(1, fresh: false)
        #expect(waiting.needsFreshConnection)
        #expect(waiting.pushes.isEmpty)
        let probe = try await lease(2)
        #expect(probe.pushes.map(\.id) == [1])
        #expect(probe.isProbe)
        #expect(try await lease(3).pushes.map(\.id) == [6, 2])
    }

    @Test("A push with rejected credentials waits ever longer, and fails once other pushes are accepted")
    func notAuthorized() async throws {
        try bench.insert(1)
        let refusal = Outcome.notAuthorized(reason: "InvalidProviderToken")
        var connection: Int64 = 0
        func attempt() async throws -> Int64 {
            connection += 1
            #expect(try await lease(connection, room: 1).pushes.map(\.id) == [1])
            _ = try await bench.settle(1...1, refusal, connection: connection)
            guard let due = try await bench.store.queue.nextDue(app: .default) else { return -1 }
            let now = bench.fixture.time.now
            bench.fixture.advance(.milliseconds(due.milliseconds - now.milliseconds))
            return due.milliseconds - now.milliseconds
        }
        // While no other push is accepted, this one is retried without end.
        for count in 0..<14 { #expect(try await attempt() == 1000 << min(Int64(count), 9)) }
        #expect(try bench.states() == ["pending"])
        // Another push is accepted, and this one is not.
        try bench.insert(1)
        connection += 1
        #expect(try await lease(connection, room: 1).pushes.map(\.id) == [2])
        _ = try await bench.settle(1...1, .accepted, connection: connection)
        #expect(try await attempt() == -1)
        #expect(try bench.states() == ["failed", "sent"])
        let row = try bench.fixture.query("SELECT reason, not_before FROM push_queue WHERE message_id = 1")[0]
        #expect(row == ["reason": "InvalidProviderToken", "not_before": nil])
    }

    @Test("A push with many credential refusals does not fail because of one lost connection")
    func separateCounts() async throws {
        try bench.insert(2)
        _ = try bench.fixture.query("UPDATE push_queue SET refused = 50 WHERE message_id = 1")
        let lease = try await lease(1)
        #expect(lease.pushes.map(\.id) == [2, 1])
        _ = try await bench.settle(1...1, .accepted)
        _ = try await bench.settle(2...2, .unanswered(reason: "ConnectionLost"))
        #expect(try bench.states() == ["pending", "sent"])
    }
}
