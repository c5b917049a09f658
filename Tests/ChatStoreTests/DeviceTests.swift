import ChatDomain
import ChatStore
import Foundation
import Testing

@testable import TestStores

@Suite("Devices that register without a room")
struct DeviceTests {
    let fixture: StoreFixture
    let store: SQLiteStores

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
    }

    @Test("A device has a row per app; an equal registration writes nothing until it is old, then it sets the time")
    func repeats() async throws {
        let token = try StoreFixture.token(1)
        #expect(try await store.devices.register(RegistrationRequest(token: token, app: .default)) == .created)
        #expect(try await store.devices.register(RegistrationRequest(token: token, app: AppName("other"))) == .created)
        let registered = try fixture.query("SELECT time_registered FROM devices")
        fixture.advance(DeviceRegistration.freshness - .milliseconds(1))
        let before = try await store.pragma("data_version")
        #expect(try await store.devices.register(RegistrationRequest(token: token, app: .default)) == .unchanged)
        #expect(try await store.pragma("data_version") == before)
        #expect(try fixture.query("SELECT time_registered FROM devices") == registered)
        fixture.advance(.milliseconds(1))
        #expect(try await store.devices.register(RegistrationRequest(token: token, app: .default)) == .refreshed)
        #expect(try fixture.value("SELECT count(*) FROM devices") == 2)
        #expect(try fixture.value("SELECT count(DISTINCT time_registered) FROM devices") == 2)
    }

    @Test("A removed app that comes back is active again at once, without its refusals")
    func revival() async throws {
        let token = try StoreFixture.token(1)
        _ = try await store.devices.register(RegistrationRequest(token: token, app: .default))
        _ = try fixture.query(
            "UPDATE devices SET time_deactivated = time_registered, deactivated_reason = 'Unregistered', refusals = 3")
        #expect(try await store.devices.register(RegistrationRequest(token: token, app: .default)) == .refreshed)
        #expect(try fixture.value("SELECT count(*) FROM devices WHERE time_deactivated IS NULL AND refusals = 0") == 1)
    }

    @Test("A join registers the same device")
    func joining() async throws {
        try await store.rooms.join(StoreFixture.join(1))
        #expect(
            try await store.devices.register(RegistrationRequest(token: StoreFixture.token(1), app: .default))
                == .unchanged)
        #expect(try fixture.value("SELECT count(*) FROM devices") == 1)
    }

    @Test("Concurrent registrations of one token make one device")
    func atOnce() async throws {
        let token = try StoreFixture.token(1)
        let results = try await withThrowingTaskGroup(of: DeviceRegistration.self) { [store] group in
            for _ in 0..<50 {
                group.addTask { try await store.devices.register(RegistrationRequest(token: token, app: .default)) }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(results.filter { $0 == .created }.count == 1)
        #expect(try fixture.value("SELECT count(*) FROM devices") == 1)
    }
}
