import ChatDomain
import ChatStore
import Foundation
import GRDB
import Testing

@Suite("The durable queue")
struct QueueTests {
    let fixture: StoreFixture
    let store: SQLiteStore

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    private func insert(_ count: Int, payload: String = #"{"aps":{}}"#) throws {
        for number in 1...count {
            _ = try fixture.query(
                "INSERT INTO push_queue (device_token, payload) VALUES (?, ?)",
                [StoreFixture.token(number).description, payload])
        }
    }

    private func states() throws -> [String] {
        try fixture.query("SELECT state FROM push_queue ORDER BY message_id").map { $0[0] }
    }

    private func lease(_ slot: ConnectionSlot) async throws -> Lease {
        try await store.lease(app: .default, for: slot)
    }

    private func settle(
        _ identifiers: ClosedRange<UInt32>, _ outcome: Outcome, connection: Int64 = 1, late: Bool = false
    )
        async throws -> [Settlement]
    {
        try await store.settle([
            Verdict(
                connection: ConnectionEpoch(connection), identifiers: identifiers, outcome: outcome,
                overrulesSilence: late)
        ])
    }

    @Test("Entries are leased in order, marked before they are written, and not twice")
    func leases() async throws {
        try insert(5)
        let first = try await lease(StoreFixture.slot(room: 3))
        #expect(first.pushes.map(\.identifier) == [1, 2, 3])
        #expect(first.pushes.map(\.entry) == [1, 2, 3])
        let second = try await lease(StoreFixture.slot(2, first: 8))
        #expect(second.pushes.map(\.entry) == [4, 5])
        #expect(second.pushes.map(\.identifier) == [8, 9])
        #expect(try await lease(StoreFixture.slot(2, first: 10)).pushes.isEmpty)
        #expect(try states() == Array(repeating: "written", count: 5))
        let row = try fixture.query(
            "SELECT connection_epoch, identifier, attempts, time_written FROM push_queue WHERE message_id = 4")[0]
        #expect(row[0] == 2)
        #expect(row[1] == 8)
        #expect(row[2] == 1)
        #expect(row[3] == "2027-01-15 08:00:00.000")
    }

    @Test("An error answer settles what was before, fails the named, repeats what was after")
    func resume() async throws {
        try insert(5)
        _ = try await lease(StoreFixture.slot())
        let settlements = try await store.settle([
            Verdict(connection: ConnectionEpoch(1), identifiers: 1...2, outcome: .accepted),
            Verdict(connection: ConnectionEpoch(1), identifiers: 3...3, outcome: .rejected(reason: "InvalidToken")),
            Verdict(connection: ConnectionEpoch(1), identifiers: 4...5, outcome: .notProcessed),
        ])
        #expect(settlements.map(\.count) == [2, 1, 2])
        #expect(settlements[1].entry == 3)
        #expect(try settlements[1].token == StoreFixture.token(3))
        #expect(try states() == ["sent", "sent", "failed", "pending", "pending"])
        #expect(try fixture.query("SELECT reason FROM push_queue WHERE message_id = 3")[0][0] == "InvalidToken")
        #expect(try fixture.value("SELECT count(*) FROM push_queue WHERE time_sent IS NOT NULL") == 2)
        #expect(try await lease(StoreFixture.slot(2)).pushes.map(\.entry) == [4, 5])
    }

    @Test("The first verdict stands, except when the gateway overrules silence")
    func overruling() async throws {
        try insert(3)
        _ = try await lease(StoreFixture.slot())
        _ = try await settle(1...3, .accepted)
        #expect(try await settle(2...3, .notProcessed)[0].count == 0)
        #expect(try states() == ["sent", "sent", "sent"])
        #expect(try await settle(2...2, .rejected(reason: "InvalidToken"), late: true)[0].count == 1)
        #expect(try await settle(3...3, .notProcessed, late: true)[0].count == 1)
        #expect(try states() == ["sent", "failed", "pending"])
    }

