package import ChatDomain

/// A device that was seen, because it registered, or because its member has written or fetched messages.
package struct SeenDevice: Sendable {
    let name: DeviceName
    /// The details that the app has sent.
    let client: ClientInfo
    let time: Timestamp

    /// - Parameters:
    ///   - token: The token as rows contain it.
    ///   - app: The app as rows contain it.
    package init(token: String, app: String, client: ClientInfo, time: Timestamp) {
        name = DeviceName(token: token, app: app)
        self.client = client
        self.time = time
    }

    /// The latest sighting of each device, in the order in which all transactions lock the rows.
    static func distinct(_ devices: [SeenDevice]) -> [SeenDevice] {
        Dictionary(devices.map { ($0.name, $0) }) { $0.time > $1.time ? $0 : $1 }.values.sorted { $0.name < $1.name }
    }
}

/// Usage data: the details that devices send, the time at which each was last seen, and the number of devices per day.
/// It is written along with other writes. With `analytics: off`, ``SQLDatabase/forgetUsage()`` deletes it.
package enum DeviceUsage {
    /// Records that devices were seen: immediately if they send new details, otherwise at most every few minutes. Skips
    /// devices without a row. Call it near the end of a transaction, because other transactions wait for the day's
    /// counts.
    static func saw(_ devices: [SeenDevice], _ transaction: some SQLTransaction) throws {
        let devices = SeenDevice.distinct(devices)
        guard !devices.isEmpty else { return }
        let rows = try transaction.rows(
            seenSQL(transaction.dialect), [.texts(devices.map(\.name.token)), .texts(devices.map(\.name.app))])
        try saw(devices, rows.map { try Seen($0) }, transaction)
    }

    package static func seenSQL(_ dialect: SQLDialect) -> String {
        """
        SELECT \(Seen.columns) FROM \(dialect.table("w", ["seen_token": "text", "seen_app": "text"]))
        \(dialect.orderedJoin) devices d ON d.device_token = w.seen_token AND d.app = w.seen_app
        ORDER BY d.device_token, d.app \(dialect.locked("d"))
        """
    }

    /// Creates the devices' rows or updates their registration times. Clears earlier reports of the push service. Call
    /// it near the end of a transaction, because of the usage data.
    /// - Parameter keepsUsage: Whether to store the details that the apps have sent.
    package static func setRegistered(
        _ devices: [SeenDevice], keepsUsage: Bool, _ transaction: some SQLTransaction
    ) throws {
        let devices = SeenDevice.distinct(devices)
        guard !devices.isEmpty else { return }
        let table = transaction.dialect.table("w", ["app": "text", "token": "text", "time": "bigint"])
        let rows = try transaction.rows(
            """
            INSERT INTO devices (app, device_token, time_created, time_registered)
            SELECT w.app, w.token, at(w.time), at(w.time) FROM \(table) WHERE true ORDER BY w.number
            ON CONFLICT (device_token, app) DO UPDATE SET time_registered = excluded.time_registered,
                time_deactivated = NULL, deactivated_reason = NULL, refusals = 0
            RETURNING \(Seen.columns)
            """,
            [
                .texts(devices.map(\.name.app)), .texts(devices.map(\.name.token)),
                .ints(devices.map(\.time.milliseconds)),
            ])
        if keepsUsage { try saw(devices, rows.map { try Seen($0) }, transaction) }
    }

    /// A device's row before a sighting.
    private struct Seen {
        /// The columns of the table `devices`. Without its name, because SQLite knows none after `RETURNING`.
        static let columns = "device_token, app, device_id, ms(time_seen), app_version, os_version, device_model"

        let name: DeviceName
        let id: Int64
        let last: Timestamp?
        let client: ClientInfo

        /// - Parameter row: Has ``columns``.
        init(_ row: some SQLRow) throws {
            name = DeviceName(token: try row.text(0), app: try row.text(1))
            id = try row.int(2)
            last = try row.optionalTime(3)
            client = ClientInfo(
                appVersion: row.optionalText(4), osVersion: row.optionalText(5), deviceModel: row.optionalText(6))
        }
    }

    /// - Parameters:
    ///   - devices: Each device once.
    ///   - rows: Their rows, which are locked.
    private static func saw(_ devices: [SeenDevice], _ rows: [Seen], _ transaction: some SQLTransaction) throws {
        let devices = Dictionary(devices.map { ($0.name, $0) }) { first, _ in first }
        var days = DayCounts()
        var sightings: [(id: Int64, time: Timestamp, client: ClientInfo)] = []
        for row in rows {
            guard let device = devices[row.name],
                let sighting = DeviceSighting(device.client, at: device.time, last: row.last, row.client)
            else { continue }
            sightings.append((row.id, device.time, sighting.client))
            for (kind, value, change) in sighting.counts {
                let key = DayCounts.Key(day: device.time.day, app: row.name.app, kind: kind, value: value)
                days.changes[key, default: 0] += change
            }
        }
        guard !sightings.isEmpty else { return }
        try transaction.pipeline(
            updateSQL(transaction.dialect),
            [
                .ints(sightings.map(\.id)), .optionalTexts(sightings.map(\.client.appVersion)),
                .optionalTexts(sightings.map(\.client.osVersion)),
                .optionalTexts(sightings.map(\.client.deviceModel)), .ints(sightings.map(\.time.milliseconds)),
            ])
        try days.write(transaction)
    }

    package static func updateSQL(_ dialect: SQLDialect) -> String {
        let columns: KeyValuePairs = [
            "id": "bigint", "app_version": "text", "os_version": "text", "device_model": "text", "time": "bigint",
        ]
        return """
            UPDATE devices AS d SET app_version = w.app_version, os_version = w.os_version,
                device_model = w.device_model, time_seen = at(w.time)
            FROM \(dialect.table("w", columns)) WHERE d.device_id = w.id
            """
    }

    /// Changes to `device_days`.
    package struct DayCounts {
        struct Key: Hashable, Comparable {
            let day: String
            let app: String
            let kind: String
            var value: String

            static func < (left: Key, right: Key) -> Bool {
                (left.day, left.app, left.kind, left.value) < (right.day, right.app, right.kind, right.value)
            }

            /// The values of a group share the limit ``DeviceDay/mostValues``.
            var group: [String] { [day, app, kind] }
        }

        var changes: [Key: Int64] = [:]

        /// Locks the rows in order. Two transactions that add new values at the same time may slightly exceed
        /// ``DeviceDay/mostValues``.
        func write(_ transaction: some SQLTransaction) throws {
            let wanted = changes.filter { $0.value != 0 }.sorted { $0.key < $1.key }
            guard !wanted.isEmpty else { return }
            let known = try transaction.rows(Self.knownSQL(transaction.dialect), Self.values(wanted.map(\.key)))
            var new: [[String]: Int64] = [:]
            var result: [Key: Int64] = [:]
            for ((key, change), row) in zip(wanted, known) {
                var key = key
                if try !row.bool(0) {
                    let count = try row.int(1) + new[key.group, default: 0]
                    if change < 0 || (count >= Int64(DeviceDay.mostValues) && !key.value.isEmpty) {
                        key.value = DeviceDay.others
                    } else {
                        new[key.group, default: 0] += 1
                    }
                }
                result[key, default: 0] += change
            }
            let rows = result.sorted { $0.key < $1.key }
            try transaction.pipeline(
                Self.writeSQL(transaction.dialect), Self.values(rows.map(\.key)) + [.ints(rows.map(\.value))])
        }

        private static func values(_ keys: [Key]) -> [SQLValue] {
            [.texts(keys.map(\.day)), .texts(keys.map(\.app)), .texts(keys.map(\.kind)), .texts(keys.map(\.value))]
        }

        package static func knownSQL(_ dialect: SQLDialect) -> String {
            let table = dialect.table("w", ["day": "text", "app": "text", "kind": "text", "value": "text"])
            return """
                SELECT EXISTS (SELECT 1 FROM device_days k WHERE k.day = w.day AND k.app = w.app AND k.kind = w.kind
                        AND k.value = w.value),
                    (SELECT count(*) FROM device_days k WHERE k.day = w.day AND k.app = w.app AND k.kind = w.kind)
                FROM \(table) ORDER BY w.number
                """
        }

        package static func writeSQL(_ dialect: SQLDialect) -> String {
            let columns: KeyValuePairs = [
                "day": "text", "app": "text", "kind": "text", "value": "text", "change": "bigint",
            ]
            return """
                INSERT INTO device_days AS k (day, app, kind, value, devices)
                SELECT w.day, w.app, w.kind, w.value, w.change FROM \(dialect.table("w", columns))
                WHERE w.change > 0 OR EXISTS (SELECT 1 FROM device_days o
                    WHERE o.day = w.day AND o.app = w.app AND o.kind = w.kind AND o.value = w.value)
                ORDER BY w.number
                ON CONFLICT (day, app, kind, value) DO UPDATE SET devices =
                    CASE WHEN k.devices + excluded.devices > 0 THEN k.devices + excluded.devices ELSE 0 END
                """
        }
    }
}

