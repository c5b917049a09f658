package import ChatDomain
import Crypto
import Foundation
import GRDB

/// A device as a file has it.
package struct DeviceRecord: Sendable, Hashable {
    /// What a file may say of devices, besides which they are. What it does not say stays, or is as with a registration.
    package enum Column: String, Sendable, CaseIterable {
        case user = "user_reference"
        case clientInfo = "client_info"
        case serverInfo = "server_info"
        case tags
        case appVersion = "app_version"
        case osVersion = "os_version"
        case deviceModel = "device_model"
        case created = "created_at"
        case registered = "registered_at"
        case seen = "seen_at"
        case deactivated = "deactivated_at"
        case reason = "deactivated_reason"
    }

    package let token: DeviceToken
    package let app: AppName
    package var user: UserReference?
    package var clientInfo: String?
    package var serverInfo: String?
    package var tags: Set<Tag> = []
    package var client = ClientInfo()
    package var createdAt: Timestamp?
    package var registeredAt: Timestamp?
    package var seenAt: Timestamp?
    package var deactivatedAt: Timestamp?
    package var deactivatedReason: String?

    package init(token: DeviceToken, app: AppName) {
        self.token = token
        self.app = app
    }
}

/// What an import did with devices.
package struct DeviceImportResult: Sendable, Hashable {
    package var created = 0
    /// They were known, and are as in the file now.
    package var updated = 0
    /// They have registered here, or were deactivated, after the file knew of them: they stay as they are.
    package var newer = 0

    package init() {}

    package static func += (left: inout Self, right: Self) {
        left.created += right.created
        left.updated += right.updated
        left.newer += right.newer
    }
}

extension SQLiteDeviceStore {
    /// Takes devices over from a file, all in one transaction. The same again changes nothing more.
    /// - Parameter columns: what the file says of devices.
    package func take(
        _ records: [DeviceRecord], columns: Set<DeviceRecord.Column>
    ) async throws(ChatError) -> DeviceImportResult {
        let keepsUsage = settings().keepsUsage
        return try await database.writer.perform { db in
            let now = database.clock()
            var result = DeviceImportResult()
            for record in records {
                let row = try db.row(
                    "SELECT time_registered, time_deactivated, time_seen FROM devices WHERE device_token = ? AND app = ?",
                    [record.token.description, record.app.text])
                let known = row.map { Times(registered: $0[0], deactivated: $0[1], seen: $0[2]) }
                if known?.isNewer(than: record, columns) == true {
                    result.newer += 1
                    continue
                }
                var columns = columns
                // What its app has said since is newer, too.
                if let seen = known?.seen, record.seenAt.map({ seen > $0.sqlText }) == true {
                    columns.subtract([.appVersion, .osVersion, .deviceModel, .seen])
                }
                try Self.write(record, columns, keepsUsage: keepsUsage, now: now, db)
                if known == nil { result.created += 1 } else { result.updated += 1 }
            }
            return result
        }
    }

    /// When something happened to a device that is known, as the database has times.
    private struct Times {
        let registered: String
        let deactivated: String?
        let seen: String?

        /// Its state is of a time after the one that a file has it from. Where the file says no time, it is the file's.
        func isNewer(than record: DeviceRecord, _ columns: Set<DeviceRecord.Column>) -> Bool {
            guard let wanted = record.registeredAt?.sqlText else { return false }
            if registered > wanted { return true }
            guard columns.contains(.deactivated), let deactivated else { return false }
            return deactivated > max(wanted, record.deactivatedAt?.sqlText ?? "")
        }
    }

    private static func write(
        _ record: DeviceRecord, _ columns: Set<DeviceRecord.Column>, keepsUsage: Bool, now: Timestamp, _ db: Database
    ) throws {
        let created = record.createdAt ?? record.registeredAt ?? now
        let values: [(column: DeviceRecord.Column, name: String, value: String?)] = [
            (.user, "user_reference", record.user?.text), (.clientInfo, "client_info", record.clientInfo),
            (.serverInfo, "server_info", record.serverInfo),
            (.appVersion, "app_version", keepsUsage ? record.client.appVersion : nil),
            (.osVersion, "os_version", keepsUsage ? record.client.osVersion : nil),
            (.deviceModel, "device_model", keepsUsage ? record.client.deviceModel : nil),
            (.seen, "time_seen", keepsUsage ? record.seenAt?.sqlText : nil),
            (.created, "time_created", created.sqlText),
            (.registered, "time_registered", (record.registeredAt ?? now).sqlText),
            (.deactivated, "time_deactivated", record.deactivatedAt?.sqlText),
            (.reason, "deactivated_reason", record.deactivatedReason),
        ]
        // A time that the file leaves empty stays as it is.
        var columns = columns
        if record.createdAt == nil { columns.remove(.created) }
        if record.registeredAt == nil { columns.remove(.registered) }
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
                [record.app.text, record.token.description] + values.map { $0.value as (any DatabaseValueConvertible)? }
            ))
        guard columns.contains(.tags), let id else { return }
        try db.run("DELETE FROM device_tags WHERE device_id = ?", [id])
        for tag in record.tags.sorted() {
            try db.run("INSERT INTO device_tags (tag, device_id) VALUES (?, ?)", [tag.text, id])
        }
    }
}

/// A push that waits in another server's queue.
package struct WaitingPush: Sendable, Hashable {
    /// Its number there.
    package let number: String
    package let token: DeviceToken
    package let payload: String
    package let queuedAt: Timestamp?

    package init(number: String, token: DeviceToken, payload: String, queuedAt: Timestamp?) {
        self.number = number
        self.token = token
        self.payload = payload
        self.queuedAt = queuedAt
    }

    /// The same for the same push, so that it is taken over once: a UUID of a hash.
    package var id: String {
        var bytes = Array(SHA256.hash(data: Data("\(number)\n\(token)\n\(payload)".utf8)).prefix(16))
        bytes[6] = bytes[6] & 0x0F | 0x80
        bytes[8] = bytes[8] & 0x3F | 0x80
        let text = Hex.text(bytes)
        var parts: [Substring] = []
        var rest = text[...]
        for length in [8, 4, 4, 4, 12] {
            parts.append(rest.prefix(length))
            rest = rest.dropFirst(length)
        }
        return parts.joined(separator: "-")
    }
}

extension SQLiteStores {
    /// Which of these are in a room, or were.
    /// - Returns: their udids.
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

    /// The pushes that were taken over before, whatever has become of them, as long as their rows are kept. Reads the whole queue.
    /// - Returns: their ids, which ``WaitingPush/id`` has made.
    package func importedPushes() async throws(ChatError) -> Set<String> {
        try await database.scan { db in
            Set<String>(try db.values("SELECT apns_id FROM push_queue WHERE substr(apns_id, 15, 1) = '8'", []))
        }
    }

    /// Takes pushes over, all in one transaction, in their order and behind all that are there.
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
