import APNSGateway
import ChatDomain
import ChatSQL
import GRDB
import Testing

@testable import ChatStore
@testable import TestStores

/// A store, with shortcuts for tests of notifications.
struct NotificationFixture: Sendable {
    let fixture: StoreFixture
    let store: SQLiteStores
    /// The queue of the store, with a dispatcher.
    let queue: QueueFixture

    static let payload = #"{"aps":{"alert":"hello"}}"#

    init() throws {
        fixture = try StoreFixture()
        store = try fixture.open()
        queue = try QueueFixture(fixture, store)
    }

    var now: Timestamp { fixture.time.now }

    static func token(_ number: Int) throws -> DeviceToken { try StoreFixture.token(number) }

    /// Registers devices. The number of a device determines its token.
    func register(
        _ numbers: some Sequence<Int>, app: String = "default", user: String? = nil, tags: Set<String>? = nil
    ) async throws {
        for number in numbers {
            var edit = DeviceEdit(tags: tags.map { Set($0.map(ChatDomain.Tag.init(stored:))) })
            if let user { edit.user = .set(UserReference(stored: user)) }
            _ = try await store.devices.register(
                RegistrationRequest(token: StoreFixture.token(number), app: AppName(app), edit: edit))
        }
    }

    /// Inserts many devices in one statement. Every `everyInactive`th device is inactive.
    func fill(_ count: Int, app: String = "default", everyInactive: Int = 0) throws {
        _ = try fixture.query(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
            INSERT INTO devices (app, device_token, time_deactivated, deactivated_reason)
            SELECT :app, printf('%064x', i), iif(:every AND i % :every = 0, '2027-01-01', NULL),
                iif(:every AND i % :every = 0, 'Feedback', NULL) FROM n
            """, ["count": count, "app": app, "every": everyInactive])
    }

    func deactivate(_ number: Int) throws {
        _ = try fixture.query(
            """
            UPDATE devices SET time_deactivated = '2027-01-01', deactivated_reason = 'Feedback' WHERE device_token = ?
            """, [StoreFixture.token(number).description])
    }

    func request(_ audience: Audience, app: String? = nil, payload: String = payload) -> NotificationRequest {
        NotificationRequest(audience: audience, app: app.map { AppName($0) }, payload: payload)
    }

    func send(_ audience: Audience, app: String? = nil, payload: String = payload) async throws -> NotificationReceipt {
        try await store.notifications.send(request(audience, app: app, payload: payload))
    }

    /// Waits until all background work of notifications is done.
    func finish(_ id: NotificationID) async throws -> NotificationStatus {
        while try fixture.value("SELECT count(*) FROM notifications WHERE work IS NOT NULL") > 0 {
            try await store.rooms.ping()
        }
        return try await store.notifications.notification(id)
    }

    /// Returns the digits at the end of the tokens in the queue, in order.
    func queued(_ condition: String = "TRUE") throws -> [String] {
        try fixture.query(
            "SELECT ltrim(device_token, 'a') FROM push_queue WHERE \(condition) ORDER BY message_id"
        ).map { $0[0] }
    }
}

extension SQLiteStores {
    /// Accepts a notification and performs only this number of steps of its fan-out, as if the process ended then.
    func accept(_ request: NotificationRequest, steps: Int) async throws -> NotificationID {
        let settings = StoreSettings(format: { _ in APNSFormat(.binary, payloadLimit: 2048) })
        return try await database.writer.perform { [database] db in
            let now = database.now()
            let until = try NotificationFanout.end(of: request.audience, db)
            let new = try SQLiteTransaction(db).insert(request, devices: 0, until: until, now: now)
            let id = try #require(new)
            for _ in 0..<steps { _ = try BackgroundJob.notification(id).step(now: now, settings, db) }
            return id
        }
    }
}
