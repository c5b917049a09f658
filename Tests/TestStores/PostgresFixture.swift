import APNSGateway
import ChatDomain
import Foundation
import Logging
import Synchronization
import TestSupport

@testable import ChatStorePostgres

/// A PostgreSQL database for one test, which is dropped after the test. Each store that is opened on it belongs to one
/// relay.
final class PostgresFixture: Sendable {
    let server: PostgresServer
    let database: String
    let time = WallClock(Timestamp(milliseconds: 1_800_000_000_000))
    private let client: PostgresClient

    /// A database with the tables, which new databases copy. To create the tables takes longer than most tests.
    private static let template = Result {
        let server = try PostgresServer.shared()
        let name = try server.makeDatabase()
        let configuration = PostgresConfiguration(url: server.url(name))
        _ = try PostgresSchema.current.bringUpToDate(configuration)
        // PostgreSQL writes its cache of the tables with the first connection. The copies contain it.
        try PostgresClient(url: configuration.url).rows("SELECT 1")
        return name
    }

    /// - Parameter isEmpty: Whether the database has no tables yet.
    init(isEmpty: Bool = false) throws {
        server = try PostgresServer.shared()
        database = try server.makeDatabase(from: isEmpty ? nil : Self.template.get())
        client = PostgresClient(url: server.url(database))
    }

    deinit { try? server.drop(database) }

    var url: String { server.url(database) }

    /// Opens and prepares the stores of one more relay. The caller closes them.
    func open(
        schema: String? = nil, defaultApp: AppName = .default, namesMessage: Bool = false, apps: Set<AppName>? = nil,
        keepsUsage: @escaping @Sendable () -> Bool = { true },
        credentialLifetime: Duration? = nil
    ) async throws -> PostgresStores {
        let stores = try PostgresStores(
            configuration: PostgresConfiguration(url: url, schema: schema, connections: 4),
            settings: {
                StoreSettings(
                    format: { StoreFixture.format(of: $0, namesMessage: namesMessage) },
                    defaultApp: defaultApp, tokenApps: [.installation: StoreFixture.firebaseApp],
                    keepsUsage: keepsUsage(), apps: apps,
                    credentialLifetime: credentialLifetime)
            },
            now: { self.time.now }, logger: .silent)
        do {
            _ = try await stores.upkeep.prepare()
        } catch {
            stores.close()
            throw error
        }
        return stores
    }

    func advance(_ duration: Duration) {
        time.advance(by: duration)
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
