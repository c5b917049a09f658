import ChatDomain
import Logging
import ServiceLifecycle
import TestSupport
import Testing

@testable import ChatDispatch

@Suite("The dispatcher")
struct DispatcherTests {
    private let queue = FakeQueue()
    private let gateway = FakeGateway()
    private let silent = Logger.silent

    private func report(
        _ identifiers: ClosedRange<UInt32>, _ outcome: Outcome = .accepted, connection: Int64 = 1
    ) -> DeliveryReport {
        DeliveryReport(connection: ConnectionID(connection), identifiers: identifiers, outcome: outcome)
    }

    /// Runs a dispatcher during `body`.
    private func running(now: Timestamp = Timestamp(seconds: 0), _ body: () async throws -> Void) async throws {
        let dispatcher = Dispatcher(app: .default, queue: queue, gateway: gateway, now: { now }, logger: silent)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await dispatcher.run() }
            try await body()
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(gateway.isDrained)
    }

    @Test("It writes its leases until nothing is due, and again when the queue signals")
    func drains() async throws {
        queue.tell(.success(FakeQueue.rows(1...2)), .success(FakeQueue.rows(3...3)))
        try await running {
            try await eventually("both leases are written") { gateway.written.count == 2 }
            queue.tell(.success(FakeQueue.rows(9...9)))
            queue.signal()
            try await eventually("the third is written") { gateway.written.count == 3 }
        }
        #expect(gateway.written.flatMap(\.pushes).map(\.id) == [1, 2, 3, 9])
        #expect(gateway.written.flatMap(\.pushes).map(\.identifier) == [5, 6, 7, 8])
    }

    @Test("Pushes that are leased while the gateway drains get a report and are released")
    func lateLease() async throws {
        let (gate, opening) = AsyncStream.makeStream(of: Void.self)
        queue.state.withLock { $0.gate = (after: 0, end: gate) }
        queue.tell(.success(FakeQueue.rows(7...8)))
        let dispatcher = Dispatcher(app: .default, queue: queue, gateway: gateway, logger: silent)
        let services = ServiceGroup(services: [dispatcher], logger: silent)
        async let work: Void = services.run()
        try await eventually("the lease has begun") { queue.state.withLock { $0.asked.count } == 1 }
        await services.triggerGracefulShutdown()
        try await eventually("the gateway is drained") { gateway.isDrained }
        queue.state.withLock { $0.gate = nil }
        opening.finish()
        try await work
        #expect(gateway.written.flatMap(\.pushes).map(\.id) == [7, 8])
        #expect(queue.state.withLock { $0.released } == [7...8])
    }

    @Test(
        "It drains its gateway and ends when the gateway's connections, slots or reports end before a shutdown",
        .timeLimit(.minutes(1)), arguments: ["connections", "slots", "reports"])
    func partEnds(part: String) async throws {
        queue.tell(.success(FakeQueue.rows(1...1)))
        let dispatcher = Dispatcher(app: .default, queue: queue, gateway: gateway, logger: silent)
        async let work: Void = dispatcher.run()
        try await eventually("the lease is written") { gateway.written.count == 1 }
        switch part {
        case "connections": gateway.fail()
        case "slots":
            await gateway.drain()
            queue.signal()
        default: await gateway.finish()
        }
        try await work
        #expect(gateway.isDrained)
    }

    @Test("It continues after the queue has failed for a while")
    func survivesQueueFailures() async throws {
        queue.tell(
            .failure(.unavailable(cause: "locked")), .failure(.unavailable(cause: "locked")),
            .success(FakeQueue.rows(5...5)))
        try await running {
            try await eventually("written after the failures") { gateway.written.count == 1 }
        }
    }

    @Test("A test takes another device's push from behind the pushes of refused devices, and releases those")
    func test() async throws {
        let refused = try #require(FakeQueue.row(1).address)
        let other = try #require(DeviceToken(bytes: [UInt8](repeating: 1, count: 32)))
        let healthy = QueuedPush(id: 2001, history: PushHistory(), address: .token(other), payload: [1], apnsID: "1")
        gateway.test(limit: 1, ServiceTest([refused: 1]))
        // The first search meets only refused devices, so the second one looks twice as far.
        queue.tell(
            .success(FakeQueue.rows(1...1000)), .success(FakeQueue.rows(2...1001)),
            .success(LeasedPushes([healthy])))
        try await running {
            try await eventually("two tests are written") { gateway.written.count == 2 }
        }
        #expect(gateway.written.flatMap(\.pushes).map(\.id) == [1, 2001])
        #expect(queue.state.withLock { $0.released } == [2...1000, 2...1001])
        #expect(queue.state.withLock { $0.asked.prefix(3).map(\.limit) } == [1000, 1000, 1000])
    }

    @Test("A test without enough other devices also takes pushes of refused ones, which the queue may have passed over")
    func testOfRefused() async throws {
        let refused = try #require(FakeQueue.row(1).address)
        let other = try #require(DeviceToken(bytes: [UInt8](repeating: 1, count: 32)))
        let healthy = QueuedPush(id: 2001, history: PushHistory(), address: .token(other), payload: [1], apnsID: "1")
        gateway.test(limit: 2, ServiceTest([refused: 1]))
        queue.tell(.success(LeasedPushes([healthy])), .success(FakeQueue.rows(1...1)))
        try await running {
            try await eventually("the test is written") { gateway.written.count == 1 }
        }
        #expect(gateway.written.flatMap(\.pushes).map(\.id) == [2001, 1])
    }

    @Test("The search for a test's pushes ends when the relay stops")
    func stopsSearch() async throws {
        let refused = try #require(FakeQueue.row(1).address)
        gateway.test(limit: 1, ServiceTest([refused: 1]))
        // After the first search, each one may take several leases.
        for _ in 1...100 { queue.tell(.success(FakeQueue.rows(1...1000))) }
        let dispatcher = Dispatcher(app: .default, queue: queue, gateway: gateway, logger: silent)
        let services = ServiceGroup(services: [dispatcher], logger: silent)
        let (gate, opening) = AsyncStream.makeStream(of: Void.self)
        queue.state.withLock { $0.gate = (after: 10, end: gate) }
        async let work: Void = services.run()
        try await eventually("a search is under way") { queue.state.withLock { $0.asked.count } == 11 }
        await services.triggerGracefulShutdown()
        try await eventually("the gateway is drained") { gateway.isDrained }
        opening.finish()
        try await work
        // Leases 1, 2 and 3, 4 to 7, 8 to 15: the fourth search ends early.
        #expect(queue.state.withLock { $0.asked.count } == 11)
    }

    @Test("It continues after refused pushes, and requests a fresh connection for a probe")
    func refusedAndProbes() async throws {
        queue.tell(
            .success(LeasedPushes([FakeQueue.row(1, payload: "")])),
            .success(FakeQueue.rows(2...3, unanswered: 2)), .success(FakeQueue.rows(2...3, unanswered: 2)))
        try await running {
            try await eventually("the probe is written") { gateway.written.count == 1 }
        }
        #expect(gateway.freshAsked == 1)
        #expect(gateway.written[0].isProbe)
        #expect(queue.state.withLock { $0.released } == [2...3])
        let refused = queue.state.withLock { $0.settled }.flatMap { $0 }
        #expect(refused.map(\.transition) == [Transition(.failed(reason: "MissingPayload"))])
    }

    @Test("It wakes without a signal when a waiting push becomes due")
    func alarm() async throws {
        queue.state.withLock { $0.due = [Timestamp(milliseconds: 20)] }
        // The first lease finds nothing.
        queue.tell(.success(LeasedPushes([])), .success(FakeQueue.rows(5...5)))
        try await running {
            try await eventually("written without a signal of the queue") { gateway.written.count == 1 }
        }
    }

    @Test("It records the outcome of each push, even if the store fails at first")
    func records() async throws {
        queue.state.withLock { $0.settleFailures = 2 }
        queue.tell(.success(FakeQueue.rows(10...11)))
        try await running {
            try await eventually("written") { gateway.written.count == 1 }
            gateway.answer([report(5...6)])
            try await eventually("recorded") { queue.state.withLock { !$0.settled.isEmpty } }
        }
        let settled = queue.state.withLock { $0.settled }
        #expect(settled == [[Settlement(10...11, Transition(.sent, adding: PushHistory(attempts: 1)))]])
    }

    @Test("It sends nothing more while outcomes cannot be recorded")
    func stopsSending() async throws {
        queue.tell(.success(FakeQueue.rows(1...1)))
        try await running {
            try await eventually("written") { gateway.written.count == 1 }
            queue.state.withLock { $0.settleFailures = 3 }
            gateway.answer([report(5...5)])
            // Wait for two failed attempts: the dispatcher learns of a failure a moment after the queue.
            try await eventually("two attempts failed") { queue.state.withLock { $0.settleFailures } < 2 }
            queue.tell(.success(FakeQueue.rows(2...2)))
            queue.signal()
            try await eventually("the second is written") { gateway.written.count == 2 }
            // By then the outcome of the first push is on disk.
            #expect(queue.state.withLock { $0.settled.count } == 1)
        }
    }

    @Test(
        "When it stops, it gives up outcomes that cannot be recorded, and releases their pushes",
        .timeLimit(.minutes(1)))
    func stopsWithoutRecording() async throws {
        queue.tell(.success(FakeQueue.rows(1...3)))
        queue.state.withLock { $0.settleFailures = .max }
        let dispatcher = Dispatcher(app: .default, queue: queue, gateway: gateway, logger: silent)
        let services = ServiceGroup(services: [dispatcher], logger: silent)
        async let work: Void = services.run()
        try await eventually("written") { gateway.written.count == 1 }
        gateway.answer([report(5...5)])
        try await eventually("it has failed so often that the pauses are long") {
            queue.state.withLock { $0.settleFailures } < .max - 3
        }
        // These outcomes arrive while the first waits to be recorded.
        gateway.answer([report(6...7)])
        await services.triggerGracefulShutdown()
        try await work
        #expect(queue.state.withLock { $0.settled }.isEmpty)
        #expect(Set(queue.state.withLock { $0.released }) == [1...1, 2...3])
    }

    @Test("It records many outcomes in parts, and retries each part until it is recorded")
    func parts() async throws {
        queue.state.withLock { $0.settleFailures = 1 }
        // Every other id belongs to another app, so each push needs its own settlement.
        queue.tell(.success(LeasedPushes((0..<800).map { FakeQueue.row($0 * 2) })))
        queue.tell(.success(LeasedPushes((0..<800).map { FakeQueue.row(5000 + $0 * 2) })))
        try await running {
            try await eventually("written") { gateway.written.count == 2 }
            gateway.answer([report(5...1604)])
            try await eventually("recorded") { queue.state.withLock { $0.settled.count } == 2 }
        }
        #expect(queue.state.withLock { $0.settled.map(\.count) } == [1000, 600])
    }

    @Test("It stops on request while the queue is silent", .timeLimit(.minutes(1)))
    func stops() async throws {
        try await running {
            try await eventually("it looked once") { queue.state.withLock { $0.asked.count } >= 1 }
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
            logger: .silent)
    }

    @Test("It stores all reports before it acts on them, even if the store fails at first")
    func storesFirst() async throws {
        store.state.withLock {
            $0.failures = 1
            $0.result = FeedbackResult(deactivated: 3)
        }
        let pieces = try [[report(1), report(2)], [report(3)]]
        #expect(await reader(FakeSource(pieces: pieces, rest: 5)).readOnce())
        let (recorded, whenActing) = store.state.withLock { ($0.recorded, $0.recordedWhenActing) }
        #expect(recorded == pieces.flatMap { $0 })
        #expect(whenActing == [3])
    }

    /// A service whose list never ends.
    private struct EndlessSource: FeedbackSource {
        let piece: [FeedbackReport]

        func read(_ store: @Sendable ([FeedbackReport]) async throws -> Void) async throws -> Int {
            while true { try await store(piece) }
        }
    }

    @Test("It reads an endless list up to a limit and acts on it; the next reading continues")
    func endless() async throws {
        store.state.withLock { $0.result = FeedbackResult(deactivated: 1) }
        let piece = try Array(repeating: report(1), count: 999)
        let reader = FeedbackReader(
            app: .default, store: store, source: { EndlessSource(piece: piece) }, interval: { .seconds(3600) },
            logger: .silent)
        let most = FeedbackReader.maxReports
        for reading in 1...2 {
            // The reading succeeded, so the reader does not retry it before the interval ends.
            #expect(await reader.readOnce())
            let acted = store.state.withLock { $0.recordedWhenActing }
            #expect(acted.count == reading)
            #expect((reading * most..<reading * (most + 999)).contains(acted[reading - 1]))
        }
    }

    @Test("It has nothing to do for an app without credentials")
    func noSource() async {
        #expect(await reader(nil).readOnce())
        let acted = store.state.withLock { $0.recordedWhenActing.count }
        #expect(acted == 0)
    }
}