extension SQLDatabase {
    /// Deletes all usage data in steps. Must be called after the setting has changed, so that no new data is written.
    package func forgetUsage() async throws(ChatError) {
        /// The number of devices or members whose data one transaction deletes.
        let window: Int64 = 2000
        for (table, id, columns) in [
            ("devices", "device_id", ["app_version", "os_version", "device_model", "time_seen"]),
            ("active_users", "member_id", ["app_version", "os_version", "device_model"]),
        ] {
            let changes = columns.map { "\($0) = NULL" }.joined(separator: ", ")
            let isKept = columns.map { "\($0) IS NOT NULL" }.joined(separator: " OR ")
            var after: Int64? = 0
            while let start = after {
                after = try await write(as: .notes) { transaction in
                    let end = try transaction.row(
                        "SELECT max(\(id)) FROM (SELECT \(id) FROM \(table) WHERE \(id) > $1 ORDER BY \(id) LIMIT $2) w",
                        [.int(start), .int(window)])?.optionalInt(0)
                    guard let end else { return nil }
                    try transaction.pipeline(
                        "UPDATE \(table) SET \(changes) WHERE \(id) > $1 AND \(id) <= $2 AND (\(isKept))",
                        [.int(start), .int(end)])
                    return end
                }
            }
        }
        try await write(as: .upkeep) { try $0.pipeline("DELETE FROM device_days", []) }
    }
}
