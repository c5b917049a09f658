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
                for (old, new) in found { if let new { try Self.merge(old, into: new, transaction) } }
                try transaction.pipeline(
                    "UPDATE devices SET app = $2 WHERE device_id IN (\(transaction.dialect.each("$1", "bigint")))",
                    [.ints(found.map(\.old)), .text(app)])
                return found.count
            }
            count += changed
            if changed < Self.step { return count }
        }
    }

    /// Merges a device into the one that has registered again under the new name. The state of the new one counts. It
    /// takes over the values that only the old one has.
    private static func merge(_ old: Int64, into new: Int64, _ transaction: Database.Transaction) throws {
        for sql in [
            """
            UPDATE devices AS d SET user_reference = coalesce(d.user_reference, o.user_reference),
                client_info = coalesce(d.client_info, o.client_info),
                server_info = coalesce(d.server_info, o.server_info),
                time_created = CASE WHEN o.time_created < d.time_created THEN o.time_created ELSE d.time_created END
            FROM devices o WHERE o.device_id = $1 AND d.device_id = $2
            """,
            """
            INSERT INTO device_tags (tag, device_id) SELECT tag, CAST($2 AS bigint) FROM device_tags WHERE device_id = $1
            ON CONFLICT DO NOTHING
            """,
            """
            UPDATE push_queue AS q SET device = $2 WHERE q.device = $1 AND q.chat_message IS NULL AND NOT EXISTS (
                SELECT 1 FROM push_queue o WHERE o.notification = q.notification AND o.device = $2)
            """,
        ] {
            try transaction.pipeline(sql, [.int(old), .int(new)])
        }
        try transaction.pipeline("DELETE FROM devices WHERE device_id = $1", [.int(old)])
    }
}
