import ChatDomain
import Foundation
import Testing

@testable import ChatStorePostgres
@testable import TestStores

@Suite("PostgreSQL: tokens and keys", .timeLimit(.minutes(3)))
struct PostgresTokenTests {
    @Test("Concurrent callers on two relays get the same token")
    func providerTokens() async throws {
        let relays = try await Relays(2)
        let key = ProviderKeyName(teamID: "T", keyID: "K", fingerprint: "f")
        let signed = Counter()
        func tokens(refused: String?) async throws -> Set<IssuedToken> {
            try await withThrowingTaskGroup(of: IssuedToken.self) { group in
                for number in 0..<20 {
                    group.addTask {
                        try await relays.all[number % 2].providerTokens.providerToken(for: key, refused: refused) {
                            time in
                            "token \(signed.add()) of \(time.seconds)"
                        }
                    }
                }
                return try await group.reduce(into: []) { $0.insert($1) }
            }
        }
        let first = try await tokens(refused: nil)
        #expect(first.count == 1 && signed.value == 1)
        // The token is too young to be replaced.
        #expect(try await tokens(refused: first.first?.text) == first)
        relays.fixture.advance(IssuedToken.shortestLife)
        let second = try await tokens(refused: first.first?.text)
        #expect(second.count == 1 && second != first && signed.value == 2)
        #expect(try await tokens(refused: first.first?.text) == second)
        relays.fixture.advance(IssuedToken.lifetime)
        #expect(try await tokens(refused: nil).isDisjoint(with: second))
    }

    @Test("Concurrent callers on two relays get the same first key")
    func vapidKeys() async throws {
        let relays = try await Relays(2)
        let made = Counter()
        func keys() async throws -> Set<String> {
            try await withThrowingTaskGroup(of: String.self) { group in
                for number in 0..<20 {
                    group.addTask {
                        try await relays.all[number % 2].subscriptions.vapidKey {
                            "key \(made.add())"
                        }
                    }
                }
                return try await group.reduce(into: []) { $0.insert($1) }
            }
        }
        #expect(try await keys().count == 1)
        try await relays.first.subscriptions.setVAPIDKey("other")
        #expect(try await keys() == ["other"])
    }

    @Test("An endpoint that is stored with other keys is rejected, also in concurrent calls")
    func subscriptions() async throws {
        let relays = try await Relays(2)
        func subscription(_ number: Int, key: UInt8, ends: Timestamp? = nil) throws -> Subscription {
            Subscription(
                address: try StoreFixture.token(number), endpoint: "https://push.example/\(number)",
                publicKey: Array(repeating: key, count: 65), secret: Array(repeating: 255 - key, count: 16),
                expiresAt: ends)
        }
        let kept = await withTaskGroup(of: UInt8?.self) { group in
            for number in 0..<10 {
                group.addTask {
                    let key = UInt8(number % 2)
                    do {
                        try await relays.all[number % 2].subscriptions.keep(subscription(1, key: key))
                        return key
                    } catch {
                        return nil
                    }
                }
            }
            return await group.reduce(into: [UInt8?]()) { $0.append($1) }
        }
        #expect(kept.compactMap(\.self).count == 5 && Set(kept.compactMap(\.self)).count == 1)
        let end = Timestamp(seconds: 1_900_000_000)
        let winner = try #require(kept.compactMap(\.self).first)
        try await relays.first.subscriptions.keep(subscription(1, key: winner, ends: end))
        let found = try await relays.second.subscriptions.subscriptions([1, 2, 1].map(StoreFixture.token))
        #expect(found == [try StoreFixture.token(1): try subscription(1, key: winner, ends: end)])
        let conflict = await #expect(throws: ChatError.self) {
            try await relays.second.subscriptions.keep(subscription(1, key: 1 - winner))
        }
        #expect(conflict?.code == .conflict)
    }

    @Test("A token that one relay revokes is invalid on the other at once")
    func apiTokens() async throws {
        let relays = try await Relays(2)
        let (first, second) = (relays.first.tokens, relays.second.tokens)
        let name = try AccessToken.name("build")
        let grant = try AccessGrant(scopes: [.send, .read], audience: .tags([Tag(stored: "x")]))
        let end = relays.fixture.time.now + .seconds(60)
        let (token, secret) = try await first.create(name, grant, expiresAt: end)
        #expect(try await second.token(of: secret) == token)
        #expect(try await second.token(of: secret + "x") == nil)
        let conflict = await #expect(throws: ChatError.self) { try await second.create(name, grant, expiresAt: nil) }
        #expect(conflict?.code == .conflict && conflict?.field == "name")
        let (lasting, _) = try await second.create(try AccessToken.name("other"), grant, expiresAt: nil)
        let page = try await first.tokens(after: nil, limit: 1)
        #expect(page.items == [token] && page.next == token.id)
        #expect(try await first.tokens(after: page.next, limit: 1).items == [lasting])
        // The later use counts, whichever relay stores its use first.
        first.used(token.id, from: "192.0.2.1")
        relays.fixture.advance(.seconds(1))
        second.used(token.id, from: "192.0.2.2")
        try await second.flush()
        try await first.flush()
        let used = try await first.token(of: secret)
        #expect(used?.lastUsedFrom == "192.0.2.2" && used?.lastUsedAt == relays.fixture.time.now)
        #expect(try await second.revoke(token.id, by: .commandLine)?.text == "build")
        #expect(try await second.revoke(token.id, by: .commandLine) == nil)
        #expect(try await first.token(of: secret) == nil)
        let (_, expiring) = try await first.create(name, grant, expiresAt: end)
        relays.fixture.advance(.seconds(60))
        #expect(try await second.token(of: expiring) == nil)
    }
}
