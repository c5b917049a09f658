import ChatDomain
import Foundation
import GRDB
import Testing

@testable import ChatStore
@testable import TestStores

/// Tests that members, devices and open work of the app `default` move to the default app when that gets a name.
@Suite("An app that is renamed", .timeLimit(.minutes(1)))
struct AppAdoptionTests {
    private static let chat = AppName("chat")
    let bench: NotificationFixture

    init() throws {
        bench = try NotificationFixture()
    }

    /// Closes the store, and opens one whose default app has another name.
    private func rename() async throws -> SQLiteStores {
        try bench.store.close()
        let store = try bench.fixture.open(defaultApp: Self.chat, apps: [Self.chat])
        _ = try await store.upkeep.prepare()
        return store
    }

    private func value(_ sql: String) throws -> Int { try bench.fixture.value(sql) }

    @Test("Members and devices move to the new app unchanged")
    func adopted() async throws {
        for number in 1...3 { try await bench.store.rooms.join(StoreFixture.join(number)) }
        try await bench.register([2], user: "ann", tags: ["t"])
        try await bench.register([9], app: "other")
        let before = try bench.fixture.query("SELECT member_id, history_from FROM active_users ORDER BY member_id")
        let store = try await rename()
        #expect(try value("SELECT count(*) FROM active_users WHERE app = 'chat'") == 3)
        #expect(try value("SELECT count(*) FROM devices WHERE app = 'chat'") == 3)
        #expect(try value("SELECT count(*) FROM devices WHERE app = 'other'") == 1)
        // A member that joins again is still the same member.
        try await store.rooms.join(StoreFixture.join(1, app: "chat"))
        #expect(
            try bench.fixture.query("SELECT member_id, history_from FROM active_users ORDER BY member_id") == before)
        let device = try await store.devices.device(StoreFixture.token(2), app: nil)
        #expect(device.app == Self.chat && device.user?.text == "ann" && device.tags.map(\.text) == ["t"])
    }

    @Test("More members and devices move than one transaction changes")
    func many() async throws {
        try bench.fill(2500)
        _ = try bench.fixture.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
            INSERT INTO active_users (udid, nickname, secret_code, app)
            SELECT printf('%040d', i), 'n', 'room', iif(i % 5, 'default', 'other') FROM n
            """)
        _ = try await rename()
        #expect(try value("SELECT count(*) FROM devices WHERE app = 'chat'") == 2500)
        #expect(try value("SELECT count(*) FROM active_users WHERE app = 'chat'") == 2000)
        #expect(try value("SELECT count(*) FROM active_users WHERE app = 'other'") == 500)
    }

    @Test("A device that registered under both names becomes one, with the data of both")
    func twins() async throws {
        try await bench.store.rooms.join(StoreFixture.join(1))
        try await bench.register([1], user: "ann", tags: ["old"])
        let earlier = try await bench.send(.users([UserReference(stored: "ann")])).id
        try await bench.register([1], app: "chat", tags: ["new"])
        try await bench.store.rooms.join(StoreFixture.join(2, token: 1, app: "chat"))
        let store = try await rename()
        let device = try await store.devices.device(StoreFixture.token(1), app: nil)
        #expect(device.user?.text == "ann" && device.tags.map(\.text) == ["new", "old"])
        let history = try await store.devices.deliveries(to: device.id, before: nil, limit: 9)
        #expect(history.items.map(\.notification) == [earlier])
        // An installed app belongs to one member: the last one that brought its token.
        let tokens = try bench.fixture.query("SELECT device_token FROM active_users ORDER BY member_id")
        #expect(try tokens.map { $0[0] as String } == ["0", StoreFixture.token(1).description])
    }

    @Test("Open pushes, notifications and feedback are processed for the new app")
    func workLeft() async throws {
        try bench.fill(NotificationFanout.step + 10)
        let id = try await bench.store.accept(bench.request(.all, app: "default"), steps: 1)
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload, not_before) VALUES (?, '{}', ?)",
            [StoreFixture.token(7).description, bench.now.milliseconds - 1])
        _ = try bench.fixture.query(
            "INSERT INTO feedback (app, device_token, time_reported) VALUES ('default', printf('%064x', 1), '2099-01-01')"
        )
        let store = try await rename()
        try await store.jobs.resume()
        while try value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        #expect(try value("SELECT count(*) FROM push_queue WHERE notification = \(id)") == NotificationFanout.step + 10)
        #expect(try await store.feedback.actOnFeedback() == FeedbackResult(deactivated: 1))
        let leased = try await store.queue.lease(app: Self.chat, lanes: PushLane.allCases, limit: 2000)
        #expect(leased.pushes.count == NotificationFanout.step + 11)
    }

    @Test("A gateway's response finds the device under the app's former name")
    func formerName() async throws {
        let store = try await rename()
        try bench.fill(1)
        let id = try await store.notifications.send(bench.request(.all)).id
        let leased = try await store.queue.lease(app: Self.chat, lanes: PushLane.allCases, limit: 1)
        let push = try #require(leased.pushes.first?.id)
        let gone = Transition(
            .failed(reason: "Unregistered"),
            device: .deactivate(since: bench.now + .seconds(999_999_999), reason: "gone"))
        _ = try await store.queue.settle([Settlement(push...push, gone, notification: id)], app: Self.chat)
        #expect(try value("SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL") == 1)
    }

    @Test("Unconfigured apps with waiting pushes are known, whenever the pushes are due")
    func unconfigured() async throws {
        let store = try bench.fixture.open(apps: [.default])
        for app in ["due", "", "default"] {
            _ = try bench.fixture.query(
                "INSERT INTO push_queue (device_token, payload, app) VALUES ('aa', '{}', ?)", [app])
        }
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload, app, not_before) VALUES ('aa', '{}', 'late', ?)",
            [bench.now.milliseconds + 5000])
        _ = try bench.fixture.query(
            """
            INSERT INTO push_queue (device_token, payload, app, state, time_settled)
            VALUES ('aa', '{}', 'over', 'failed', '2027-01-01')
            """)
        var watch = SQLiteUpkeep.Watch()
        try await store.upkeep.look(&watch)
        let untold = watch.applied.unconfiguredApps.news(of: [AppName("due"), AppName(""), AppName("late")])
        #expect(untold == nil)
        let found = try DatabaseFile(path: bench.fixture.path).inspect()
        #expect(found.pushesToSend == [AppName("due"): 1, AppName(""): 1, AppName("late"): 1, .default: 1])
    }
}
