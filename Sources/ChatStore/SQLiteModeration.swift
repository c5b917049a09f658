package import ChatDomain
import GRDB

/// Order in rooms: the tables `bans` and `moderation`.
package struct SQLiteModeration: Moderation {
    let database: SQLiteDatabase
    let queue: SQLitePushQueue
    let feed: SQLiteRoomFeed
    let outcomes: OutcomeCounter

    // MARK: - Removing

    /// Who was in a room, and is not any more.
    private struct Removed: Sendable {
        static let columns = "udid, secret_code, nickname, nullif(device_token, '0')"

        let member: MemberID
        let room: SecretCode
        let nickname: String
        let token: String?

        init(_ row: Row) {
            member = MemberID(stored: row[0])
            room = SecretCode(stored: row[1])
            nickname = row[2]
            token = row[3]
        }
    }

    package func remove(_ member: Int64, by moderator: Moderator) async throws(ChatError) {
        let removed = try await database.writer.perform { db in
            try ReadState.keep(where: "member_id = :member", ["member": member], now: database.clock(), db)
            let row = try db.row("DELETE FROM active_users WHERE member_id = ? RETURNING \(Removed.columns)", [member])
            guard let removed = row.map(Removed.init) else { throw ChatError.notFound("member") }
            try record(
                .remove, room: removed.room.text, subject: removed.nickname, by: moderator,
                takingBack: removed.token.map(Pushes.device), db)
            return removed
        } committed: { _ in
            queue.forgetContent()
        }
        note([removed])
    }

    private func note(_ removed: [Removed]) {
        feed.note { changes in
            for removed in removed {
                changes.members.insert(removed.member)
                changes.removed.insert(removed.member)
                changes.memberships.insert(removed.room)
            }
        }
    }

    // MARK: - Bans

    package func ban(_ request: BanRequest, by moderator: Moderator) async throws(ChatError) -> Ban {
        let (ban, removed) = try await database.writer.perform { db in
            try insert(request, by: moderator, db)
        } committed: { _ in
            queue.forgetContent()
        }
        if case .room(let code) = request.subject {
            feed.note { $0.closed.insert(code) }
        } else if !removed.isEmpty {
            note(removed)
        }
        return ban
    }

    /// Removing the members of the largest room takes about a second, in one transaction: nobody is in a closed room.
    private func insert(
        _ request: BanRequest, by moderator: Moderator, _ db: Database
    ) throws -> (Ban, [Removed]) {
        var (room, udid, token, name): (String?, String?, String?, String?)
        switch request.subject {
        case .member(let id, let everywhere):
            let row = try db.row("SELECT \(Removed.columns) FROM active_users WHERE member_id = ?", [id])
            guard let member = row.map(Removed.init) else { throw ChatError.notFound("member") }
            (udid, token, name) = (member.member.text, member.token, member.nickname)
            room = everywhere ? nil : member.room.text
        case .udid(let member, let code): (room, udid) = (code?.text, member.text)
        case .device(let device, let code): (room, token) = (code?.text, device.description)
        case .room(let code): room = code.text
        }
        let now = database.clock()
        try db.run(
            """
            INSERT INTO bans (secret_code, udid, device_token, nickname, reason, time_created, time_ends)
            VALUES (?, ?, ?, ?, ?, ?, ?)
            """, [room, udid, token, name, request.reason, now.sqlText, request.endsAt?.sqlText])
        let id = db.lastInsertedRowID
        var removed: [Removed] = []
        let isClosed = udid == nil && token == nil
        if isClosed {
            try ReadState.keep(where: "secret_code = :room", ["room": room], now: now, db)
            try db.run("DELETE FROM active_users WHERE secret_code = ?", [room])
        } else {
            for (name, value) in [("udid = :value", udid), ("device_token = :value AND device_token <> '0'", token)] {
                let condition = "\(name) AND (:room IS NULL OR secret_code = :room)"
                try ReadState.keep(where: condition, ["value": value, "room": room], now: now, db)
                removed += try db.rows(
                    "DELETE FROM active_users WHERE \(condition) RETURNING \(Removed.columns)",
                    ["value": value, "room": room]
                ).map(Removed.init)
            }
            if name == nil, let first = removed.first {
                name = first.nickname
                try db.run("UPDATE bans SET nickname = ? WHERE ban_id = ?", [name, id])
            }
        }
        try record(
            isClosed ? .close : .ban, room: room, subject: name, by: moderator,
            takingBack: isClosed ? .all : (token ?? removed.first?.token).map(Pushes.device), db)
        let ban = Ban(
            id: id, room: room.map(SecretCode.init(stored:)), isClosed: isClosed, name: name,
            device: token.map(Self.shortened), reason: request.reason, createdAt: now, endsAt: request.endsAt,
            hasEnded: false)
        return (ban, removed)
    }

    package func endBan(_ id: Int64, by moderator: Moderator) async throws(ChatError) {
        try await database.writer.perform { db in
            let now = database.clock()
            let row = try db.row(
                """
                UPDATE bans SET time_ends = ?1 WHERE ban_id = ?2 AND (time_ends IS NULL OR time_ends > ?1)
                RETURNING \(Self.columns)
                """, [now.sqlText, id])
            guard let ban = row.map({ Self.ban($0, now: now) }) else {
                throw ChatError(.notFound, "There is no such ban in force")
            }
            try record(ban.isClosed ? .open : .unban, room: ban.room?.text, subject: ban.name, by: moderator, db)
        }
    }

    package func bans(
        in room: SecretCode?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Ban> {
        try await database.read { db in
            let now = database.clock()
            let page = try db.page(
                "SELECT \(Self.columns) FROM bans WHERE ban_id < ? ORDER BY ban_id DESC LIMIT ?",
                [cursor ?? Int64.max, Database.pageWindow + 1], limit: limit
            ) { row in room.map { row[1] as String? == $0.text } ?? true }
            return Page(items: page.rows.map { Self.ban($0, now: now) }, next: page.next)
        }
    }

    private static let columns = """
        ban_id, secret_code, udid IS NULL AND device_token IS NULL AND address IS NULL, nickname, device_token, reason,
        time_created, time_ends
        """

    /// - Parameter row: begins with ``columns``.
    private static func ban(_ row: Row, now: Timestamp) -> Ban {
        Ban(
            id: row[0], room: (row[1] as String?).map(SecretCode.init(stored:)), isClosed: row[2], name: row[3],
            device: (row[4] as String?).map(shortened), reason: row[5], createdAt: row.time(6),
            endsAt: row.optionalTime(7), hasEnded: (row[7] as String?).map { $0 <= now.sqlText } ?? false)
    }

    private static func shortened(_ token: String) -> String { token.prefix(8) + "…" }

    // MARK: - Who may come in

    /// Refuses who is banned from a room, by udid or by device, and everybody where it is closed.
    /// - Throws: ``ChatError/Code/forbidden``, with the end of the ban that lasts longest.
    static func requireAdmitted(
        _ member: MemberID, _ token: DeviceToken?, to room: SecretCode, now: Timestamp, _ db: Database
    ) throws {
        let ban = try db.row(
            admissionSQL,
            ["udid": member.text, "token": token?.description, "room": room.text, "now": now.sqlText])
        if let ban { throw ChatError.banned(isClosed: ban[0], isEverywhere: ban[1], until: ban.optionalTime(2)) }
    }

    static let admissionSQL = """
        SELECT isClosed, isEverywhere, time_ends FROM (
            SELECT 0 AS isClosed, secret_code IS NULL AS isEverywhere, time_ends FROM bans
            WHERE udid = :udid AND (secret_code IS NULL OR secret_code = :room) AND (time_ends IS NULL OR time_ends > :now)
            UNION ALL
            SELECT 0, secret_code IS NULL, time_ends FROM bans
            WHERE device_token = :token AND (secret_code IS NULL OR secret_code = :room)
                AND (time_ends IS NULL OR time_ends > :now)
            UNION ALL
            SELECT 1, 0, time_ends FROM bans
            WHERE udid IS NULL AND device_token IS NULL AND address IS NULL AND secret_code = :room
                AND (time_ends IS NULL OR time_ends > :now))
        ORDER BY isClosed, time_ends IS NOT NULL, time_ends DESC LIMIT 1
        """

    /// Refuses a room that is closed.
    static func requireOpen(_ room: SecretCode, now: Timestamp, _ db: Database) throws {
        if let closed = try db.row(closedSQL, [room.text, now.sqlText]) {
            throw ChatError.banned(isClosed: true, until: closed.optionalTime(0))
        }
    }

    static let closedSQL = """
        SELECT time_ends FROM bans
        WHERE udid IS NULL AND device_token IS NULL AND address IS NULL AND secret_code = ?
            AND (time_ends IS NULL OR time_ends > ?)
        ORDER BY time_ends IS NOT NULL, time_ends DESC LIMIT 1
        """

    // MARK: - Messages

    /// Settles the message's waiting pushes and empties the payload of all (``DeletedMessage``). For the largest room that takes
    /// a second or two, in one transaction: who asks for the message next does not get it.
    package func delete(_ message: MessageID, by moderator: Moderator) async throws(ChatError) {
        let (room, ended) = try await database.writer.perform { db -> (SecretCode, [FinalStateCount]) in
            let code: String? = try db.value("SELECT secret_code FROM messages WHERE message_id = ?", [message])
            guard let code else { throw ChatError.notFound("message") }
            let counts = try db.rows(Self.waitingSQL, [message]).map { row in
                FinalStateCount(
                    app: AppName(row[0]), state: .cancelled, reason: PushLifeCycle.messageDeleted, count: row[1])
            }
            try db.run(Self.deleteSQL, [PushLifeCycle.messageDeleted, database.clock().sqlText, message])
            // A fan-out that is under way finds no message any more, and ends.
            try db.run("DELETE FROM messages WHERE message_id = ?", [message])
            try record(.delete, room: code, subject: "\(message)", by: moderator, db)
            return (SecretCode(stored: code), counts)
        } committed: { _ in
            queue.forgetContent()
        }
        outcomes.add(ended)
        feed.note { $0.deleted[room, default: []].append(message) }
    }

    static let waitingSQL = """
        SELECT app, count(*) FROM push_queue WHERE chat_message = ? AND state = 'pending' GROUP BY app
        """
    /// Also does what the foreign key would do with the end of the message, so that each row is written once.
    static let deleteSQL = """
        UPDATE push_queue SET payload = '', chat_message = NULL, state = iif(state = 'pending', 'cancelled', state),
            reason = iif(state = 'pending', ?1, reason), time_settled = iif(state = 'pending', ?2, time_settled)
        WHERE chat_message = ?3
        """

    // MARK: - Records

    /// Which pushes that wait are not to be sent, of the record's room.
    private enum Pushes {
        case device(String)
        case all
    }

    /// - Parameter pushes: those that are in the queue now. ``QueueReader`` takes them back when their turn comes: no index leads
    ///   to them, because it would make every message more expensive.
    private func record(
        _ action: ModerationRecord.Action, room: String?, subject: String?, by moderator: Moderator,
        takingBack pushes: Pushes? = nil, _ db: Database
    ) throws {
        var (token, last): (String?, Int64?)
        if let pushes {
            last = try db.value("SELECT seq FROM sqlite_sequence WHERE name = 'push_queue'")
            if case .device(let device) = pushes { token = device }
        }
        try db.run(
            """
            INSERT INTO moderation (action, secret_code, subject, actor, ip_address, time_done, device_token, last_push)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                action.rawValue, room, subject, moderator.name, moderator.address, database.clock().sqlText, token,
                last,
            ])
    }

    package func records(before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ModerationRecord> {
        try await database.read { db in
            let page = try db.page(
                """
                SELECT moderation_id, action, secret_code, subject, actor, ip_address, time_done FROM moderation
                WHERE moderation_id < ? ORDER BY moderation_id DESC LIMIT ?
                """, [cursor ?? Int64.max, limit + 1], limit: limit)
            let records = page.rows.map { row in
                ModerationRecord(
                    id: row[0], action: row[1], room: (row[2] as String?).map(SecretCode.init(stored:)),
                    subject: row[3],
                    actor: row[4], address: row[5], at: row.time(6))
            }
            return Page(items: records, next: page.next)
        }
    }
}
