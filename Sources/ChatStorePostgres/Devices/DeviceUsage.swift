import ChatDomain
import ChatSQL

/// A device that was seen, because it registered, or because its member has written or fetched messages.
struct SeenDevice: Sendable {
    /// The token and the app, as rows contain them.
    let token: String
    let app: String
    /// The details that the app has sent, without an address.
    let client: ClientInfo
    let time: Timestamp

    var name: DeviceName { DeviceName(token: token, app: app) }

    /// The latest sighting of each device, in the order in which all transactions lock the rows.
    static func distinct(_ devices: [SeenDevice]) -> [SeenDevice] {
        Dictionary(devices.map { ($0.name, $0) }) { $0.time > $1.time ? $0 : $1 }.sorted { $0.key < $1.key }.map(
            \.value)
    }
}

/// Usage data: the details that devices send, the time at which each was last seen, and the number of devices per day.
/// It is written along with other writes. With `analytics: off`, ``SQLDatabase/forgetUsage()`` deletes it.
enum DeviceUsage {
    /// Records that devices were seen: immediately if they send new details, otherwise at most every few minutes. Skips
    /// devices without a row. Call it near the end of a transaction, because other transactions wait for the day's
    /// counts.
    static func saw(_ devices: [SeenDevice], _ transaction: PostgresTransaction) throws {
        let devices = SeenDevice.distinct(devices)
        guard !devices.isEmpty else { return }
        let rows = try transaction.rows(
            """
            SELECT \(columns) FROM unnest($1::text[], $2::text[]) AS w (token, app)
            JOIN devices d ON d.device_token = w.token AND d.app = w.app
            ORDER BY d.device_token, d.app FOR NO KEY UPDATE OF d
            """, [.texts(devices.map(\.token)), .texts(devices.map(\.app))])
        try saw(devices, rows, transaction)
    }

    static func saw(
        _ token: String, app: String, _ client: ClientInfo, now: Timestamp, _ transaction: PostgresTransaction
    ) throws {
        try saw([SeenDevice(token: token, app: app, client: client, time: now)], transaction)
    }

    /// The columns of the table `devices` as `d`.
    static let columns = """
        d.device_token, d.app, d.device_id, ms(d.time_seen), d.app_version, d.os_version, d.device_model
        """

    /// - Parameters:
    ///   - devices: Each device once.
    ///   - rows: Locked rows with ``columns``.
    static func saw(_ devices: [SeenDevice], _ rows: [PostgresRow], _ transaction: PostgresTransaction) throws {
        let devices = Dictionary(devices.map { ($0.name, $0) }) { first, _ in first }
        var days = DayCounts()
        var (ids, times): ([Int64], [Int64]) = ([], [])
        var clients: [ClientInfo] = []
        for row in rows {
            guard let device = devices[DeviceName(token: try row.text(0), app: try row.text(1))] else { continue }
            let old = ClientInfo(
                appVersion: row.optionalText(4), osVersion: row.optionalText(5), deviceModel: row.optionalText(6))
            let last = try row.optionalTime(3)
            guard let sighting = DeviceSighting(device.client, at: device.time, last: last, old) else { continue }
            ids.append(try row.int(2))
            times.append(device.time.milliseconds)
            clients.append(sighting.client)
            for (kind, value, change) in sighting.counts {
                days.changes[.init(day: device.time.day, app: device.app, kind: kind, value: value), default: 0] +=
                    change
            }
        }
        guard !ids.isEmpty else { return }
        transaction.pipeline(
            """
            UPDATE devices d SET app_version = w.app_version, os_version = w.os_version, device_model = w.device_model,
                time_seen = at(w.time)
            FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[])
                AS w (id, app_version, os_version, device_model, time)
            WHERE d.device_id = w.id
            """,
            [
                .ints(ids), .optionalTexts(clients.map(\.appVersion)), .optionalTexts(clients.map(\.osVersion)),
                .optionalTexts(clients.map(\.deviceModel)), .ints(times),
            ])
        try days.write(transaction)
    }

    /// Changes to `device_days`.
    private struct DayCounts {
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
        func write(_ transaction: PostgresTransaction) throws {
            let wanted = changes.filter { $0.value != 0 }.sorted { $0.key < $1.key }
            guard !wanted.isEmpty else { return }
            let known = try transaction.rows(
                """
                SELECT EXISTS (SELECT FROM device_days k WHERE k.day = w.day AND k.app = w.app AND k.kind = w.kind
                        AND k.value = w.value),
                    (SELECT count(*) FROM device_days k WHERE k.day = w.day AND k.app = w.app AND k.kind = w.kind)
                FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
                    AS w (day, app, kind, value, number)
                ORDER BY w.number
                """, Self.values(wanted.map(\.key)))
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
            transaction.pipeline(
                """
                INSERT INTO device_days AS k (day, app, kind, value, devices)
                SELECT w.day, w.app, w.kind, w.value, w.change
                FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[]) WITH ORDINALITY
                    AS w (day, app, kind, value, change, number)
                WHERE w.change > 0 OR EXISTS (SELECT FROM device_days o
                    WHERE o.day = w.day AND o.app = w.app AND o.kind = w.kind AND o.value = w.value)
                ORDER BY w.number
                ON CONFLICT (day, app, kind, value) DO UPDATE SET devices = greatest(k.devices + excluded.devices, 0)
                """, Self.values(rows.map(\.key)) + [.ints(rows.map(\.value))])
        }

        private static func values(_ keys: [Key]) -> [SQLValue] {
            [.texts(keys.map(\.day)), .texts(keys.map(\.app)), .texts(keys.map(\.kind)), .texts(keys.map(\.value))]
        }
    }
}
