package import ChatDomain
import GRDB

/// Imports data of other servers and files into a SQLite file.
package struct SQLiteImport: StoreImport {
    let database: SQLiteDatabase
    let settings: @Sendable () -> StoreSettings

    // MARK: - Devices

    package func take(
        _ devices: [DeviceRecord], columns: Set<DeviceRecord.Column>
    ) async throws(ChatError) -> DeviceImportResult {
        let keepsUsage = settings().keepsUsage
        return try await database.writer.perform { db in
            let now = database.now()
            var result = DeviceImportResult()
            for device in devices {
                let known = try db.row(
                    "SELECT time_registered, time_deactivated, time_seen FROM devices WHERE device_token = ? AND app = ?",
                    [device.token.description, device.app.text]
                ).map { row in
                    func time(_ column: Int) -> Timestamp? {
                        (row[column] as String?).flatMap(Timestamp.init(sqlText:))
                    }
                    return KnownDeviceTimes(
                        registered: time(0) ?? Timestamp(milliseconds: 0), deactivated: time(1), seen: time(2))
                }
                guard let columns = device.columns(of: columns, over: known) else {
                    result.newer += 1
                    continue
                }
                try Self.write(device, device.values(keepsUsage: keepsUsage, now: now), columns, db)
                if known == nil { result.created += 1 } else { result.updated += 1 }
            }
            return result
        }
    }

    private static func write(
        _ device: DeviceRecord, _ values: DeviceRecord.Values, _ columns: Set<DeviceRecord.Column>, _ db: Database
    ) throws {
        let values: [(column: DeviceRecord.Column, name: String, value: String?)] = [
            (.user, "user_reference", values.user), (.clientInfo, "client_info", values.clientInfo),
            (.serverInfo, "server_info", values.serverInfo), (.appVersion, "app_version", values.client.appVersion),
            (.osVersion, "os_version", values.client.osVersion),
            (.deviceModel, "device_model", values.client.deviceModel), (.seen, "time_seen", values.seen?.sqlText),
            (.created, "time_created", values.created.sqlText),
            (.registered, "time_registered", values.registered.sqlText),
            (.deactivated, "time_deactivated", values.deactivated?.sqlText),
            (.reason, "deactivated_reason", values.reason),
        ]
        let changes = values.filter { columns.contains($0.column) }.map { "\($0.name) = excluded.\($0.name)" }
        let names = values.map(\.name).joined(separator: ", ")
        let id: Int64? = try db.value(
            """
            INSERT INTO devices (app, device_token, \(names))
            VALUES (?, ?, \(values.map { _ in "?" }.joined(separator: ", ")))
            ON CONFLICT (device_token, app) DO UPDATE SET
                \((["app = excluded.app"] + changes).joined(separator: ", "))
            RETURNING device_id
            """,
            StatementArguments(
                [device.app.text, device.token.description] + values.map { $0.value as (any DatabaseValueConvertible)? }
            ))
        guard columns.contains(.tags), let id else { return }
        try db.run("DELETE FROM device_tags WHERE device_id = ?", [id])
        for tag in device.tags.sorted() {
            try db.run("INSERT INTO device_tags (tag, device_id) VALUES (?, ?)", [tag.text, id])
        }
    }

    // MARK: - Members and pushes

    package func knownMembers(of members: [MemberID]) async throws(ChatError) -> Set<String> {
        let udids = JSONValue.texts(members.map(\.text)).description
        return try await database.read { db in
            Set<String>(
                try db.values(
                    """
                    SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM active_users WHERE udid = value)
                        OR EXISTS (SELECT 1 FROM past_members WHERE udid = value)
                    """, [udids]))
        }
    }

    package func importedPushes() async throws(ChatError) -> Set<String> {
        try await database.scan { db in
            Set<String>(try db.values("SELECT apns_id FROM push_queue WHERE substr(apns_id, 15, 1) = '8'", []))
        }
    }

    package func take(_ pushes: [WaitingPush], app: AppName) async throws(ChatError) {
        try await database.writer.perform { db in
            for push in pushes {
                try db.run(
                    """
                    INSERT INTO push_queue (app, device_token, payload, apns_id, time_queued)
                    VALUES (?, ?, ?, ?, coalesce(?, strftime('%Y-%m-%d %H:%M:%f', 'now')))
                    """,
                    [app.text, push.token.description, push.payload, push.id, push.queuedAt?.sqlText])
            }
        }
    }
}
