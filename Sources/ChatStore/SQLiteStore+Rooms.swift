package import ChatDomain
import GRDB

extension SQLiteStore: RoomStore {
    package func join(_ request: JoinRequest) async throws(ChatError) {
        let changed = try await writer.perform { [clock] db -> [SecretCode] in
            let now = clock().sqlText
            try Self.requireRoom(in: request.code, for: request.member, db)
            let token = try Self.register(
                request.token, of: request.member, app: request.app, user: request.user, now: now, db)
            let client = request.client
            // The same room again: the member stays who it is, with its place and its history.
            try db.cachedStatement(
                sql: """
                    UPDATE active_users SET device_token = ?, nickname = ?, ip_address = ?, app_version = ?,
                        os_version = ?, device_model = ?, time_updated = ?
                    WHERE udid = ? AND secret_code = ? AND app = ?
                    """
            ).execute(arguments: [
                token, request.nickname.text, client.address, client.appVersion, client.osVersion, client.deviceModel,
                now, request.member.text, request.code.text, request.app.text,
            ])
            guard db.changesCount == 0 else { return [] }
            let earlier = try Self.remove(request.member, db)
            try db.cachedStatement(
                sql: """
                    INSERT INTO active_users (udid, device_token, nickname, secret_code, ip_address, app, app_version,
                        os_version, device_model, time_joined, time_updated, history_from)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT coalesce(max(message_id), 0) FROM messages))
                    """
            ).execute(arguments: [
                request.member.text, token, request.nickname.text, request.code.text, client.address,
                request.app.text, client.appVersion, client.osVersion, client.deviceModel, now, now,
            ])
            return [request.code] + (earlier.map { [$0] } ?? [])
        }
        if !changed.isEmpty { changes.membership(of: request.member, changed) }
    }

    package func leave(_ member: MemberID) async throws(ChatError) -> Bool {
        let room = try await writer.perform { db in try Self.remove(member, db) }
        if let room { changes.membership(of: member, [room]) }
        return room != nil
    }

    /// - Returns: the room that it was in.
    private static func remove(_ member: MemberID, _ db: Database) throws -> SecretCode? {
        try String.fetchOne(
            db.cachedStatement(sql: "DELETE FROM active_users WHERE udid = ? RETURNING secret_code"),
            arguments: [member.text]
        ).map(SecretCode.init(stored:))
    }

    package func update(
        _ member: MemberID, token: DeviceToken, client: ClientInfo, user: UserReference?
    ) async throws(ChatError) {
        try await writer.perform { [clock] db in
            let now = clock().sqlText
            let app = try String.fetchOne(
                db.cachedStatement(sql: "SELECT app FROM active_users WHERE udid = ?"), arguments: [member.text])
            guard let app else { throw ChatError.notJoined() }
            let text = try Self.register(token, of: member, app: AppName(app), user: user, now: now, db)
            try db.cachedStatement(
                sql: """
                    UPDATE active_users SET device_token = ?, ip_address = coalesce(?, ip_address),
                        app_version = coalesce(?, app_version), os_version = coalesce(?, os_version),
                        device_model = coalesce(?, device_model), time_updated = ?
                    WHERE udid = ?
                    """
            ).execute(arguments: [
                text, client.address, client.appVersion, client.osVersion, client.deviceModel, now, member.text,
            ])
        }
    }

    package func post(_ request: PostRequest) async throws(ChatError) -> PostReceipt {
        let (receipt, room, hasMore) = try await writer.perform { [self] db in
            try insert(request, db)
        } committed: { [self] receipt, _, _ in
            // The gateway waits for nothing else.
            if receipt.queued > 0 { announceArrivals() }
        }
        changes.message(in: room)
        if hasMore { continueWork(.message(receipt.message)) }
        return receipt
    }

    package func messages(
        for member: MemberID, since: MessageID?, limit: Int
    ) async throws(ChatError) -> MessagePage {
        let page = try await read { db in
            let room = try Row.fetchOne(
                db.cachedStatement(sql: "SELECT secret_code, history_from FROM active_users WHERE udid = ?"),
                arguments: [member.text])
            guard let room else { throw ChatError.notJoined() }
            let since = since ?? room[1]
            let messages = try Self.messages(in: SecretCode(stored: room[0]), after: since, limit: limit, db)
            return MessagePage(messages: messages, next: messages.last?.id ?? since)
        }
        if let last = page.messages.last { handedOut(last.id, to: member) }
        return page
    }

    /// Those after an id, in order.
    static func messages(
        in room: SecretCode, after: MessageID, limit: Int, _ db: Database
    ) throws -> [Message] {
        try Row.fetchAll(
            db.cachedStatement(
                sql: """
                    SELECT message_id, udid, nickname, text, time_sent FROM messages
                    WHERE secret_code = ? AND message_id > ? ORDER BY message_id LIMIT ?
                    """), arguments: [room.text, after, limit]
        ).map { row in
            Message(
                id: row[0], sender: MemberID(stored: row[1]), nickname: row[2], text: row[3],
                sentAt: Timestamp(sqlText: row[4]) ?? Timestamp(milliseconds: 0))
        }
    }

