import APNSGateway
import ChatDomain
import GRDB
import Synchronization

@testable import ChatDispatch
@testable import ChatStore

/// The part of a dispatcher between the queue and a gateway.
final class DispatchFixture: Sendable {
    let queue: any PushQueue
    private let now: @Sendable () -> Timestamp
    private let inFlight: Mutex<InFlightPushes>

    /// The result of a lease.
    struct Result {
        var pushes: [Push] = []
        var isProbe = false
        var needsFreshConnection = false
        /// Pushes that are not sent.
        var refused: [Settlement] = []

        var reasons: [String] { refused.map { $0.transition.reason ?? "" } }
    }

    init(_ queue: any PushQueue, now: @escaping @Sendable () -> Timestamp) {
        self.queue = queue
        self.now = now
        inFlight = Mutex(InFlightPushes(PushLifeCycle(.init(retry: RetryPolicy(attempts: 10)))))
    }

    func lease(_ slot: ConnectionSlot, _ kind: APNSFormat.Kind = .binary) async throws -> Result {
        let format = APNSFormat(kind, payloadLimit: kind == .binary ? 2048 : 4096)
        let now = now()
        while true {
            let (lanes, limit, servesSingleLane) = inFlight.withLock {
                ($0.lanes, $0.limit(for: slot), $0.servesSingleLane)
            }
            let leased = try await queue.lease(app: .default, lanes: lanes, limit: limit)
            if leased.pushes.isEmpty {
                guard servesSingleLane else { return Result() }
                inFlight.withLock { $0.endTurn() }
                continue
            }
            let admission = inFlight.withLock { $0.admit(leased, to: slot, format: format, at: now) }
            for (lane, ids) in admission.released {
                queue.release(ids.ranges, lane: lane, app: .default)
            }
            _ = try await queue.settle(admission.settlements, app: .default)
            return Result(
                pushes: admission.lease.pushes, isProbe: admission.lease.isProbe,
                needsFreshConnection: inFlight.withLock { $0.needsFreshConnection }, refused: admission.settlements)
        }
    }

    @discardableResult
    func settle(_ reports: [DeliveryReport]) async throws -> [SettledPushes] {
        let now = now()
        let conclusion = inFlight.withLock { $0.conclude(reports, at: now) }
        for (lane, ids) in conclusion.released { queue.release(ids.ranges, lane: lane, app: .default) }
        return try await queue.settle(conclusion.batches.joined().map(\.settlement), app: .default)
    }
}

/// A store with a dispatcher, and shortcuts for tests of the queue.
final class QueueFixture: Sendable {
    typealias Result = DispatchFixture.Result

    let fixture: StoreFixture
    let store: SQLiteStores
    private let dispatch: DispatchFixture

    init(_ fixture: StoreFixture? = nil, _ store: SQLiteStores? = nil) throws {
        let fixture = try fixture ?? StoreFixture()
        self.fixture = fixture
        self.store = try store ?? fixture.open()
        dispatch = DispatchFixture(self.store.queue) { fixture.time.withLock { $0 } }
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

    /// Notices the writes of other programs, as the relay does regularly.
    func notice() async throws { try await store.lookForPushes() }

    func lease(_ slot: ConnectionSlot, _ kind: APNSFormat.Kind = .binary) async throws -> Result {
        try await notice()
        return try await dispatch.lease(slot, kind)
    }

    @discardableResult
    func settle(_ reports: [DeliveryReport]) async throws -> [SettledPushes] { try await dispatch.settle(reports) }

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
