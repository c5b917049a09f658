package import ChatDomain
import ChatSQL

/// Imports data of other servers and files into a PostgreSQL database.
package struct PostgresImport: StoreImport {
    /// The page size for reading the ids of pushes that were imported before.
    private static let page = 5000

    let database: PostgresDatabase
    let settings: @Sendable () -> StoreSettings

    // MARK: - Members and pushes

    package func knownMembers(of members: [MemberID]) async throws(ChatError) -> Set<String> {
        try await database.read { transaction in
            let rows = try transaction.rows(
                """
                SELECT m.udid FROM unnest($1::text[]) AS m (udid)
                WHERE EXISTS (SELECT FROM active_users u WHERE u.udid = m.udid)
                    OR EXISTS (SELECT FROM past_members u WHERE u.udid = m.udid)
                """, [.texts(members.map(\.text))])
            return Set(try rows.map { try $0.text(0) })
        }
    }

    package func importedPushes() async throws(ChatError) -> Set<String> {
        var (all, after): (Set<String>, Int64?) = ([], .min)
        while let start = after {
            let (ids, next) = try await database.read { transaction in
                let page = try transaction.page(
                    "q.message_id, q.apns_id", key: "q.message_id",
                    of: "push_queue q WHERE q.message_id > $1::bigint", [.int(start)],
                    where: "substr(q.apns_id, 15, 1) = '8'", [], limit: Self.page)
                return (try page.rows.map { try $0.text(1) }, page.next)
            }
            all.formUnion(ids)
            after = next
        }
        return all
    }

    package func take(_ pushes: [WaitingPush], app: AppName) async throws(ChatError) {
        guard !pushes.isEmpty else { return }
        let now = database.now()
        try await database.write { transaction in
            transaction.pipeline(
                """
                INSERT INTO push_queue_due (app, device_token, payload, apns_id, time_queued)
                SELECT $1::text, w.token, w.payload, w.id, at(coalesce(w.time, $2::bigint))
                FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[]) WITH ORDINALITY
                    AS w (token, payload, id, time, number)
                ORDER BY w.number
                """,
                [
                    .text(app.text), .time(now), .texts(pushes.map(\.token.description)), .texts(pushes.map(\.payload)),
                    .texts(pushes.map(\.id)), .optionalInts(pushes.map { $0.queuedAt?.milliseconds }),
                ])
            transaction.announcement.apps = [app.text]
        }
    }

    // MARK: - Devices

    package func take(
        _ devices: [DeviceRecord], columns: Set<DeviceRecord.Column>
    ) async throws(ChatError) -> DeviceImportResult {
        let (keepsUsage, now) = (settings().keepsUsage, database.now())
        let all = devices.map { NewDevice($0, columns, $0.values(keepsUsage: keepsUsage, now: now)) }
        return try await database.write(isRepeatable: true) { transaction in
            var (result, rest) = (DeviceImportResult(), all)
            while !rest.isEmpty {
                // Several records of the same device are written one after the other.
                var names: Set<DeviceName> = []
                let round = rest.filter { names.insert($0.name).inserted }
                names = []
                rest.removeAll { names.insert($0.name).inserted }
                // Devices that another transaction has registered in the meantime are found in the next round.
                rest = try NewDevice.write(round, columns, &result, transaction) + rest
            }
            return result
        }
    }
}

/// A device of an import, before it is written to its row.
private struct NewDevice: Sendable {
    let record: DeviceRecord
    /// The columns that the file sets.
    let columns: Set<DeviceRecord.Column>
    let values: DeviceRecord.Values
    let name: DeviceName

    init(_ record: DeviceRecord, _ columns: Set<DeviceRecord.Column>, _ values: DeviceRecord.Values) {
        self.record = record
        self.columns = columns
        self.values = values
        name = DeviceName(token: record.token.description, app: record.app.text)
    }

    /// Writes different devices. Locks their rows in the order in which all transactions lock them.
    /// - Returns: The devices that were not written, because another transaction has registered them since the query.
    static func write(
        _ devices: [NewDevice], _ columns: Set<DeviceRecord.Column>, _ result: inout DeviceImportResult,
        _ transaction: PostgresTransaction
    ) throws -> [NewDevice] {
        let devices = devices.sorted { $0.name < $1.name }
        let known = try known(devices, transaction)
        var (changed, new): ([(id: Int64, device: NewDevice)], [NewDevice]) = ([], [])
        for device in devices {
            guard let (id, times) = known[device.name] else {
                new.append(device)
                continue
            }
            guard let columns = device.record.columns(of: columns, over: times) else {
                result.newer += 1
                continue
            }
            changed.append((id, NewDevice(device.record, columns, device.values)))
        }
        update(changed, columns, transaction)
        let inserted = try insert(new, transaction)
        let written = new.compactMap { device in inserted[device.name].map { ($0, device) } }
        if columns.contains(.tags) { setTags(changed + written, transaction) }
        result.updated += changed.count
        result.created += written.count
        return new.filter { inserted[$0.name] == nil }
    }

    private static func known(
        _ devices: [NewDevice], _ transaction: PostgresTransaction
    ) throws -> [DeviceName: (id: Int64, times: KnownDeviceTimes)] {
        let rows = try transaction.rows(
            """
            SELECT d.device_token, d.app, d.device_id, ms(d.time_registered), ms(d.time_deactivated), ms(d.time_seen)
            FROM unnest($1::text[], $2::text[]) AS w (token, app)
            JOIN devices d ON d.device_token = w.token AND d.app = w.app
            ORDER BY d.device_token, d.app FOR NO KEY UPDATE OF d
            """, [.texts(devices.map(\.name.token)), .texts(devices.map(\.name.app))])
        return Dictionary(
            try rows.map { row in
                let times = KnownDeviceTimes(
                    registered: try row.time(3), deactivated: try row.optionalTime(4), seen: try row.optionalTime(5))
                return (DeviceName(token: try row.text(0), app: try row.text(1)), (try row.int(2), times))
            }
        ) { first, _ in first }
    }

