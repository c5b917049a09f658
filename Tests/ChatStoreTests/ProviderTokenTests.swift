import ChatDomain
import ChatStore
import Foundation
import Synchronization
import Testing

@testable import TestStores

@Suite("The storage of provider tokens")
struct ProviderTokenTests {
    let fixture: StoreFixture
    /// The number of tokens that were signed.
    let count = Counter()

    final class Counter: Sendable {
        private let value = Mutex(0)

        func next() -> Int {
            value.withLock { value in
                value += 1
                return value
            }
        }
    }

    init() throws {
        fixture = try StoreFixture()
    }

    private func token(
        _ store: SQLiteStores, key: String = "KEY", fingerprint: String = "f", refused: String? = nil
    ) async throws -> String {
        try await store.providerTokens.providerToken(
            for: ProviderKeyName(teamID: "TEAM", keyID: key, fingerprint: fingerprint), refused: refused,
            sign: { [count] time in "token \(count.next()) of \(time.seconds)" }
        ).text
    }

    @Test("A token is used for fifty minutes, over restarts, and then replaced")
    func lifetime() async throws {
        let first = try await token(fixture.open())
        for minutes in [0, 10, 30, 9] {
            fixture.advance(.seconds(minutes * 60))
            #expect(try await token(fixture.open()) == first)
        }
        fixture.advance(.seconds(60))
        #expect(try await token(fixture.open()) == "token 2 of \(fixture.time.now.seconds)")
    }

    @Test("A refused token is replaced only when it is twenty minutes old, and only once")
    func refused() async throws {
        let store = try fixture.open()
        let first = try await token(store)
        #expect(try await token(store, refused: first) == first)
        fixture.advance(.seconds(20 * 60 - 1))
        #expect(try await token(store, refused: first) == first)
        fixture.advance(.seconds(1))
        let second = try await token(store, refused: first)
        #expect(second != first)
        #expect(try await token(store, refused: first) == second)
    }

    @Test("Each key has its own token, also under the same key id")
    func keys() async throws {
        let store = try fixture.open()
        let first = try await token(store)
        #expect(try await token(store, key: "OTHER") != first)
        #expect(try await token(store, fingerprint: "g") != first)
        #expect(try await token(store) == first)
    }

    @Test("A token that cannot be signed leaves no row")
    func failure() async throws {
        struct NoKey: Error {}
        let store = try fixture.open()
        await #expect(throws: (any Error).self) {
            try await store.providerTokens.providerToken(
                for: ProviderKeyName(teamID: "T", keyID: "K", fingerprint: "f"), refused: nil,
                sign: { _ in throw NoKey() })
        }
        #expect(try fixture.value("SELECT count(*) FROM provider_tokens") == 0)
    }
}
