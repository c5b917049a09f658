import ChatDomain
import ChatSQL
import Logging

/// Assigns rows of the app named `default` to the configured default app, if it has another name. The app was renamed
/// then, or another program's row names no app.
///
/// Adopts members, devices and unfinished feedback and notifications at the start. ``QueueUpkeep`` adopts pushes when
/// it finds them. Finished rows keep the name.
struct AppAdoption: Sendable {
    /// The number of rows that one transaction changes.
    private static let step = 1000

    let database: PostgresDatabase
    let settings: @Sendable () -> StoreSettings

    init(database: PostgresDatabase, settings: @escaping @Sendable () -> StoreSettings) {
        self.database = database
        self.settings = settings
    }

    func run() async throws(ChatError) {
        let app = settings().defaultApp
        guard app != .default else { return }
        let (members, devices) = (try await adoptMembers(app.text), try await adoptDevices(app.text))
        try await database.write(.upkeep, isRepeatable: true) { transaction in
            for (table, isOpen) in [("feedback", "result IS NULL"), ("notifications", "work IS NOT NULL")] {
                transaction.pipeline(
                    "UPDATE \(table) SET app = $1::text WHERE app = 'default' AND \(isOpen)", [.text(app.text)])
            }
        }
        guard members + devices > 0 else { return }
        database.logger.notice(
            "members and devices of the app default now belong to the default app",
            metadata: ["app": "\(app)", "members": "\(members)", "devices": "\(devices)"])
    }

    /// Reads all members once per start, because no index leads from an app to its members.
    private func adoptMembers(_ app: String) async throws(ChatError) -> Int {
        var (count, after) = (0, Int64.min)
        while true {
            let found = try await database.write(.upkeep, isRepeatable: true) { [after] transaction in
                let found = try transaction.rows(
                    """
                    SELECT member_id FROM active_users WHERE app = 'default' AND member_id > $1::bigint
                    ORDER BY member_id LIMIT $2::bigint FOR UPDATE
                    """, [.int(after), .int(Self.step)]
                ).map { try $0.int(0) }
                // A token belongs to one installed app, and an app has one user: the member that registered it under
                // the new name.
                transaction.pipeline(
                    """
                    UPDATE active_users u SET app = $2::text, device_token = CASE
                        WHEN u.device_token <> '0' AND EXISTS (SELECT FROM active_users n
                            WHERE n.device_token = u.device_token AND n.device_token <> '0' AND n.app = $2::text)
                        THEN '0' ELSE u.device_token END
                    WHERE u.member_id = ANY ($1::bigint[])
                    """, [.ints(found), .text(app)])
                return found
            }
            count += found.count
            guard found.count == Self.step, let last = found.last else { return count }
            after = last
        }
    }

    private func adoptDevices(_ app: String) async throws(ChatError) -> Int {
        var count = 0
        while true {
            let changed = try await database.write(.upkeep, isRepeatable: true) { transaction in
                let found = try transaction.rows(
                    """
                    SELECT d.device_id, n.device_id FROM (
                        SELECT device_id, device_token FROM devices WHERE app = 'default'
                        ORDER BY device_id LIMIT $2::bigint FOR UPDATE) d
                    LEFT JOIN devices n ON n.device_token = d.device_token AND n.app = $1::text
                    """, [.text(app), .int(Self.step)]
                ).map { (old: try $0.int(0), new: try $0.optionalInt(1)) }
                for (old, new) in found { if let new { Self.merge(old, into: new, transaction) } }
                transaction.pipeline(
                    "UPDATE devices SET app = $2::text WHERE device_id = ANY ($1::bigint[])",
                    [.ints(found.map(\.old)), .text(app)])
                return found.count
            }
            count += changed
            if changed < Self.step { return count }
        }
    }

    /// Merges a device into the one that has registered again under the new name. The state of the new one counts. It
    /// takes over the values that only the old one has.
    private static func merge(_ old: Int64, into new: Int64, _ transaction: PostgresTransaction) {
        let devices: [SQLValue] = [.int(old), .int(new)]
        transaction.pipeline(
            """
            UPDATE devices d SET time_created = least(d.time_created, o.time_created),
                user_reference = coalesce(d.user_reference, o.user_reference),
                client_info = coalesce(d.client_info, o.client_info),
                server_info = coalesce(d.server_info, o.server_info)
            FROM devices o WHERE o.device_id = $1::bigint AND d.device_id = $2::bigint
            """, devices)
        transaction.pipeline(
            """
            INSERT INTO device_tags (tag, device_id) SELECT tag, $2::bigint FROM device_tags WHERE device_id = $1::bigint
            ON CONFLICT DO NOTHING
            """, devices)
        transaction.pipeline(
            """
            UPDATE push_queue q SET device = $2::bigint WHERE q.device = $1::bigint AND q.chat_message IS NULL
                AND NOT EXISTS (SELECT FROM push_queue o
                    WHERE o.notification = q.notification AND o.device = $2::bigint)
            """, devices)
        transaction.pipeline("DELETE FROM devices WHERE device_id = $1::bigint", [.int(old)])
    }
}
