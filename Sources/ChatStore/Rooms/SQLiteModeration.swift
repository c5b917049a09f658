package import ChatDomain
import ChatSQL
import GRDB

/// Moderation of rooms: the tables `bans` and `moderation`. Removals are written twice: PostgreSQL locks rooms, and
/// announces the changes within the transaction.
package struct SQLiteModeration: Moderation {
    let database: SQLiteDatabase
    let queue: SQLitePushQueue
    let feed: SQLiteRoomFeed
    let outcomes: OutcomeCounter

    // MARK: - Removing

    /// A member that was removed from a room.
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
            try ReadState.keep(where: "member_id = :member", ["member": member], now: database.now(), db)
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

    /// Closing the largest room takes about a second, in one transaction, so that a closed room never has members.
    private func insert(
        _ request: BanRequest, by moderator: Moderator, _ db: Database
    ) throws -> (Ban, [Removed]) {
        var (room, udid, token, address, name): (String?, String?, String?, String?, String?)
        switch request.subject {
        case .member(let id, let everywhere):
            let row = try db.row("SELECT \(Removed.columns), ip_address FROM active_users WHERE member_id = ?", [id])
            guard let row else { throw ChatError.notFound("member") }
            let member = Removed(row)
            (udid, token, name) = (member.member.text, member.token, member.nickname)
            room = everywhere ? nil : member.room.text
            address = try request.address(lastUsed: row[4])?.text
        case .udid(let member, let code): (room, udid) = (code?.text, member.text)
        case .device(let device, let code): (room, token) = (code?.text, device.description)
        case .address(let banned, let code): (room, address) = (code?.text, banned.text)
        case .room(let code): room = code.text
        }
        let now = database.now()
        try db.run(
            """
            INSERT INTO bans (secret_code, udid, device_token, address, nickname, reason, time_created, time_ends)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """, [room, udid, token, address, name, request.reason, now.sqlText, request.endsAt?.sqlText])
        let id = db.lastInsertedRowID
        var removed: [Removed] = []
        let isClosed = udid == nil && token == nil && address == nil
        if isClosed {
            try ReadState.keep(where: "secret_code = :room", ["room": room], now: now, db)
            try db.run("DELETE FROM active_users WHERE secret_code = ?", [room])
        } else {
            let addresses = try address.map { address in
                JSONValue.texts(try SQLBans.addresses([address], in: room, SQLiteTransaction(db))).description
            }
            for (name, value) in [
                ("udid = :value", udid), ("device_token = :value AND device_token <> '0'", token),
                ("ip_address IN (SELECT value FROM json_each(:value))", addresses),
            ] where value != nil {
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
        // A ban of an address may remove several members.
        for other in removed.dropFirst() where other.token != token {
            try record(removalOf: other, in: room, by: moderator, db)
        }
        let ban = Ban(
            id: id, room: room.map(SecretCode.init(stored:)), isClosed: isClosed, name: name,
            device: token.map { $0.prefix(8) + "…" }, address: address, reason: request.reason, createdAt: now,
            endsAt: request.endsAt, hasEnded: false)
        return (ban, removed)
    }

    private func record(removalOf removed: Removed, in room: String?, by moderator: Moderator, _ db: Database) throws {
        try record(
            .remove, room: room ?? removed.room.text, subject: removed.nickname, by: moderator,
            takingBack: removed.token.map(Pushes.device), db)
    }

    // MARK: - A new code

    package func recode(
        _ room: SecretCode, to code: SecretCode, by moderator: Moderator
    ) async throws(ChatError) -> RecodedRoom {
        let (moved, removed) = try await database.writer.perform { db in
            try move(room, to: code, by: moderator, db)
        } committed: { _ in
            queue.forgetContent()
        }
        note(removed)
        // The streams of the old code check for each member whether it has moved.
        feed.note { $0.closed.insert(room) }
        return moved
    }

    private func move(
        _ room: SecretCode, to code: SecretCode, by moderator: Moderator, _ db: Database
    ) throws -> (RecodedRoom, [Removed]) {
        let now = database.now()
        let found = try db.row(
            """
            SELECT \(RoomRules.exists("?1")), \(RoomRules.exists("?2")),
                EXISTS (\(SQLBans.closedSQL(room: "?1", now: "?3"))), EXISTS (\(SQLBans.closedSQL(room: "?2", now: "?3"))),
                (SELECT count(*) FROM (SELECT 1 FROM messages WHERE secret_code = ?1 LIMIT ?4))
                    + (SELECT count(*) FROM (SELECT 1 FROM past_members WHERE secret_code = ?1 LIMIT ?4))
            """, [room.text, code.text, now.sqlText, RoomRules.mostMoved + 1])
        let problem = found.flatMap {
            ChatError.cannotMove(exists: $0[0], isClosed: $0[2], messages: $0[4], isUsed: $0[1], isCodeClosed: $0[3])
        }
        if let problem { throw problem }
        let condition = RoomRules.isBanned(
            room: ":room", now: ":bannedAt", addresses: "(SELECT value FROM json_each(:addresses))")
        let values: [String: (any DatabaseValueConvertible)?] = [
            "room": room.text, "bannedAt": now.sqlText,
            "addresses": JSONValue.texts(try SQLBans.bannedAddresses(in: room, now: now, SQLiteTransaction(db)))
                .description,
        ]
        try ReadState.keep(where: condition, values, now: now, db)
        let removed = try db.rows(
            "DELETE FROM active_users WHERE \(condition) RETURNING \(Removed.columns)", StatementArguments(values)
        ).map(Removed.init)
        for member in removed { try record(removalOf: member, in: room.text, by: moderator, db) }
        for (table, column) in RoomRules.moved {
            try db.run("UPDATE \(table) SET \(column) = ?2 WHERE \(column) = ?1", [room.text, code.text])
        }
        try RoomRow.make(code, now: now, db)
        let members: Int = try db.value("SELECT count(*) FROM active_users WHERE secret_code = ?", [code.text]) ?? 0
        // Notifications that are still being queued for the room.
        try db.run(
            "UPDATE notifications SET audience = ?2 WHERE work IS NOT NULL AND audience = ?1",
            [Audience.room(room).json.description, Audience.room(code).json.description])
        try db.run(
            "INSERT INTO bans (secret_code, reason, time_created) VALUES (?, ?, ?)",
            [room.text, ChatError.hasNewCode, now.sqlText])
        try record(.recode, room: code.text, subject: room.text, by: moderator, db)
        return (RecodedRoom(members: members, removed: removed.count), removed)
    }

    package func endBan(_ id: Int64, by moderator: Moderator) async throws(ChatError) {
        try await database.writer.perform { db in
            let now = database.now()
            let ban = try SQLBans.end(id, now: now, SQLiteTransaction(db))
            try record(ban.isClosed ? .open : .unban, room: ban.room?.text, subject: ban.name, by: moderator, db)
        }
    }

    package func bans(
        in room: SecretCode?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Ban> {
        try await database.read { (transaction: SQLiteTransaction) in
            try SQLBans.page(in: room, before: cursor, limit: limit, now: database.now(), transaction)
        }
    }

    // MARK: - Admission

    /// Refuses a closed room.
    static func requireOpen(_ room: SecretCode, now: Timestamp, _ db: Database) throws {
        let sql = SQLBans.closedSQL(room: "?1", now: "?2") + " ORDER BY time_ends IS NOT NULL, time_ends DESC LIMIT 1"
        if let closed = try db.row(sql, [room.text, now.sqlText]) {
            throw ChatError.banned(isClosed: true, reason: closed[1], until: closed.optionalTime(0))
        }
    }

    // MARK: - Messages

    package func delete(_ message: MessageID, by moderator: Moderator) async throws(ChatError) {
        try await delete(message) { db in
            let code: String? = try db.value("SELECT secret_code FROM messages WHERE message_id = ?", [message])
            guard let code else { throw ChatError.notFound("message") }
            try record(.delete, room: code, subject: "\(message)", by: moderator, db)
            return code
        }
    }

    package func deleteOwn(_ message: MessageID, of member: MemberID) async throws(ChatError) {
        try await delete(message) { db in
            let stay = try db.row(
                """
                SELECT (SELECT m.secret_code FROM messages m
                    WHERE m.message_id = ? AND m.secret_code = u.secret_code AND m.udid = u.udid)
                FROM active_users u WHERE u.udid = ?
                """, [message, member.text])
            guard let stay else { throw ChatError.notJoined() }
            let code: String? = stay[0]
            guard let code else { throw ChatError.notOwnMessage }
            return code
        }
    }

    /// Cancels the message's pending pushes and empties the payload of all its pushes (``DeletedMessage``). For the
    /// largest room that takes a second or two, in one transaction, so that no later request for the message succeeds.
    ///
    /// - Parameter admit: Returns the message's room. Throws if the message must not be deleted.
    private func delete(
        _ message: MessageID, admit: @escaping @Sendable (Database) throws -> String
    ) async throws(ChatError) {
        let (room, ended) = try await database.writer.perform { db -> (SecretCode, [FinalStateCount]) in
            let code = try admit(db)
            let counts = try db.rows(Self.waitingSQL, [message]).map { row in
                FinalStateCount(
                    app: AppName(row[0]), state: .cancelled, reason: PushLifeCycle.messageDeleted, count: row[1])
            }
            try db.run(Self.deleteSQL, [PushLifeCycle.messageDeleted, database.now().sqlText, message])
            // A fan-out in progress no longer finds the message, and ends.
            try db.run("DELETE FROM messages WHERE message_id = ?", [message])
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
    /// Also clears `chat_message`, as the foreign key would when the message is deleted, so that each row is written
    /// only once.
    static let deleteSQL = """
        UPDATE push_queue SET payload = '', chat_message = NULL, state = iif(state = 'pending', 'cancelled', state),
            reason = iif(state = 'pending', ?1, reason), time_settled = iif(state = 'pending', ?2, time_settled)
        WHERE chat_message = ?3
        """

    // MARK: - Records

    /// The pending pushes of the record's room that must not be sent.
    private enum Pushes {
        case device(String)
        case all
    }

    /// - Parameter pushes: The affected pushes among those in the queue now. ``QueueReader`` cancels them when they are
    ///   leased. No index leads to them: it would make every message more expensive.
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
                action.rawValue, room, subject, moderator.name, moderator.address, database.now().sqlText, token,
                last,
            ])
    }

    package func records(before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ModerationRecord> {
        try await database.read { (transaction: SQLiteTransaction) in
            try ModerationRecord.page(before: cursor, limit: limit, transaction)
        }
    }
}
