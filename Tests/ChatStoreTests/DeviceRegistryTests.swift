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

    private static func tags(_ words: String...) -> Set<ChatDomain.Tag> { Set(words.map(ChatDomain.Tag.init(stored:))) }

    private func register(_ number: Int, _ edit: DeviceEdit = DeviceEdit()) async throws -> DeviceRegistration {
        try await bench.store.devices.register(
            RegistrationRequest(token: StoreFixture.token(number), app: .default, edit: edit))
    }

    private func device(_ number: Int) async throws -> Device {
        try await bench.store.devices.device(StoreFixture.token(number), app: nil)
    }

    @Test("Unregistering cancels waiting pushes, leaves the member in its room, and deletes the tags")
    func unregister() async throws {
        for number in 1...2 { try await bench.store.rooms.join(StoreFixture.join(number)) }
        _ = try await register(2, DeviceEdit(tags: Self.tags("t")))
        let id = try await bench.send(.all).id
        _ = try await bench.queue.lease(StoreFixture.slot(room: 1))
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "hi"))
        for number in 1...2 { #expect(try await bench.store.devices.unregister(StoreFixture.token(number), app: nil)) }
        #expect(try await bench.store.devices.unregister(StoreFixture.token(2), app: nil) == false)
        #expect(
            try bench.queued("state = 'cancelled' AND reason = 'Unregistered' AND time_settled IS NOT NULL") == [
                "1", "2",
            ])
        // The chat's pushes are cancelled when their turn to be leased comes.
        #expect(try bench.queued("state = 'pending'") == ["2"])
        #expect(try await bench.store.notifications.notification(id).counts[.cancelled] == 2)
        #expect(bench.store.metrics.outcomes().map(\.total) == [2])
        #expect(try bench.fixture.value("SELECT count(*) FROM device_tags") == 0)
        #expect(try bench.fixture.value("SELECT count(*) FROM active_users WHERE device_token = '0'") == 2)
        #expect(try await bench.store.rooms.post(StoreFixture.post(1, "ho")).queued == 0)
        // A push that was in flight when its device was unregistered is not sent again after its release.
        _ = try await bench.queue.settle([
            DeliveryReport(connection: ConnectionID(1), identifiers: 1...1, outcome: .notProcessed)
        ])
        let lease = try await bench.queue.lease(StoreFixture.slot(2))
        #expect(lease.pushes.isEmpty && lease.reasons == ["Unregistered"])
        #expect(try bench.queued("state = 'cancelled'").sorted() == ["1", "2", "2"])
        // A retry revives none of these pushes.
        let file = try QueueFile(path: bench.fixture.path)
        #expect(try await file.retry(.matching(QueueFilter()), progress: { _ in }) == 0)
        // The device comes back under a new id.
        _ = try await register(2)
        #expect(try await device(2).id > 2)
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

    @Test("A device's history lists notifications and chat messages with their outcomes, newest first")
    func history() async throws {
        for number in 1...2 { try await bench.store.rooms.join(StoreFixture.join(number)) }
        let id = try await bench.send(.all).id
        _ = try await bench.store.rooms.post(StoreFixture.post(1, "hi"))
        _ = try await bench.send(.tokens([StoreFixture.token(1), StoreFixture.token(2)]))
        let device = try await device(2).id
        let history = try await Page.all {
            try await bench.store.devices.deliveries(to: device, before: $0, limit: 1)
        }
        #expect(history.map(\.id) == [5, 3, 2])
        #expect(history.map(\.message) == [nil, 1, nil])
        #expect(history[2].notification == id)
        #expect(history.allSatisfy { $0.state == .pending && $0.queuedAt == bench.now })
        // A push of another program gets its device with its first outcome.
        _ = try bench.fixture.query(
            "INSERT INTO push_queue (device_token, payload) VALUES (upper(?), '{\"aps\":{}}')",
            [StoreFixture.token(2).description])
        let count = try await bench.queue.lease(StoreFixture.slot()).pushes.count
        try await bench.queue.settle(1...UInt32(count), .accepted)
        let page = try await bench.store.devices.deliveries(to: device, before: nil, limit: 1)
        #expect(page.items.map(\.state) == [.sent])
        #expect(page.items.map(\.id) == [6])
    }
}
