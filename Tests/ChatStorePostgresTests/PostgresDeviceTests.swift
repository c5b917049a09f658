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
}
