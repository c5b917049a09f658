import ChatDomain
import ChatSQL
import Foundation
import Testing

@testable import ChatStorePostgres
@testable import TestStores

@Suite("PostgreSQL: devices", .timeLimit(.minutes(3)))
struct PostgresDeviceTests {
    @Test("An equal registration reads and does not write")
    func repeats() async throws {
        let relays = try await Relays(2)
        let version = { try relays.fixture.query("SELECT xmin, ctid, time_seen FROM devices") }
        let client = ClientInfo(appVersion: "1", osVersion: "9", deviceModel: "iPhone")
        #expect(try await relays.register(1, user: "u", tags: ["a", "b"], client: client) == .created)
        let before = try version()
        relays.fixture.advance(.seconds(599))
        for relay in 0...1 {
            #expect(
                try await relays.register(1, user: "u", tags: ["b", "a"], client: client, relay: relay) == .unchanged)
            #expect(try await relays.register(1, relay: relay) == .unchanged)
        }
        #expect(try version() == before)
        #expect(try await relays.register(1, tags: ["b"], relay: 1) == .refreshed)
        #expect(try await relays.register(1, client: ClientInfo(appVersion: "2")) == .refreshed)
        relays.fixture.advance(.seconds(600))
        #expect(try await relays.register(1) == .refreshed)
        let device = try await relays.second.devices.device(StoreFixture.token(1), app: nil)
        #expect(device.tags.map(\.text) == ["b"] && device.user?.text == "u" && device.client.appVersion == "2")
        #expect(device.registeredAt == relays.fixture.time.now && device.seenAt == device.registeredAt)
        #expect(device.createdAt == Timestamp(milliseconds: 1_800_000_000_000))
        // A registration activates an inactive device.
        try relays.fixture.query("UPDATE devices SET time_deactivated = now(), deactivated_reason = 'x', refusals = 3")
        #expect(try await relays.register(1) == .refreshed)
        #expect(try relays.fixture.query("SELECT deactivated_reason IS NULL, refusals FROM devices") == "t|0")
    }

    @Test("Concurrent registrations on two relays make and count each device once")
    func together() async throws {
        let relays = try await Relays(2)
        let created = try await withThrowingTaskGroup(of: DeviceRegistration.self) { group in
            for number in 1...60 {
                for relay in [0, 1, 0] {
                    group.addTask {
                        try await relays.register(
                            number, user: "u\(number % 7)", tags: ["t\(number % 3)", "all"],
                            client: ClientInfo(appVersion: "v\(number % 2)"), relay: relay)
                    }
                }
            }
            return try await group.reduce(into: 0) { if $1 == .created { $0 += 1 } }
        }
        #expect(created >= 60)
        #expect(try relays.fixture.value("SELECT count(*) FROM devices") == 60)
        #expect(try relays.fixture.value("SELECT count(*) FROM device_tags") == 120)
        #expect(
            try relays.fixture.query("SELECT kind, value, devices FROM device_days ORDER BY kind, value")
                == "||60\napp_version|v0|30\napp_version|v1|30\ndevice_model||60\nos_version||60")
        try await relays.first.database.forgetUsage()
        let left = "SELECT count(*) FROM devices WHERE app_version IS NOT NULL OR time_seen IS NOT NULL"
        #expect(try relays.fixture.value(left) == 0)
        #expect(try relays.fixture.value("SELECT count(*) FROM device_days") == 0)
    }

    @Test("With analytics off nothing is stored for them")
    func withoutUsage() async throws {
        let fixture = try PostgresFixture()
        let stores = try await fixture.open(keepsUsage: { false })
        defer { stores.close() }
        let edit = DeviceEdit(client: ClientInfo(appVersion: "1"))
        let request = RegistrationRequest(token: try StoreFixture.token(1), app: .default, edit: edit)
        #expect(try await stores.devices.register(request) == .created)
        #expect(try await stores.devices.register(request) == .unchanged)
        #expect(try fixture.query("SELECT app_version IS NULL, time_seen IS NULL FROM devices") == "t|t")
        #expect(try fixture.value("SELECT count(*) FROM device_days") == 0)
    }

    @Test("An edit changes only what it names, and must name the app of a token of several apps")
    func edits() async throws {
        let relays = try await Relays()
        let (devices, token) = (relays.first.devices, try StoreFixture.token(1))
        try await relays.register(1, user: "u", tags: ["a"])
        var device = try await devices.edit(
            token, app: nil,
            DeviceEdit(clientInfo: .set("c\"\\,{}"), serverInfo: .set("s\nü"), tags: [Tag(stored: "b\"\\,{}NULL")]))
        #expect(device.clientInfo == "c\"\\,{}" && device.serverInfo == "s\nü" && device.user?.text == "u")
        #expect(device.tags.map(\.text) == ["b\"\\,{}NULL"])
        device = try await devices.edit(token, app: .default, DeviceEdit(user: .remove, clientInfo: .remove, tags: []))
        #expect(device.user == nil && device.clientInfo == nil && device.serverInfo == "s\nü" && device.tags.isEmpty)
        try await relays.register(1, app: AppName("other"))
        let ambiguous = await #expect(throws: ChatError.self) { try await devices.device(token, app: nil) }
        #expect(ambiguous?.code == .ambiguous && ambiguous?.message.contains("(default, other)") == true)
        let absent = await #expect(throws: ChatError.self) {
            try await devices.edit(token, app: AppName("third"), DeviceEdit())
        }
        #expect(absent?.code == .notFound && absent?.field == "app")
        let unknown = await #expect(throws: ChatError.self) {
            try await devices.device(StoreFixture.token(2), app: nil)
        }
        #expect(unknown?.code == .notFound && unknown?.field == nil)
    }

    @Test("Unregistering cancels waiting pushes and removes the member's token")
    func unregister() async throws {
        let relays = try await Relays(2)
        try await relays.first.rooms.join(StoreFixture.join(1))
        try await relays.register(2)
        let kept = try await relays.send(.all)
        let (token, other) = (try StoreFixture.token(1), try StoreFixture.token(2))
        try relays.fixture.query(
            "INSERT INTO push_queue (device_token, payload, device) SELECT device_token, '{}', device_id FROM devices")
        #expect(try await relays.second.devices.unregister(token, app: nil))
        #expect(try await !relays.first.devices.unregister(token, app: nil))
        #expect(
            try relays.fixture.query("SELECT state, reason, count(*) FROM push_queue GROUP BY 1, 2 ORDER BY 1")
                == "cancelled|Unregistered|2\npending||2")
        #expect(try relays.fixture.query("SELECT device_token FROM active_users") == "0")
        let status = try await relays.first.notifications.notification(kept.id)
        #expect(status.counts[.cancelled] == 1 && status.counts[.pending] == 1)
        let outcomes = relays.second.metrics.outcomes()
        #expect(outcomes.map(\.total) == [2] && outcomes.map(\.reason) == [PushLifeCycle.unregistered])
        let leased = try await relays.first.queue.lease(app: .default, lanes: PushLane.allCases, limit: 9).pushes
        #expect(leased.map(\.address) == [.token(other), .token(other)])
    }

    @Test(
        "A device's history has its notifications, other programs' pushes and its room's, newest first",
        arguments: [1, 4, 50])
    func history(limit: Int) async throws {
        let relays = try await Relays()
        for number in 1...3 { try await relays.first.rooms.join(StoreFixture.join(number)) }
        let device = try await relays.first.devices.device(StoreFixture.token(2), app: nil)
        for round in 0..<6 {
            _ = try await relays.first.rooms.post(StoreFixture.post(1, "message \(round)"))
            _ = try await relays.send(.tokens([StoreFixture.token(2)]), alert: "\(round)")
            _ = try await relays.first.rooms.post(StoreFixture.post(2, "own"))
            if round == 3 { try await relays.deliver() }
        }
        let found = try await Page.all { cursor in
            let page = try await relays.first.devices.deliveries(to: device.id, before: cursor, limit: limit)
            #expect(page.items.count <= limit)
            return page
        }
        #expect(found.count == 12 && found.map(\.id) == Set(found.map(\.id)).sorted(by: >))
        #expect(found.filter { $0.message != nil }.count == 6 && found.filter { $0.notification != nil }.count == 6)
        #expect(found.filter { $0.state == .sent }.count == 8)
        #expect(found.allSatisfy { $0.token == device.token.description && ($0.apnsID != nil) == ($0.state == .sent) })
    }
}
