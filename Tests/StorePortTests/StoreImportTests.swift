import ChatDomain
import Testing

@testable import TestStores

/// Tests imports into every store.
@Suite("Imports", .timeLimit(.minutes(2)))
struct StoreImportTests {
    private static let all = Set(DeviceRecord.Column.allCases)

    // MARK: - Members and pushes

    @Test("Present and former members are known", arguments: StoreKind.allCases)
    func members(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await store.stores.rooms.join(StoreFixture.join(1))
        _ = try store.query(
            """
            INSERT INTO past_members (member_id, secret_code, udid, nickname, history_from, fetched_to, time_left)
            VALUES (9, 'room', '\(StoreFixture.member(2).text)', 'two', 0, 1, \(store.time(store.now())))
            """)
        let known = try await store.imports.knownMembers(of: (1...3).map { try StoreFixture.member($0) })
        #expect(try known == Set((1...2).map { try StoreFixture.member($0).text }))
        #expect(try await store.imports.knownMembers(of: []) == [])
    }

    @Test(
        "Pushes are queued in order behind those that are there, and stay known whatever their outcome",
        arguments: StoreKind.allCases)
    func pushes(kind: StoreKind) async throws {
        let store = try await kind.make()
        _ = try store.query("INSERT INTO push_queue (device_token, payload) VALUES ('\(StoreFixture.token(9))', '{}')")
        #expect(try await store.imports.importedPushes() == [])
        func push(_ number: Int, _ payload: String, at time: Timestamp? = nil) throws -> WaitingPush {
            WaitingPush(
                id: "0123456\(number)-0123-8123-8123-0123456789ab", token: try StoreFixture.token(number),
                payload: payload, queuedAt: time)
        }
        let early = store.now() - .seconds(86_400)
        let texts = [#"{"aps":{"alert":"a \"b\" c\\d, {e}"}}"#, #"{"aps":{"alert":"ö\u0000"}}"#]
        let pushes = [try push(2, texts[0], at: early), try push(1, texts[1])]
        try await store.imports.take(pushes, app: .default)
        try await store.notice()
        let leased = try await store.lease()
        #expect(try leased.map(\.address) == [9, 2, 1].map { .token(try StoreFixture.token($0)) })
        #expect(leased.dropFirst().map(\.payload) == texts.map { Array($0.utf8) })
        #expect(leased.dropFirst().map(\.apnsID) == pushes.map(\.id))
        #expect(leased.allSatisfy { !$0.isOurs })
        #expect(try store.value("SELECT count(*) FROM push_queue WHERE time_queued = \(store.time(early))") == 1)
        try await store.settle(leased, Transition(.sent, adding: PushHistory(attempts: 1)))
        #expect(try await store.imports.importedPushes() == Set(pushes.map(\.id)))
        try await store.imports.take([], app: .default)
    }

    // MARK: - Devices

    private func register(
        _ number: Int, _ edit: DeviceEdit = DeviceEdit(), version: String? = nil, in store: TestedStore
    ) async throws {
        var request = RegistrationRequest(token: try StoreFixture.token(number), app: .default, edit: edit)
        request.edit.client = ClientInfo(appVersion: version)
        _ = try await store.stores.devices.register(request)
    }

    /// Deactivates a device, as if the push service had reported its app as gone.
    private func end(_ number: Int, in store: TestedStore) throws {
        _ = try store.query(
            """
            UPDATE devices SET time_deactivated = \(store.time(store.now())), deactivated_reason = 'Unregistered'
            WHERE device_token = '\(StoreFixture.token(number))'
            """)
    }

    private func device(_ number: Int, in store: TestedStore) async throws -> Device {
        try await store.stores.devices.device(StoreFixture.token(number), app: nil)
    }

    /// Returns the devices as an export has them.
    private func exported(_ store: TestedStore) async throws -> [DeviceRecord] {
        try await store.stores.devices.devices(DeviceFilter(), after: nil, limit: 100).items.map { device in
            var record = DeviceRecord(token: device.token, app: device.app)
            (record.user, record.clientInfo, record.serverInfo) = (device.user, device.clientInfo, device.serverInfo)
            (record.tags, record.client) = (Set(device.tags), device.client)
            (record.createdAt, record.registeredAt) = (device.createdAt, device.registeredAt)
            (record.seenAt, record.deactivatedAt) = (device.seenAt, device.deactivatedAt)
            record.deactivatedReason = device.deactivatedReason
            return record
        }
    }

    /// Returns the complete rows of all devices and of their tags.
    private func rows(_ store: TestedStore) throws -> [[String]] {
        try store.query("SELECT * FROM devices ORDER BY device_id")
            + store.query("SELECT device_id, tag FROM device_tags ORDER BY device_id, tag")
    }

    @Test(
        "A second import of the same data changes nothing, with all columns or a few",
        arguments: StoreKind.allCases)
    func again(kind: StoreKind) async throws {
        let store = try await kind.make()
        for number in 1...3 {
            try await register(
                number,
                DeviceEdit(user: .set(UserReference(stored: "ann")), tags: [Tag(stored: "a"), Tag(stored: "b;\"c")]),
                version: "1.0", in: store)
        }
        try end(3, in: store)
        store.advance(.seconds(100))
        let (records, before) = (try await exported(store), try rows(store))
        for columns in [Self.all, [], [.tags, .registered]] {
            let result = try await store.imports.take(records, columns: columns)
            #expect(result.updated == 3 && result.created == 0 && result.newer == 0)
            #expect(try rows(store) == before)
        }
        // Import again after the devices were deleted: the first import creates them, the second changes nothing.
        _ = try store.query("DELETE FROM devices")
        #expect(try await store.imports.take(records, columns: Self.all).created == 3)
        let made = try rows(store)
        store.advance(.seconds(100))
        #expect(try await store.imports.take(records, columns: Self.all).updated == 3)
        #expect(try rows(store) == made)
        #expect(try await exported(store) == records)
    }

    @Test(
        "A registration, an end or a newer app version that came after the export stays",
        arguments: StoreKind.allCases)
    func newer(kind: StoreKind) async throws {
        let store = try await kind.make()
        for number in 1...5 { try await register(number, version: "1.0", in: store) }
        try end(2, in: store)
        let records = try await exported(store)

        store.advance(.seconds(48 * 3600))
        // Device 1 gets another owner. Device 2 comes back. Device 3 is gone. Device 4 has another app version, but the
        // same registration.
        try await register(1, DeviceEdit(user: .set(UserReference(stored: "bob"))), in: store)
        try await register(2, in: store)
        try end(3, in: store)
        _ = try store.query(
            """
            UPDATE devices SET app_version = '2.0', time_seen = \(store.time(store.now()))
            WHERE device_token = '\(StoreFixture.token(4))'
            """)
        let before = try rows(store)
        let result = try await store.imports.take(records, columns: Self.all)
        #expect(result.newer == 3 && result.updated == 2 && result.created == 0)
        #expect(try rows(store) == before)
        #expect(try await device(1, in: store).user?.text == "bob")
        #expect(try await device(2, in: store).deactivatedAt == nil)
        #expect(try await device(3, in: store).deactivatedAt == store.now())
        #expect(try await device(4, in: store).client.appVersion == "2.0")
    }

    @Test(
        "The file's data counts if it registered or ended the device later, or names no time",
        arguments: StoreKind.allCases)
    func older(kind: StoreKind) async throws {
        let store = try await kind.make()
        for number in 1...3 { try await register(number, in: store) }
        try end(1, in: store)
        try end(3, in: store)
        let later = store.now() + .seconds(1000)
        var records = try await exported(store)
        (records[0].registeredAt, records[0].deactivatedAt, records[0].deactivatedReason) = (later, nil, nil)
        (records[1].deactivatedAt, records[1].deactivatedReason) = (later, "Unregistered")
        (records[2].registeredAt, records[2].deactivatedAt, records[2].deactivatedReason) = (nil, nil, nil)
        #expect(try await store.imports.take(records, columns: Self.all).updated == 3)
        let (first, second, third) = (
            try await device(1, in: store), try await device(2, in: store), try await device(3, in: store)
        )
        #expect(first.deactivatedAt == nil && first.registeredAt == later)
        #expect(second.deactivatedAt == later && second.deactivatedReason == "Unregistered")
        #expect(third.deactivatedAt == nil)
    }

    @Test(
        "A file without the column of ended devices leaves their state unchanged",
        arguments: StoreKind.allCases)
    func withoutEnds(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(1, in: store)
        var record = try #require(try await exported(store).first)
        record.serverInfo = "vip"
        store.advance(.seconds(1000))
        try end(1, in: store)
        #expect(try await store.imports.take([record], columns: [.serverInfo, .registered]).updated == 1)
        let device = try await device(1, in: store)
        #expect(device.deactivatedAt == store.now() && device.serverInfo == "vip")
    }

    @Test(
        "Columns that the file lacks stay unchanged; columns that it has empty become empty",
        arguments: StoreKind.allCases)
    func columns(kind: StoreKind) async throws {
        let store = try await kind.make()
        let edit = DeviceEdit(
            user: .set(UserReference(stored: "ann")), clientInfo: .set("phone"), serverInfo: .set("vip"),
            tags: [Tag(stored: "a")])
        try await register(1, edit, version: "1.0", in: store)
        var record = DeviceRecord(token: try StoreFixture.token(1), app: .default)
        record.tags = [Tag(stored: "b")]
        #expect(try await store.imports.take([record], columns: [.clientInfo, .tags]).updated == 1)
        let changed = try await device(1, in: store)
        #expect(changed.user?.text == "ann" && changed.clientInfo == nil && changed.serverInfo == "vip")
        #expect(changed.tags.map(\.text) == ["b"] && changed.client.appVersion == "1.0")
        #expect(try await store.imports.take([record], columns: [.appVersion, .user]).updated == 1)
        let again = try await device(1, in: store)
        #expect(again.user == nil && again.client.appVersion == nil && again.tags.map(\.text) == ["b"])
    }

    @Test("A device that is in a file twice is imported as if each row had come alone", arguments: StoreKind.allCases)
    func twice(kind: StoreKind) async throws {
        let store = try await kind.make()
        var records = [1, 2, 1, 1].map { number in
            (try? StoreFixture.token(number)).map { DeviceRecord(token: $0, app: .default) }
        }
        .compactMap { $0 }
        records.append(DeviceRecord(token: try StoreFixture.token(1), app: AppName("other")))
        for (index, name) in ["one", "two", "three", "four", "five"].enumerated() {
            records[index].user = UserReference(stored: name)
            records[index].registeredAt = store.now() - .seconds(100 - index)
        }
        // The last row but one has an earlier time of registration.
        records[3].registeredAt = store.now() - .seconds(1000)
        let result = try await store.imports.take(records, columns: [.user, .registered])
        #expect(result.created == 3 && result.updated == 1 && result.newer == 1)
        let found = try await store.stores.devices.devices(DeviceFilter(), after: nil, limit: 9).items
        #expect(
            Set(found.map { "\($0.app) \($0.user?.text ?? "")" }) == ["default three", "default two", "other five"])
    }
}
