import ChatDomain
import Testing

@testable import TestStores

/// Tests the tokens of Android phones, which are case-sensitive.
@Suite("Tokens of Android phones", .timeLimit(.minutes(2)))
struct FirebaseTokenTests {
    private static let text = "cAAAAAAAAAAAAAAAAAAAA1:APA91bHexampleExample"
    private static let app = StoreFixture.firebaseApp

    private func token() throws -> DeviceToken { try DeviceToken(parsing: Self.text) }

    private func register(in store: TestedStore) async throws {
        _ = try await store.stores.devices.register(RegistrationRequest(token: token(), app: Self.app))
    }

    private func leased(_ store: TestedStore) async throws -> [QueuedPush] {
        try await store.notice()
        return try await store.stores.queue.lease(app: Self.app, lanes: PushLane.allCases, limit: 10).pushes
    }

    private func insert(in store: TestedStore) throws {
        _ = try store.query(
            """
            INSERT INTO push_queue (device_token, payload, app)
            VALUES ('\(Self.text)', '{"aps":{"alert":"x"}}', '\(Self.app)')
            """)
    }

    @Test(
        "A notification to an unknown token is for the Android app, unless it names another",
        arguments: StoreKind.allCases)
    func unknown(kind: StoreKind) async throws {
        let store = try await kind.make()
        let audience = try Audience.tokens([token(), StoreFixture.token(1)])
        for app in [nil, AppName("second")] {
            _ = try await store.stores.notifications.send(
                NotificationRequest(audience: audience, app: app, payload: #"{"aps":{"alert":"x"}}"#))
        }
        #expect(
            try store.query("SELECT app FROM push_queue ORDER BY message_id").map { $0[0] } == [
                "android", "default", "second", "second",
            ])
    }

    @Test("A script's push belongs to the device with its token, and is found by it", arguments: StoreKind.allCases)
    func script(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(in: store)
        try insert(in: store)
        #expect(try await leased(store).map(\.obstacle) == [nil])
        let found = try await store.queue().pushes(QueueFilter(token: token()), after: nil, limit: 10)
        #expect(found.items.map(\.token) == [Self.text])
        _ = try store.query(
            "UPDATE devices SET deactivated_reason = 'x', time_deactivated = \(store.time(store.now()))")
        try insert(in: store)
        #expect(try await leased(store).map(\.obstacle) == [.deviceInactive])
    }

    @Test("A chat push is still sent if its phone registers again", arguments: StoreKind.allCases)
    func registeredAgain(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await store.stores.rooms.join(StoreFixture.join(1))
        try await store.stores.rooms.join(
            JoinRequest(
                member: StoreFixture.member(2), app: Self.app, token: token(), nickname: Nickname(parsing: "Ann"),
                code: SecretCode(parsing: "room")))
        _ = try await store.stores.rooms.post(StoreFixture.post(1, "hello"))
        _ = try await store.stores.devices.unregister(token(), app: Self.app)
        try await register(in: store)
        #expect(try await leased(store).map(\.obstacle) == [nil])
    }
}
