import ChatDomain
import Synchronization
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Metrics of the relay")
struct RelayMetricsTests {
    private static let start = Timestamp(seconds: 1_800_000_000)

    /// The seconds since the start.
    private let second = Elapsed()

    private final class Elapsed: Sendable {
        let value = Mutex<Int64>(0)
    }

    private func counter(_ pushes: [(Int64, FinalStateCount)]) -> OutcomeCounter {
        let counter = OutcomeCounter { [second] in Self.start + .seconds(second.value.withLock { $0 }) }
        for (time, pushes) in pushes {
            second.value.withLock { $0 = time }
            counter.add([pushes])
        }
        return counter
    }

    @Test("Outcomes are counted by app, state and reason, in total and in the last minute")
    func outcomes() {
        let counter = counter([
            (0, FinalStateCount(app: .default, state: .sent, reason: nil, count: 5)),
            (30, FinalStateCount(app: .default, state: .sent, reason: "RelayRestarted")),
            (30, FinalStateCount(app: .default, state: .failed, reason: "BadDeviceToken")),
            (31, FinalStateCount(app: AppName("other"), state: .sent, reason: nil)),
            (31, FinalStateCount(app: .default, state: .pending, reason: "TooManyRequests")),
        ])
        func counts(_ time: Int64) -> [[Int]] {
            second.value.withLock { $0 = time }
            return counter.outcomes.map { [$0.total, $0.lastMinute] }
        }
        let outcomes = counter.outcomes
        #expect(outcomes.map(\.app.text) == ["default", "default", "other"])
        #expect(outcomes.map(\.state) == [.failed, .sent, .sent])
        #expect(outcomes.map(\.reason) == ["BadDeviceToken", nil, nil])
        #expect(counts(31) == [[1, 1], [6, 6], [1, 1]])
        #expect(counts(59) == [[1, 1], [6, 6], [1, 1]])
        #expect(counts(60) == [[1, 1], [6, 1], [1, 1]])
        #expect(counts(90) == [[1, 0], [6, 0], [1, 1]])
        #expect(counts(1000) == [[1, 0], [6, 0], [1, 0]])
    }

    @Test("A second of the ring is cleared a minute later")
    func ring() {
        let counter = counter([0, 60, 120].map { ($0, FinalStateCount(app: .default, state: .sent, reason: nil)) })
        #expect(counter.outcomes.map { [$0.total, $0.lastMinute] } == [[3, 1]])
    }

    @Test("An app's reasons are bounded; later ones count as Other")
    func bounded() {
        let counter = counter((0..<100).map { (0, FinalStateCount(app: .default, state: .failed, reason: "r\($0)")) })
        let outcomes = counter.outcomes
        #expect(outcomes.count == OutcomeCounter.mostReasons + 1)
        #expect(outcomes.first { $0.reason == BoundedNames.other }?.total == 36)
    }

    @Test("Reports and refusals are counted: ranges, single pushes, but no retries")
    func reports() async throws {
        let bench = try QueueFixture()
        try bench.insert(6)
        _ = try bench.fixture.query("INSERT INTO push_queue (device_token, payload) VALUES ('no token', '{}')")
        _ = try await bench.lease(StoreFixture.slot())
        _ = try await bench.settle(1...3, .accepted)
        _ = try await bench.settle(4...4, .accepted)
        _ = try await bench.settle(5...5, .rejected(reason: "BadDeviceToken"))
        _ = try await bench.settle(6...6, .retry(reason: "InternalServerError"))
        // These pushes are already settled.
        _ = try await bench.settle(1...5, .accepted)
        let outcomes = bench.store.metrics.outcomes()
        #expect(outcomes.map(\.state) == [.failed, .failed, .sent])
        #expect(outcomes.map(\.reason) == ["BadDeviceToken", "InvalidToken", nil])
        #expect(outcomes.map(\.total) == [1, 1, 4])
    }

    @Test("An app without a name is shown as well")
    func namelessApp() async throws {
        let bench = try QueueFixture()
        try bench.insert(2)
        _ = try bench.fixture.query("UPDATE push_queue SET app = ''")
        _ = try bench.fixture.query("UPDATE push_queue SET not_before = 5000000000000 WHERE message_id = 2")
        try await bench.notice()
        let depths = try await bench.store.metrics.queueDepths()
        #expect(depths.map { [$0.due, $0.delayed] } == [[1, 1]])
        #expect(depths.map(\.app) == [AppName("")])
    }
}
