import ChatDomain
import GRDB

/// A message on its way into the queue: one row for each other member of the room that has a device.
///
/// A small room's rows are part of the request's transaction. A large room's follow behind the answer, in steps that cover a
/// bounded number of members; where they stand is kept with the message.
struct Fanout: Sendable {
    /// Members of a room that is served before the answer.
    static let small = 100
    /// Members that one step looks at: about a millisecond of writing.
    static let step = 500

    let message: MessageID
    let code: String
    let sender: String
    let nickname: String
    let text: String
    /// Members up to this one are done.
    let after: Int64
    /// The last member at the time of the message: who comes later gets none.
    let until: Int64

    /// What the next step will write.
    struct Entries: Sendable {
        /// The payload for the members of each app.
        let payloads: [(app: String, payload: String)]
        let upTo: Int64
        let hasMore: Bool
    }

    /// Reads, and writes nothing.
    /// - Throws: a ``ChatError`` when the payload cannot be made.
    func nextEntries(_ settings: SQLiteStore.Settings, _ db: Database) throws -> Entries {
        let boundary = try Int64.fetchOne(
            db.cachedStatement(
                sql: """
                    SELECT member_id FROM active_users WHERE secret_code = ? AND member_id > ? AND member_id <= ?
                    ORDER BY member_id LIMIT 1 OFFSET ?
                    """), arguments: [code, after, until, Self.step - 1])
        let upTo = boundary ?? until
        let apps = try String.fetchAll(
            db.cachedStatement(
                sql: """
                    SELECT DISTINCT app FROM active_users WHERE secret_code = ? AND member_id > ? AND member_id <= ?
                    """), arguments: [code, after, upTo])
        // An app for which nothing fits has no pushes; the others have theirs.
        let payloads = apps.compactMap { app -> (app: String, payload: String)? in
            let payload = try? settings.payload(AppName(app)).json(
                nickname: Nickname(stored: nickname), text: MessageText(stored: text), code: SecretCode(stored: code),
                message: message)
            return payload.map { (app: app, payload: $0) }
        }
        return Entries(payloads: payloads, upTo: upTo, hasMore: boundary != nil && upTo < until)
    }

    /// Writes the rows and how far the message has come.
    /// - Returns: how many rows.
    func insert(
        _ entries: Entries, now: Timestamp, _ settings: SQLiteStore.Settings, _ db: Database
    ) throws -> Int {
        let expires = settings.expiration.map { (now + $0).seconds }
        var queued = 0
        for (app, payload) in entries.payloads {
            try db.cachedStatement(
                sql: """
                    INSERT INTO push_queue (device_token, payload, time_queued, app, chat_message, expires_at, device, bulk)
                    SELECT u.device_token, ?, ?, u.app, ?, ?, d.device_id, 1
                    FROM active_users u
                    LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
                    WHERE u.secret_code = ? AND u.member_id > ? AND u.member_id <= ? AND u.app = ?
                        AND u.udid <> ? AND u.device_token <> '0' AND d.time_deactivated IS NULL
                    ORDER BY u.member_id
                    """
            ).execute(arguments: [
                payload, now.sqlText, message, expires, code, after, entries.upTo, app, sender,
            ])
            queued += db.changesCount
        }
        try db.cachedStatement(
            sql: "UPDATE messages SET fanout_after = ?, fanout_until = ? WHERE message_id = ?"
        ).execute(arguments: [entries.hasMore ? entries.upTo : nil, entries.hasMore ? until : nil, message])
        return queued
    }

    /// The unfinished work of a message; nil when there is none.
    static func unfinished(_ message: MessageID, _ db: Database) throws -> Fanout? {
        try Row.fetchOne(
            db.cachedStatement(
                sql: """
                    SELECT secret_code, udid, nickname, text, fanout_after, fanout_until FROM messages
                    WHERE message_id = ? AND fanout_after IS NOT NULL
                    """), arguments: [message]
        ).map {
            Fanout(
                message: message, code: $0[0], sender: $0[1], nickname: $0[2], text: $0[3], after: $0[4], until: $0[5])
        }
    }
}

/// The members of a room that is small enough to be served before the answer.
struct SmallRoom {
    private struct Device {
        let token: String
        let app: String
        let id: Int64?
    }

    private var devices: [Device] = []

    /// Reads, and writes nothing. Nil for a large room.
    init?(_ code: String, besides sender: MemberID, _ db: Database) throws {
        let beyond = try RawStatement(
            db, "SELECT TRUE FROM active_users WHERE secret_code = ? ORDER BY member_id LIMIT 1 OFFSET ?", code,
            Int64(Fanout.small))
        if try beyond.step() { return nil }
        let members = try RawStatement(
            db,
            """
            SELECT u.device_token, u.app, d.device_id FROM active_users u
            LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
            WHERE u.secret_code = ? AND u.udid <> ? AND u.device_token <> '0' AND d.time_deactivated IS NULL
            ORDER BY u.member_id
            """, code, sender.text)
        while try members.step() {
            guard let token = members.text(0), let app = members.text(1) else { continue }
            devices.append(Device(token: token, app: app, id: members.optionalInt(2)))
        }
    }

    /// Writes a row for each device.
    /// - Returns: how many.
    func insert(
        _ message: MessageID, now: String, expires: Int64?, payload: (AppName) throws -> String, _ db: Database
    ) throws -> Int {
        guard !devices.isEmpty else { return 0 }
        var payloads: [String: String] = [:]
        for device in devices {
            let text = try payloads[device.app] ?? payload(AppName(device.app))
            payloads[device.app] = text
            try RawStatement(
                db,
                """
                INSERT INTO push_queue (device_token, payload, time_queued, app, chat_message, expires_at, device)
                VALUES (?, ?, ?, ?, ?, ?, ?)
                """, device.token, text, now, device.app, message, expires, device.id
            ).run()
        }
        return devices.count
    }
}
