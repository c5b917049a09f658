import ChatDomain
import Foundation
import GRDB
import Synchronization
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("The writer")
struct WriterTests {
    let fixture: StoreFixture
    let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    /// Blocks the writing connection until the returned semaphore is signalled.
    private func hold() async -> DispatchSemaphore {
        let end = DispatchSemaphore(value: 0)
        await withCheckedContinuation { begun in
            store.database.pool.asyncWriteWithoutTransaction { _ in
                begun.resume()
                end.wait()
            }
        }
        return end
    }

    @Test("A trial write is visible to another process")
    func trial() async throws {
        let other = try DatabaseQueue(path: fixture.path)
        func version() throws -> Int? { try other.read { try Int.fetchOne($0, sql: "PRAGMA data_version") } }
        let before = try version()
        try await store.upkeep.tryWriting()
        #expect(try version() != before)
    }

    @Test("A trial write does not wait for a stalled writer, and a later one succeeds")
    func heldTrial() async throws {
        let held = await hold()
        for _ in 0..<2 {
            let error = await #expect(throws: ChatError.self) { try await store.upkeep.tryWriting() }
            #expect(error?.code == .unavailable)
        }
        held.signal()
        let deadline = ContinuousClock.now + .seconds(60)
        while (try? await store.upkeep.tryWriting()) == nil {
            try #require(ContinuousClock.now < deadline)
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    @Test("A client's request does not share a transaction with the queue's upkeep, and goes first")
    func order() async throws {
        let held = await hold()
        let order = Mutex<[String]>([])
        let done = AsyncStream.makeStream(of: Void.self)
        func put(_ name: String, _ urgency: BatchingWriter.Urgency) {
            let accepted = store.database.writer.enqueue(urgency) { db in
                let transaction = try Int.fetchOne(db, sql: "SELECT count(*) FROM feedback") ?? 0
                try db.execute(sql: "INSERT INTO feedback (app, device_token, time_reported) VALUES ('a', 'b', 'c')")
                order.withLock { $0.append("\(name) after \(transaction)") }
                return {
                    order.withLock { $0.append("\(name) is done") }
                    done.continuation.yield()
                }
            } onFailure: { error in
                Issue.record(error)
                done.continuation.yield()
            }
            #expect(accepted)
        }
        put("step", .background)
        put("lease", .upkeep)
        put("first", .answer)
        put("report", .upkeep)
        put("second", .answer)
        held.signal()
        var count = 0
        for await _ in done.stream {
            count += 1
            if count == 5 { break }
        }
        #expect(
            order.withLock { $0 } == [
                "first after 0", "second after 1", "first is done", "second is done",
                "lease after 2", "report after 3", "lease is done", "report is done",
                "step after 4", "step is done",
            ])
    }

    @Test("Transactions are measured by urgency and size, and failed ones are counted")
    func work() async throws {
        let writer = store.database.writer
        let before = writer.work
        let held = await hold()
        async let first: Void = writer.perform { _ in }
        async let second: Void = writer.perform { _ in }
        async let third: Void = writer.perform(.upkeep) { _ in }
        held.signal()
        _ = try await (first, second, third)
        let work = writer.work
        #expect(work.batches.map(\.kind) == ["answer", "upkeep", "background"])
        #expect(zip(work.batches, before.batches).map { $0.sizes.sum - $1.sizes.sum } == [2, 1, 0])
        for (after, before) in zip(work.batches, before.batches) {
            #expect(after.seconds.count == after.sizes.count && after.seconds.sum >= before.seconds.sum)
        }
        await #expect(throws: ChatError.self) {
            try await writer.perform { _ -> Void in throw DatabaseError(resultCode: .SQLITE_FULL) }
        }
        #expect(writer.work.failedBatches == before.failedBatches + 1)
        let metrics = store.metrics.work()
        #expect(metrics.files.map(\.name) == ["database", "log"] && metrics.files[0].bytes > 0)
        #expect(try #require(metrics.freeBytes) > 0)
    }

    @Test("Background work has all of the time while no client waits, and an eighth while one does")
    func budget() {
        let start = ContinuousClock.now
        var budget = BackgroundBudget(now: start)
        #expect(budget.pause(at: start) == nil && budget.steps == 1)
        // Four steps took a millisecond each.
        budget.spent(4, from: start, to: start + .milliseconds(4))
        #expect(budget.steps == 4)
        // No client waits, so the background work continues.
        #expect(budget.pause(at: start + .milliseconds(4)) == nil)
        // Requests were answered: the background work pauses for seven times the time that it spent, or until no
        // further answers come.
        budget.answered(at: start + .milliseconds(5))
        #expect(budget.pause(at: start + .milliseconds(6)) == .milliseconds(9))
        #expect(budget.pause(at: start + .milliseconds(15)) == nil)
        for time in stride(from: 6, through: 30, by: 8) { budget.answered(at: start + .milliseconds(time)) }
        #expect(budget.pause(at: start + .milliseconds(31)) == .milliseconds(1))
        #expect(budget.pause(at: start + .milliseconds(32)) == nil)
        // Small steps share a transaction, up to a limit. A large step has its own.
        budget.spent(1, from: start, to: start + .microseconds(1))
        #expect(budget.steps == 16)
        budget.spent(1, from: start, to: start + .seconds(1))
        #expect(budget.steps == 1)
    }

    @Test("The write-ahead log is copied beside the writer, has a limited size, and loses nothing")
    func checkpoints() async throws {
        let text = String(repeating: "x", count: 100_000)
        func size(_ suffix: String) -> Int {
            (try? FileManager.default.attributesOfItem(atPath: fixture.path + suffix)[.size] as? Int) ?? 0
        }
        // Two hundred megabytes.
        for number in 0..<2000 {
            try await store.database.writer.perform(durably: false) { db in
                try db.execute(
                    sql: "INSERT INTO messages (secret_code, udid, nickname, text) VALUES ('r', 'u', ?, ?)",
                    arguments: ["\(number)", text])
            }
        }
        // If the disk does not keep up, the writer waits. The log then has its last transaction more.
        #expect(size("-wal") <= Checkpointer.extreme * 4200 + 1 << 20)
        #expect(size("") > 40 << 20)
        #expect(store.metrics.work().checkpoints.reduce(0) { $0 + $1.seconds.count } > 0)
        #expect(try fixture.value("SELECT count(*) FROM messages WHERE length(text) = 100000") == 2000)
        try store.close()
        #expect(size("-wal") == 0)
        #expect(try fixture.query("PRAGMA integrity_check").map { $0[0] as String } == ["ok"])
        #expect(try fixture.value("SELECT count(*) FROM messages") == 2000)
    }

    @Test("The part of the log that a reader of an older state needs is copied later")
    func slowReader() async throws {
        let pool = try DatabasePool(path: fixture.path)
        let text = String(repeating: "x", count: 100_000)
        func write(_ count: Int) async throws {
            for _ in 0..<count {
                try await store.database.writer.perform(durably: false) { db in
                    try db.execute(
                        sql: "INSERT INTO messages (secret_code, udid, nickname, text) VALUES ('r', 'u', 'n', ?)",
                        arguments: [text])
                }
            }
        }
        try await write(1)
        let snapshot = try pool.makeSnapshot()
        #expect(try await snapshot.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM messages") } == 1)
        try await write(300)
        #expect(try await snapshot.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM messages") } == 1)
        try snapshot.close()
        try await write(100)
        try pool.close()
        try store.close()
        #expect(try fixture.value("SELECT count(*) FROM messages") == 401)
    }
}
