import ChatDomain
import GRDB

/// A message on its way into the queue: one row for each other member of the room that has a device.
///
/// The rows of a small room are part of the request's transaction (``PostRoom``). A larger room's follow behind the answer, in
/// steps that cover a bounded number of members; where they stand is kept with the message.
struct MessageFanout: Sendable {
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
    func nextEntries(_ settings: StoreSettings, _ db: Database) throws -> Entries {
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
            let payload = try? settings.format(settings.current(app)).payload(
                of: ChatAlert(
                    nickname: Nickname(stored: nickname), text: MessageText(stored: text),
                    code: SecretCode(stored: code), message: message))
            return payload.map { (app: app, payload: $0) }
        }
        return Entries(payloads: payloads, upTo: upTo, hasMore: boundary != nil && upTo < until)
    }

    /// Writes the rows and how far the message has come.
    func insert(
        _ entries: Entries, now: Timestamp, _ settings: StoreSettings, _ db: Database
    ) throws -> [InsertedPushes] {
        let expires = settings.expiration.map { (now + $0).seconds }
        let isBulk = try isForMany(db)
        var inserted: [InsertedPushes] = []
        for (app, payload) in entries.payloads {
            try RawStatement(
                db,
                """
                INSERT INTO push_queue (device_token, payload, time_queued, app, chat_message, expires_at, device, bulk)
                SELECT u.device_token, ?, ?, ?, ?, ?, d.device_id, ?
                FROM active_users u
                LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
                WHERE u.secret_code = ? AND u.member_id > ? AND u.member_id <= ? AND u.app = ?
                    AND u.udid <> ? AND u.device_token <> '0' AND d.time_deactivated IS NULL
                ORDER BY u.member_id
                """, payload, now.sqlText, settings.current(app).text, message, expires, Int64(isBulk ? 1 : 0), code,
                after,
                entries.upTo, app, sender
            ).run()
            let (count, last) = (Int64(db.changesCount), db.lastInsertedRowID)
            guard count > 0 else { continue }
            inserted.append(
                InsertedPushes(
                    range: last - count + 1...last, lane: isBulk ? .bulk : .first, app: settings.current(app)))
        }
        try RawStatement(
            db, "UPDATE messages SET fanout_after = ?, fanout_until = ? WHERE message_id = ?",
            entries.hasMore ? entries.upTo : nil, entries.hasMore ? until : nil, message
        ).run()
        return inserted
    }

    /// Whether the room is so large that its pushes let others pass.
    private func isForMany(_ db: Database) throws -> Bool {
        try RawStatement(
            db, "SELECT 1 FROM active_users WHERE secret_code = ? ORDER BY member_id LIMIT 1 OFFSET ?", code,
            Int64(PushLifeCycle.bulkFrom)
        ).step()
    }

    /// The unfinished work of a message; nil when there is none.
    static func unfinished(_ message: MessageID, _ db: Database) throws -> MessageFanout? {
        try Row.fetchOne(
            db.cachedStatement(
                sql: """
                    SELECT secret_code, udid, nickname, text, fanout_after, fanout_until FROM messages
                    WHERE message_id = ? AND fanout_after IS NOT NULL
                    """), arguments: [message]
        ).map {
            MessageFanout(
                message: message, code: $0[0], sender: $0[1], nickname: $0[2], text: $0[3], after: $0[4], until: $0[5])
        }
    }
}

/// The room that a member writes to, with its members where these are few.
struct PostRoom {
    /// Members beside the writer that are served before the answer. Above that the rows would cost more than the message.
    static let small = 8

    let nickname: String
    let code: String
    let app: String
    let isSmall: Bool

    private struct Device {
        let token: String
        let app: String
        let id: Int64?
    }

    private var devices: [Device] = []

    static let sql = """
        SELECT w.nickname, w.secret_code, w.app, u.member_id = w.member_id, u.device_token, u.app, d.device_id,
            d.time_deactivated IS NOT NULL
        FROM active_users w
        JOIN active_users u ON u.secret_code = w.secret_code
        LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
        WHERE w.udid = ? ORDER BY u.member_id LIMIT ?
        """

    /// Reads, and writes nothing. Nil for who has not joined.
    init?(of writer: MemberID, _ db: Database) throws {
        let rows = try RawStatement(db, Self.sql, writer.text, Int64(Self.small + 2))
        guard try rows.step(), let nickname = rows.text(0), let code = rows.text(1), let app = rows.text(2) else {
            return nil
        }
        var count = 0
        repeat {
            count += 1
            guard !rows.bool(3), !rows.bool(7), let token = rows.text(4), token != "0", let app = rows.text(5) else {
                continue
            }
            devices.append(Device(token: token, app: app, id: rows.optionalInt(6)))
        } while try rows.step()
        self.nickname = nickname
        self.code = code
        self.app = app
        isSmall = count < Self.small + 2
    }

    /// Writes a row for each device of a small room; for none of a larger one.
    func insertPushes(
        of message: MessageID, now: Timestamp, expires: Int64?, ids: PushIDs, settings: StoreSettings,
        payload: (_ app: String) throws -> String, _ db: Database
    ) throws -> [InsertedPushes] {
        guard isSmall, !devices.isEmpty else { return [] }
        let time = now.sqlText
        var payloads: [String: (text: String, bytes: [UInt8])] = [:]
        var inserted: [InsertedPushes] = []
        for device in devices {
            let content =
                try payloads[device.app]
                ?? {
                    let text = try payload(device.app)
                    return (text, Array(text.utf8))
                }()
            payloads[device.app] = content
            let app = settings.current(device.app)
            try RawStatement(
                db,
                """
                INSERT INTO push_queue (device_token, payload, time_queued, app, chat_message, expires_at, device)
                VALUES (?, ?, ?, ?, ?, ?, ?)
                """, device.token, content.text, time, app.text, message, expires, device.id
            ).run()
            let entry = db.lastInsertedRowID
            var token = device.token
            let push = QueuedPush(
                entry: entry, address: token.withUTF8 { Address(stored: UnsafeRawBufferPointer($0)) },
                payload: content.bytes, isOurs: true, expiration: expires, id: ids.id(of: entry))
            if let last = inserted.last, last.app == app, last.range.upperBound + 1 == entry {
                inserted[inserted.count - 1].range = last.range.lowerBound...entry
                inserted[inserted.count - 1].pushes.append(push)
            } else {
                inserted.append(
                    InsertedPushes(range: entry...entry, lane: .first, app: app, pushes: [push]))
            }
        }
        return inserted
    }
}
