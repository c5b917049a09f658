import ChatDomain
import ChatStore
import GRDB
import Testing

@testable import TestStores

@Suite("The registry of devices", .timeLimit(.minutes(1)))
struct DeviceRegistryTests {
    let bench: NotificationFixture

    init() throws {
        bench = try NotificationFixture()
    }

    private func register(_ number: Int, _ edit: DeviceEdit = DeviceEdit()) async throws -> DeviceRegistration {
        try await bench.store.devices.register(
            RegistrationRequest(token: StoreFixture.token(number), app: .default, edit: edit))
    }

    private func device(_ number: Int) async throws -> Device {
        try await bench.store.devices.device(StoreFixture.token(number), app: nil)
    }

    @Test("A push that was in flight when its device was unregistered is not sent again after its release")
    func inFlight() async throws {
        _ = try await register(1)
        let id = try await bench.send(.all).id
        _ = try await bench.queue.lease(StoreFixture.slot(room: 1))
        #expect(try await bench.store.devices.unregister(StoreFixture.token(1), app: nil))
        #expect(try await bench.store.notifications.notification(id).counts[.cancelled] == 1)
        try await bench.queue.settle(1...1, .notProcessed)
        #expect(try await bench.queue.lease(StoreFixture.slot(2)).pushes.isEmpty)
        #expect(try bench.queued("state = 'cancelled'") == ["1"])
    }

    @Test("A join or update with a session sets the device's user; one without a session keeps it")
    func sessions() async throws {
        var join = try StoreFixture.join(1)
        join.user = UserReference(stored: "ann")
        try await bench.store.rooms.join(join)
        #expect(try await device(1).user?.text == "ann")
        try await bench.store.rooms.join(StoreFixture.join(1))
        #expect(try await device(1).user?.text == "ann")
        try await bench.store.rooms.update(
            StoreFixture.member(1), token: StoreFixture.token(2), client: ClientInfo(),
            user: UserReference(stored: "bob"))
        #expect(try await device(2).user?.text == "bob")
    }
}
