import ChatDomain
import ChatStore
import Foundation
import Testing

@testable import TestStores

@Suite("The storage of browser subscriptions")
struct SubscriptionTests {
    let fixture: StoreFixture

    init() throws {
        fixture = try StoreFixture()
    }

    private func subscription(
        _ number: Int, key: UInt8 = 1, secret: UInt8 = 2, expiresAt: Timestamp? = nil
    ) throws -> Subscription {
        Subscription(
            address: try StoreFixture.token(number), endpoint: "https://push.example.org/\(number)",
            publicKey: [UInt8](repeating: key, count: 65), secret: [UInt8](repeating: secret, count: 16),
            expiresAt: expiresAt)
    }

    @Test("An equal subscription is not written again for a while; a new expiration is")
    func repeats() async throws {
        let store = try fixture.open().subscriptions
        try await store.keep(try subscription(1))
        func kept() throws -> String { try #require(fixture.query("SELECT time_kept FROM subscriptions").first)[0] }
        let first = try kept()
        fixture.advance(.seconds(60))
        try await store.keep(try subscription(1))
        #expect(try kept() == first)
        let later = try subscription(1, expiresAt: Timestamp(seconds: 1_900_000_000))
        try await store.keep(later)
        #expect(try await store.subscriptions([later.address]) == [later.address: later])
        let second = try kept()
        fixture.advance(.seconds(601))
        try await store.keep(later)
        #expect(try kept() > second)
    }

    @Test("Retention deletes subscriptions without a device, and no others")
    func retention() async throws {
        let store = try fixture.open()
        for number in 1...3 { try await store.subscriptions.keep(try subscription(number)) }
        for number in 1...2 {
            _ = try await store.devices.register(
                RegistrationRequest(token: try StoreFixture.token(number), app: AppName("web")))
        }
        #expect(try await store.devices.unregister(try StoreFixture.token(2), app: nil))
        func numbers() async throws -> [Int] {
            let tokens = try (1...3).map { try StoreFixture.token($0) }
            let known = try await store.subscriptions.subscriptions(tokens)
            return (1...3).filter { known[tokens[$0 - 1]] != nil }
        }
        _ = try await store.upkeep.applyRetention(messages: .seconds(60), queue: .seconds(60))
        #expect(try await numbers() == [1, 2, 3])
        fixture.advance(.seconds(86_401))
        _ = try await store.upkeep.applyRetention(messages: .seconds(60), queue: .seconds(60))
        #expect(try await numbers() == [1])
    }
}
