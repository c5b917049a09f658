import ChatDomain
import ChatSQL
import GRDB

/// Queues the pushes of a message: one push for each other member of the room that has a device.
///
/// The pushes of a small room are part of the request's transaction (``PostRoom``). Those of a larger room follow after
/// the response, in steps that cover a bounded number of members. The message's row stores the progress.
enum MessageFanout {
    static let step = RoomSize.step

    /// Queues the next pushes and records the progress. Returns `nil` if the message has no remaining members.
    static func step(
        of message: MessageID, now: Timestamp, _ settings: StoreSettings, _ db: Database
    ) throws -> BackgroundJob.Step? {
        let row = try SQLiteTransaction(db).row(
            """
            SELECT fanout_after, fanout_until, \(MessageRecord.columns()) FROM messages
            WHERE message_id = $1 AND fanout_after IS NOT NULL
            """, [.int(message)])
        guard let row else { return nil }
        let record = try MessageRecord(row, from: 2)
        let (code, alert) = (record.room.text, ChatAlert(of: record))
        // The remaining members: those after `fanout_after`, up to the last one at the time of the message. Members who
        // join later get no push.
        let (after, until) = (try row.int(0), try row.int(1))
        let boundary: Int64? = try db.value(
            """
            SELECT member_id FROM active_users WHERE secret_code = ? AND member_id > ? AND member_id <= ?
            ORDER BY member_id LIMIT 1 OFFSET ?
            """, [code, after, until, step - 1])
        let upTo = boundary ?? until
        var result = BackgroundJob.Step(hasMore: upTo < until)
        #if PLANTED_FAULTS
        if PlantedFault.fanoutEndsEarly.isPlanted { result.hasMore = false }
        #endif
        let isBulk = try isForMany(code, db)
        let apps: [String] = try db.values(
            "SELECT DISTINCT app FROM active_users WHERE secret_code = ? AND member_id > ? AND member_id <= ?",
            [code, after, upTo])
        // Names of other programs may differ only in bytes that are not part of an app's name.
        for app in Set(apps).sorted() {
            let current = settings.current(app)
            // An app whose payload cannot be made gets no pushes. The other apps do.
            guard let payload = try? settings.format(current).payload(of: alert) else { continue }
            try RawStatement(
                db,
                """
                INSERT INTO push_queue (device_token, payload, time_queued, app, chat_message, expires_at, priority, device,
                    bulk, member)
                SELECT u.device_token, ?, ?, ?, ?, ?, ?, d.device_id, ?, u.member_id
                FROM active_users u
                LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
                WHERE u.secret_code = ? AND u.member_id > ? AND u.member_id <= ? AND u.app = ?
                    AND u.udid <> ? AND u.device_token <> '0' AND d.time_deactivated IS NULL
                ORDER BY u.member_id
                """, payload, now.sqlText, current.text, message, settings.expiration(at: now),
                alert.content.priority.map { Int64($0) }, Int64(isBulk ? 1 : 0), code, after, upTo, app,
                record.message.sender.text
            ).run()
            let (count, last) = (Int64(db.changesCount), db.lastInsertedRowID)
            guard count > 0 else { continue }
            result.inserted.append(
                DuePushes(range: last - count + 1...last, lane: isBulk ? .bulk : .normal, app: current))
        }
        try RawStatement(
            db, "UPDATE messages SET fanout_after = ?, fanout_until = ? WHERE message_id = ?",
            result.hasMore ? upTo : nil, result.hasMore ? until : nil, message
        ).run()
        return result
    }

    /// Whether the room is so large that its pushes go to the bulk lane, where other pushes overtake them. Counts the
    /// members besides the sender, whether or not they have a device: checking that would cost more with each member.
    private static func isForMany(_ code: String, _ db: Database) throws -> Bool {
        try RawStatement(
            db, "SELECT 1 FROM active_users WHERE secret_code = ? ORDER BY member_id LIMIT 1 OFFSET ?", code,
            Int64(PushLifeCycle.bulkFrom) + 1
        ).step()
    }
}

/// The room of a post, and its devices if the room is small.
struct PostRoom {
    static let small = RoomSize.small

