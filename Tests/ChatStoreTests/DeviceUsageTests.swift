import ChatDomain
import GRDB
import Synchronization
import Testing

@testable import ChatStore
@testable import TestStores

@Suite("Analytics of app usage")
struct DeviceUsageTests {
    private let fixture: StoreFixture
    private let keeps = KeepsUsage()
    private let store: SQLiteStores

    private final class KeepsUsage: Sendable {
        let value = Mutex(true)
    }

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open(keepsUsage: { [keeps] in keeps.value.withLock { $0 } })
    }

    private func join(_ number: Int, version: String? = "1.0", token: Int? = nil) async throws {
        var request = try StoreFixture.join(number, token: token)
        request.client.appVersion = version
        try await store.rooms.join(request)
    }

    private func device(_ number: Int) async throws -> Device {
        try await store.devices.device(StoreFixture.token(number), app: nil)
    }

    /// Returns today's number of devices by app version, with the keys `all`, `unknown` and `others`.
    private func today() async throws -> [String: Int] {
        let days = try #require(await store.metrics.usage(since: fixture.time.now.day))
        return days.reduce(into: [:]) { result, count in
            guard let kind = count.kind else { return result["all"] = count.devices }
            guard kind == .appVersion else { return }
            switch count.value {
            case .text(let text): result[text] = count.devices
            case .nothing: result["unknown"] = count.devices
            case .others: result["others"] = count.devices
            }
        }
    }

    @Test("An app's data stays with the device when its member leaves, and moves to the member's new token")
    func kept() async throws {
        try await join(1)
        #expect(try await device(1).client == ClientInfo(appVersion: "1.0", osVersion: "5.1", deviceModel: "iPhone"))
        #expect(try await device(1).seenAt == fixture.time.now)
        // A value that the app does not send again stays.
        try await store.rooms.update(
            StoreFixture.member(1), token: StoreFixture.token(1), client: ClientInfo(appVersion: "1.1"), user: nil)
        #expect(
            try await device(1).client == ClientInfo(appVersion: "1.1", osVersion: "5.1", deviceModel: "iPhone"))
        try await store.rooms.update(
            StoreFixture.member(1), token: StoreFixture.token(2), client: ClientInfo(osVersion: "6.0"), user: nil)
        #expect(try await device(2).client == ClientInfo(appVersion: "1.1", osVersion: "6.0", deviceModel: "iPhone"))
        _ = try await store.rooms.leave(StoreFixture.member(1))
        #expect(try await device(2).client.appVersion == "1.1")
        let registered = try StoreFixture.token(3)
        for version in ["3", "3", "4"] {
            _ = try await store.devices.register(
                RegistrationRequest(
                    token: registered, app: .default, edit: DeviceEdit(client: ClientInfo(appVersion: version))))
            #expect(try await device(3).client == ClientInfo(appVersion: version))
        }
    }

    @Test("A registration that changes nothing else counts on a new day")
    func midnight() async throws {
        let request = RegistrationRequest(token: try StoreFixture.token(1), app: .default)
        // It is 08:00. Advance to two minutes before midnight.
        fixture.advance(.seconds(16 * 3600 - 120))
        _ = try await store.devices.register(request)
        #expect(try await store.devices.register(request) == .unchanged)
        fixture.advance(.seconds(180))
        _ = try await store.devices.register(request)
        #expect(try await today()["all"] == 1)
    }

    @Test("Writing and reading update the time seen, to within minutes and without a separate write")
    func seen() async throws {
        try await join(1)
        try await join(2)
        let start = fixture.time.now
        for (wait, isSeen) in [(60, false), (600, true)] {
            fixture.advance(.seconds(wait))
            let message = try await store.rooms.post(StoreFixture.post(1, "hi")).message
            store.feed.handedOut(message, to: try StoreFixture.member(2))
            try await store.activity.flush()
            let now = fixture.time.now
            for number in 1...2 { #expect(try await device(number).seenAt == (isSeen ? now : start)) }
        }
        fixture.advance(.seconds(86_400))
        _ = try await store.rooms.post(StoreFixture.post(1, "hi"))
        #expect(try await today() == [:])
        try await store.activity.flush()
        #expect(try await today() == ["all": 1, "1.0": 1])
    }

    @Test("With analytics off nothing is stored, and stored data is deleted")
    func off() async throws {
        try await join(1)
        keeps.value.withLock { $0 = false }
        try await join(2)
        #expect(try await device(2).client == ClientInfo())
        #expect(try await device(2).seenAt == nil)
        try await store.rooms.update(
            StoreFixture.member(2), token: StoreFixture.token(2), client: ClientInfo(appVersion: "9"), user: nil)
        let registered = RegistrationRequest(
            token: try StoreFixture.token(3), app: .default, edit: DeviceEdit(client: ClientInfo(appVersion: "9")))
        _ = try await store.devices.register(registered)
        #expect(try await store.devices.register(registered) == .unchanged)
        fixture.advance(.seconds(3600))
        let message = try await store.rooms.post(StoreFixture.post(2, "hi")).message
        try await store.activity.flush()
        #expect(try await store.metrics.usage(since: "") == nil)
        #expect(try await device(1).client.appVersion == "1.0", "The next round deletes it.")

        var watch = SQLiteUpkeep.Watch()
        try await store.upkeep.look(&watch)
        for table in ["devices", "active_users"] {
            for column in ["app_version", "os_version", "device_model"] {
                #expect(try fixture.value("SELECT count(\(column)) FROM \(table)") == 0)
            }
        }
        #expect(try fixture.value("SELECT count(time_seen) FROM devices") == 0)
        #expect(try fixture.value("SELECT count(*) FROM device_days") == 0)
        // Data that is not part of the analytics stays.
        #expect(try fixture.value("SELECT count(*) FROM active_users WHERE ip_address IS NOT NULL") == 2)
        #expect(try await store.records.progress(of: message).readers == 1)

        keeps.value.withLock { $0 = true }
        try await join(2)
        #expect(try await today() == ["all": 1, "1.0": 1])
    }

    @Test("Counts of days are deleted after 90 days")
    func retention() async throws {
        try await join(1)
        fixture.advance(.seconds(90 * 86_400))
        try await join(1)
        _ = try await store.upkeep.applyRetention(messages: .seconds(3600), queue: .seconds(3600))
        #expect(try fixture.value("SELECT count(DISTINCT day) FROM device_days") == 2)
        fixture.advance(.seconds(86_400))
        _ = try await store.upkeep.applyRetention(messages: .seconds(3600), queue: .seconds(3600))
        #expect(try fixture.value("SELECT count(DISTINCT day) FROM device_days") == 1)
    }
}
