import ChatDomain

@testable import ChatStorePostgres
@testable import TestStores

/// Relays on one PostgreSQL database.
final class Relays: Sendable {
    let fixture: PostgresFixture
    let all: [PostgresStores]
    var first: PostgresStores { all[0] }
    var second: PostgresStores { all[1] }

    init(_ count: Int = 1, apps: Set<AppName>? = nil) async throws {
        let fixture = try PostgresFixture()
        self.fixture = fixture
        var all: [PostgresStores] = []
        for _ in 0..<count { all.append(try await fixture.open(apps: apps)) }
        self.all = all
    }

    deinit { for stores in all { stores.close() } }

    @discardableResult
    func register(
        _ number: Int, app: AppName = .default, user: String? = nil, tags: [String]? = nil,
        client: ClientInfo = ClientInfo(), relay: Int = 0
    ) async throws -> DeviceRegistration {
        try await all[relay].devices.register(
            RegistrationRequest(
                token: try StoreFixture.token(number), app: app,
                edit: DeviceEdit(
                    user: user.map { .set(UserReference(stored: $0)) } ?? .keep, client: client,
                    tags: tags.map { Set($0.map(Tag.init(stored:))) })))
    }

    /// Inserts devices in one statement. Their tokens differ from those that ``StoreFixture`` makes.
    func fill(_ count: Int, tags: [String] = []) throws {
        try fixture.query(
            """
            INSERT INTO devices (app, device_token, time_registered)
            SELECT 'default', lpad(to_hex(n), 64, '0'), now() FROM generate_series(1, \(count)) n
            """)
        for tag in tags {
            try fixture.query("INSERT INTO device_tags SELECT '\(tag)', device_id FROM devices")
        }
    }

    /// Runs the background work of all relays until none is left.
    func work(during body: (@Sendable () async throws -> Void)? = nil) async throws {
        try await withThrowingTaskGroup { group in
            for stores in all { group.addTask { await stores.jobs.run() } }
            try await body?()
            while try fixture.value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 0 {
                try await Task.sleep(for: .milliseconds(20))
            }
            group.cancelAll()
        }
    }

    func send(
        _ audience: Audience, app: AppName? = nil, alert: String = "x", badge: Int? = nil, notBefore: Timestamp? = nil,
        skips: Bool = false, key: String? = nil, relay: Int = 0
    ) async throws -> NotificationReceipt {
        try await all[relay].notifications.send(
            NotificationRequest(
                audience: audience, app: app,
                payload: badge.map { #"{"aps":{"badge":\#($0)}}"# } ?? #"{"aps":{"alert":"\#(alert)"}}"#,
                notBefore: notBefore, skipsUnchanged: skips, idempotencyKey: key))
    }

    func deliveries(_ id: NotificationID, in state: PushState? = nil, page: Int = 7) async throws -> [Delivery] {
        try await Page.all { try await first.notifications.deliveries(of: id, in: state, after: $0, limit: page) }
    }

    /// Leases all due pushes and settles them as sent.
    @discardableResult
    func deliver(relay: Int = 0, limit: Int = 100_000) async throws -> Int {
        let pushes = try await all[relay].queue.lease(app: .default, lanes: PushLane.allCases, limit: limit).pushes
        let sent = Transition(.sent, adding: PushHistory(attempts: 1))
        _ = try await all[relay].queue.settle(
            pushes.map { Settlement($0.id...$0.id, sent, notification: $0.notification) }, app: .default)
        return pushes.count
    }
}
