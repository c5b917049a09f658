import APNSGateway
import ChatDomain
import Foundation
import Logging
import Synchronization

@testable import ChatStorePostgres

/// A PostgreSQL database for one test, which is dropped after the test. Each store that is opened on it belongs to one
/// relay.
final class PostgresFixture: Sendable {
    let server: PostgresServer
    let database: String
    let time = Mutex(Timestamp(milliseconds: 1_800_000_000_000))
    private let client: PostgresClient

    init() throws {
        server = try PostgresServer.shared()
        database = try server.makeDatabase()
        client = PostgresClient(url: server.url(database))
    }

    deinit { try? server.drop(database) }

    var url: String { server.url(database) }

    /// Opens and prepares the stores of one more relay. The caller closes them.
    func open(
        schema: String? = nil, defaultApp: AppName = .default, namesMessage: Bool = false, apps: Set<AppName>? = nil,
        keepsUsage: @escaping @Sendable () -> Bool = { true }
    ) async throws -> PostgresStores {
        let stores = try PostgresStores(
            configuration: PostgresConfiguration(url: url, schema: schema, connections: 4),
            settings: {
                StoreSettings(
                    format: { StoreFixture.format(of: $0, namesMessage: namesMessage) },
                    defaultApp: defaultApp, keepsUsage: keepsUsage(), apps: apps)
            },
            now: { self.time.withLock { $0 } }, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        do {
            _ = try await stores.upkeep.prepare()
        } catch {
            stores.close()
            throw error
        }
        return stores
    }

    func advance(_ duration: Duration) {
        time.withLock { $0 = $0 + duration }
    }

    /// Runs a statement as another program. The result has `|` between columns and line breaks between rows.
    @discardableResult
    func query(_ sql: String) throws -> String { try client.text(sql) }

    func value(_ sql: String) throws -> Int { Int(try query(sql)) ?? -1 }
}

extension PostgresStores {
    /// Does the watch's work of one round.
    func lookForPushes() async throws { try await upkeep.queue.look() }
}
