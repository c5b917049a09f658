import ChatDomain
import GRDB

/// What is known of a device, to tell whether a request changes it.
struct DeviceRow {
    let id: Int64
    /// Active, and registered not long ago.
    let isFresh: Bool
    let user: String?
    let clientInfo: String?
    let serverInfo: String?
    /// Empty where they were not asked for.
    let tags: Set<String>

    /// - Parameter edit: which is to be compared with it: tags are read only where it has some.
    static func find(
        _ token: String, app: AppName, freshAfter earliest: String = "", for edit: DeviceEdit, _ db: Database
    ) throws -> DeviceRow? {
        let row = try Row.fetchOne(
            db.cachedStatement(
                sql: """
                    SELECT device_id, time_deactivated IS NULL AND time_registered > ?, user_reference, client_info,
                        server_info
                    FROM devices WHERE device_token = ? AND app = ?
                    """), arguments: [earliest, token, app.text])
        guard let row else { return nil }
        let id: Int64 = row[0]
        let tags =
            edit.tags == nil
            ? []
            : try String.fetchSet(
                db.cachedStatement(sql: "SELECT tag FROM device_tags WHERE device_id = ?"), arguments: [id])
        return DeviceRow(
            id: id, isFresh: row[1], user: row[2], clientInfo: row[3], serverInfo: row[4], tags: tags)
    }

    func isChanged(by edit: DeviceEdit) -> Bool {
        edit.user.result(user) { $0.text } != user || edit.clientInfo.result(clientInfo) { $0 } != clientInfo
            || edit.serverInfo.result(serverInfo) { $0 } != serverInfo
            || edit.tags.map { Set($0.map(\.text)) != tags } == true
    }

    /// Writes what an edit changes.
    func apply(_ edit: DeviceEdit, _ db: Database) throws {
        guard isChanged(by: edit) else { return }
        try db.cachedStatement(
            sql: "UPDATE devices SET user_reference = ?, client_info = ?, server_info = ? WHERE device_id = ?"
        ).execute(arguments: [
            edit.user.result(user) { $0.text }, edit.clientInfo.result(clientInfo) { $0 },
            edit.serverInfo.result(serverInfo) { $0 }, id,
        ])
        guard let wanted = edit.tags.map({ Set($0.map(\.text)) }) else { return }
        for tag in tags.subtracting(wanted) {
            try db.cachedStatement(sql: "DELETE FROM device_tags WHERE tag = ? AND device_id = ?")
                .execute(arguments: [tag, id])
        }
        for tag in wanted.subtracting(tags) {
            try db.cachedStatement(sql: "INSERT INTO device_tags (tag, device_id) VALUES (?, ?)")
                .execute(arguments: [tag, id])
        }
    }

    // MARK: - Devices as they are shown

    /// Of the table `devices` as `d`.
    static let columns = """
        d.device_id, d.device_token, d.app, d.user_reference, d.client_info, d.server_info, d.time_created,
        d.time_registered, d.time_deactivated, d.deactivated_reason
        """

    /// Rows with ``columns``, with their tags, which are read at once.
    static func devices(_ rows: [Row], _ db: Database) throws -> [Device] {
        let ids = rows.map { String($0[0] as Int64) }.joined(separator: ",")
        var tags: [Int64: [Tag]] = [:]
        let found = try Row.fetchCursor(
            db.cachedStatement(
                sql: """
                    SELECT device_id, tag FROM device_tags
                    WHERE device_id IN (SELECT value FROM json_each(?)) ORDER BY device_id
                    """), arguments: ["[\(ids)]"])
        while let row = try found.next() { tags[row[0], default: []].append(Tag(stored: row[1])) }
        return rows.compactMap { row in
            // A token that another program wrote, and that is none, is not shown.
            guard let token = try? DeviceToken(parsing: row[1]) else { return nil }
            return Device(
                id: row[0], token: token, app: AppName(row[2]),
                user: (row[3] as String?).map(UserReference.init(stored:)), clientInfo: row[4], serverInfo: row[5],
                tags: tags[row[0] as Int64, default: []].sorted(), createdAt: row.time(6), registeredAt: row.time(7),
                deactivatedAt: row.optionalTime(8), deactivatedReason: row[9])
        }
    }
}

extension DeviceEdit.Change {
    /// What is stored afterwards.
    fileprivate func result(_ old: String?, _ text: (Value) -> String) -> String? {
        switch self {
        case .keep: old
        case .remove: nil
        case .set(let value): text(value)
        }
    }
}