    /// The nickname of the writer.
    let nickname: String
    let code: String
    /// The app of the writer. `nil` for a program.
    let app: String?
    let isSmall: Bool

    private struct Device {
        let token: String
        let app: String
        let id: Int64?
        let member: Int64
        let isReader: Bool
    }

    private var devices: [Device] = []

    private static let columns = """
        u.device_token, u.app, d.device_id, d.time_deactivated IS NOT NULL, u.member_id, u.fetched_to > u.history_from
        """

    /// The query for a post by a member.
    static let sql = """
        SELECT \(columns), u.member_id = w.member_id, w.nickname, w.secret_code, w.app
        FROM active_users w
        JOIN active_users u ON u.secret_code = w.secret_code
        LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
        WHERE w.udid = ? ORDER BY u.member_id LIMIT ?
        """

    /// The query for a post by a program, which is not a member.
    static let programSQL = """
        SELECT \(columns), 0
        FROM active_users u
        LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
        WHERE u.secret_code = ? ORDER BY u.member_id LIMIT ?
        """

    /// Reads the room without writing anything. Returns `nil` if the member has not joined a room.
    init?(of request: PostRequest, _ db: Database) throws {
        let limit = Int64(Self.small + 2)
        let rows =
            if let program = request.program {
                try RawStatement(db, Self.programSQL, program.room.text, limit)
            } else {
                try RawStatement(db, Self.sql, request.member.text, limit)
            }
        var hasRow = try rows.step()
        if let program = request.program {
            (nickname, code, app) = (program.nickname.text, program.room.text, nil)
        } else {
            guard hasRow, let nickname = rows.text(7), let code = rows.text(8), let app = rows.text(9) else {
                return nil
            }
            (self.nickname, self.code, self.app) = (nickname, code, app)
        }
        var others = 0
        while hasRow {
            let isWriter = rows.bool(6)
            if !isWriter { others += 1 }
            if !isWriter, !rows.bool(3), let token = rows.text(0), token != "0", let app = rows.text(1) {
                devices.append(
                    Device(
                        token: token, app: app, id: rows.optionalInt(2), member: rows.int(4), isReader: rows.bool(5)))
            }
            hasRow = try rows.step()
        }
        isSmall = others <= Self.small
    }

    /// Inserts a push for each device of a small room. Inserts none for a larger room.
    func insertPushes(
        of message: MessageID, priority: UInt8?, now: Timestamp, ids: APNSIDs, settings: StoreSettings,
        payload: (_ app: String) throws -> String, _ db: Database
    ) throws -> [DuePushes] {
        guard isSmall, !devices.isEmpty else { return [] }
        let (time, expires) = (now.sqlText, settings.expiration(at: now))
        var payloads: [String: (text: String, bytes: [UInt8])] = [:]
        var inserted: [DuePushes] = []
        for device in devices {
            if payloads[device.app] == nil {
                let text = try payload(device.app)
                payloads[device.app] = (text, Array(text.utf8))
            }
            guard let content = payloads[device.app] else { continue }
            let app = settings.current(device.app)
            try RawStatement(
                db,
                """
                INSERT INTO push_queue (device_token, payload, time_queued, app, chat_message, expires_at, priority, device,
                    member)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                """, device.token, content.text, time, app.text, message, expires, priority.map { Int64($0) },
                device.id,
                device.member
            ).run()
            let pushID = db.lastInsertedRowID
            var token = device.token
            let push = QueuedPush(
                id: pushID, address: token.withUTF8 { Address(stored: UnsafeRawBufferPointer($0)) },
                payload: content.bytes, isOurs: true, expiration: expires, priority: priority.map { Int64($0) },
                apnsID: ids.id(of: pushID), message: message, dueSince: now, isOfReader: device.isReader)
            if let last = inserted.last, last.app == app, last.range.upperBound + 1 == pushID {
                inserted[inserted.count - 1].range = last.range.lowerBound...pushID
                inserted[inserted.count - 1].pushes.append(push)
            } else {
                inserted.append(DuePushes(range: pushID...pushID, lane: .normal, app: app, pushes: [push]))
            }
        }
        return inserted
    }
}
