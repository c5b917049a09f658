import ChatDomain
import Logging
import ServiceLifecycle
import Testing

@testable import ChatDispatch

@Suite("The dispatcher")
struct DispatcherTests {
    private let queue = FakeQueue()
    private let gateway = FakeGateway()
    private let silent = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

    private func push(_ identifier: UInt32) throws -> Push {
        Push(
            entry: Int64(identifier), identifier: identifier,
            token: try DeviceToken(parsing: String(repeating: "ab", count: 32)), payload: Array("{}".utf8))
    }

    private func lease(_ identifiers: UInt32..., isProbe: Bool = false) throws -> Lease {
        Lease(slot: FakeGateway.slot(), pushes: try identifiers.map(push), isProbe: isProbe)
    }

    /// Runs a dispatcher while `body` looks on.
    private func running(now: Timestamp = Timestamp(seconds: 0), _ body: () async throws -> Void) async throws {
        let dispatcher = Dispatcher(app: .default, queue: queue, gateway: gateway, clock: { now }, logger: silent)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await dispatcher.run() }
            try await body()
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(gateway.isDrained)
    }

    @Test("Writes what it leases until nothing is due, and again when the queue rings")
    func drains() async throws {
        queue.tell(.success(try lease(5, 6)), .success(try lease(7)))
        try await running {
            await eventually("both leases are written") { gateway.written.count == 2 }
            queue.tell(.success(try lease(8)))
            queue.ring()
            await eventually("the third is written") { gateway.written.count == 3 }
        }
        #expect(gateway.written.flatMap(\.pushes).map(\.identifier) == [5, 6, 7, 8])
    }

    @Test("What is being leased while the gateway drains still gets its verdict, and that is recorded")
    func lateLease() async throws {
        let (gate, opening) = AsyncStream.makeStream(of: Void.self)
        queue.state.withLock { $0.gate = gate }
        queue.tell(.success(try lease(5, 6)))
        let dispatcher = Dispatcher(app: .default, queue: queue, gateway: gateway, logger: silent)
        let services = ServiceGroup(services: [dispatcher], logger: silent)
        async let work: Void = services.run()
        await eventually("the lease is under way") { queue.state.withLock { $0.slots.count } == 1 }
        await services.triggerGracefulShutdown()
        await eventually("the gateway is drained") { gateway.isDrained }
        queue.state.withLock { $0.gate = nil }
        opening.finish()
        try await work
        #expect(gateway.written.flatMap(\.pushes).map(\.identifier) == [5, 6])
        #expect(queue.state.withLock { $0.settled.flatMap { $0 }.map(\.identifiers) } == [5...6])
    }

    @Test("Goes on when the queue fails for a while")
    func survivesQueueFailures() async throws {
        queue.tell(
            .failure(.unavailable(cause: "locked")), .failure(.unavailable(cause: "locked")), .success(try lease(5)))
        try await running {
            await eventually("written after the failures") { gateway.written.count == 1 }
        }
    }

    @Test("Goes on after entries that were refused, and asks for a fresh connection for a probe")
    func refusedAndProbes() async throws {
        let refused = Lease(
            slot: FakeGateway.slot(), pushes: [], refused: [.init(entry: 1, state: .failed, reason: "InvalidToken")])
        let needsFresh = Lease(slot: FakeGateway.slot(), pushes: [], needsFreshConnection: true)
        queue.tell(.success(refused), .success(needsFresh), .success(try lease(1, isProbe: true)))
        try await running {
            await eventually("the probe is written") { gateway.written.count == 1 }
        }
        #expect(gateway.freshAsked == 1)
        #expect(gateway.written[0].isProbe)
    }

    @Test("Rings for itself when an entry that waits becomes due")
    func alarm() async throws {
        queue.state.withLock { $0.due = [Timestamp(milliseconds: 20)] }
        try await running {
            await eventually("it looked once") { queue.state.withLock { $0.slots.count } >= 1 }
            queue.tell(.success(try lease(5)))
            await eventually("written without a ring of the queue") { gateway.written.count == 1 }
        }
    }

    @Test("Records every verdict, also when the store fails at first")
    func records() async throws {
        let verdict = Verdict(connection: ConnectionEpoch(1), identifiers: 1...2, outcome: .accepted)
        queue.state.withLock { $0.settleFailures = 2 }
        gateway.answer([verdict])
        try await running {
            await eventually("recorded") { queue.state.withLock { !$0.settled.isEmpty } }
        }
        let settled = queue.state.withLock { $0.settled }
        #expect(settled == [[verdict]])
    }

    @Test("A verdict on very many is recorded in parts, each of them until it is")
    func parts() async throws {
        queue.state.withLock { $0.settleFailures = 1 }
        func verdict(_ identifiers: ClosedRange<UInt32>, _ outcome: Outcome = .accepted) -> Verdict {
            Verdict(connection: ConnectionEpoch(1), identifiers: identifiers, outcome: outcome)
        }
        let refused = verdict(1...10, .rejected(reason: "BadTopic"))
        gateway.answer([refused, verdict(11...2500)])
        try await running {
            await eventually("recorded") { queue.state.withLock { $0.settled.count } == 3 }
        }
        #expect(
            queue.state.withLock { $0.settled } == [
                [refused, verdict(11...1000)], [verdict(1001...2000)], [verdict(2001...2500)],
            ])
    }

    @Test("Numbers may go to their end")
    func lastNumber() {
        let end = UInt32.max
        let verdict = Verdict(connection: ConnectionEpoch(1), identifiers: (end - 5)...end, outcome: .accepted)
        #expect(
            [verdict].parts(of: 4).map { $0.map(\.identifiers) } == [[(end - 5)...(end - 2)], [(end - 1)...end]])
    }

    @Test("Stops when it is told to, though the queue is silent", .timeLimit(.minutes(1)))
    func stops() async throws {
        try await running {
            await eventually("it looked once") { queue.state.withLock { $0.slots.count } >= 1 }
        }
    }
}

