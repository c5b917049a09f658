import ChatDomain
import GRDB
import Testing

@testable import ChatStore

@Suite("Devices of a file, imported", .timeLimit(.minutes(1)))
struct DeviceImportTests {
    let bench: NotificationBench
    private static let all = Set(DeviceRecord.Column.allCases)

    init() throws {
        bench = try NotificationBench()
    }

    private func register(_ number: Int, _ edit: DeviceEdit = DeviceEdit(), version: String? = nil) async throws {
        var request = RegistrationRequest(token: try StoreFixture.token(number), app: .default, edit: edit)
        request.edit.client = ClientInfo(appVersion: version)
        _ = try await bench.store.devices.register(request)
    }

    private func device(_ number: Int) async throws -> Device {
        try await bench.store.devices.device(StoreFixture.token(number), app: nil)
    }

    /// The devices, as an export has them.
    private func exported() async throws -> [DeviceRecord] {
        try await bench.store.devices.devices(DeviceFilter(), after: nil, limit: 100).items.map { device in
            var record = DeviceRecord(token: device.token, app: device.app)
            (record.user, record.clientInfo, record.serverInfo) = (device.user, device.clientInfo, device.serverInfo)
            (record.tags, record.client) = (Set(device.tags), device.client)
            (record.createdAt, record.registeredAt) = (device.createdAt, device.registeredAt)
            (record.seenAt, record.deactivatedAt) = (device.seenAt, device.deactivatedAt)
            record.deactivatedReason = device.deactivatedReason
            return record
        }
    }

    private func take(
        _ records: [DeviceRecord], _ columns: Set<DeviceRecord.Column> = all
    ) async throws -> DeviceImportResult {
        try await bench.store.devices.take(records, columns: columns)
    }

    /// All that a row says.
    private func rows() throws -> [Row] {
        try bench.fixture.query("SELECT * FROM devices ORDER BY device_id")
            + bench.fixture.query("SELECT * FROM device_tags ORDER BY device_id, tag")
    }

    @Test("The same again changes nothing, neither with all columns nor with few")
    func again() async throws {
        for number in 1...3 {
            try await register(
                number, DeviceEdit(user: .set(UserReference(stored: "ann")), tags: [ChatDomain.Tag(stored: "a")]),
                version: "1.0")
        }
        try bench.fixture.gone(3, at: bench.now)
        bench.fixture.advance(.seconds(100))
        let (records, before) = (try await exported(), try rows())
        for columns in [Self.all, [], [.tags, .registered]] {
            let result = try await take(records, columns)
            #expect(result.updated == 3 && result.created == 0 && result.newer == 0)
            #expect(try rows() == before)
        }
        // And after the devices were gone: the first time makes them, the second changes nothing.
        _ = try bench.fixture.query("DELETE FROM devices")
        #expect(try await take(records).created == 3)
        let made = try rows()
        bench.fixture.advance(.seconds(100))
        #expect(try await take(records).updated == 3)
        #expect(try rows() == made)
        #expect(try await exported() == records)
    }

    @Test("What has changed here after the export stays: a registration, an end, a newer version of the app")
    func newer() async throws {
        for number in 1...5 { try await register(number, version: "1.0") }
        try bench.fixture.gone(2, at: bench.now)
        let records = try await exported()

        bench.fixture.advance(.seconds(48 * 3600))
        // It has another owner; it has come back; it is gone; it has another version, and is registered as before.
        try await register(1, DeviceEdit(user: .set(UserReference(stored: "bob"))))
        try await register(2)
        try bench.fixture.gone(3, at: bench.now)
        _ = try bench.fixture.query(
            "UPDATE devices SET app_version = '2.0', time_seen = ? WHERE device_token = ?",
            [bench.now.sqlText, try StoreFixture.token(4).description])
        let before = try rows()
        let result = try await take(records)
        #expect(result.newer == 3 && result.updated == 2 && result.created == 0)
        #expect(try rows() == before)
        #expect(try await device(1).user?.text == "bob")
        #expect(try await device(2).deactivatedAt == nil)
        #expect(try await device(3).deactivatedAt == bench.now)
        #expect(try await device(4).client.appVersion == "2.0")
    }

    @Test("What the file knows later counts: a device that it has registered or ended later, or says no time of")
    func older() async throws {
        for number in 1...3 { try await register(number) }
        try bench.fixture.gone(1, at: bench.now)
        try bench.fixture.gone(3, at: bench.now)
        let later = bench.now + .seconds(1000)
        var records = try await exported()
        (records[0].registeredAt, records[0].deactivatedAt, records[0].deactivatedReason) = (later, nil, nil)
        (records[1].deactivatedAt, records[1].deactivatedReason) = (later, "Unregistered")
        (records[2].registeredAt, records[2].deactivatedAt, records[2].deactivatedReason) = (nil, nil, nil)
        #expect(try await take(records).updated == 3)
        let (first, second, third) = (try await device(1), try await device(2), try await device(3))
        #expect(first.deactivatedAt == nil && first.registeredAt == later)
        #expect(second.deactivatedAt == later && second.deactivatedReason == "Unregistered")
        #expect(third.deactivatedAt == nil)
    }

    @Test("A file that does not say which devices have ended leaves that as it is")
    func withoutEnds() async throws {
        try await register(1)
        var record = try #require(try await exported().first)
        record.serverInfo = "vip"
        bench.fixture.advance(.seconds(1000))
        try bench.fixture.gone(1, at: bench.now)
        #expect(try await take([record], [.serverInfo, .registered]).updated == 1)
        let device = try await device(1)
        #expect(device.deactivatedAt == bench.now && device.serverInfo == "vip")
    }
}

extension StoreFixture {
    /// The push service says that the app is gone.
    fileprivate func gone(_ number: Int, at time: Timestamp) throws {
        _ = try query(
            "UPDATE devices SET time_deactivated = ?, deactivated_reason = 'Unregistered' WHERE device_token = ?",
            [time.sqlText, try Self.token(number).description])
    }
}
