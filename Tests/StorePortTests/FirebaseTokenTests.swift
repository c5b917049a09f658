import ChatDomain
import Testing

@testable import TestStores

/// Tests the tokens of Android phones, which are case-sensitive.
@Suite("Tokens of Android phones", .timeLimit(.minutes(2)))
struct FirebaseTokenTests {
    private static let text = "cAAAAAAAAAAAAAAAAAAAA1:APA91bHexampleExample"
    private static let app = StoreFixture.firebaseApp

    private func token() throws -> DeviceToken { try DeviceToken(parsing: Self.text) }

    private func register(in store: TestedStore) async throws {
        _ = try await store.stores.devices.register(RegistrationRequest(token: token(), app: Self.app))
    }

    private func leased(_ store: TestedStore) async throws -> [QueuedPush] {
        try await store.notice()
        return try await store.stores.queue.lease(app: Self.app, lanes: PushLane.allCases, limit: 10).pushes
    }

    private func insert(in store: TestedStore) throws {
        _ = try store.query(
            """
            INSERT INTO push_queue (device_token, payload, app)
            VALUES ('\(Self.text)', '{"aps":{"alert":"x"}}', '\(Self.app)')
            """)
    }

    @Test(
        "A notification to an unknown token is for the Android app, unless it names another",
        arguments: StoreKind.allCases)
    func unknown(kind: StoreKind) async throws {
        let store = try await kind.make()
        let audience = try Audience.tokens([token(), StoreFixture.token(1)])
        for app in [nil, AppName("second")] {
            _ = try await store.stores.notifications.send(
                NotificationRequest(audience: audience, app: app, payload: #"{"aps":{"alert":"x"}}"#))
        }
        #expect(
            try store.query("SELECT app FROM push_queue ORDER BY message_id").map { $0[0] } == [
                "android", "default", "second", "second",
            ])
    }

    @Test("A script's push belongs to the device with its token, and is found by it", arguments: StoreKind.allCases)
    func script(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await register(in: store)
        try insert(in: store)
        #expect(try await leased(store).map(\.obstacle) == [nil])
        let found = try await store.queue().pushes(QueueFilter(token: token()), after: nil, limit: 10)
        #expect(found.items.map(\.token) == [Self.text])
        _ = try store.query(
            "UPDATE devices SET deactivated_reason = 'x', time_deactivated = \(store.time(store.now()))")
        try insert(in: store)
        #expect(try await leased(store).map(\.obstacle) == [.deviceInactive])
    }

    @Test("A chat push is still sent if its phone registers again", arguments: StoreKind.allCases)
    func registeredAgain(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await store.stores.rooms.join(StoreFixture.join(1))
        try await store.stores.rooms.join(
            JoinRequest(
                member: StoreFixture.member(2), app: Self.app, token: token(), nickname: Nickname(parsing: "Ann"),
                code: SecretCode(parsing: "room")))
        _ = try await store.stores.rooms.post(StoreFixture.post(1, "hello"))
        _ = try await store.stores.devices.unregister(token(), app: Self.app)
        try await register(in: store)
        #expect(try await leased(store).map(\.obstacle) == [nil])
    }

    // MARK: The two forms of an address

    private static let id = "cAAAAAAAAAAAAAAAAAAAA1"

    private func form(_ text: String) throws -> DeviceToken { try DeviceToken(parsing: text) }

    private func devices(_ store: TestedStore) async throws -> [Device] {
        try await store.stores.devices.devices(DeviceFilter(app: Self.app), after: nil, limit: 10).items
    }

    private func join(_ number: Int, _ token: String, _ code: String = "room") throws -> JoinRequest {
        JoinRequest(
            member: try StoreFixture.member(number), app: Self.app, token: try form(token),
            nickname: try Nickname(parsing: "name\(number)"), code: try SecretCode(parsing: code))
    }

    private func tokens(_ store: TestedStore) throws -> [[String]] {
        try store.query("SELECT device_token FROM active_users ORDER BY member_id")
    }

    @Test(
        "A token and its later installation id are one device, with its user, tags, member and pushes",
        arguments: StoreKind.allCases, [[text, id], [id, text]])
    func laterForm(kind: StoreKind, forms: [String]) async throws {
        let store = try await kind.make()
        let (devices, old, new) = (store.stores.devices, try form(forms[0]), try form(forms[1]))
        let edit = DeviceEdit(user: .set(UserReference(stored: "ann")), tags: [ChatDomain.Tag(stored: "beta")])
        _ = try await devices.register(RegistrationRequest(token: old, app: Self.app, edit: edit))
        try await store.stores.rooms.join(StoreFixture.join(1))
        try await store.stores.rooms.join(join(2, forms[0]))
        // An equal token of another app is another device.
        _ = try await devices.register(RegistrationRequest(token: old, app: AppName("second")))
        let first = try await devices.device(old, app: Self.app)
        func notify() async throws {
            _ = try await store.stores.notifications.send(
                NotificationRequest(
                    audience: .users([UserReference(stored: "ann")]), app: nil, payload: #"{"aps":{"alert":"x"}}"#))
        }
        try await notify()
        _ = try await store.stores.rooms.post(StoreFixture.post(1, "hello"))
        #expect(try await devices.register(RegistrationRequest(token: new, app: Self.app)) == .refreshed)
        let found = try await self.devices(store)
        #expect(found.map(\.id) == [first.id] && found.map(\.token) == [new])
        #expect(found.first?.user?.text == "ann" && found.first?.tags.map(\.text) == ["beta"])
        #expect(try await devices.device(old, app: AppName("second")).token == old)
        #expect(try tokens(store) == [[try StoreFixture.token(1).description], [forms[1]]])
        // Pushes that wait for the old form are still sent. Later ones go to the new form, once.
        try await notify()
        #expect(
            try await leased(store).map { "\($0.address?.description ?? "") \($0.obstacle == nil)" }
                == ["\(forms[0]) true", "\(forms[0]) true", "\(forms[1]) true"])
        // A server that still knows the device by its token reaches it.
        if forms[1] == Self.id {
            #expect(try await devices.device(old, app: Self.app).token == new)
            #expect(try await devices.unregister(old, app: Self.app))
            #expect(try await self.devices(store).isEmpty)
            #expect(try tokens(store)[1] == ["0"])
        }
    }

    @Test(
        "A notification to the earlier token of a phone goes to its installation id, once",
        arguments: StoreKind.allCases, [nil, app])
    func audience(kind: StoreKind, app: AppName?) async throws {
        let store = try await kind.make()
        func send(_ tokens: [String]) async throws -> [[String]] {
            _ = try await store.stores.notifications.send(
                NotificationRequest(
                    audience: .tokens(tokens.map(form)), app: app, payload: #"{"aps":{"alert":"x"}}"#))
            return try store.query(
                """
                SELECT q.device_token, q.state FROM push_queue q
                WHERE q.notification = (SELECT max(notification_id) FROM notifications) ORDER BY q.message_id
                """)
        }
        try await register(in: store)
        #expect(try await send([Self.text]) == [[Self.text, "pending"]], "no device has the id")
        _ = try await store.stores.devices.register(RegistrationRequest(token: form(Self.id), app: Self.app))
        #expect(try await send([Self.text]) == [[Self.id, "pending"]])
        #expect(try await send([Self.text, Self.id]) == [[Self.id, "pending"]])
        let other = "dAAAAAAAAAAAAAAAAAAAA2:APA91bHexampleExample"
        #expect(try await send([Self.text, other]) == [[Self.id, "pending"], [other, "pending"]])
        _ = try store.query(
            "UPDATE devices SET deactivated_reason = 'x', time_deactivated = \(store.time(store.now()))")
        #expect(try await send([Self.text]) == [[Self.id, "failed"]])
    }

    @Test("Two devices that an earlier version made of one phone become one", arguments: StoreKind.allCases)
    func two(kind: StoreKind) async throws {
        let store = try await kind.make()
        let devices = store.stores.devices
        let edit = DeviceEdit(
            user: .set(UserReference(stored: "ann")), clientInfo: .set("old"), tags: [ChatDomain.Tag(stored: "a")])
        _ = try await devices.register(RegistrationRequest(token: token(), app: Self.app, edit: edit))
        let first = try await devices.device(token(), app: Self.app).id
        _ = try store.query(
            "INSERT INTO devices (app, device_token, client_info) VALUES ('\(Self.app)', '\(Self.id)', 'new')")
        store.advance(DeviceRegistration.freshness + .seconds(1))
        #expect(try await devices.register(RegistrationRequest(token: form(Self.id), app: Self.app)) == .refreshed)
        let found = try await self.devices(store)
        #expect(found.map(\.id) == [first] && found.map(\.token.description) == [Self.id])
        #expect(found.first?.user?.text == "ann" && found.first?.clientInfo == "new")
        #expect(found.first?.tags.map(\.text) == ["a"])
    }

    @Test(
        "A member who joins or updates with the installation id takes the phone from its earlier udid",
        arguments: StoreKind.allCases, [true, false])
    func member(kind: StoreKind, joins: Bool) async throws {
        let store = try await kind.make()
        let rooms = store.stores.rooms
        try await rooms.join(join(1, Self.text))
        if joins {
            try await rooms.join(join(2, Self.id))
        } else {
            try await rooms.join(join(2, "dAAAAAAAAAAAAAAAAAAAA2"))
            try await rooms.update(
                StoreFixture.member(2), token: form(Self.id), app: .app(Self.app), client: ClientInfo(), user: nil)
        }
        #expect(try tokens(store) == [["0"], [Self.id]])
        let phones = try await devices(store).map(\.token.description).filter { $0.hasPrefix(Self.id) }
        #expect(phones == [Self.id])
    }

    @Test("A ban of a phone also holds for its installation id", arguments: StoreKind.allCases)
    func banned(kind: StoreKind) async throws {
        let store = try await kind.make()
        try await store.stores.rooms.join(join(1, Self.text))
        _ = try await store.stores.moderation.ban(
            BanRequest(.device(token(), room: nil)), by: Moderator(name: "admin", address: nil))
        for text in [Self.text, Self.id] {
            let error = await #expect(throws: ChatError.self) { try await store.stores.rooms.join(join(2, text)) }
            #expect(error?.code == .forbidden)
        }
    }
}
