package import ChatDomain
import GRDB

extension SQLiteStore: DeviceStore {
    package func register(_ request: RegistrationRequest) async throws(ChatError) -> DeviceRegistration {
        let (token, app) = (request.token, request.app)
        let text = token.description
        let earliest = (clock() - DeviceRegistration.freshness).sqlText
        let isFresh = try await read { db in
            try Bool.fetchOne(
                db.cachedStatement(
                    sql: """
                        SELECT time_deactivated IS NULL AND time_registered > ? FROM devices
                        WHERE device_token = ? AND app = ?
                        """), arguments: [earliest, text, app.text])
        }
        if isFresh == true { return .unchanged }
        return try await writer.perform { [clock] db in
            let isKnown = try Bool.fetchOne(
                db.cachedStatement(sql: "SELECT 1 FROM devices WHERE device_token = ? AND app = ?"),
                arguments: [text, app.text])
            try Self.setRegistered(text, app: app, now: clock().sqlText, db)
            return isKnown == nil ? .created : .refreshed
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
}