    /// - Returns: The ids of the devices that did not exist.
    private static func insert(
        _ devices: [NewDevice], _ transaction: PostgresTransaction
    ) throws -> [DeviceName: Int64] {
        guard !devices.isEmpty else { return [:] }
        let rows = try transaction.rows(
            """
            INSERT INTO devices (device_token, app, user_reference, client_info, server_info, app_version, os_version,
                device_model, time_seen, time_created, time_registered, time_deactivated, deactivated_reason)
            SELECT w.token, w.app, \(values) FROM \(source)
            ORDER BY w.number ON CONFLICT (device_token, app) DO NOTHING RETURNING device_token, app, device_id
            """, parameters(devices, ids: []))
        return Dictionary(
            try rows.map { row in
                (DeviceName(token: try row.text(0), app: try row.text(1)), try row.int(2))
            }
        ) { first, _ in first }
    }

    private static func update(
        _ devices: [(id: Int64, device: NewDevice)], _ columns: Set<DeviceRecord.Column>,
        _ transaction: PostgresTransaction
    ) {
        /// Keeps an app's own details if they are newer than those in the file. Keeps a time that the file leaves
        /// empty.
        func says(_ name: String, _ value: String) -> String {
            "\(name) = CASE WHEN w.says = 1 THEN \(value) ELSE d.\(name) END"
        }
        let changes: [(column: DeviceRecord.Column, sql: String)] = [
            (.user, "user_reference = w.user_reference"), (.clientInfo, "client_info = w.client_info"),
            (.serverInfo, "server_info = w.server_info"), (.appVersion, says("app_version", "w.app_version")),
            (.osVersion, says("os_version", "w.os_version")), (.deviceModel, says("device_model", "w.device_model")),
            (.seen, says("time_seen", "at(w.seen)")),
            (.created, "time_created = CASE WHEN w.has_created = 1 THEN at(w.created) ELSE d.time_created END"),
            (
                .registered,
                "time_registered = CASE WHEN w.has_registered = 1 THEN at(w.registered) ELSE d.time_registered END"
            ),
            (.deactivated, "time_deactivated = at(w.deactivated)"), (.reason, "deactivated_reason = w.reason"),
        ]
        let sql = changes.filter { columns.contains($0.column) }.map(\.sql)
        guard !devices.isEmpty, !sql.isEmpty else { return }
        transaction.pipeline(
            "UPDATE devices d SET \(sql.joined(separator: ", ")) FROM \(source) WHERE d.device_id = w.id",
            parameters(devices.map(\.device), ids: devices.map(\.id)))
    }

    /// The values of a row, from ``source``.
    private static let values = """
        w.user_reference, w.client_info, w.server_info, w.app_version, w.os_version, w.device_model, at(w.seen),
            at(w.created), at(w.registered), at(w.deactivated), w.reason
        """

    private static let source = """
        unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bigint[], $15::bigint[],
            $16::bigint[], $17::bigint[]) WITH ORDINALITY
            AS w (token, app, user_reference, client_info, server_info, app_version, os_version, device_model, seen,
                created, registered, deactivated, reason, says, has_created, has_registered, id, number)
        """

    /// The parameters of ``source``.
    private static func parameters(_ devices: [NewDevice], ids: [Int64]) -> [SQLValue] {
        let values = devices.map(\.values)
        func flags(_ isSet: (Set<DeviceRecord.Column>) -> Bool) -> SQLValue {
            .ints(devices.map { isSet($0.columns) ? 1 : 0 })
        }
        let described: Set<DeviceRecord.Column> = [.appVersion, .osVersion, .deviceModel, .seen]
        return [
            .texts(devices.map(\.name.token)), .texts(devices.map(\.name.app)), .optionalTexts(values.map(\.user)),
            .optionalTexts(values.map(\.clientInfo)), .optionalTexts(values.map(\.serverInfo)),
            .optionalTexts(values.map(\.client.appVersion)), .optionalTexts(values.map(\.client.osVersion)),
            .optionalTexts(values.map(\.client.deviceModel)), .optionalInts(values.map { $0.seen?.milliseconds }),
            .ints(values.map(\.created.milliseconds)), .ints(values.map(\.registered.milliseconds)),
            .optionalInts(values.map { $0.deactivated?.milliseconds }), .optionalTexts(values.map(\.reason)),
            flags { !$0.isDisjoint(with: described) }, flags { $0.contains(.created) },
            flags { $0.contains(.registered) },
            .ints(ids),
        ]
    }

    private static func setTags(
        _ devices: [(id: Int64, device: NewDevice)], _ transaction: PostgresTransaction
    ) {
        guard !devices.isEmpty else { return }
        let tags = devices.flatMap { id, device in device.record.tags.map { (id: id, tag: $0.text) } }
        let values: [SQLValue] = [.ints(tags.map(\.id)), .texts(tags.map(\.tag))]
        transaction.pipeline(
            """
            DELETE FROM device_tags t WHERE t.device_id = ANY ($3::bigint[]) AND NOT EXISTS (
                SELECT FROM unnest($1::bigint[], $2::text[]) AS w (id, tag)
                WHERE w.id = t.device_id AND w.tag = t.tag)
            """, values + [.ints(devices.map(\.id))])
        transaction.pipeline(
            """
            INSERT INTO device_tags (device_id, tag) SELECT * FROM unnest($1::bigint[], $2::text[])
            ON CONFLICT DO NOTHING
            """, values)
    }
}
