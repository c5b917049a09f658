import ChatDomain
import GRDB
import Synchronization
import Testing

@testable import ChatStore
@testable import TestStores

/// Scripts without foreign keys, and SQLite's plans. The suite `ClientPortTests` tests the port.
@Suite("Clients of other servers in the store")
struct ClientStoreTests {
    private let fixture: StoreFixture
    private let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    @Test("A credential whose owner a script has deleted without foreign keys is invalid, and retention deletes it")
    func ownerless() async throws {
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        let token = try await store.tokens.create(
            AccessToken.name("t"), AccessGrant(scopes: [.read]), expiresAt: nil
        ).token
        var secrets: [String] = []
        for owner in [.member(try StoreFixture.member(1)), .token(token.id), .member(try StoreFixture.member(2))]
            as [CredentialOwner]
        {
            secrets.append(try await store.clients.createCredential(Credential.name("c"), for: owner).secret)
        }
        try await store.clients.hide(1, from: "credential:1")
        try await fixture.connection().writeWithoutTransaction { db in
            try db.execute(
                sql: """
                    PRAGMA foreign_keys = OFF; DELETE FROM active_users WHERE nickname = 'name1'; DELETE FROM api_tokens
                    """)
        }
        var valid: [Bool] = []
        for secret in secrets { valid.append(try await store.clients.credential(of: secret) != nil) }
        #expect(valid == [false, false, true])
        let page = try await store.clients.credentials(ofMembersOf: nil, after: nil, limit: 9)
        #expect(page.items.map(\.id) == [3] && page.next == nil)
        #expect(try fixture.value("SELECT count(*) FROM credentials") == 3)
        _ = try await store.upkeep.applyRetention(messages: .seconds(10), queue: .seconds(10))
        #expect(try fixture.value("SELECT count(*) FROM credentials") == 1)
        #expect(try fixture.value("SELECT count(*) FROM hidden_messages") == 0)
    }

    @Test("Every statement uses an index and never sorts")
    func plans() async throws {
        let statements = Mutex<Set<String>>([])
        let trace: @Sendable (Database) -> Void = { db in
            db.trace { event in
                if case .statement(let statement) = event { statements.withLock { _ = $0.insert(statement.sql) } }
            }
        }
        try await store.rooms.join(StoreFixture.join(1))
        let token = try await store.tokens.create(
            AccessToken.name("t"), AccessGrant(scopes: [.read]), expiresAt: nil
        ).token
        try await store.database.pool.writeWithoutTransaction(trace)
        // Consecutive reads use the same connection.
        try await store.database.pool.read(trace)
        let (clients, room) = (store.clients, SecretCode(stored: "room"))
        for owner in [.member(try StoreFixture.member(1)), .token(token.id)] as [CredentialOwner] {
            let created = try await clients.createCredential(Credential.name("c"), for: owner)
            _ = try await clients.credential(of: created.secret)
            _ = try await clients.credentials(of: owner)
            clients.usedCredential(created.credential.id, from: nil)
            try await clients.flush()
            _ = try await clients.revokeCredential(created.credential.id, of: owner)
            _ = try await clients.revokeCredential(created.credential.id, of: nil)
        }
        _ = try await clients.credentials(ofMembersOf: room, after: nil, limit: 9)
        _ = try await clients.room(SecretCode(stored: "new"))
        _ = try await clients.room(id: 1)
        _ = try await clients.rooms(after: nil, limit: 9)
        _ = try await clients.room(aliased: clients.alias(of: room))
        for room in [room, nil] {
            let reading = ClientReading(room: room, client: "admin")
            _ = try await clients.messages(reading, before: nil, limit: 9)
            _ = try await clients.message(1, reading)
            try await clients.hideAll(upTo: 1, in: room, from: "admin")
        }
        try await clients.hide(1, from: "admin")
        let found = statements.withLock { all in
            all.filter { sql in ["SELECT", "UPDATE", "DELETE", "INSERT"].contains { sql.hasPrefix($0) } }.sorted()
        }
        #expect(found.count >= 25)
        for sql in found {
            let plan = try await store.database.pool.read { db in
                let statement = try db.makeStatement(sql: "EXPLAIN QUERY PLAN " + sql)
                statement.setUncheckedArguments([])
                return try Row.fetchAll(statement).map { $0["detail"] as String }
            }
            // `sqlite_sequence` has one row for each table.
            let short = ["SCAN CONSTANT ROW", "SCAN sqlite_sequence"]
            let slow = plan.filter {
                $0.contains("TEMP B-TREE") || $0.hasPrefix("SCAN") && !short.contains($0)
            }
            #expect(slow.isEmpty, "\(sql): \(plan)")
        }
    }
}
