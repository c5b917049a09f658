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

    private func create(_ name: String) async throws -> String {
        try await store.tokens.create(AccessToken.name(name), AccessGrant(scopes: [.post]), expiresAt: nil).secret
    }

    @Test("The file does not contain a token's secret")
    func secret() async throws {
        let secret = try await create("backup")
        try store.close()
        for end in ["", "-wal"] {
            let bytes = try? Data(contentsOf: URL(filePath: fixture.path + end))
            #expect(bytes?.range(of: Data(secret.utf8)) == nil)
        }
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