@Suite("The feedback reader")
struct FeedbackReaderTests {
    private let store = FakeFeedbackStore()

    private func report(_ number: UInt8) throws -> FeedbackReport {
        FeedbackReport(
            token: try #require(DeviceToken(bytes: Array(repeating: number, count: 32))), since: Timestamp(seconds: 1))
    }

    private func reader(_ source: FakeSource?) -> FeedbackReader {
        FeedbackReader(
            app: .default, store: store, source: { source }, interval: { .seconds(3600) },
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    @Test("Stores everything before anything is acted on, also when the store fails at first")
    func storesFirst() async throws {
        store.state.withLock { $0.failures = 1 }
        let pieces = try [[report(1), report(2)], [report(3)]]
        #expect(await reader(FakeSource(pieces: pieces, rest: 5)).readOnce())
        let (recorded, whenActing) = store.state.withLock { ($0.recorded, $0.recordedWhenActing) }
        #expect(recorded == pieces.flatMap { $0 })
        #expect(whenActing == [3])
    }

    @Test("Has nothing to do for an app without credentials")
    func noSource() async {
        #expect(await reader(nil).readOnce())
        let acted = store.state.withLock { $0.recordedWhenActing.count }
        #expect(acted == 0)
    }

    @Test("A wall clock that jumps holds back deletion by age, one that runs does not")
    func steadyClock() {
        var clock = SteadyClock(wall: Timestamp(seconds: 0), elapsed: .zero)
        // Wall clock and elapsed time, in seconds, look after look.
        let looks: [(Int64, Int64)] = [
            (600, 600), (1300, 1200), (400_000_000, 1800), (400_000_600, 2400), (3000, 3000), (90_000, 90_000),
        ]
        let steady = looks.map { wall, elapsed in
            clock.isSteady(wall: Timestamp(seconds: wall), elapsed: .seconds(elapsed))
        }
        #expect(steady == [true, true, false, false, false, true])
    }
}
