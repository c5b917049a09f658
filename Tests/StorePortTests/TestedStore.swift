import ChatDomain
import ChatSQL
import Testing

@testable import ChatStore
@testable import ChatStorePostgres
@testable import TestStores

/// A store to run the tests of the ports with. A new store is a new case.
enum StoreKind: CaseIterable, Sendable {
    case sqlite, postgres

    /// - Parameter credentialLifetime: The lifetime of credentials for a relay that needs sessions.
    func make(credentialLifetime: Duration? = nil) async throws -> TestedStore {
        switch self {
        case .postgres:
            let fixture = try PostgresFixture()
            return try await TestedStore(
                open: {
                    let store = try await fixture.open(credentialLifetime: credentialLifetime)
                    return TestedStore.Opened(
                        stores: store.ports, imports: store.imports, notice: { try await store.lookForPushes() },
                        flush: { try await store.clients.flush() },
                        webhooks: { SQLWebhookStore(database: store.database, mostWaiting: $0) },
                        close: { store.close() })
                },
                administration: {
                    let queue = try PostgresQueueAdministration(configuration: PostgresConfiguration(url: fixture.url))
                    {
                        fixture.time.now
                    }
                    return (queue, { queue.close() })
                },
                advance: { fixture.advance($0) }, now: { fixture.time.now },
                time: { "'\($0.sqlText)+00'" }
            ) { sql in
                try fixture.query(sql).split(separator: "\n").map { row in
                    row.split(separator: "|", omittingEmptySubsequences: false).map(String.init)
                }
            }
        case .sqlite:
            let fixture = try StoreFixture()
            return try await TestedStore(
                open: {
                    let store = try fixture.open(credentialLifetime: credentialLifetime)
                    return TestedStore.Opened(
                        stores: store.ports, imports: store.imports, notice: { try await store.lookForPushes() },
                        flush: { try await store.clients.flush() },
                        webhooks: { SQLWebhookStore(database: store.database, mostWaiting: $0) },
                        close: { try store.close() })
                },
                administration: {
                    (try QueueFile(path: fixture.path) { fixture.time.now }, {})
                },
                advance: { fixture.advance($0) }, now: { fixture.time.now },
                time: { "'\($0.sqlText)'" }
            ) { sql in
                try fixture.query(sql).map { row in row.databaseValues.map { "\($0.storage.value ?? "")" } }
            }
        }
    }
}

/// A store as its ports show it, across restarts of its process, with the commands and another program beside it.
final class TestedStore {
    struct Opened {
        let stores: Stores
        let imports: any StoreImport
        /// Notices the writes of other programs, as the relay does regularly.
        let notice: () async throws -> Void
        /// Records the uses of credentials, as the relay does regularly.
        let flush: () async throws -> Void
        /// Returns the store of webhooks with another maximum number of waiting events.
        let webhooks: (_ mostWaiting: Int) -> any WebhookStore
        let close: () throws -> Void
    }

    private let open: () async throws -> Opened
    private let administration: () throws -> (queue: any QueueAdministration, close: () -> Void)
    private var opened: Opened
    private var command: (queue: any QueueAdministration, close: () -> Void)?
    var stores: Stores { opened.stores }
    var imports: any StoreImport { opened.imports }
    let advance: (Duration) -> Void
    let now: () -> Timestamp
    /// Returns the time as a literal for another program's statement.
    let time: (Timestamp) -> String
    /// Runs another program's statement and returns its columns as text.
    let query: (String) throws -> [[String]]

    init(
        open: @escaping () async throws -> Opened,
        administration: @escaping () throws -> (queue: any QueueAdministration, close: () -> Void),
        advance: @escaping (Duration) -> Void, now: @escaping () -> Timestamp, time: @escaping (Timestamp) -> String,
        query: @escaping (String) throws -> [[String]]
    ) async throws {
        self.open = open
        self.administration = administration
        self.advance = advance
        self.now = now
        self.time = time
        self.query = query
        opened = try await open()
    }

    deinit {
        command?.close()
        try? opened.close()
    }

    /// Restarts the store, as after the end of the process. Pushes that were not settled stay so.
    func restart() async throws {
        try opened.close()
        opened = try await open()
        _ = try await stores.upkeep.prepare()
    }

    /// Opens the database as another process, beside the first one. The caller closes it.
    func another() async throws -> Opened { try await open() }

    func notice() async throws { try await opened.notice() }

    func flush() async throws { try await opened.flush() }

    func webhooks(mostWaiting: Int) -> any WebhookStore { opened.webhooks(mostWaiting) }

    /// Returns the queue as the commands use it.
    func queue() throws -> any QueueAdministration {
        let command = try self.command ?? administration()
        self.command = command
        return command.queue
    }

    func value(_ sql: String) throws -> Int { try query(sql).first?.first.flatMap(Int.init) ?? -1 }

    func lease(_ limit: Int = 100, lanes: [PushLane] = PushLane.allCases) async throws -> [QueuedPush] {
        try await stores.queue.lease(app: .default, lanes: lanes, limit: limit).pushes
    }

    func settle(_ pushes: [QueuedPush], _ transition: Transition, app: AppName = .default) async throws {
        let settled = try await stores.queue.settle(
            pushes.map { Settlement($0.id...$0.id, transition, notification: $0.notification) }, app: app)
        #expect(settled.map(\.count) == pushes.map { _ in 1 })
    }
}

/// Tests the requirements of `docs/stores.md` for every store, through the ports alone.
