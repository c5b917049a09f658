import ChatDomain
import Logging
import NIOCore
import Synchronization
import TestSupport
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("A connection pool at work", .timeLimit(.minutes(5)))
struct ConnectionPoolTests {
    private struct Target: PoolTarget {
        let endpoint: GatewayEndpoint
    }

    private typealias Pool = ConnectionPool<Target, FakeConnection>

    private let clock = TestClock()

    private func pool(permanent: Int = 1) throws -> Pool {
        let endpoint = try GatewayEndpoint(host: "host", port: 1, credentials: nil, trust: nil)
        return Pool(
            target: Target(endpoint: endpoint), size: PoolSize(permanent: permanent), connectionIDs: ConnectionIDs(),
            now: Timestamp.now, clock: clock.clock, logger: .silent)
    }

    /// Runs a pool whose connections offer a slot.
    private func run(
        _ pool: Pool, open: @escaping @Sendable (FakeConnection) async throws -> Void = { $0.offer() },
        _ body: () async throws -> Void
    ) async throws {
        async let running: Void = pool.run { _, connectionID, _ in
            let connection = FakeConnection(connectionID, .init(result: .progress))
            try await open(connection)
            return connection
        }
        do {
            try await body()
        } catch {
            await pool.drain()
            throw error
        }
        await pool.drain()
        await running
    }

    private func lease(_ slot: ConnectionSlot) throws -> Lease {
        Lease(slot: slot, pushes: [try HTTP2GatewayFixture.push(slot.firstIdentifier)])
    }

    @Test("A waiter gets the slot of a connection that opens later")
    func slot() async throws {
        let pool = try pool()
        let early = Task { await pool.slot(fresh: false) }
        try await run(pool) {
            #expect(await early.value?.connection.number == 1)
            #expect(await pool.slot(fresh: true)?.connection.number == 1)
            #expect(pool.openConnections == 1)
        }
        #expect(pool.openConnections == 0)
        #expect(await pool.slot(fresh: false) == nil)
    }

    @Test("A failed attempt is repeated when its delay is over, not before")
    func retry() async throws {
        let attempts = Atomic(0)
        let pool = try pool()
        try await run(pool) { connection in
            if attempts.add(1, ordering: .relaxed).newValue < 3 { throw ChannelError.eof }
            connection.offer()
        } _: {
            let slot = Task { await pool.slot(fresh: false) }
            let first = await clock.advanceToNextWakeUp()
            #expect((.milliseconds(125)...Duration.milliseconds(250)).contains(first))
            let second = await clock.advanceToNextWakeUp()
            #expect((.milliseconds(250)...Duration.milliseconds(500)).contains(second))
            #expect(await slot.value?.connection.number == 3)
        }
    }

    @Test("A drain ends an attempt that never completes, a delay, and the waiters")
    func endlessConnect() async throws {
        let pool = try pool(permanent: 2)
        let waiting = Mutex<Task<ConnectionSlot?, Never>?>(nil)
        try await run(pool) { connection in
            guard connection.id.number == 1 else { throw ChannelError.eof }
            try await Task.sleep(for: .seconds(86_400))
        } _: {
            waiting.withLock { $0 = Task { await pool.slot(fresh: false) } }
        }
        #expect(await waiting.withLock { $0 }?.value == nil)
    }

    @Test("A drain that is cancelled closes the connections, although their pushes have no outcome")
    func cancelledDrain() async throws {
        let pool = try pool()
        try await run(pool) { connection in
            connection.change { $0.keepsDraining = true }
            connection.offer()
        } _: {
            #expect(await pool.slot(fresh: false)?.connection.number == 1)
            let drain = Task { await pool.drain() }
            drain.cancel()
            await drain.value
        }
        #expect(pool.openConnections == 0)
    }

    @Test("A waiter whose task is cancelled gets no slot, even if it was cancelled before it asked")
    func cancelled() async throws {
        let pool = try pool()
        let waiter = Task { await pool.slot(fresh: false) }
        await Task.yield()
        waiter.cancel()
        #expect(await waiter.value == nil)
        let late = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return await pool.slot(fresh: false)
        }
        #expect(await late.value == nil)
    }

    @Test("A lease reaches its connection; when that is closed, its pushes were not processed")
    func write() async throws {
        let connection = Mutex<FakeConnection?>(nil)
        let pool = try pool()
        try await run(pool) { opened in
            opened.change { $0.takesLeases = true }
            opened.offer()
            connection.withLock { if $0 == nil { $0 = opened } }
        } _: {
            let slot = try #require(await pool.slot(fresh: false))
            pool.write(try lease(slot))
            let first = try #require(connection.withLock { $0 })
            #expect(first.leases.map(\.slot) == [slot])
            first.change { $0.slot = nil }
            first.close()
            #expect(await pool.slot(fresh: false)?.connection.number == 2)
            while pool.openConnections > 1 { await Task.yield() }
            pool.write(try lease(slot))
            #expect(first.leases.count == 1)
        }
        await pool.finish(SocketConnector().eventLoops)
        #expect(await pool.reports.take()?.map(\.outcome) == [.notProcessed])
        #expect(await pool.reports.take() == nil)
    }

    @Test("No wake-up is lost while slots come and go from several threads")
    func races() async throws {
        let pool = try pool()
        let connection = Mutex<FakeConnection?>(nil)
        try await run(pool) { opened in
            opened.offer()
            connection.withLock { $0 = opened }
        } _: {
            _ = await pool.slot(fresh: false)
            let opened = try #require(connection.withLock { $0 })
            let served = await withTaskGroup(of: Int.self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        var served = 0
                        for _ in 0..<500 where await pool.slot(fresh: false) != nil {
                            served += 1
                            opened.change { $0.slot = nil }
                            // The last change before a waiter waits offers a slot and notifies the pool.
                            Task {
                                opened.offer()
                                pool.changed()
                            }
                        }
                        return served
                    }
                }
                return await group.reduce(0, +)
            }
            #expect(served == 2000)
        }
    }
}
