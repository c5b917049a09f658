package import ChatDomain
package import Logging

/// Assigns rows of the app named `default` to the configured default app, if it has another name. The app was renamed
/// then, or another program's row names no app.
///
/// Adopts members, devices and unfinished feedback and notifications at the start. The queue's upkeep adopts pushes when
/// it finds them. Finished rows keep the name.
package struct SQLAppAdoption<Database: SQLDatabase>: Sendable {
    /// The number of rows that one transaction changes.
    private static var step: Int { 1000 }

    private let database: Database
    private let settings: @Sendable () -> StoreSettings
    private let logger: Logger

    package init(database: Database, settings: @escaping @Sendable () -> StoreSettings, logger: Logger) {
        self.database = database
        self.settings = settings
        self.logger = logger
    }

    package func run() async throws(ChatError) {
        let app = settings().defaultApp
        guard app != .default else { return }
        let (members, devices) = (try await adoptMembers(app.text), try await adoptDevices(app.text))
        try await database.write(as: .upkeep) { transaction in
            for (table, isOpen) in [("feedback", "result IS NULL"), ("notifications", "work IS NOT NULL")] {
                try transaction.pipeline(
                    "UPDATE \(table) SET app = $1 WHERE app = 'default' AND \(isOpen)", [.text(app.text)])
            }
        }
        guard members + devices > 0 else { return }
        logger.notice(
            "members and devices of the app default now belong to the default app",
            metadata: ["app": "\(app)", "members": "\(members)", "devices": "\(devices)"])
    }

    /// Reads all members once per start, because no index leads from an app to its members.
    private func adoptMembers(_ app: String) async throws(ChatError) -> Int {
        var (count, after) = (0, Int64.min)
        while true {
            let found = try await database.read { [after] transaction in
                try transaction.rows(
                    """
                    SELECT member_id FROM active_users WHERE app = 'default' AND member_id >= $1
                    ORDER BY member_id LIMIT $2
                    """, [.int(after), .int(Self.step)]
                ).map { try $0.int(0) }
            }
            guard let first = found.first, let last = found.last else { return count }
            count += try await database.write(as: .upkeep) { transaction in
                let values: [SQLValue] = [.int(first), .int(last), .text(app)]
                // A token belongs to one installed app, and an app has one user: the member that registered it under
                // the new name.
                try transaction.pipeline(
                    """
                    UPDATE active_users AS u SET device_token = '0'
                    WHERE app = 'default' AND member_id BETWEEN $1 AND $2 AND device_token <> '0' AND EXISTS (
                        SELECT 1 FROM active_users n
                        WHERE n.device_token = u.device_token AND n.device_token <> '0' AND n.app = $3)
                    """, values)
                return try transaction.run(
                    "UPDATE active_users SET app = $3 WHERE app = 'default' AND member_id BETWEEN $1 AND $2", values)
            }
            after = last
        }
    }

    private func adoptDevices(_ app: String) async throws(ChatError) -> Int {
        var count = 0
        while true {
            let changed = try await database.write(as: .upkeep) { transaction in
                let found = try transaction.rows(
                    """
                    SELECT d.device_id, n.device_id FROM (
                        SELECT device_id, device_token FROM devices WHERE app = 'default'
                        ORDER BY device_id LIMIT $2 \(transaction.dialect.locked("devices"))) d
                    LEFT JOIN devices n ON n.device_token = d.device_token AND n.app = $1
                    """, [.text(app), .int(Self.step)]
                ).map { (old: try $0.int(0), new: try $0.optionalInt(1)) }
                // The device that has registered again under the new name counts.
                for (old, new) in found {
                    if let new { try transaction.mergeDevice(old, into: new, prefersKept: true) }
                }
                try transaction.pipeline(
                    "UPDATE devices SET app = $2 WHERE device_id IN (\(transaction.dialect.each("$1", "bigint")))",
                    [.ints(found.map(\.old)), .text(app)])
                return found.count
            }
            count += changed
            if changed < Self.step { return count }
        }
    }
}