    private static let poison: [(String, String, String)] = [
        ("not a token", #"{"aps":{}}"#, "InvalidToken"),
        ("", #"{"aps":{}}"#, "InvalidToken"),
        ("aa", #"{"aps":{}}"#, "InvalidToken"),
        (String(repeating: "a", count: 64), "", "MissingPayload"),
        (String(repeating: "a", count: 64), #"{"aps":{"alert":"}}"#, "InvalidJSON"),
        (String(repeating: "a", count: 64), "[1]", "InvalidJSON"),
        (
            String(repeating: "a", count: 64), #"{"aps":{"alert":"\#(String(repeating: "x", count: 2048))"}}"#,
            "InvalidPayloadSize"
        ),
    ]

    @Test("A poisoned entry fails alone, with its reason", arguments: 0..<poison.count)
    func poisoned(index: Int) async throws {
        let (token, payload, reason) = Self.poison[index]
        try insert(1)
        _ = try fixture.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (?, ?)", [token, payload])
        try insert(1)
        let lease = try await lease(StoreFixture.slot())
        #expect(lease.pushes.map(\.entry) == [1, 3])
        #expect(lease.pushes.map(\.identifier) == [1, 2])
        #expect(lease.refused.map(\.reason) == [reason])
        #expect(try states() == ["written", "failed", "written"])
    }

    @Test("A payload may be a blob, and a token may be written as Apple prints it")
    func foreignForms() async throws {
        _ = try fixture.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (?, ?)",
            ["<" + String(repeating: "AAAAAAAA ", count: 8) + ">", Data(#"{"aps":{}}"#.utf8)])
        let lease = try await lease(StoreFixture.slot())
        #expect(lease.pushes.map(\.token.description) == [String(repeating: "a", count: 64)])
        #expect(lease.pushes.map(\.payload) == [Array(#"{"aps":{}}"#.utf8)])
    }

    @Test("An entry whose time ran out expires, one that waits is not taken early")
    func times() async throws {
        try insert(3)
        let now = fixture.time.withLock { $0 }
        _ = try fixture.query("UPDATE push_queue SET expires_at = ? WHERE message_id = 1", [now.seconds])
        _ = try fixture.query(
            "UPDATE push_queue SET not_before = ? WHERE message_id = 2", [(now + .seconds(60)).milliseconds])
        #expect(try await lease(StoreFixture.slot()).pushes.map(\.entry) == [3])
        #expect(try states() == ["expired", "pending", "written"])
        #expect(try await store.nextDue(app: .default) == now + .seconds(60))
        fixture.advance(.seconds(60))
        #expect(try await lease(StoreFixture.slot(2)).pushes.map(\.entry) == [2])
    }

    @Test("A repeat does not wait for a clock that was set back")
    func clockSetBack() async throws {
        try insert(1)
        _ = try await lease(StoreFixture.slot())
        _ = try await settle(1...1, .retry(reason: "ProcessingError"))
        fixture.advance(.seconds(-86_400))
        #expect(try await lease(StoreFixture.slot(2)).pushes.map(\.entry) == [1])
    }

    @Test("Repeats have growing delays and an end with the gateway's reason")
    func retries() async throws {
        try insert(1)
        var waits: [Int64] = []
        for connection in 1...10 {
            let lease = try await lease(StoreFixture.slot(Int64(connection)))
            #expect(lease.pushes.count == 1)
            _ = try await settle(1...1, .retry(reason: "ProcessingError"), connection: Int64(connection))
            let now = fixture.time.withLock { $0 }
            guard let due = try await store.nextDue(app: .default) else { break }
            waits.append(due.milliseconds - now.milliseconds)
            fixture.advance(.milliseconds(due.milliseconds - now.milliseconds))
        }
        #expect(waits == [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000])
        #expect(try states() == ["failed"])
        #expect(try fixture.query("SELECT reason FROM push_queue")[0][0] == "ProcessingError")
    }

    @Test("Being discarded behind a bad one is no attempt, nor is silence one that counts")
    func attempts() async throws {
        try insert(1)
        for connection in 1...30 {
            _ = try await lease(StoreFixture.slot(Int64(connection)))
            _ = try await settle(1...1, .notProcessed, connection: Int64(connection))
        }
        _ = try await lease(StoreFixture.slot(31))
        _ = try await settle(1...1, .unanswered(reason: "ConnectionClosed"), connection: 31)
        _ = try await lease(StoreFixture.slot(32))
        _ = try await settle(1...1, .retry(reason: "ProcessingError"), connection: 32)
        let now = fixture.time.withLock { $0 }
        #expect(try await store.nextDue(app: .default) == now + .seconds(1))
        #expect(try fixture.value("SELECT attempts FROM push_queue") == 2)
    }

    @Test("A token that is refused again and again is given up, but not for a certificate that makes all look bad")
    func refusals() async throws {
        for number in 1...3 { try await store.join(StoreFixture.join(number, "room\(number)")) }
        let bad = try StoreFixture.token(1).description
        var connection: Int64 = 0
        func refuse() async throws {
            connection += 1
            _ = try fixture.query("INSERT INTO push_queue (device_token, payload) VALUES (?, '{}')", [bad])
            _ = try await lease(StoreFixture.slot(connection))
            _ = try await settle(1...1, .rejected(reason: "InvalidToken"), connection: connection)
        }
        for _ in 0..<8 { try await refuse() }
        let inactive = "SELECT count(*) FROM devices WHERE deactivated_reason = 'InvalidToken'"
        #expect(try fixture.value(inactive) == 0)
        try insert(1)
        _ = try fixture.query(
            "UPDATE push_queue SET device_token = ? WHERE state = 'pending'", [StoreFixture.token(2).description])
        _ = try await lease(StoreFixture.slot(100))
        _ = try await settle(1...1, .accepted, connection: 100)
        try await refuse()
        #expect(try fixture.value(inactive) == 1)
        try await store.join(StoreFixture.join(1, "room1"))
        #expect(try fixture.value(inactive) == 0)
        for _ in 0..<4 { try await refuse() }
        #expect(try fixture.value(inactive) == 0)
    }

    @Test("A time in another form than the column's is refused at the insert, not misread")
    func strictColumns() {
        for column in ["not_before", "expires_at"] {
            #expect(throws: DatabaseError.self) {
                try fixture.query(
                    "INSERT INTO push_queue (device_token, payload, \(column)) VALUES ('aa', '{}', datetime('now'))")
            }
        }
    }

    @Test(
        "A row that names no app goes to the default app, whatever that is called", .timeLimit(.minutes(1)))
    func adoption() async throws {
        let other = try StoreFixture()
        let store = try other.open(defaultApp: AppName("news"))
        var arrivals = store.arrivals().makeAsyncIterator()
        let watch = Task { await store.watch() }
        defer { watch.cancel() }
        await arrivals.next()
        _ = try other.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (?, '{}')", [StoreFixture.token(1).description])
        var lease: Lease
        repeat {
            // Each look may be on an announcement that is older than the row.
            await arrivals.next()
            lease = try await store.lease(app: AppName("news"), for: StoreFixture.slot())
        } while lease.pushes.isEmpty
        #expect(lease.pushes.count == 1)
    }

    @Test("After a crash exactly the written entries are in doubt")
    func recovery() async throws {
        try insert(3)
        _ = try await lease(StoreFixture.slot(room: 2))
        _ = try await settle(1...1, .accepted)
        try store.close()
        let reopened = try fixture.open()
        #expect(try await reopened.recover() == Recovery(count: 1, lastEpoch: ConnectionEpoch(1)))
        #expect(try states() == ["sent", "pending", "pending"])
    }

    @Test("Entries that lose their connections are isolated, until the poisoned one is alone")
    func isolation() async throws {
        try insert(600)
        let poisoned: Int64 = 333
        var connection: Int64 = 0
        var writes: [Int64: Int] = [:]
        var isLate = false
        for _ in 0..<200 {
            connection += 1
            var lease = try await lease(StoreFixture.slot(connection, first: 5))
            if lease.needsFreshConnection {
                #expect(lease.pushes.isEmpty)
                connection += 1
                lease = try await self.lease(StoreFixture.slot(connection))
                #expect(lease.isProbe)
            }
            guard let first = lease.pushes.first, let last = lease.pushes.last else {
                if isLate { break }
                isLate = true
                // A later push gets through; the poisoned one waits longer and longer.
                try insert(1)
                continue
            }
            for push in lease.pushes { writes[push.entry, default: 0] += 1 }
            let fails = lease.pushes.contains { $0.entry == poisoned }
            _ = try await settle(
                first.identifier...last.identifier, fails ? .unanswered(reason: "ConnectionClosed") : .accepted,
                connection: connection)
        }
        #expect(try fixture.value("SELECT count(*) FROM push_queue WHERE state = 'sent'") == 600)
        #expect(writes.values.max().map { $0 <= 8 } == true)
        for _ in 0..<20 where try fixture.value("SELECT count(*) FROM push_queue WHERE state = 'pending'") > 0 {
            fixture.advance(.seconds(600))
            connection += 1
            _ = try await lease(StoreFixture.slot(connection))
            _ = try await settle(1...1, .unanswered(reason: "ConnectionClosed"), connection: connection)
        }
        let row = try fixture.query("SELECT state, reason FROM push_queue WHERE message_id = ?", [poisoned])[0]
        #expect(row == ["state": "failed", "reason": "ConnectionClosed"])
    }

    @Test("An entry alone is never given up while nothing else gets through either")
    func neverGivesUp() async throws {
        try insert(1)
        for connection in 1...40 {
            fixture.advance(.seconds(3600))
            #expect(try await lease(StoreFixture.slot(Int64(connection))).pushes.count == 1)
            _ = try await settle(1...1, .unanswered(reason: "ConnectionClosed"), connection: Int64(connection))
        }
        #expect(try states() == ["pending"])
    }

    @Test("The device of an unregistered answer is deactivated, unless it registered later")
    func unregistered() async throws {
        try await store.join(StoreFixture.join(1))
        try await store.join(StoreFixture.join(2))
        let joined = fixture.time.withLock { $0 }
        _ = try await store.post(StoreFixture.post(1, "a"))
        _ = try await lease(StoreFixture.slot())
        _ = try await settle(1...1, .unregistered(since: joined - .seconds(60), reason: "Unregistered"))
        #expect(try fixture.value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 0)
        _ = try await store.post(StoreFixture.post(1, "b"))
        _ = try await lease(StoreFixture.slot(2))
        _ = try await settle(1...1, .unregistered(since: joined, reason: "Unregistered"), connection: 2)
        #expect(try fixture.value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 1)
        #expect(try await store.post(StoreFixture.post(1, "c")).queued == 0)
        try await store.update(StoreFixture.member(2), token: StoreFixture.token(2), client: ClientInfo())
        #expect(try await store.post(StoreFixture.post(1, "d")).queued == 1)
    }

    @Test("Feedback is kept, compared with the last registration, and acted on once")
    func feedback() async throws {
        let start = fixture.time.withLock { $0 }
        for number in 1...2 { try await store.join(StoreFixture.join(number)) }
        try await store.record(
            [
                FeedbackReport(token: StoreFixture.token(1), since: Timestamp(seconds: start.seconds)),
                FeedbackReport(token: StoreFixture.token(2), since: Timestamp(seconds: start.seconds - 1)),
                FeedbackReport(token: StoreFixture.token(3), since: start),
            ], app: .default)
        #expect(try await store.actOnFeedback() == FeedbackResult(deactivated: 1, kept: 1, unknown: 1))
        #expect(try await store.actOnFeedback() == FeedbackResult())
        #expect(
            try fixture.query("SELECT device_token FROM devices WHERE time_deactivated IS NOT NULL").map {
                $0[0] as String
            }
                == [StoreFixture.token(1).description])
        // What was queued for it before is not sent; who joins again is active again.
        _ = try fixture.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (?, '{}')", [StoreFixture.token(1).description])
        #expect(try await lease(StoreFixture.slot()).refused.map(\.reason) == ["DeviceInactive"])
        try await store.join(StoreFixture.join(1))
        #expect(try fixture.value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 0)
    }

    @Test("Retention deletes what is settled and old, and nothing that is still to be sent")
    func retention() async throws {
        try insert(1200)
        _ = try await lease(StoreFixture.slot())
        _ = try await settle(1...1000, .accepted)
        try await store.join(StoreFixture.join(1))
        _ = try await store.post(StoreFixture.post(1, "old"))
        fixture.advance(.seconds(8 * 86_400))
        _ = try await store.post(StoreFixture.post(1, "new"))
        let first = try await store.applyRetention(messages: .seconds(30 * 86_400), queue: .seconds(7 * 86_400))
        #expect(first.pushes == 1000)
        #expect(first.messages == 0)
        fixture.advance(.seconds(25 * 86_400))
        #expect(
            try await store.applyRetention(messages: .seconds(30 * 86_400), queue: .seconds(7 * 86_400)).messages == 1)
        #expect(try fixture.value("SELECT count(*) FROM push_queue WHERE state = 'pending'") == 200)
    }

    @Test("A row that another process inserts is announced within a second")
    func foreignRows() async throws {
        var arrivals = store.arrivals().makeAsyncIterator()
        let watch = Task { await store.watch() }
        defer { watch.cancel() }
        // The safety net's own announcement at the start.
        await arrivals.next()
        let start = ContinuousClock.now
        try insert(1)
        await arrivals.next()
        #expect(ContinuousClock.now - start < .seconds(1))
    }

    /// A hot query must be answered from an index, and must not sort.
    private static let hot: [(String, String)] = [
        (
            "SELECT message_id FROM push_queue WHERE app = ? AND state = 'pending' AND not_before IS NULL ORDER BY message_id LIMIT ?",
            "push_queue_due"
        ),
        (
            "SELECT min(not_before) FROM push_queue WHERE app = ? AND state = 'pending' AND not_before IS NOT NULL",
            "push_queue_waiting"
        ),
        (
            "UPDATE push_queue SET state = 'sent' WHERE connection_epoch = ? AND state = 'written' AND identifier BETWEEN ? AND ?",
            "push_queue_written"
        ),
        (
            "SELECT message_id FROM push_queue WHERE time_settled IS NOT NULL AND time_settled < ? ORDER BY time_settled LIMIT ?",
            "push_queue_settled"
        ),
        (
            "SELECT member_id FROM active_users WHERE secret_code = ? AND member_id > ? AND member_id <= ? ORDER BY member_id LIMIT 1 OFFSET ?",
            "active_users_room"
        ),
        (
            "SELECT message_id FROM messages WHERE secret_code = ? AND message_id > ? ORDER BY message_id LIMIT ?",
            "messages_room"
        ),
        ("SELECT message_id FROM messages WHERE udid = ? AND idempotency_key = ?", "messages_idempotency"),
        (
            "SELECT message_id FROM messages WHERE fanout_after IS NOT NULL ORDER BY message_id LIMIT 100",
            "messages_fanout"
        ),
        (
            "UPDATE active_users SET device_token = '0' WHERE device_token = ? AND app = ? AND device_token <> '0' AND udid <> ?",
            "active_users_device"
        ),
    ]

    @Test("Hot queries use their index", arguments: hot)
    func plans(sql: String, index: String) throws {
        let count = sql.filter { $0 == "?" }.count
        let arguments = StatementArguments(Array(repeating: 1, count: count))
        let plan = try fixture.query("EXPLAIN QUERY PLAN " + sql, arguments).map { $0["detail"] as String }
        #expect(plan.contains { $0.contains(index) }, "\(plan)")
        #expect(!plan.contains { $0.contains("TEMP B-TREE") }, "\(plan)")
    }
}
