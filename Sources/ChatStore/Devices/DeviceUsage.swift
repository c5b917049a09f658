import ChatDomain
import GRDB

/// Usage data: the details that devices send, the time at which each was last seen, and the number of devices per day.
/// It is written along with other writes. With `analytics: off`, ``SQLDatabase/forgetUsage()`` deletes it.
struct DeviceUsage: Sendable {
    /// Records that a device was seen: immediately if it sends new details, otherwise at most every few minutes. Its
    /// row must exist.
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
}
