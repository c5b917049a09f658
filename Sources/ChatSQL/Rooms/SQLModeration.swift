package import ChatDomain
import Synchronization

/// Moderation of rooms: the tables `bans` and `moderation`.
package struct SQLModeration<Database: SQLDatabase>: Moderation {
    private typealias Removed = ReadState.Removed

    private let database: Database
    private let outcomes: OutcomeCounter
    /// Has what this relay has not recorded yet about members, such as the addresses of their last posts.
    private let activity: MemberActivity<Database>
    private let queue: MessageQueue
    private let settings: @Sendable () -> StoreSettings

    package init(
        database: Database, outcomes: OutcomeCounter, activity: MemberActivity<Database>, queue: MessageQueue,
        settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.outcomes = outcomes
        self.activity = activity
        self.queue = queue
        self.settings = settings
    }

    // MARK: - Removing

    package func remove(_ member: Int64, by moderator: Moderator) async throws(ChatError) {
        try await database.write(as: .answerOnce) { transaction in
            let now = database.now()
            let room = try transaction.row("SELECT secret_code FROM active_users WHERE member_id = $1", [.int(member)])
            guard let room else { throw ChatError.notFound("member") }
            let rooms: Set = [try room.text(0)]
            try lockAlone(rooms, transaction)
            // A member's id stands for one stay, so the member is either in this room or gone.
            let removed = try ReadState.remove(where: "member_id = $1", [.int(member)], now: now, transaction)
            guard let first = removed.first else { throw ChatError.notFound("member") }
            try requireLocked(removed, rooms, transaction)
            try record(removalOf: first, by: moderator, at: now, transaction)
            note(removed, transaction)
        }
    }

    /// Locks rooms against posts and background fan-outs. All pushes that are queued afterwards have higher ids than
    /// those queued before. No message of a removed member follows the removal.
    private func lockAlone(_ rooms: Set<String>, _ transaction: Database.Transaction) throws {
        try transaction.lock(rooms.map { (.room, $0) })
        try transaction.lock(rooms.map { (.fanout, $0) })
    }

    /// Retries the transaction if a room got a new code while this one waited for the lock.
    private func requireLocked(
        _ removed: [Removed], _ rooms: Set<String>, _ transaction: Database.Transaction
    ) throws {
        guard removed.allSatisfy({ rooms.contains($0.room.text) }) else {
            throw transaction.collision(with: "a room's code")
        }
    }

    private func note(_ removed: [Removed], _ transaction: Database.Transaction) {
        transaction.announcement.members.formUnion(removed.map(\.member.text))
        transaction.announcement.removed.formUnion(removed.map(\.member.text))
        transaction.announcement.memberships.formUnion(removed.map(\.room.text))
    }

    // MARK: - Bans

    /// Closing the largest room takes about a second, in one transaction, so that a closed room never has members.
    package func ban(_ request: BanRequest, by moderator: Moderator) async throws(ChatError) -> Ban {
        if request.concernsAddress { try await activity.flush() }
        return try await database.write(as: .answerOnce) { try insert(request, by: moderator, $0) }
    }

    private func insert(
        _ request: BanRequest, by moderator: Moderator, _ transaction: Database.Transaction
    ) throws -> Ban {
        var (room, udid, token, address, name): (String?, String?, String?, String?, String?)
        switch request.subject {
        case .member(let id, let everywhere):
            let row = try transaction.row(
                "SELECT \(Removed.columns), ip_address FROM active_users WHERE member_id = $1", [.int(id)])
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
            throw transaction.collision(with: "a member's room")
        }
        name = name ?? (isClosed ? nil : removed.first?.nickname)
        let row = try transaction.row(
            """
            INSERT INTO bans (secret_code, udid, device_token, nickname, reason, time_created, time_ends, address)
            VALUES ($1, $2, $3, $4, $5, at($6), at($7), $8)
            RETURNING \(SQLBans.columns)
            """,
            [
                .optional(room), .optional(udid), .optional(token), .optional(name), .optional(request.reason),
                .time(now), .optional(request.endsAt), .optional(address),
            ])
        guard let row else { throw UnexpectedColumn(column: 0) }
        try Self.record(
            isClosed ? .close : .ban, room: room, subject: name, by: moderator,
            takingBack: isClosed ? .all : (token ?? removed.first?.token).map(Pushes.device), at: now, transaction)
        if isClosed, let room {
            transaction.announcement.closed.insert(room)
            try ScheduledMessage.drop(where: "secret_code = $1", [.text(room)], by: moderator, at: now, transaction)
        } else {
            // A ban of an address may remove several members.
            for other in removed.dropFirst() where other.token != token {
                try record(removalOf: other, in: room, by: moderator, at: now, transaction)
            }
            note(removed, transaction)
        }
        return try SQLBans.ban(row, now: nil)
    }

    /// Removes the members that a ban covers, and prevents them from joining until the ban is committed.
    /// - Returns: The member with the udid first.
    private func remove(
        _ udid: String?, _ token: String?, _ address: String?, from room: String?, now: Timestamp,
        _ transaction: Database.Transaction
    ) throws -> [Removed] {
        if udid == nil, token == nil, address == nil, let room {
            try lockAlone([room], transaction)
            return try ReadState.remove(where: "secret_code = $1", [.text(room)], now: now, transaction)
        }
        try transaction.lock((udid.map { [(.member, $0)] } ?? []) + (token.map { [SQLLock.device(of: $0)] } ?? []))
        if let address { try transaction.lock([(.address, address)]) }
        // Leave out the subjects that the ban does not name, so that SQLite uses the indexes of the others.
        var (parameters, covered) = (SQLParameters(), [String]())
        if let udid { covered.append("udid = \(parameters.text(udid))") }
        if let token { covered.append("device_token = \(parameters.text(token)) AND device_token <> '0'") }
        if let address {
            let addresses = parameters.list(.texts(try SQLBans.addresses([address], in: room, transaction)))
            covered.append(transaction.dialect.isAny("ip_address", of: addresses, "text"))
        }
        var condition = "(\(covered.joined(separator: " OR ")))"
        if let room {
            // Only addresses have no index. For the others, keep SQLite from reading the whole room.
            condition += " AND \(address == nil ? "(secret_code || '')" : "secret_code") = \(parameters.text(room))"
        }
        let found = try transaction.rows(
            "SELECT secret_code FROM active_users WHERE \(condition)", parameters.values)
        let rooms = Set(try found.map { try $0.text(0) })
        try lockAlone(rooms, transaction)
        let removed = try ReadState.remove(where: condition, parameters.values, now: now, transaction)
        try requireLocked(removed, rooms, transaction)
        return removed.sorted { first, second in first.member.text == udid && second.member.text != udid }
    }

    // MARK: - A new code

    package func recode(
        _ room: SecretCode, to code: SecretCode, by moderator: Moderator
    ) async throws(ChatError) -> RecodedRoom {
        // Members whose address is banned leave.
        try await activity.flush()
        return try await database.write(as: .upkeepOnce) { try move(room, to: code, by: moderator, $0) }
    }

    private func move(
        _ room: SecretCode, to code: SecretCode, by moderator: Moderator, _ transaction: Database.Transaction
    ) throws -> RecodedRoom {
        let now = database.now()
        let dialect = transaction.dialect
        // From here on no member can post. Like a background step, lock the messages before the room's
        // ``SQLLock/fanout``.
        try transaction.lock([(.room, room.text), (.room, code.text)])
        if dialect == .postgres {
            try transaction.pipeline(
                """
                SELECT message_id FROM messages WHERE secret_code = $1 AND fanout_after IS NOT NULL
                ORDER BY message_id FOR UPDATE
                """, [.text(room.text)])
            // A round locks its state before ``SQLLock/fanout``.
            try transaction.pipeline(
                """
                SELECT message_id FROM message_states WHERE secret_code = $1 AND push_due IS NOT NULL
                ORDER BY message_id FOR UPDATE
                """, [.text(room.text)])
        }
        try lockAlone([room.text, code.text], transaction)
        let found = try transaction.row(
            """
            SELECT \(RoomRules.exists("$1")), \(RoomRules.exists("$2")),
                EXISTS (\(SQLBans.closedSQL(room: "$1", now: "at($3)"))),
                EXISTS (\(SQLBans.closedSQL(room: "$2", now: "at($3)"))),
                (SELECT count(*) FROM (SELECT 1 FROM messages WHERE secret_code = $1 LIMIT $4) m)
                    + (SELECT count(*) FROM (SELECT 1 FROM past_members WHERE secret_code = $1 LIMIT $4) p)
            """, [.text(room.text), .text(code.text), .time(now), .int(RoomRules.mostMoved + 1)])
        let problem = try found.flatMap { row in
            ChatError.cannotMove(
                exists: try row.bool(0), isClosed: try row.bool(2), messages: Int(try row.int(4)),
                isUsed: try row.bool(1), isCodeClosed: try row.bool(3))
        }
        if let problem { throw problem }
        let removed = try ReadState.remove(
            where: RoomRules.isBanned(room: "$1", now: "at($2)", addresses: "(\(dialect.each("$3", "text")))"),
            [
                .text(room.text), .time(now),
                .texts(try SQLBans.bannedAddresses(in: room, now: now, transaction)),
            ], now: now, transaction)
        for member in removed { try record(removalOf: member, in: room.text, by: moderator, at: now, transaction) }
        for (table, column) in RoomRules.moved {
            try transaction.pipeline(
                "UPDATE \(table) SET \(column) = $2 WHERE \(column) = $1", [.text(room.text), .text(code.text)])
        }
        try RoomRow.make([code.text], now: now, transaction)
        // Notifications that are still being queued for the room.
        try transaction.pipeline(
            "UPDATE notifications SET audience = $2 WHERE work IS NOT NULL AND audience = $1",
            [Audience.room(room), .room(code)].map { .text($0.json.description) })
        try transaction.pipeline(
            "INSERT INTO bans (secret_code, reason, time_created) VALUES ($1, $2, at($3))",
            [.text(room.text), .text(ChatError.hasNewCode), .time(now)])
        try Self.record(.recode, room: code.text, subject: room.text, by: moderator, at: now, transaction)
        let members = try transaction.row(
            "SELECT count(*) FROM active_users WHERE secret_code = $1", [.text(code.text)])
        note(removed, transaction)
        // The streams of the old code check for each member whether it has moved. The announcement does not contain the
        // new code.
        transaction.announcement.closed.insert(room.text)
        transaction.announcement.withdrawal = true
        return RecodedRoom(members: Int(try members?.int(0) ?? 0), removed: removed.count)
    }

    package func endBan(_ id: Int64, by moderator: Moderator) async throws(ChatError) {
        try await database.write(as: .answerOnce) { transaction in
            let now = database.now()
            let ban = try SQLBans.end(id, now: now, transaction)
            try Self.record(
                ban.isClosed ? .open : .unban, room: ban.room?.text, subject: ban.name, by: moderator, at: now,
                transaction)
        }
    }

    package func bans(
        in room: SecretCode?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Ban> {
        try await database.read { try SQLBans.page(in: room, before: cursor, limit: limit, now: database.now(), $0) }
    }

    // MARK: - Messages

    package func delete(_ message: MessageID, by moderator: Moderator) async throws(ChatError) {
        try await delete(message) { transaction in
            guard let record = try lockMessage(message, transaction) else { throw ChatError.notFound("message") }
            try Self.record(
                .delete, room: record.room.text, subject: "\(message)", by: moderator, at: database.now(), transaction)
            return record
        }
    }

    package func deleteOwn(_ message: MessageID, of member: MemberID) async throws(ChatError) {
        try await delete(message) { transaction in
            let stay = try transaction.row(
                "SELECT secret_code FROM active_users WHERE udid = $1", [.text(member.text)])
            guard let room = try stay?.text(0) else { throw ChatError.notJoined() }
            guard let record = try lockMessage(message, transaction), record.message.sender == member,
                record.room.text == room
            else { throw ChatError.notOwnMessage }
            return record
        }
    }

    /// Locks the row of a message, which waits for a background step to end.
    private func lockMessage(
        _ message: MessageID, _ transaction: Database.Transaction
    ) throws -> MessageRecord? {
        try transaction.row(
            """
            SELECT \(MessageRecord.columns()) FROM messages
            WHERE message_id = $1 \(transaction.dialect.lockedToDelete("messages"))
            """, [.int(message)]
        ).map { try MessageRecord($0) }
    }

    /// - Parameter admit: Locks the row of the message, and returns it. Throws if the message must not be deleted.
    private func delete(
        _ message: MessageID, admit: @escaping @Sendable (Database.Transaction) throws -> MessageRecord
    ) async throws(ChatError) {
        let isRepeated = Atomic(false)
        let result = try await database.write(as: .answerOnce) { transaction in
            let row = try transaction.row("SELECT secret_code FROM messages WHERE message_id = $1", [.int(message)])
            let room = try row?.text(0)
            // The deletion gets a number, as a post does.
            if let room { try transaction.lock(room: SecretCode(stored: room)) }
            let record = try admit(transaction)
            guard record.room.text == room else { throw transaction.collision(with: "a room's code") }
            return try MessageDeletion.delete(
                record, isRepeated: isRepeated.exchange(true, ordering: .relaxed), now: database.now(), settings(),
                queue, transaction)
        } committed: { [queue] result in
            for queued in result.queued { queue.queued(queued) }
        }
        outcomes.add(result.ended)
    }

    // MARK: - Records

    /// The pending pushes of the record's room that must not be sent.
    enum Pushes {
        case device(String)
        case all
    }

    private func record(
        removalOf removed: Removed, in room: String? = nil, by moderator: Moderator, at now: Timestamp,
        _ transaction: Database.Transaction
    ) throws {
        try Self.record(
            .remove, room: room ?? removed.room.text, subject: removed.nickname, by: moderator,
            takingBack: removed.token.map(Pushes.device), at: now, transaction)
    }

    /// - Parameter pushes: The affected pushes among those that have their ids now. The rooms are locked. A lease
    ///   cancels these pushes. No index leads to them: it would make every message more expensive.
    static func record(
        _ action: ModerationRecord.Action, room: String?, subject: String?, by moderator: Moderator,
        takingBack pushes: Pushes? = nil, at now: Timestamp, _ transaction: Database.Transaction
    ) throws {
        var token: String?
        if case .device(let device) = pushes { token = device }
        if pushes != nil { transaction.announcement.withdrawal = true }
        try transaction.pipeline(
            """
            INSERT INTO moderation (action, secret_code, subject, actor, ip_address, time_done, device_token, last_push)
            VALUES ($1, $2, $3, $4, $5, at($6), $7, CASE WHEN $8 THEN \(transaction.dialect.lastID(of: "push_queue")) END)
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
