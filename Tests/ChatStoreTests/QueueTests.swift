import ChatDomain
import Dispatch
import Foundation
import GRDB
import Synchronization
import TestSupport
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("The durable queue")
struct QueueTests {
    let bench: QueueFixture

    init() throws {
        bench = try QueueFixture()
    }

    @Test("A waiting or released push wakes its app's dispatcher, and no other", .timeLimit(.minutes(1)))
    func wakes() async throws {
        try bench.insert(2)
        let queue = bench.store.queue
        _ = try await queue.lease(app: .default, lanes: PushLane.allCases, limit: 2)
        var arrivals = queue.arrivals(of: .default).makeAsyncIterator()
        let (others, signal) = AsyncStream.makeStream(of: Void.self)
        queue.announceArrivals(of: .web, to: signal)
        let time = bench.fixture.time.now + .seconds(60)
        let wait = Transition(.waiting(until: time, reason: "Busy"), adding: PushHistory(attempts: 1))
        _ = try await queue.settle([Settlement(1...1, wait)], app: .default)
        await arrivals.next()
        #expect(try await queue.nextDue(app: .default) == time)
        queue.release([2...2], lane: .normal, app: .default)
        await arrivals.next()
        signal.finish()
        #expect(await others.reduce(0) { count, _ in count + 1 } == 0)
    }

    @Test("A lease is in the order of the push ids, even if pushes with lower ids are released while it reads")
    func orderDuringReads() async throws {
        let fixture = try StoreFixture()
        let duringRead = Mutex<[@Sendable () -> Void]>([])
        let store = try SQLiteStores(
            file: DatabaseFile(path: fixture.path),
            settings: { StoreSettings(format: { StoreFixture.format(of: $0, namesMessage: false) }) },
            now: {
                duringRead.withLock { $0.popLast() }?()
                return fixture.time.now
            }, logger: .silent)
        let bench = try QueueFixture(fixture, store)
        try bench.insert(6)
        try await bench.notice()
        let lanes = PushLane.allCases
        #expect(try await store.queue.lease(app: .default, lanes: lanes, limit: 6).pushes.count == 6)
        store.queue.release([4...6], lane: .normal, app: .default)
        // The lease reads the time first when it looks for waiting pushes, and then when it has claimed pushes to read.
        duringRead.withLock { $0 = [{ store.queue.release([1...3], lane: .normal, app: .default) }, {}] }
        let leased = try await store.queue.lease(app: .default, lanes: lanes, limit: 6)
        #expect(leased.pushes.map(\.id) == [1, 2, 3, 4, 5, 6])
        #expect(duringRead.withLock { $0.isEmpty })
    }

    /// Calls `body` on the scanner's thread whenever a lease has begun to read pushes, from the state of that moment.
    private func duringReads(_ body: @escaping @Sendable () -> Void) async throws {
        try await bench.store.database.scan { db in
            db.trace { event in
                guard case .statement(let statement) = event, statement.sql.contains("FROM push_queue q") else {
                    return
                }
                body()
            }
        }
    }

    @Test("A lease that reads while a deletion commits returns nothing of the message", .timeLimit(.minutes(1)))
    func deletionDuringRead() async throws {
        let store = bench.store
        for member in 1...2 { _ = try await store.rooms.join(StoreFixture.join(member)) }
        let message = try await store.rooms.post(StoreFixture.post(1, "secret")).message
        // The content is no longer cached, so that the lease reads it.
        store.queue.forgetContent()
        let deletion = Mutex<Task<Void, any Error>?>(nil)
        try await duringReads {
            let isDeleted = DispatchSemaphore(value: 0)
            deletion.withLock { deletion in
                guard deletion == nil else { return }
                deletion = Task {
                    defer { isDeleted.signal() }
                    try await store.moderation.delete(message, by: .commandLine)
                }
                isDeleted.wait()
            }
        }
        #expect(try await store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes.isEmpty)
        let task = try #require(deletion.withLock { $0 })
        try await task.value
    }

    @Test(
        "A lease ends although each of its reads is out of date, and the dispatcher asks again", .timeLimit(.minutes(1))
    )
    func withdrawalsWithoutEnd() async throws {
        let store = bench.store
        try bench.insert(3)
        try await bench.notice()
        var arrivals = store.queue.arrivals(of: .default).makeAsyncIterator()
        let withdraws = Mutex(true)
        try await duringReads { if withdraws.withLock({ $0 }) { store.queue.forgetContent() } }
        #expect(try await store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes.isEmpty)
        await arrivals.next()
        withdraws.withLock { $0 = false }
        #expect(try await store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes.count == 3)
    }

    @Test("A scheduled push whose time passed before it was queued is due at once")
    func queuedAfterItsTime() async throws {
        let store = bench.store
        // Each lease looks for waiting pushes, up to now.
        #expect(try await store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes.isEmpty)
        bench.fixture.advance(.seconds(60))
        store.queue.insertedWaiting(1...1, until: bench.fixture.time.now, apps: [.default])
        #expect(try await store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes.isEmpty)
        _ = try await store.notifications.send(
            NotificationRequest(
                audience: .tokens([StoreFixture.token(1)]), payload: "{}",
                notBefore: bench.fixture.time.now - .seconds(30)))
        #expect(try await store.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes.count == 1)
    }

