import ChatDomain
import ChatStore
import GRDB

/// A store and the few moves that tests of the queue are made of.
struct QueueBench: Sendable {
    let fixture: StoreFixture
    let store: SQLiteStore

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
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

    func lease(_ slot: ConnectionSlot) async throws -> Lease {
        try await store.lease(app: .default, for: slot)
    }

    func settle(
        _ identifiers: ClosedRange<UInt32>, _ outcome: Outcome, connection: Int64 = 1, late: Bool = false
    )
        async throws -> [Settlement]
    {
        try await store.settle([
            Verdict(
                connection: ConnectionEpoch(connection), identifiers: identifiers, outcome: outcome,
                overrulesSilence: late)
        ])
    }
}
