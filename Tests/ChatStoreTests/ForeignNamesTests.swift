import ChatDomain
import Testing

@testable import ChatStore
@testable import TestStores

/// SQLite compares bytes. The relay reads texts up to a zero byte, so two names of another program may look the same.
@Suite("Names that another program wrote", .timeLimit(.minutes(1)))
struct ForeignNamesTests {
    private let fixture: StoreFixture
    private let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    @Test(
        "Waiting pushes of an app with a zero byte or invalid UTF-8 hold up nothing",
        arguments: ["'default' || char(0)", "CAST(x'78ff' AS TEXT)"])
    func waitingApps(name: String) async throws {
        let later = store.database.now().milliseconds + 60_000
        for app in [name, "'default'", "'zebra'"] {
            _ = try fixture.query(
                "INSERT INTO push_queue (device_token, payload, app, not_before) VALUES ('aa', '{}', \(app), \(later))")
        }
        let depths = try await store.metrics.queueDepths()
        #expect(depths.first { $0.app == .default }?.delayed == 1)
        #expect(depths.first { $0.app == AppName("zebra") }?.delayed == 1)
        #expect(try await store.metrics.unconfiguredApps([.default]).contains(AppName("zebra")))
    }

    @Test("Members with the same id up to a zero byte do not end the relay")
    func members() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        try await store.rooms.join(StoreFixture.join(2))
        _ = try fixture.query(
            """
            INSERT INTO active_users (udid, nickname, secret_code)
            SELECT udid || char(0), nickname, secret_code FROM active_users WHERE member_id = 1
            """)
        let message = try await store.rooms.post(StoreFixture.post(1, "hello")).message
        let writer = try StoreFixture.member(1)
        let receipts = try await store.feed.receipts(in: SecretCode(parsing: "room"), for: [writer])
        #expect(receipts[writer]?.message == message)
    }

    @Test("Members whose apps have the same name up to a zero byte get one push each")
    func memberApps() async throws {
        for number in 1...12 { try await store.rooms.join(StoreFixture.join(number)) }
        _ = try fixture.query("UPDATE active_users SET app = app || char(0) WHERE member_id = 12")
        _ = try await store.rooms.post(StoreFixture.post(1, "hello"))
        while try fixture.value("SELECT count(*) FROM messages WHERE fanout_after IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        #expect(try fixture.value("SELECT count(*) FROM push_queue") == 10)
        #expect(try fixture.value("SELECT count(DISTINCT device_token) FROM push_queue") == 10)
    }

    @Test("A removal while a push id is too high does not cancel later pushes")
    func highID() async throws {
        for number in 1...2 { try await store.rooms.join(StoreFixture.join(number)) }
        _ = try fixture.query(
            "INSERT INTO push_queue (message_id, device_token, payload) VALUES (\(Int64.max - 5), 'aa', '{}')")
        try await store.moderation.remove(2, by: Moderator(name: "admin", address: "192.0.2.9"))
        var watch = SQLiteUpkeep.Watch()
        try await store.upkeep.look(&watch)
        #expect(try fixture.value("SELECT max(last_push) < 1000 FROM moderation") == 1)
    }
}
