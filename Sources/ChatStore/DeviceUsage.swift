import ChatDomain
import GRDB

/// Who uses the app: what devices say of themselves, when they were seen last, and how many there were on each day. All of it
/// is written with what is written anyhow; with `analytics: off` it is taken away by ``forget(_:)``.
struct DeviceUsage: Sendable {
    /// Devices and members of which one transaction takes away what was kept.
    private static let window: Int64 = 2000

    // MARK: - Keeping

    /// A device was there: at once for what it says newly, else some minutes coarse. Its row must be there.
    static func saw(_ token: String, app: String, _ client: ClientInfo, now: Timestamp, _ db: Database) throws {
        let row = try db.row(
            "SELECT device_id, time_seen, app_version, os_version, device_model FROM devices WHERE device_token = ? AND app = ?",
            [token, app])
        guard let row else { return }
        let old = ClientInfo(appVersion: row[2], osVersion: row[3], deviceModel: row[4])
        guard let sighting = DeviceSighting(client, at: now, last: row.optionalTime(1), old) else { return }
        try RawStatement(
            db,
            "UPDATE devices SET app_version = ?, os_version = ?, device_model = ?, time_seen = ? WHERE device_id = ?",
            sighting.client.appVersion, sighting.client.osVersion, sighting.client.deviceModel, now.sqlText,
            row[0] as Int64
        ).run()
        for (kind, value, change) in sighting.counts { try count(change, app, kind, value, now.day, db) }
    }

    private static func count(
        _ change: Int64, _ app: String, _ kind: String, _ value: String, _ day: String, _ db: Database
    ) throws {
        try RawStatement(db, addSQL, change, day, app, kind, value).run()
        guard db.changesCount == 0 else { return }
        let known: Int =
            try db.value(
                "SELECT count(*) FROM device_days WHERE day = ? AND app = ? AND kind = ?", [day, app, kind]) ?? 0
        let isOther = change < 0 || (known >= DeviceDay.mostValues && !value.isEmpty)
        try db.run(
            """
            INSERT INTO device_days (day, app, kind, value, devices) VALUES (?1, ?2, ?3, ?4, max(?5, 0))
            ON CONFLICT (day, app, kind, value) DO UPDATE SET devices = max(devices + ?5, 0)
            """, [day, app, kind, isOther ? DeviceDay.others : value, change])
    }

    static let addSQL = """
        UPDATE device_days SET devices = max(devices + ?, 0) WHERE day = ? AND app = ? AND kind = ? AND value = ?
        """

    // MARK: - Forgetting

    /// Takes away all that was kept, in steps. To be called after the setting has changed: what is written from then on keeps
    /// nothing.
    static func forget(_ database: SQLiteDatabase) async throws(ChatError) {
        for (table, id, columns) in [
            ("devices", "device_id", ["app_version", "os_version", "device_model", "time_seen"]),
            ("active_users", "member_id", ["app_version", "os_version", "device_model"]),
        ] {
            let changes = columns.map { "\($0) = NULL" }.joined(separator: ", ")
            let isKept = columns.map { "\($0) IS NOT NULL" }.joined(separator: " OR ")
            var after: Int64? = 0
            while let start = after {
                after = try await database.writer.perform(durably: false, .upkeep) { db in
                    let end: Int64? = try db.value(
                        "SELECT max(\(id)) FROM (SELECT \(id) FROM \(table) WHERE \(id) > ? ORDER BY \(id) LIMIT ?)",
                        [start, window])
                    guard let end else { return nil }
                    try db.run(
                        "UPDATE \(table) SET \(changes) WHERE \(id) > ? AND \(id) <= ? AND (\(isKept))", [start, end])
                    return end
                }
            }
        }
        _ = try await database.writer.perform(.upkeep) { db in try db.run("DELETE FROM device_days") }
    }
}

extension DeviceDay {
    /// Of the table `device_days`: day, app, kind, value, devices.
    init(_ row: Row) {
        self.init(day: row[0], app: row[1], kind: row[2], stored: row[3], devices: row[4])
    }
}