    @Test("An operator's retry changes the order in which pushes are leased")
    func orderAfterRetry() async throws {
        try bench.insert(3)
        try await bench.notice()
        let queue = bench.store.queue
        _ = try await queue.lease(app: .default, lanes: PushLane.allCases, limit: 3)
        let time = bench.fixture.time.now + .seconds(10)
        let lost = Transition(.waiting(until: time, reason: "Lost"), adding: PushHistory(attempts: 1, unanswered: 1))
        _ = try await queue.settle([Settlement(1...1, lost)], app: .default)
        bench.fixture.advance(.seconds(20))
        // The lease finds push 1 in the lane of retries, and takes none from there.
        #expect(try await queue.lease(app: .default, lanes: [.normal], limit: 3).pushes.isEmpty)
        _ = try await bench.store.queueAdministration.retry(.ids([1])) { _ in }
        queue.release([2...3], lane: .normal, app: .default)
        #expect(try await queue.lease(app: .default, lanes: PushLane.allCases, limit: 3).pushes.map(\.id) == [1, 2, 3])
    }

    @Test("An error response settles the earlier pushes, fails the named one, and retries the later ones")
    func resume() async throws {
        try bench.insert(5)
        _ = try await bench.lease(StoreFixture.slot())
        let settled = try await bench.settle([
            DeliveryReport(connection: ConnectionID(1), identifiers: 1...2, outcome: .accepted),
            DeliveryReport(connection: ConnectionID(1), identifiers: 3...3, outcome: .rejected(reason: "InvalidToken")),
            DeliveryReport(connection: ConnectionID(1), identifiers: 4...5, outcome: .notProcessed),
        ])
        #expect(settled.map(\.count) == [2, 1])
        #expect(try settled[1].address == StoreFixture.token(3).description)
        #expect(try bench.states() == ["sent", "sent", "failed", "pending", "pending"])
        #expect(try bench.fixture.query("SELECT reason FROM push_queue WHERE message_id = 3")[0][0] == "InvalidToken")
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE time_sent IS NOT NULL") == 2)
        #expect(try await bench.lease(StoreFixture.slot(2)).pushes.map(\.id) == [4, 5])
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

    @Test("An invalid push fails alone, with its reason", arguments: 0..<poison.count)
    func poisoned(index: Int) async throws {
        let (token, payload, reason) = Self.poison[index]
        try bench.insert(1)
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (?, ?)", [token, payload])
        try bench.insert(1)
        let lease = try await bench.lease(StoreFixture.slot())
        #expect(lease.pushes.map(\.id) == [1, 3])
        #expect(lease.pushes.map(\.identifier) == [1, 2])
        #expect(lease.reasons == [reason])
        #expect(try bench.states() == ["pending", "failed", "pending"])
    }

    @Test("A payload may be a blob, and a token may be written as Apple prints it")
    func foreignForms() async throws {
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (?, ?)",
            ["<" + String(repeating: "AAAAAAAA ", count: 8) + ">", Data(#"{"aps":{}}"#.utf8)])
        let lease = try await bench.lease(StoreFixture.slot())
        #expect(lease.pushes.map(\.address.description) == [String(repeating: "a", count: 64)])
        #expect(lease.pushes.map(\.payload) == [Array(#"{"aps":{}}"#.utf8)])
    }

    @Test("A push past its time expires, and a waiting push is not leased early")
    func times() async throws {
        try bench.insert(3)
        let now = bench.fixture.time.now
        _ = try bench.fixture.query("UPDATE push_queue SET expires_at = ? WHERE message_id = 1", [now.seconds])
        _ = try bench.fixture.query(
            "UPDATE push_queue SET not_before = ? WHERE message_id = 2", [(now + .seconds(60)).milliseconds])
        #expect(try await bench.lease(StoreFixture.slot()).pushes.map(\.id) == [3])
        #expect(try bench.states() == ["expired", "pending", "pending"])
        #expect(try await bench.store.queue.nextDue(app: .default) == now + .seconds(60))
        bench.fixture.advance(.seconds(60))
        #expect(try await bench.lease(StoreFixture.slot(2)).pushes.map(\.id) == [2])
    }

    @Test("Retries have growing delays, and the last one fails with the gateway's reason")
    func retries() async throws {
        try bench.insert(1)
        var waits: [Int64] = []
        for connection in 1...10 {
            let lease = try await bench.lease(StoreFixture.slot(Int64(connection)))
            #expect(lease.pushes.count == 1)
            _ = try await bench.settle(1...1, .retry(reason: "ProcessingError"), connection: Int64(connection))
            let now = bench.fixture.time.now
            guard let due = try await bench.store.queue.nextDue(app: .default) else { break }
            waits.append(due.milliseconds - now.milliseconds)
            bench.fixture.advance(.milliseconds(due.milliseconds - now.milliseconds))
        }
        #expect(waits == [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000])
        #expect(try bench.states() == ["failed"])
        #expect(try bench.fixture.query("SELECT reason FROM push_queue")[0][0] == "ProcessingError")
    }

    @Test("Neither a discarded push nor a lost one counts towards the retry limit")
    func attempts() async throws {
        try bench.insert(1)
        for connection in 1...30 {
            _ = try await bench.lease(StoreFixture.slot(Int64(connection)))
            _ = try await bench.settle(1...1, .notProcessed, connection: Int64(connection))
        }
        _ = try await bench.lease(StoreFixture.slot(31))
        _ = try await bench.settle(1...1, .unanswered(reason: "ConnectionClosed"), connection: 31)
        _ = try await bench.lease(StoreFixture.slot(32))
        _ = try await bench.settle(1...1, .retry(reason: "ProcessingError"), connection: 32)
        let now = bench.fixture.time.now
        #expect(try await bench.store.queue.nextDue(app: .default) == now + .seconds(1))
        #expect(try bench.fixture.value("SELECT attempts FROM push_queue") == 2)
    }

    @Test("A time in another form than the column's is rejected by the insert, not misread")
    func strictColumns() {
        for column in ["not_before", "expires_at"] {
            #expect(throws: DatabaseError.self) {
                try bench.fixture.query(
                    "INSERT INTO push_queue (device_token, payload, \(column)) VALUES ('aa', '{}', datetime('now'))")
            }
        }
    }

    @Test("After a crash all unsettled pushes are sent, from the settled position on")
    func recovery() async throws {
        try bench.insert(5)
        _ = try await bench.lease(StoreFixture.slot(room: 3))
        try await bench.settle(1...1, .accepted)
        // The store writes the position of the settled pushes with the outcomes after it.
        try await bench.settle(2...2, .accepted)
        #expect(try bench.fixture.value("SELECT settled_to FROM queue_state") == 1)
        try bench.store.close()
        let reopened = try bench.fixture.open()
        #expect(try await reopened.upkeep.prepare() == StoreBacklog(apps: [.default]))
        let again = try QueueFixture(bench.fixture, reopened)
        #expect(try await again.lease(StoreFixture.slot()).pushes.map(\.id) == [3, 4, 5])
    }

    @Test("Pushes that lose their connections are isolated until the poisoned one is alone")
    func isolation() async throws {
        try bench.insert(600)
        let poisoned: Int64 = 333
        var connection: Int64 = 0
        var writes: [Int64: Int] = [:]
        var isLate = false
        for _ in 0..<200 {
            connection += 1
            var lease = try await bench.lease(StoreFixture.slot(connection, first: 5))
            if lease.needsFreshConnection {
                #expect(lease.pushes.isEmpty)
                connection += 1
                lease = try await bench.lease(StoreFixture.slot(connection))
                #expect(lease.isProbe)
            }
            guard let first = lease.pushes.first, let last = lease.pushes.last else {
                if isLate { break }
                isLate = true
                // A later push is accepted. The poisoned one waits longer and longer.
                try bench.insert(1)
                continue
            }
            for push in lease.pushes { writes[push.id, default: 0] += 1 }
            let fails = lease.pushes.contains { $0.id == poisoned }
            _ = try await bench.settle(
                first.identifier...last.identifier, fails ? .unanswered(reason: "ConnectionClosed") : .accepted,
                connection: connection)
        }
        #expect(try bench.fixture.value("SELECT count(*) FROM push_queue WHERE state = 'sent'") == 600)
        #expect(writes.values.max().map { $0 <= 8 } == true)
        // The poisoned push is tried later and later, and each time other pushes are accepted beside it.
        for _ in 0..<20 {
            guard let due = try await bench.store.queue.nextDue(app: .default) else { break }
            let now = bench.fixture.time.now
            bench.fixture.advance(.milliseconds(due.milliseconds - now.milliseconds))
            connection += 2
            #expect(try await bench.lease(StoreFixture.slot(connection)).pushes.map(\.id) == [poisoned])
            _ = try await bench.settle(1...1, .unanswered(reason: "ConnectionClosed"), connection: connection)
            try bench.insert(1)
            _ = try await bench.lease(StoreFixture.slot(connection + 1))
            _ = try await bench.settle(1...1, .accepted, connection: connection + 1)
        }
        let row = try bench.fixture.query("SELECT state, reason FROM push_queue WHERE message_id = ?", [poisoned])[0]
        #expect(row == ["state": "failed", "reason": "ConnectionClosed"])
    }

    @Test("A single push is never given up while no other push is accepted")
    func neverGivesUp() async throws {
        try bench.insert(1)
        for connection in 1...40 {
            bench.fixture.advance(.seconds(3600))
            #expect(try await bench.lease(StoreFixture.slot(Int64(connection))).pushes.count == 1)
            _ = try await bench.settle(1...1, .unanswered(reason: "ConnectionClosed"), connection: Int64(connection))
        }
        #expect(try bench.states() == ["pending"])
    }

}
