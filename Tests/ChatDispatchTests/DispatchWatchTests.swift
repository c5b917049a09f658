import ChatDomain
import Logging
import Synchronization
import TestSupport
import Testing

@testable import ChatDispatch

@Suite("Dispatchers that stall")
struct DispatchWatchTests {
    /// A queue depth and a gateway that a test sets.
    private final class Relay: RelayMetrics {
        struct State {
            var due = 1
            var connections = 1
            var isBroken = false
            var pause: QueuePause?
        }

        let state = Mutex(State())

        func queueDepths() async throws(ChatError) -> [QueueDepth] {
            let state = state.withLock { $0 }
            if state.isBroken { throw .unavailable(cause: "broken") }
            return [QueueDepth(app: .default, due: state.due, pause: state.pause)]
        }

        func totals() async throws(ChatError) -> StoreTotals { StoreTotals() }
        func usage(since day: String) async throws(ChatError) -> [DeviceDay]? { nil }
        func outcomes() -> [OutcomeCount] { [] }
    }

    private let relay = Relay()
    private let progress = DispatchProgress()

    private func watch() -> DispatchWatch {
        let app = DispatchWatch.App(
            name: .default, progress: progress,
            openConnections: { [relay] in relay.state.withLock { $0.connections } }, answerLimit: .seconds(30))
        return DispatchWatch(apps: { [app] }, metrics: relay)
    }

    @Test("A paused app does not count as a stall")
    func paused() async {
        let watch = watch()
        relay.state.withLock {
            $0.pause = QueuePause(app: .default, reason: nil, actor: "ops", since: Timestamp(seconds: 1))
        }
        await watch.check(at: .seconds(10))
        await watch.check(at: .seconds(500))
        #expect(watch.stalled.isEmpty)
    }

    @Test("A dispatcher with work is reported if it does not move for longer than a response may take")
    func stalled() async {
        let watch = watch()
        await watch.check(at: .seconds(10))
        await watch.check(at: .seconds(99))
        #expect(watch.stalled.isEmpty)
        await watch.check(at: .seconds(100))
        #expect(watch.stalled.map(\.app) == [.default] && watch.stalled.map(\.time) == [.seconds(90)])
        // The watch keeps its result if it cannot read the queue's depth.
        relay.state.withLock { $0.isBroken = true }
        await watch.check(at: .seconds(200))
        #expect(watch.stalled.count == 1)
        relay.state.withLock { $0.isBroken = false }
        progress.moved()
        await watch.check(at: .seconds(210))
        #expect(watch.stalled.isEmpty)
    }

    @Test(
        "A dispatcher that moves, has no work or waits for its gateway is healthy",
        arguments: ["moves", "idle", "no gateway"])
    func well(why: String) async {
        let watch = watch()
        if why == "idle" { relay.state.withLock { $0.due = 0 } }
        if why == "no gateway" { relay.state.withLock { $0.connections = 0 } }
        for time in stride(from: 10, through: 1000, by: 10) {
            if why == "moves" { progress.moved() }
            await watch.check(at: .seconds(time))
            #expect(watch.stalled.isEmpty)
        }
        // The time without work does not count once there is some.
        relay.state.withLock { $0 = Relay.State() }
        await watch.check(at: .seconds(1010))
        #expect(watch.stalled.isEmpty)
    }

    @Test("A dispatcher counts its leases and its reports")
    func counts() async throws {
        let (queue, gateway) = (FakeQueue(), FakeGateway())
        queue.tell(.success(FakeQueue.rows(1...2)))
        let dispatcher = Dispatcher(
            app: .default, queue: queue, gateway: gateway, progress: progress,
            logger: .silent)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await dispatcher.run() }
            try await eventually("the lease, and one of nothing") { progress.steps >= 2 }
            let count = progress.steps
            gateway.answer([
                DeliveryReport(connection: ConnectionID(1), identifiers: 5...6, outcome: .accepted)
            ])
            try await eventually("the report") { progress.steps > count }
            group.cancelAll()
            try await group.waitForAll()
        }
    }
}
