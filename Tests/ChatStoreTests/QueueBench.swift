import APNSGateway
import ChatDomain
import GRDB
import Synchronization

@testable import ChatDispatch
@testable import ChatStore

/// A store with what a dispatcher does between its queue and a gateway, and the few moves that tests of the queue are made of.
final class QueueBench: Sendable {
    let fixture: StoreFixture
    let store: SQLiteStores
    private let inFlight: Mutex<InFlightPushes>

    /// What a lease came to.
    struct Result {
        var pushes: [Push] = []
        var isProbe = false
        var needsFreshConnection = false
        /// Pushes that do not go.
        var refused: [Settlement] = []

        var reasons: [String] { refused.map { $0.transition.reason ?? "" } }
    }

    init(_ fixture: StoreFixture? = nil, _ store: SQLiteStores? = nil) throws {
        self.fixture = try fixture ?? StoreFixture()
        self.store = try store ?? self.fixture.open()
        inFlight = Mutex(InFlightPushes(PushLifeCycle(.init(retry: RetryPolicy(attempts: 10)))))
    }

    func insert(_ count: Int, payload: String = #"{"aps":{}}"#) throws {
        for number in 1...count {
            _ = try fixture.query(
                "INSERT INTO push_queue (device_token, payload) VALUES (?, ?)",
                [StoreFixture.token(number).description, payload])
        }
    }

    func states() throws -> [String] {
        try fixture.query("SELECT state FROM push_queue ORDER BY message_id").map { $0[0] }
    }

    /// Looks at what other programs have done, as the relay does by itself.
    func notice() async throws {
        try await store.repair.notice()
        var position: Int64? = QueueIndex.ids.lowerBound
        while let from = position { position = try await store.repair.sweep(from: from).next }
    }

    func lease(_ slot: ConnectionSlot, _ kind: APNSFormat.Kind = .binary) async throws -> Result {
        try await notice()
        let format = APNSFormat(kind, payloadLimit: kind == .binary ? 2048 : 4096)
        let now = fixture.time.withLock { $0 }
        while true {
            let (lanes, limit, isTurn) = inFlight.withLock { ($0.lanes, $0.limit(for: slot), $0.isTurn) }
            let leased = try await store.queue.lease(app: .default, lanes: lanes, limit: limit)
            if leased.pushes.isEmpty {
                guard isTurn else { return Result() }
                inFlight.withLock { $0.turnIsEmpty() }
                continue
            }
            let admission = inFlight.withLock { $0.admit(leased, to: slot, format: format, at: now) }
            for (lane, entries) in admission.givenBack {
                store.queue.giveBack(entries.ranges, lane: lane, app: .default)
            }
            _ = try await store.queue.settle(admission.settlements, app: .default)
            return Result(
                pushes: admission.lease.pushes, isProbe: admission.lease.isProbe,
                needsFreshConnection: inFlight.withLock { $0.needsFreshConnection }, refused: admission.settlements)
        }
    }

    @discardableResult
    func settle(_ reports: [DeliveryReport]) async throws -> [SettledPushes] {
        let now = fixture.time.withLock { $0 }
        let conclusion = inFlight.withLock { $0.conclude(reports, at: now) }
        for (lane, entries) in conclusion.givenBack { store.queue.giveBack(entries.ranges, lane: lane, app: .default) }
        return try await store.queue.settle(conclusion.batches.joined().map(\.settlement), app: .default)
    }

    @discardableResult
    func settle(
        _ identifiers: ClosedRange<UInt32>, _ outcome: Outcome, connection: Int64 = 1, late: Bool = false
    ) async throws -> [SettledPushes] {
        try await settle([
            DeliveryReport(
                connection: ConnectionID(connection), identifiers: identifiers, outcome: outcome,
                overrulesSilence: late)
        ])
    }
}
