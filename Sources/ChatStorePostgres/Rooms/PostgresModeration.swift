package import ChatDomain
import ChatSQL
import Synchronization

/// Moderation of rooms: the tables `bans` and `moderation`. Removals are written twice: SQLite needs no locks, and
/// reports changes to its only relay after the commit.
package struct PostgresModeration: Moderation {
    private let database: PostgresDatabase
    private let outcomes: OutcomeCounter

    init(database: PostgresDatabase, outcomes: OutcomeCounter) {
        self.database = database
        self.outcomes = outcomes
    }

    // MARK: - Removing

    private typealias Removed = ReadState.Removed

    package func remove(_ member: Int64, by moderator: Moderator) async throws(ChatError) {
        try await database.write { transaction in
            let now = database.now()
            let room = try transaction.row(
                "SELECT secret_code FROM active_users WHERE member_id = $1::bigint", [.int(member)])
            guard let room else { throw ChatError.notFound("member") }
            Self.lockAlone([try room.text(0)], transaction)
            // A member's id stands for one stay, so the member is either in this room or gone.
            let removed = try ReadState.remove(where: "member_id = $4::bigint", [.int(member)], now: now, transaction)
            guard let removed = removed.first else { throw ChatError.notFound("member") }
            try Self.requireLocked([removed], [try room.text(0)])
            record(
                .remove, room: removed.room.text, subject: removed.nickname, by: moderator,
                takingBack: removed.token.map(Pushes.device), at: now, transaction)
            Self.note([removed], transaction)
        }
    }

    /// Locks rooms against posts and background fan-outs. All pushes that are queued afterwards have higher ids than
    /// those queued before. No message of a removed member follows the removal.
    private static func lockAlone(_ rooms: Set<String>, _ transaction: PostgresTransaction) {
        transaction.lock(rooms.map { (.room, $0) })
        transaction.lock(rooms.map { (.fanout, $0) })
    }

    /// Retries the transaction if a room got a new code while this one waited for the lock.
    private static func requireLocked(_ removed: [Removed], _ rooms: Set<String>) throws {
        guard removed.allSatisfy({ rooms.contains($0.room.text) }) else {
            throw PostgresError.collision("a room's code")
        }
    }

    private static func note(_ removed: [Removed], _ transaction: PostgresTransaction) {
        for removed in removed {
            transaction.announcement.members.insert(removed.member.text)
            transaction.announcement.removed.insert(removed.member.text)
            transaction.announcement.memberships.insert(removed.room.text)
        }
    }

    // MARK: - Bans

    package func ban(_ request: BanRequest, by moderator: Moderator) async throws(ChatError) -> Ban {
        try await database.write { transaction in try insert(request, by: moderator, transaction) }
    }

    /// Closing the largest room takes about a second, in one transaction, so that a closed room never has members.
    private func insert(
        _ request: BanRequest, by moderator: Moderator, _ transaction: PostgresTransaction
    ) throws -> Ban {
        var (room, udid, token, address, name): (String?, String?, String?, String?, String?)
        switch request.subject {
        case .member(let id, let everywhere):
            let row = try transaction.row(
                "SELECT \(Removed.columns), ip_address FROM active_users WHERE member_id = $1::bigint", [.int(id)])
            guard let row else { throw ChatError.notFound("member") }
            let member = try Removed(row)
            (udid, token, name) = (member.member.text, member.token, member.nickname)
            room = everywhere ? nil : member.room.text
            address = try request.address(lastUsed: row.optionalText(4))?.text
        case .udid(let member, let code): (room, udid) = (code?.text, member.text)
        case .device(let device, let code): (room, token) = (code?.text, device.description)
        case .address(let banned, let code): (room, address) = (code?.text, banned.text)
        case .room(let code): room = code.text
        }
        let now = database.now()
        let isClosed = udid == nil && token == nil && address == nil
        let removed = try remove(udid, token, address, from: room, now: now, transaction)
        if case .member = request.subject, !removed.contains(where: { $0.member.text == udid }) {
            throw PostgresError.collision("a member's room")
        }
        name = name ?? (isClosed ? nil : removed.first?.nickname)
        let row = try transaction.row(
            """
            INSERT INTO bans (secret_code, udid, device_token, nickname, reason, time_created, time_ends, address)
            VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, at($6::bigint), at($7::bigint), $8::text)
            RETURNING \(SQLBans.columns)
            """,
            [
                .optional(room), .optional(udid), .optional(token), .optional(name), .optional(request.reason),
                .time(now), .optional(request.endsAt), .optional(address),
            ])
        guard let row else { throw PostgresError(kind: .unexpected, message: "INSERT returned no row") }
        record(
            isClosed ? .close : .ban, room: room, subject: name, by: moderator,
            takingBack: isClosed ? .all : (token ?? removed.first?.token).map(Pushes.device), at: now, transaction)
        if !isClosed {
            // A ban of an address may remove several members.
            for other in removed.dropFirst() where other.token != token {
                record(removalOf: other, in: room, by: moderator, at: now, transaction)
            }
        }
        if isClosed, let room {
            transaction.announcement.closed.insert(room)
        } else {
            Self.note(removed, transaction)
        }
        return try SQLBans.ban(row, now: nil)
    }

    /// Removes the members that a ban covers, and prevents them from joining until the ban is committed.
    private func remove(
        _ udid: String?, _ token: String?, _ address: String?, from room: String?, now: Timestamp,
        _ transaction: PostgresTransaction
    ) throws -> [Removed] {
        if udid == nil, token == nil, address == nil, let room {
            Self.lockAlone([room], transaction)
            return try ReadState.remove(where: "secret_code = $4::text", [.text(room)], now: now, transaction)
        }
        transaction.lock((udid.map { [(.member, $0)] } ?? []) + (token.map { [RoomLock.device(of: $0)] } ?? []))
        if let address { transaction.lock([(.address, address)]) }
        func condition(from first: Int) -> String {
            """
            (udid = $\(first)::text OR device_token = $\(first + 1)::text AND device_token <> '0'
                OR ip_address = ANY ($\(first + 3)::text[]))
            AND ($\(first + 2)::text IS NULL OR secret_code = $\(first + 2)::text)
            """
        }
        let addresses = try address.map { try SQLBans.addresses([$0], in: room, transaction) } ?? []
        let values: [SQLValue] = [.optional(udid), .optional(token), .optional(room), .texts(addresses)]
        let found = try transaction.rows(
            "SELECT secret_code FROM active_users WHERE \(condition(from: 1))", values)
        let rooms = Set(try found.map { try $0.text(0) })
        Self.lockAlone(rooms, transaction)
        let removed = try ReadState.remove(where: condition(from: 4), values, now: now, transaction)
        try Self.requireLocked(removed, rooms)
        // The member of the request first.
        return removed.sorted { first, second in first.member.text == udid && second.member.text != udid }
    }

    private func record(
        removalOf removed: Removed, in room: String?, by moderator: Moderator, at now: Timestamp,
        _ transaction: PostgresTransaction
    ) {
        record(
            .remove, room: room ?? removed.room.text, subject: removed.nickname, by: moderator,
            takingBack: removed.token.map(Pushes.device), at: now, transaction)
    }

    // MARK: - A new code

    package func recode(
        _ room: SecretCode, to code: SecretCode, by moderator: Moderator
    ) async throws(ChatError) -> RecodedRoom {
        try await database.write(.upkeep) { transaction in
            try move(room, to: code, by: moderator, transaction)
        }
    }

    private func move(
        _ room: SecretCode, to code: SecretCode, by moderator: Moderator, _ transaction: PostgresTransaction
    ) throws -> RecodedRoom {
        let now = database.now()
        // From here on no member can post. Like a background step, lock the messages before the room's
        // ``RoomLock/fanout``.
        transaction.lock([(.room, room.text), (.room, code.text)])
        _ = try transaction.rows(
            """
            SELECT message_id FROM messages WHERE secret_code = $1::text AND fanout_after IS NOT NULL
            ORDER BY message_id FOR UPDATE
            """, [.text(room.text)])
        Self.lockAlone([room.text, code.text], transaction)
        let found = try transaction.row(
            """
            SELECT \(RoomRules.exists("$1::text")), \(RoomRules.exists("$2::text")),
                EXISTS (\(SQLBans.closedSQL(room: "$1::text", now: "at($3::bigint)"))),
                EXISTS (\(SQLBans.closedSQL(room: "$2::text", now: "at($3::bigint)"))),
                (SELECT count(*) FROM (SELECT 1 FROM messages WHERE secret_code = $1::text LIMIT $4::bigint) m)
                    + (SELECT count(*) FROM (SELECT 1 FROM past_members WHERE secret_code = $1::text LIMIT $4::bigint) p)
            """, [.text(room.text), .text(code.text), .time(now), .int(RoomRules.mostMoved + 1)])
        let problem = try found.flatMap { row in
            ChatError.cannotMove(
                exists: try row.bool(0), isClosed: try row.bool(2), messages: Int(try row.int(4)),
                isUsed: try row.bool(1), isCodeClosed: try row.bool(3))
        }
        if let problem { throw problem }
        let removed = try removeBanned(from: room, now: now, transaction)
        for member in removed { record(removalOf: member, in: room.text, by: moderator, at: now, transaction) }
        for (table, column) in RoomRules.moved {
            transaction.pipeline(
                "UPDATE \(table) SET \(column) = $2::text WHERE \(column) = $1::text",
                [.text(room.text), .text(code.text)])
        }
        RoomRow.make([code.text], now: now, transaction)
        // Notifications that are still being queued for the room.
        transaction.pipeline(
            "UPDATE notifications SET audience = $2::text WHERE work IS NOT NULL AND audience = $1::text",
            [Audience.room(room), .room(code)].map { .text($0.json.description) })
        transaction.pipeline(
            "INSERT INTO bans (secret_code, reason, time_created) VALUES ($1::text, $2::text, at($3::bigint))",
            [.text(room.text), .text(ChatError.hasNewCode), .time(now)])
        record(.recode, room: code.text, subject: room.text, by: moderator, at: now, transaction)
        let members = try transaction.row(
            "SELECT count(*) FROM active_users WHERE secret_code = $1::text", [.text(code.text)])
        Self.note(removed, transaction)
        // The streams of the old code check for each member whether it has moved. The announcement does not contain the
        // new code.
        transaction.announcement.closed.insert(room.text)
        return RecodedRoom(members: Int(try members?.int(0) ?? 0), removed: removed.count)
    }

    /// Removes the members of a room that a ban in force covers.
    private func removeBanned(
        from room: SecretCode, now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> [Removed] {
        let addresses = try SQLBans.bannedAddresses(in: room, now: now, transaction)
        let condition = RoomRules.isBanned(
            room: "$4::text", now: "at($5::bigint)", addresses: "(SELECT unnest($6::text[]))")
        return try ReadState.remove(
            where: condition, [.text(room.text), .time(now), .texts(addresses)], now: now, transaction)
    }

    package func endBan(_ id: Int64, by moderator: Moderator) async throws(ChatError) {
        try await database.write { transaction in
            let now = database.now()
            let ban = try SQLBans.end(id, now: now, transaction)
            record(
                ban.isClosed ? .open : .unban, room: ban.room?.text, subject: ban.name, by: moderator, at: now,
                transaction)
        }
    }

    package func bans(
        in room: SecretCode?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Ban> {
        try await database.read { [database] transaction in
            try SQLBans.page(in: room, before: cursor, limit: limit, now: database.now(), transaction)
        }
    }

    // MARK: - Messages

    package func delete(_ message: MessageID, by moderator: Moderator) async throws(ChatError) {
        try await delete(message) { transaction in
            let row = try transaction.row(
                "DELETE FROM messages WHERE message_id = $1::bigint RETURNING secret_code", [.int(message)])
            guard let room = try row?.text(0) else { throw ChatError.notFound("message") }
            record(.delete, room: room, subject: "\(message)", by: moderator, at: database.now(), transaction)
            return room
        }
    }

    package func deleteOwn(_ message: MessageID, of member: MemberID) async throws(ChatError) {
        try await delete(message) { transaction in
            let row = try transaction.row(
                """
                DELETE FROM messages m USING active_users u
                WHERE m.message_id = $1::bigint AND u.udid = $2::text AND m.udid = u.udid
                    AND m.secret_code = u.secret_code
                RETURNING m.secret_code
                """, [.int(message), .text(member.text)])
            if let room = try row?.text(0) { return room }
            let stay = try transaction.row("SELECT 1 FROM active_users WHERE udid = $1::text", [.text(member.text)])
            throw stay == nil ? ChatError.notJoined() : ChatError.notOwnMessage
        }
    }

    /// Cancels the message's pending pushes and empties the payload of all its pushes (``DeletedMessage``). For the
    /// largest room that takes a few seconds, in one transaction, so that no later request for the message succeeds.
    ///
    /// - Parameter remove: Deletes the row of the message, and returns its room. Throws if it must not be deleted.
    private func delete(
        _ message: MessageID, remove: @escaping @Sendable (PostgresTransaction) throws -> String
    ) async throws(ChatError) {
        let isRepeated = Atomic(false)
        let ended = try await database.write { transaction in
            let now = database.now()
            // Waits for a background step to end. The next step no longer finds the message, and ends.
            let room = try remove(transaction)
            // The first attempt conflicted with relays that were settling the message's pushes. Make them wait.
            if isRepeated.exchange(true, ordering: .relaxed) {
                transaction.pipeline("SET LOCAL lock_timeout = '2s'")
                transaction.pipeline("LOCK TABLE push_queue_due IN EXCLUSIVE MODE")
                transaction.pipeline("SET LOCAL lock_timeout = 0")
            }
            // Use the index on the message, whatever the server believes about the table's size.
            transaction.pipeline("SET LOCAL enable_seqscan = off")
            let counts = try transaction.rows(
                """
                WITH cancelled AS (
                    UPDATE push_queue_due SET state = 'cancelled', reason = $1::text, time_settled = at($2::bigint),
                        payload = ''
                    WHERE chat_message = $3::bigint AND state = 'pending' RETURNING app)
                SELECT app, count(*) FROM cancelled GROUP BY app
                """, [.text(PushLifeCycle.messageDeleted), .time(now), .int(message)])
            // Settled pushes, in the partitions of their days. If a relay moves one at this moment, the transaction is
            // retried.
            try transaction.run(Self.emptySQL, [.int(message)])
            transaction.announcement.deleted[room, default: []].append(message)
            return try counts.map { row in
                FinalStateCount(
                    app: AppName(try row.text(0)), state: .cancelled, reason: PushLifeCycle.messageDeleted,
                    count: Int(try row.int(1)))
            }
        }
        outcomes.add(ended)
    }

    static let emptySQL = "UPDATE push_queue SET payload = '' WHERE chat_message = $1::bigint AND payload <> ''"

    // MARK: - Records

    /// The pending pushes of the record's room that must not be sent.
    private enum Pushes {
        case device(String)
        case all
    }

    /// - Parameter pushes: The affected pushes among those that have their ids now. The rooms are locked. A lease
    ///   cancels these pushes. No index leads to them: it would make every message more expensive.
    private func record(
        _ action: ModerationRecord.Action, room: String?, subject: String?, by moderator: Moderator,
        takingBack pushes: Pushes? = nil, at now: Timestamp, _ transaction: PostgresTransaction
    ) {
        var token: String?
        if case .device(let device) = pushes { token = device }
        transaction.pipeline(
            """
            INSERT INTO moderation (action, secret_code, subject, actor, ip_address, time_done, device_token, last_push)
            SELECT $1::text, $2::text, $3::text, $4::text, $5::text, at($6::bigint), $7::text,
                CASE WHEN $8::boolean THEN CASE WHEN s.is_called THEN s.last_value ELSE 0 END END
            FROM push_queue_message_id_seq s
            """,
            [
                .text(action.rawValue), .optional(room), .optional(subject), .text(moderator.name),
                .optional(moderator.address), .time(now), .optional(token), .bool(pushes != nil),
            ])
    }

    package func records(before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ModerationRecord> {
        try await database.read { try ModerationRecord.page(before: cursor, limit: limit, $0) }
    }
}
