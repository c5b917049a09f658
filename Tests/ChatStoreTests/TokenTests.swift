import ChatDomain
import Foundation
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Programs' tokens in the store")
struct TokenTests {
    private let fixture: StoreFixture
    private let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    private func create(
        _ name: String, _ grant: AccessGrant? = nil, expiresIn: Duration? = nil
    ) async throws -> (token: AccessToken, secret: String) {
        try await store.tokens.create(
            AccessToken.name(name), try grant ?? AccessGrant(scopes: [.post]),
            expiresAt: expiresIn.map { fixture.time.now + $0 })
    }

    @Test("A token is found by its secret, which the file does not contain")
    func secret() async throws {
        let grant = try AccessGrant(
            scopes: [.post, .send], room: SecretCode(parsing: "kitchen"),
            audience: .users([UserReference(parsing: "ann"), UserReference(parsing: "bob")]))
        let (token, secret) = try await create("backup", grant)
        #expect(secret.wholeMatch(of: #/pct_[A-Za-z0-9_-]{43}/#) != nil)
        #expect(try await store.tokens.token(of: secret) == token)
        #expect(token.grant == grant)
        #expect(try await store.tokens.token(of: secret.dropLast() + "!") == nil)
        #expect(try await create("other").secret != secret)
        try store.close()
        for end in ["", "-wal"] {
            let bytes = try? Data(contentsOf: URL(filePath: fixture.path + end))
            #expect(bytes?.range(of: Data(secret.utf8)) == nil)
        }
    }

    @Test("Names are unique, and a grant that another program broke allows nothing")
    func names() async throws {
        let (token, secret) = try await create("backup")
        await #expect(throws: ChatError.self) { try await create("backup") }
        #expect(try fixture.value("SELECT count(*) FROM api_tokens") == 1)
        for scopes in ["[]", "[\"all\"]", "{}"] {
            _ = try fixture.query("UPDATE api_tokens SET scopes = ?", [scopes])
            #expect(try await store.tokens.token(of: secret) == nil)
        }
        #expect(try await store.tokens.revoke(token.id) == token.name)
    }

    @Test("A token is invalid once it is revoked, also by another process, or has expired")
    func ends() async throws {
        let (first, secret) = try await create("first")
        #expect(try await store.tokens.revoke(first.id) == first.name)
        #expect(try await store.tokens.revoke(first.id) == nil)
        #expect(try await store.tokens.token(of: secret) == nil)

        let other = try await create("other").secret
        _ = try fixture.query("DELETE FROM api_tokens")
        #expect(try await store.tokens.token(of: other) == nil)

        let short = try await create("short", expiresIn: .seconds(60)).secret
        fixture.advance(.seconds(59))
        #expect(try await store.tokens.token(of: short) != nil)
        fixture.advance(.seconds(1))
        #expect(try await store.tokens.token(of: short) == nil)
        // Token ids are never reused, because messages name their writer by the token id.
        #expect(try await create("next").token.id == 4)
    }

    @Test("Tokens are listed in pages, with their last use")
    func list() async throws {
        for name in ["a", "b", "c"] { _ = try await create(name) }
        let first = try await store.tokens.tokens(after: nil, limit: 2)
        #expect(first.items.map(\.name.text) == ["a", "b"])
        #expect(try await store.tokens.tokens(after: first.next, limit: 2).items.map(\.name.text) == ["c"])
        fixture.advance(.seconds(5))
        store.tokens.used(2, from: "192.0.2.1")
        store.tokens.used(99, from: nil)
        try await store.tokens.flush()
        let used = try await store.tokens.tokens(after: nil, limit: 10).items[1]
        #expect(used.lastUsedFrom == "192.0.2.1")
        #expect(used.lastUsedAt == fixture.time.now)
    }

    @Test(
        "A limit needs the scope that it limits",
        arguments: [
            ([], nil, nil), ([.admin], "room", nil), ([.figures], "room", nil), ([.post], nil, .users([])),
            ([.send], nil, .all), ([.send], nil, .room(SecretCode(stored: "a"))), ([.admin, .send], nil, .tags([])),
        ] as [(Set<Scope>, String?, Audience?)])
    func grants(scopes: Set<Scope>, room: String?, audience: Audience?) {
        #expect(throws: ChatError.self) {
            try AccessGrant(scopes: scopes, room: room.map(SecretCode.init(stored:)), audience: audience)
        }
    }

    @Test("A grant limits the audience")
    func audiences() throws {
        let (ann, bob) = (try UserReference(parsing: "ann"), try UserReference(parsing: "bob"))
        let (room, other) = (SecretCode(stored: "room"), SecretCode(stored: "other"))
        let tag = try Tag(parsing: "tag")
        let token = try StoreFixture.token(1)
        let all: [Audience] = [
            .users([ann]), .users([ann, bob]), .tags([tag]), .room(room), .room(other), .tokens([token]), .all,
        ]
        func allowed(_ grant: AccessGrant) -> [Audience] { all.filter(grant.allows) }
        #expect(try allowed(AccessGrant(scopes: [.send])) == all)
        #expect(try allowed(AccessGrant(scopes: [.admin])) == all)
        #expect(try allowed(AccessGrant(scopes: [.post, .read, .figures])) == [])
        #expect(try allowed(AccessGrant(scopes: [.send], room: room)) == [.room(room)])
        #expect(try allowed(AccessGrant(scopes: [.send], audience: .users([ann]))) == [.users([ann])])
        #expect(try allowed(AccessGrant(scopes: [.send], audience: .users([bob, ann]))) == Array(all[0...1]))
        #expect(try allowed(AccessGrant(scopes: [.send], audience: .tags([tag]))) == [.tags([tag])])
    }
}