    package func ping() async throws(ChatError) {
        _ = try await read { db in try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_schema") }
    }

    /// Members of one room: each message costs as many pushes, and anyone can invent members.
    package static let largestRoom = 100_000

    private static func requireRoom(in code: SecretCode, for member: MemberID, _ db: Database) throws {
        // Who is in already, the usual case, is not worth counting the others for.
        let isIn = try Bool.fetchOne(
            db.cachedStatement(sql: "SELECT 1 FROM active_users WHERE udid = ? AND secret_code = ?"),
            arguments: [member.text, code.text])
        if isIn == true { return }
        let last = try Int64.fetchOne(
            db.cachedStatement(
                sql: "SELECT member_id FROM active_users WHERE secret_code = ? ORDER BY member_id LIMIT 1 OFFSET ?"),
            arguments: [code.text, largestRoom - 1])
        guard last == nil else {
            throw ChatError.invalid("code", "this room has \(largestRoom) members and takes no more")
        }
    }

    /// Registers a device for its member and says what `device_token` is to hold.
    ///
    /// A token is one installed app, and that has one user: other members who had it (the app's earlier user, or its
    /// earlier udid) keep their room and lose the token.
    private static func register(
        _ token: DeviceToken?, of member: MemberID, app: AppName, user: UserReference?, now: String, _ db: Database
    ) throws -> String {
        guard let text = token?.description else { return "0" }
        try db.cachedStatement(
            sql: """
                UPDATE active_users SET device_token = '0'
                WHERE device_token = ? AND app = ? AND device_token <> '0' AND udid <> ?
                """
        ).execute(arguments: [text, app.text, member.text])
        try setRegistered(text, app: app, now: now, db)
        if let user {
            try db.cachedStatement(
                sql: """
                    UPDATE devices SET user_reference = ?1
                    WHERE device_token = ?2 AND app = ?3 AND user_reference IS NOT ?1
                    """
            ).execute(arguments: [user.text, text, app.text])
        }
        return text
    }

    /// The message, and pushes for the members of a small room.
    /// - Returns: the receipt, the room, and whether members are left for later steps.
    private func insert(_ request: PostRequest, _ db: Database) throws -> (PostReceipt, SecretCode, Bool) {
        let now = clock()
        let time = now.sqlText
        if let earlier = try Self.earlier(request, db) { return (earlier.receipt, earlier.room, false) }
        guard let (nickname, code, app) = try Self.noteWriter(request, time, db) else { throw ChatError.notJoined() }
        let room = try SmallRoom(code, besides: request.member, db)
        let lastMember = try room == nil ? Self.lastMember(of: code, db) : nil
        let settings = settings()
        func payload(_ app: AppName, _ message: MessageID) throws -> String {
            try settings.payload(app).json(
                nickname: Nickname(stored: nickname), text: request.text, code: SecretCode(stored: code),
                message: message)
        }
        // What cannot be made is the request's error, and not one that is met again and again behind the answer.
        if room == nil { _ = try payload(AppName(app), Int64.max) }
        try RawStatement(
            db,
            """
            INSERT INTO messages (secret_code, udid, nickname, text, ip_address, time_sent, idempotency_key,
                fanout_after, fanout_until)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """, code, request.member.text, nickname, request.text.text, request.client.address, time,
            request.idempotencyKey, lastMember == nil ? nil : Int64(0), lastMember
        ).run()
        let message = db.lastInsertedRowID
        let queued =
            try room?.insert(
                message, now: time, expires: settings.expiration.map { (now + $0).seconds },
                payload: { app in try payload(app, message) }, db) ?? 0
        return (
            PostReceipt(message: message, isRepeat: false, queued: queued), SecretCode(stored: code), lastMember != nil
        )
    }

    /// Marks the member that writes.
    /// - Returns: nil if there is none.
    private static func noteWriter(
        _ request: PostRequest, _ time: String, _ db: Database
    ) throws -> (nickname: String, code: String, app: String)? {
        let member = try RawStatement(
            db,
            """
            UPDATE active_users SET time_last_message = ?, ip_address = coalesce(?, ip_address) WHERE udid = ?
            RETURNING nickname, secret_code, app
            """, time, request.client.address, request.member.text)
        guard try member.step(), let nickname = member.text(0), let code = member.text(1), let app = member.text(2)
        else { return nil }
        return (nickname, code, app)
    }

    private static func lastMember(of code: String, _ db: Database) throws -> Int64? {
        try Int64.fetchOne(
            db.cachedStatement(sql: "SELECT max(member_id) FROM active_users WHERE secret_code = ?"), arguments: [code])
    }

    /// What a request with the same key was answered.
    private static func earlier(
        _ request: PostRequest, _ db: Database
    ) throws -> (receipt: PostReceipt, room: SecretCode)? {
        guard let key = request.idempotencyKey else { return nil }
        let code = try String.fetchOne(
            db.cachedStatement(sql: "SELECT secret_code FROM active_users WHERE udid = ?"),
            arguments: [request.member.text])
        guard let code else { throw ChatError.notJoined() }
        let earlier = try Row.fetchOne(
            db.cachedStatement(
                sql: "SELECT message_id, text, secret_code FROM messages WHERE udid = ? AND idempotency_key = ?"),
            arguments: [request.member.text, key])
        guard let earlier else { return nil }
        guard earlier[1] as String == request.text.text, earlier[2] as String == code else {
            throw ChatError(
                .idempotencyConflict, "Idempotency-Key was used before, for another text or room",
                field: "Idempotency-Key")
        }
        return (PostReceipt(message: earlier[0], isRepeat: true, queued: 0), SecretCode(stored: code))
    }
}
