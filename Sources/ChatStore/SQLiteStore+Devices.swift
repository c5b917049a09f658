package import ChatDomain
import GRDB

extension SQLiteStore: DeviceStore {
    package func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration {
        let (token, app, edit) = (request.token.description, request.app, request.edit)
        let earliest = (clock() - DeviceRegistration.freshness).sqlText
        let known = try await read { db in try DeviceRow.find(token, app: app, freshAfter: earliest, for: edit, db) }
        if known?.isFresh == true, known?.isChanged(by: edit) == false { return .unchanged }
        return try await writer.perform { [clock] db in
            // Others may have registered it meanwhile.
            let known = try DeviceRow.find(token, app: app, freshAfter: earliest, for: edit, db)
            if known?.isFresh == true, known?.isChanged(by: edit) == false { return .unchanged }
            try Self.setRegistered(token, app: app, now: clock().sqlText, db)
            if let device = try known ?? DeviceRow.find(token, app: app, freshAfter: earliest, for: edit, db) {
                try device.apply(edit, db)
            }
            return known == nil ? .created : .refreshed
        }
    }

    /// Makes the device's row, or sets its time anew; what the push service said before does not count any more.
    static func setRegistered(_ token: String, app: AppName, now: String, _ db: Database) throws {
        try db.cachedStatement(
            sql: """
                INSERT INTO devices (app, device_token, time_created, time_registered) VALUES (?, ?, ?, ?)
                ON CONFLICT (device_token, app) DO UPDATE SET time_registered = excluded.time_registered,
                    time_deactivated = NULL, deactivated_reason = NULL, refusals = 0
                """
        ).execute(arguments: [app.text, token, now, now])
    }

    package func unregister(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Bool {
        let endings: [Ending]? = try await writer.perform { [clock] db in
            guard let device = try Self.resolve(token, app: app, db) else { return nil }
            let cancelled = try String.fetchAll(
                db.cachedStatement(
                    sql: """
                        UPDATE push_queue SET state = 'cancelled', reason = ?, time_settled = ?
                        WHERE device = ? AND state = 'pending' RETURNING app
                        """), arguments: [LeftWork.unregistered, clock().sqlText, device.id])
            try db.cachedStatement(
                sql: """
                    UPDATE active_users SET device_token = '0'
                    WHERE device_token = ? AND app = ? AND device_token <> '0'
                    """
            ).execute(arguments: [token.description, device.app])
            try db.cachedStatement(sql: "DELETE FROM devices WHERE device_id = ?").execute(arguments: [device.id])
            return cancelled.map { Ending(app: AppName($0), state: .cancelled, reason: LeftWork.unregistered) }
        }
        guard let endings else { return false }
        count(endings)
        return true
    }

    package func edit(
        _ token: DeviceToken, app: AppName?, _ edit: DeviceEdit
    ) async throws(ChatError) -> Device {
        try await writer.perform { db in
            let place = try Self.resolved(token, app: app, db)
            guard let row = try DeviceRow.find(token.description, app: AppName(place.app), for: edit, db) else {
                throw ChatError.notFound("device")
            }
            try row.apply(edit, db)
            return try Self.load(place.id, db)
        }
    }

    package func device(_ token: DeviceToken, app: AppName?) async throws(ChatError) -> Device {
        try await read { db in try Self.load(Self.resolved(token, app: app, db).id, db) }
    }

    // MARK: - Which device is meant

    private typealias Place = (id: Int64, app: String)

    /// Apps that the error names which asks for one.
    private static let mostNamed = 10

    /// Nil where it is not known.
    /// - Throws: ``ChatError/Code/ambiguous``.
    private static func resolve(_ token: DeviceToken, app: AppName?, _ db: Database) throws -> Place? {
        let rows = try Row.fetchAll(
            db.cachedStatement(
                sql: """
                    SELECT device_id, app FROM devices WHERE device_token = ?1 AND (?2 IS NULL OR app = ?2)
                    ORDER BY app LIMIT ?3
                    """), arguments: [token.description, app?.text, mostNamed])
        guard rows.count < 2 else {
            let apps = rows.map { $0[1] as String }.joined(separator: ", ")
            throw ChatError(
                .ambiguous, "token: belongs to several apps of this relay (\(apps)); name one with app", field: "app")
        }
        return rows.first.map { ($0[0], $0[1]) }
    }

    private static func resolved(_ token: DeviceToken, app: AppName?, _ db: Database) throws -> Place {
        guard let place = try resolve(token, app: app, db) else {
            guard let app else { throw ChatError.notFound("device") }
            throw ChatError(.notFound, "There is no such device of the app \(app)", field: "app")
        }
        return place
    }

    private static func load(_ id: Int64, _ db: Database) throws -> Device {
        let row = try Row.fetchOne(
            db.cachedStatement(sql: "SELECT \(DeviceRow.columns) FROM devices d WHERE d.device_id = ?"), arguments: [id]
        )
        guard let row, let device = try DeviceRow.devices([row], db).first else { throw ChatError.notFound("device") }
        return device
    }
}
