import ChatDomain
import GRDB
import Logging

/// Assigns rows of the app named `default` to the configured default app, if it has another name. The app was renamed
/// then, or another program's row names no app.
///
/// Adopts members, devices and unfinished feedback and notifications at the start. ``QueueRepair`` adopts pushes when
/// it finds them. Finished rows keep the name.
struct AppAdoption: Sendable {
    /// The number of rows that one transaction changes.
    private static let step = 1000

    let database: SQLiteDatabase
    let settings: @Sendable () -> StoreSettings

    func run() async throws(ChatError) {
        let app = settings().defaultApp
        guard app != .default else { return }
        let (members, devices) = (try await adoptMembers(app.text), try await adoptDevices(app.text))
        try await database.writer.perform(.upkeep) { db in
            for table in ["feedback", "notifications"] {
                let isOpen = table == "feedback" ? "result IS NULL" : "work IS NOT NULL"
                try db.run("UPDATE \(table) SET app = ? WHERE app = 'default' AND \(isOpen)", [app.text])
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
            let found: [Int64] = try await database.read { [after] db in
                try db.values(
                    """
                    SELECT member_id FROM active_users WHERE app = 'default' AND member_id >= ?
                    ORDER BY member_id LIMIT ?
                    """, [after, Self.step])
            }
            guard let first = found.first, let last = found.last else { return count }
            count += try await database.writer.perform(.upkeep) { db in
                // A token belongs to one installed app, and an app has one user: the member that registered it under
                // the new name.
                try db.run(
                    """
                    UPDATE active_users AS u SET device_token = '0'
                    WHERE app = 'default' AND member_id BETWEEN ? AND ? AND device_token <> '0' AND EXISTS (
                        SELECT 1 FROM active_users n
                        WHERE n.device_token = u.device_token AND n.device_token <> '0' AND n.app = ?)
                    """, [first, last, app])
                return try db.run(
                    "UPDATE active_users SET app = ? WHERE app = 'default' AND member_id BETWEEN ? AND ?",
                    [app, first, last])
            }
            after = last
        }
    }

    private func adoptDevices(_ app: String) async throws(ChatError) -> Int {
        var count = 0
        while true {
            let changed = try await database.writer.perform(.upkeep) { db in
                let found: [Int64] = try db.values(
                    "SELECT device_id FROM devices WHERE app = 'default' ORDER BY device_id LIMIT ?", [Self.step])
                guard let last = found.last else { return 0 }
                let twins = try db.rows(
                    """
                    SELECT d.device_id, n.device_id FROM devices d
                    JOIN devices n ON n.device_token = d.device_token AND n.app = ?
                    WHERE d.app = 'default' AND d.device_id <= ?
                    """, [app, last])
                for row in twins { try Self.merge(row[0], into: row[1], db) }
                try db.run("UPDATE devices SET app = ? WHERE app = 'default' AND device_id <= ?", [app, last])
                return found.count
            }
            count += changed
            if changed < Self.step { return count }
        }
    }

    /// Merges a device into the one that has registered again under the new name. The state of the new one counts. It
    /// takes over the values that only the old one has.
    private static func merge(_ old: Int64, into new: Int64, _ db: Database) throws {
        try db.run(
            """
            UPDATE devices AS d SET time_created = min(d.time_created, o.time_created),
                user_reference = coalesce(d.user_reference, o.user_reference),
                client_info = coalesce(d.client_info, o.client_info),
                server_info = coalesce(d.server_info, o.server_info)
            FROM devices o WHERE o.device_id = ? AND d.device_id = ?
            """, [old, new])
        try db.run(
            "INSERT OR IGNORE INTO device_tags (tag, device_id) SELECT tag, ? FROM device_tags WHERE device_id = ?",
            [new, old])
        try db.run(
            "UPDATE OR IGNORE push_queue SET device = ? WHERE device = ? AND chat_message IS NULL", [new, old])
        try db.run("DELETE FROM devices WHERE device_id = ?", [old])
    }
}
