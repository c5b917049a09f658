import APNSGateway
import ChatDomain
import GRDB

@testable import ChatStore
@testable import TestStores

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
        dispatch = DispatchFixture(self.store.queue) { fixture.time.now }
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
