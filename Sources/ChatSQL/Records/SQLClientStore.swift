package import ChatDomain

extension Credential {
    /// Counts the credentials of members whose user is unknown.
    package static let countWithoutUserSQL =
        "SELECT count(*) FROM credentials WHERE member IS NOT NULL AND user_reference IS NULL"
}

/// Credentials, the aliases of rooms, and hidden messages, for the clients of other servers.
package final class SQLClientStore<Database: SQLDatabase>: ClientStore {
    private let database: Database
    private let settings: @Sendable () -> StoreSettings
    private let uses = TokenUses()
    private let sessions = PendingSessions()

    package init(database: Database, settings: @escaping @Sendable () -> StoreSettings) {
        self.database = database
        self.settings = settings
    }

    // MARK: - Credentials

    package func createCredential(
        _ name: Nickname, for owner: CredentialOwner, by maker: CredentialMaker
    ) async throws(ChatError) -> (credential: Credential, secret: String) {
        let secret = Credential.makeSecret()
        let credential = try await database.write(as: .answerOnce) { [database] transaction in
            let now = database.now()
            let (found, column, limit) = try Self.owner(owner, now: now, transaction)
            let count = try transaction.row("SELECT count(*) FROM credentials WHERE \(column) = $1", [.int(found.id)])
            if let count = try count?.int(0), count >= limit {
                throw ChatError(.conflict, "There are \(limit) credentials already: revoke one first")
            }
            let (user, session) = try Self.session(of: maker, now: now, transaction)
            let row = try transaction.row(
                """
                INSERT INTO credentials (name, hash, \(column), time_created, user_reference, time_session)
                VALUES ($1, $2, $3, at($4), $5, at($6)) RETURNING credential_id
                """,
                [
                    .text(name.text), .bytes(SQLTokenStore<Database>.hash(secret)), .int(found.id), .time(now),
                    .optional(user?.text), session.map(SQLValue.time) ?? .null,
                ])
            guard let row else { throw ChatError(.internalError, "the database returned no credential") }
            return Credential(
                id: try row.int(0), name: name, owner: found.owner, createdAt: now, user: user, sessionAt: session)
        }
        return (credential, secret)
    }

    /// Returns the user of a new credential, and the user's last session. Locks the credential that makes the new one, so
    /// that ``revokeCredentials(ofUser:)`` finds both.
    private static func session(
        of maker: CredentialMaker, now: Timestamp, _ transaction: Database.Transaction
    ) throws -> (UserReference?, Timestamp?) {
        switch maker {
        case .owner: return (nil, nil)
        case .session(let user): return (user, now)
        case .credential(let id):
            let row = try transaction.row(
                """
                SELECT c.user_reference, ms(c.time_session) FROM credentials c WHERE c.credential_id = $1
                \(transaction.dialect.locked("c"))
                """, [.int(id)])
            guard let row else { throw ChatError.notFound("credential") }
            return (row.optionalText(0).map(UserReference.init(stored:)), try row.optionalTime(1))
        }
    }

    private struct FoundOwner {
        let id: Int64
        let owner: Credential.Owner
    }

    /// Returns an owner, the column of `credentials` that refers to it, and its limit. Locks the owner's row.
    private static func owner(
        _ owner: CredentialOwner, now: Timestamp, _ transaction: Database.Transaction
    ) throws -> (FoundOwner, column: String, limit: Int) {
        switch owner {
        case .member(let member):
            let row = try transaction.row(
                "SELECT \(memberColumns) FROM active_users u WHERE u.udid = $1 \(transaction.dialect.locked("u"))",
                [.text(member.text)])
            guard let row else { throw ChatError.notJoined() }
            let found = try Self.member(row, from: 0)
            return (FoundOwner(id: found.id, owner: .member(found)), "member", Credential.perMember)
        case .token(let id):
            let row = try transaction.row(
                """
                SELECT \(SQLTokenStore<Database>.columns) FROM api_tokens t WHERE t.token_id = $1
                \(transaction.dialect.locked("t"))
                """, [.int(id)])
            guard let token = try row.flatMap({ try SQLTokenStore<Database>.token($0) }), token.isValid(at: now) else {
                throw ChatError.notFound("token")
            }
            return (FoundOwner(id: id, owner: .token(token)), "token", Credential.perToken)
        }
    }

    private static var memberColumns: String { "u.member_id, u.udid, u.nickname, u.secret_code, u.history_from" }

    private static func member(_ row: some SQLRow, from first: Int) throws -> CredentialMember {
        CredentialMember(
            id: try row.int(first), member: MemberID(stored: try row.text(first + 1)),
            nickname: Nickname(stored: try row.text(first + 2)), room: SecretCode(stored: try row.text(first + 3)),
            historyFrom: try row.int(first + 4))
    }

    /// The credentials with their owners. A row of a member who has left, which a script may have deleted without the
    /// foreign key, has no owner.
    private static var selection: String {
        """
        SELECT c.credential_id, c.name, ms(c.time_created), ms(c.time_used), c.used_from, \(memberColumns),
            c.user_reference, ms(c.time_session), \(SQLTokenStore<Database>.columns)
        FROM credentials c LEFT JOIN active_users u ON u.member_id = c.member
            LEFT JOIN api_tokens t ON t.token_id = c.token
        """
    }

    private static func credential(_ row: some SQLRow) throws -> Credential? {
        let owner: Credential.Owner
        if try row.optionalInt(5) != nil {
            owner = .member(try member(row, from: 5))
        } else if try row.optionalInt(12) != nil, let token = try SQLTokenStore<Database>.token(row, from: 12) {
            owner = .token(token)
        } else {
            return nil
        }
        return Credential(
            id: try row.int(0), name: Nickname(stored: try row.text(1)), owner: owner, createdAt: try row.time(2),
            lastUsedAt: try row.optionalTime(3), lastUsedFrom: row.optionalText(4),
            user: row.optionalText(10).map(UserReference.init(stored:)), sessionAt: try row.optionalTime(11))
    }

    /// Reads the database each time, so that the end of a membership takes effect immediately.
    package func credential(of secret: String) async throws(ChatError) -> Credential? {
        let hash = SQLTokenStore<Database>.hash(secret)
        let credential = try await database.read { transaction in
            try transaction.row("\(Self.selection) WHERE c.hash = $1", [.bytes(hash)]).flatMap(Self.credential)
        }
        if case .token(let token) = credential?.owner, !token.isValid(at: database.now()) { return nil }
        guard let credential, let session = credential.sessionAt, let oldest = oldestSession, session <= oldest else {
            return credential
        }
        // A longer lifetime must not revive a credential whose end its app has seen.
        try await database.write(as: .notes) { transaction in
            try transaction.pipeline(
                "DELETE FROM credentials WHERE credential_id = $1 AND time_session <= at($2)",
                [.int(credential.id), .time(oldest)])
        }
        return nil
    }

    package func credentials(of owner: CredentialOwner) async throws(ChatError) -> [Credential] {
        let (condition, value) = Self.condition(owner)
        return try await database.read { transaction in
            try transaction.rows("\(Self.selection) WHERE \(condition) ORDER BY c.credential_id", [value])
                .compactMap(Self.credential)
        }
    }

    /// The condition for an owner's credentials. The owner is parameter 1.
    private static func condition(_ owner: CredentialOwner) -> (String, SQLValue) {
        switch owner {
        case .member(let member):
            ("c.member = (SELECT a.member_id FROM active_users a WHERE a.udid = $1)", .text(member.text))
        case .token(let id): ("c.token = $1", .int(id))
        }
    }

    package func credentials(
        ofMembersOf room: SecretCode?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Credential> {
        let examined = room == nil ? limit : SQLPage.window
        return try await database.read(.administration) { transaction in
            let page = try transaction.page(
                "\(Self.selection) WHERE c.credential_id > $1 ORDER BY c.credential_id LIMIT $2",
                [.int(cursor ?? 0), .int(examined + 1)], limit: limit
            ) { row in
                room == nil || row.optionalText(8) == room?.text
            }
            return Page(items: try page.rows.compactMap(Self.credential), next: page.next)
        }
    }

    package func revokeCredential(_ id: Int64, of owner: CredentialOwner?) async throws(ChatError) -> Nickname? {
        try await database.write(as: .answerOnce) { transaction in
            var (condition, values) = ("c.credential_id = $1", [SQLValue.int(id)])
            if let owner {
                let (ofOwner, value) = Self.condition(owner)
                condition = ofOwner + " AND c.credential_id = $2"
                values = [value, .int(id)]
            }
            let row = try transaction.row("DELETE FROM credentials AS c WHERE \(condition) RETURNING name", values)
            guard let row else { return nil }
            transaction.announcement.tokens = true
            for (table, _) in Self.hiding {
                try transaction.pipeline("DELETE FROM \(table) WHERE client = $1", [.text("credential:\(id)")])
            }
            return Nickname(stored: try row.text(0))
        }
    }

    package func revokeCredentials(ofUser user: UserReference) async throws(ChatError) -> Int {
        // A session that is still pending may make a credential the user's.
        try await recordSessions()
        return try await database.write(as: .answerOnce) { transaction in
            // A credential may be making another one. Its row is locked until then, and the next statement sees the other.
            var (count, deleted) = (0, 0)
            repeat {
                deleted = try transaction.run("DELETE FROM credentials WHERE user_reference = $1", [.text(user.text)])
                count += deleted
            } while deleted > 0
            if count > 0 { transaction.announcement.tokens = true }
            return count
        }
    }

    // MARK: - Sessions

    package func hadSession(_ member: MemberID, of user: UserReference) {
        guard let lifetime = settings().credentialLifetime else { return }
        sessions.add(member, of: user, at: database.now(), lifetime: lifetime)
    }

    /// The last session of credentials that end now. `nil` if the relay needs no sessions.
    private var oldestSession: Timestamp? { settings().credentialLifetime.map { database.now() - $0 } }

    /// Records the pending sessions. A credential that has ended stays so.
    private func recordSessions() async throws(ChatError) {
        let pending = sessions.take()
        guard !pending.isEmpty, let oldest = oldestSession else { return }
        do throws(ChatError) {
            try await database.write(as: .notes) { transaction in
                for (key, time) in pending {
                    try transaction.pipeline(
                        """
                        UPDATE credentials SET user_reference = $1, time_session = at($2)
                        WHERE member = (SELECT a.member_id FROM active_users a WHERE a.udid = $3)
                            AND (user_reference IS NULL OR user_reference = $1)
                            AND (time_session IS NULL OR (time_session > at($4) AND time_session < at($2)))
                        """, [.text(key.user.text), .time(time), .text(key.member.text), .time(oldest)])
                }
            }
        } catch {
            sessions.forget(pending.map(\.key))
            throw error
        }
    }

    package func usedCredential(_ id: Int64, from address: String?) { uses.add(id, at: database.now(), from: address) }

    /// Records the pending uses, unless another relay has recorded a later one.
    package func flush() async throws(ChatError) {
        try await recordSessions()
        try await uses.record(in: "credentials", key: "credential_id", database)
    }

    // MARK: - Retention

    /// The tables with what clients have hidden, and the column with the message.
    private static var hiding: [(table: String, message: String)] {
        [("hidden_messages", "message_id"), ("hidden_history", "hidden_to")]
    }

    /// The number of credentials that one step deletes.
    private static var step: Int { 500 }

    /// Deletes what ended clients have hidden, and entries about messages that retention has deleted. Also deletes
    /// credentials whose owner a script has deleted without the foreign keys.
    package func applyRetention() async throws(ChatError) {
        while try await deleteOwnerless() == Self.step {}
        try await endWithSessions()
        for (table, message) in Self.hiding {
            let oldest = "(SELECT coalesce(min(o.message_id), 0) FROM messages o)"
            let clients = try await database.read { transaction in
                try transaction.rows(Self.outdatedSQL(table, message, oldest), []).map { row in
                    (client: try row.text(0), hasEnded: try row.int(1) == 1)
                }
            }
            for (client, hasEnded) in clients {
                let aged = hasEnded ? "" : "AND \(message) < \(oldest)"
                _ = try await database.write(as: .upkeep) { transaction in
                    try transaction.run("DELETE FROM \(table) WHERE client = $1 \(aged)", [.text(client)])
                }
            }
        }
    }

    /// Deletes credentials whose member has had no session for too long. The time of those that were made without a
    /// session begins now.
    private func endWithSessions() async throws(ChatError) {
        guard let oldest = oldestSession else { return }
        let now = database.now()
        for (change, condition, time) in [
            ("UPDATE credentials SET time_session = at($1)", "time_session IS NULL", now),
            ("DELETE FROM credentials", "time_session <= at($1)", oldest),
        ] {
            let sql = """
                \(change) WHERE credential_id IN (
                    SELECT c.credential_id FROM credentials c WHERE c.member IS NOT NULL AND c.\(condition) LIMIT $2)
                """
            while try await database.write(
                as: .upkeep, { try $0.run(sql, [.time(time), .int(Int64(Self.step))]) }) == Self.step
            {}
        }
    }

    /// The clients that have ended or have entries about deleted messages. Goes from client to client by the index.
    private static func outdatedSQL(_ table: String, _ message: String, _ oldest: String) -> String {
        """
        WITH RECURSIVE c (client) AS (
            SELECT (SELECT min(h.client) FROM \(table) h)
            UNION ALL
            SELECT (SELECT min(h.client) FROM \(table) h WHERE h.client > c.client) FROM c WHERE c.client IS NOT NULL)
        SELECT client, ended FROM (
            SELECT client, CASE WHEN client = 'admin'
                    OR client IN (SELECT 'token:' || token_id FROM api_tokens)
                    OR client IN (SELECT 'credential:' || credential_id FROM credentials) THEN 0 ELSE 1 END AS ended
            FROM c WHERE client IS NOT NULL) e
        WHERE ended = 1 OR EXISTS (SELECT 1 FROM \(table) h WHERE h.client = e.client AND h.\(message) < \(oldest))
        """
    }

    /// PostgreSQL always checks foreign keys.
    /// - Returns: The number of deleted credentials.
    private func deleteOwnerless() async throws(ChatError) -> Int {
        let ids = try await database.read { transaction -> [Int64] in
            guard transaction.dialect == .sqlite else { return [] }
            return try transaction.rows(
                """
                SELECT c.credential_id FROM credentials c
                WHERE NOT EXISTS (SELECT 1 FROM active_users u WHERE u.member_id = c.member)
                    AND NOT EXISTS (SELECT 1 FROM api_tokens t WHERE t.token_id = c.token)
                ORDER BY c.credential_id LIMIT $1
                """, [.int(Self.step)]
            ).map { try $0.int(0) }
        }
        if ids.isEmpty { return 0 }
        return try await database.write(as: .upkeep) { transaction in
            try transaction.run(
                """
                DELETE FROM credentials WHERE credential_id IN (\(transaction.dialect.each("$1", "bigint")))
                """, [.ints(ids)])
        }
    }

    // MARK: - Rooms

    package func room(_ code: SecretCode) async throws(ChatError) -> ClientRoom {
        if let room = try await find("r.secret_code = $1", .text(code.text)) { return room }
        try await database.write(as: .answer) { [database] transaction in
            try Self.makeRow(of: code, now: database.now(), transaction)
        }
        guard let room = try await find("r.secret_code = $1", .text(code.text)) else {
            throw ChatError(.unavailable, "No further room can get a number")
        }
        return room
    }

    /// Holds the room's lock. `ON CONFLICT` alone would use up an id each time.
    private static func makeRow(
        of code: SecretCode, now: Timestamp, _ transaction: Database.Transaction
    ) throws {
        try transaction.lock(room: code)
        try transaction.run(
            """
            INSERT INTO rooms (secret_code, time_created) SELECT CAST($1 AS text), at($2)
            WHERE NOT EXISTS (SELECT 1 FROM rooms WHERE secret_code = CAST($1 AS text))
                AND \(transaction.dialect.hasRoomID)
            ON CONFLICT (secret_code) DO NOTHING
            """, [.text(code.text), .time(now)])
    }

    package func room(id: Int64) async throws(ChatError) -> ClientRoom? {
        // The column is an integer, and the id of a request may be longer.
        try await find("r.room_id = CAST($1 AS bigint)", .int(id))
    }

    private func find(_ condition: String, _ value: SQLValue) async throws(ChatError) -> ClientRoom? {
        try await database.read { transaction in
            try transaction.row("\(Self.roomSelection) WHERE \(condition)", [value]).map(Self.room)
        }
    }

    private static var roomSelection: String {
        "SELECT r.room_id, r.secret_code, r.alias, ms(r.time_created), r.title FROM rooms r"
    }

    private static func room(_ row: some SQLRow) throws -> ClientRoom {
        ClientRoom(
            id: try row.int(0), code: SecretCode(stored: try row.text(1)),
            alias: row.optionalText(2).map(RoomAlias.init(stored:)),
            title: row.optionalText(4).map(RoomTitle.init(stored:)), createdAt: try row.time(3))
    }

    package func rooms(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ClientRoom> {
        try await database.read { transaction in
            let page = try transaction.page(
                "\(Self.roomSelection) WHERE r.room_id > CAST($1 AS bigint) ORDER BY r.room_id LIMIT $2",
                [.int(cursor ?? 0), .int(limit + 1)], limit: limit)
            return Page(items: try page.rows.map(Self.room), next: page.next)
        }
    }

    package func alias(of room: SecretCode) async throws(ChatError) -> RoomAlias {
        if let alias = try await find("r.secret_code = $1", .text(room.text))?.alias { return alias }
        return try await database.write(as: .answer) { [database] transaction in
            try Self.makeRow(of: room, now: database.now(), transaction)
            let row = try transaction.row(
                "UPDATE rooms SET alias = coalesce(alias, $2) WHERE secret_code = $1 RETURNING alias",
                [.text(room.text), .text(RoomAlias.random().text)])
            guard let text = row?.optionalText(0) else {
                throw ChatError(.unavailable, "No further room can get an alias")
            }
            return RoomAlias(stored: text)
        }
    }

    package func room(aliased alias: RoomAlias) async throws(ChatError) -> SecretCode? {
        try await find("r.alias = $1", .text(alias.text))?.code
    }

    // MARK: - Messages

    package func messages(
        _ reading: ClientReading, before: MessageID?, limit: Int
    ) async throws(ChatError) -> [MessageRecord] {
        // Without a room, the read passes over all messages of the rooms that the client has hidden.
        let passesHidden = reading.room == nil && !reading.client.isEmpty
        return try await select(
            reading, "m.message_id < $3", .int(before ?? Int64.max), limit: limit,
            as: passesHidden ? .administration : nil)
    }

    package func message(_ id: MessageID, _ reading: ClientReading) async throws(ChatError) -> MessageRecord? {
        try await select(reading, "m.message_id = $3", .int(id), limit: 1, as: nil).first
    }

    private func select(
        _ reading: ClientReading, _ condition: String, _ value: SQLValue, limit: Int, as kind: LongRead?
    ) async throws(ChatError) -> [MessageRecord] {
        let room = reading.room?.text
        let read = { @Sendable (transaction: Database.Transaction) in
            // This bound lets the index skip what was hidden long ago.
            let hidden = try transaction.row(
                """
                SELECT coalesce(max(h.hidden_to), 0) FROM hidden_history h WHERE h.client = $1 AND h.room_id IN (
                    0, coalesce((SELECT r.room_id FROM rooms r WHERE r.secret_code = CAST($2 AS text)), 0))
                """, [.text(reading.client), .optional(room)])
            let values: [SQLValue] = [
                .text(reading.client), .int(max(reading.after, try hidden?.int(0) ?? 0)), value, .int(limit),
            ]
            return try transaction.rows(
                Self.messagesSQL(condition, isOfRoom: room != nil), values + (room.map { [.text($0)] } ?? [])
            ).map { try MessageRecord($0) }
        }
        return if let kind { try await database.read(kind, read) } else { try await database.read(read) }
    }

    /// The index gives the newest messages first, and each is then looked up in what the client has hidden.
    private static func messagesSQL(_ condition: String, isOfRoom: Bool) -> String {
        let inRoom =
            isOfRoom
            ? "m.secret_code = $5"
            : """
            NOT EXISTS (
                SELECT 1 FROM hidden_history h
                WHERE h.client = $1 AND h.room_id = (SELECT r.room_id FROM rooms r WHERE r.secret_code = m.secret_code)
                    AND h.hidden_to >= m.message_id)
            """
        return """
            SELECT \(MessageRecord.columns("m."))
            FROM messages m WHERE m.message_id > $2 AND \(condition) AND \(inRoom)
                AND NOT EXISTS (
                    SELECT 1 FROM hidden_messages h WHERE h.client = $1 AND h.message_id = m.message_id)
            ORDER BY m.message_id DESC LIMIT $4
            """
    }

    package func hide(_ message: MessageID, from client: String) async throws(ChatError) {
        try await database.write(as: .answer) { transaction in
            try transaction.lock("hidden from \(client)")
            try transaction.run(
                "INSERT INTO hidden_messages (client, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                [.text(client), .int(message)])
            let surplus = try transaction.row(
                "SELECT message_id FROM hidden_messages WHERE client = $1 ORDER BY message_id DESC LIMIT 1 OFFSET $2",
                [.text(client), .int(Self.mostHidden)])
            if let surplus { try Self.hideAll(upTo: surplus.int(0), in: nil, from: client, transaction) }
        }
    }

    package func hideAll(upTo last: MessageID, in room: SecretCode?, from client: String) async throws(ChatError) {
        try await database.write(as: .answer) { transaction in
            try transaction.lock("hidden from \(client)")
            try Self.hideAll(upTo: last, in: room, from: client, transaction)
        }
    }

    /// Sets the end, and deletes the entries that it covers.
    private static func hideAll(
        upTo last: MessageID, in room: SecretCode?, from client: String, _ transaction: Database.Transaction
    ) throws {
        let (client, last) = (SQLValue.text(client), SQLValue.int(last))
        var id: Int64 = 0
        if let room {
            let row = try transaction.row("SELECT room_id FROM rooms WHERE secret_code = $1", [.text(room.text)])
            guard let row else { return }
            id = try row.int(0)
        }
        try transaction.run(
            """
            INSERT INTO hidden_history (client, room_id, hidden_to) VALUES ($1, $2, $3)
            ON CONFLICT (client, room_id) DO UPDATE SET hidden_to = excluded.hidden_to
            WHERE hidden_history.hidden_to < excluded.hidden_to
            """, [client, .int(id), last])
        if let room {
            try transaction.run(
                """
                DELETE FROM hidden_messages WHERE client = $1 AND message_id <= $2 AND EXISTS (
                    SELECT 1 FROM messages m WHERE m.message_id = hidden_messages.message_id AND m.secret_code = $3)
                """, [client, last, .text(room.text)])
        } else {
            try transaction.run("DELETE FROM hidden_messages WHERE client = $1 AND message_id <= $2", [client, last])
            try transaction.run(
                "DELETE FROM hidden_history WHERE client = $1 AND room_id > 0 AND hidden_to <= $2", [client, last])
        }
    }
}
