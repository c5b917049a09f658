package import ChatDomain
import ChatSQL
import GRDB

/// The store of members, rooms and messages: the tables `active_users` and `messages`. A post also writes its pushes to
/// `push_queue` (`PostRoom` in `Fanout`).
package struct SQLiteRoomStore: RoomStore {
    let database: SQLiteDatabase
    let queue: SQLitePushQueue
    let feed: SQLiteRoomFeed
    let activity: MemberActivity<SQLiteDatabase>
    let jobs: BackgroundJobs
    let settings: @Sendable () -> StoreSettings

    @discardableResult
    package func join(_ request: JoinRequest) async throws(ChatError) -> Bool {
        let (changed, wasEmpty) = try await database.writer.perform { db -> ([SecretCode], Bool) in
            let time = database.now()
            let now = time.sqlText
            let client = kept(request.client)
            let transaction = SQLiteTransaction(db)
            if let token = request.token { try transaction.mergeForms(of: token, app: request.app) }
            try SQLBans.requireAdmitted(
                request.member, request.token, from: client.address, to: request.code, now: time, transaction)
            let isEmpty = try Self.requireSpace(in: request.code, for: request.member, db)
            try RoomRow.make([request.code.text], now: time, transaction)
            let token = try Self.register(
                request.token, of: request.member, app: request.app, code: request.code, user: request.user,
                says: settings().keepsUsage ? client : nil, now: time, db)
            // If the member joins the same room again, it keeps its row, its place in the order and its history.
            let rows = try db.run(
                """
                UPDATE active_users SET device_token = ?, nickname = ?, ip_address = ?, app_version = ?,
                    os_version = ?, device_model = ?, time_updated = ?
                WHERE udid = ? AND secret_code = ? AND app = ?
                """,
                [
                    token, request.nickname.text, client.address, client.appVersion, client.osVersion,
                    client.deviceModel, now, request.member.text, request.code.text, request.app.text,
                ])
            guard rows == 0 else { return ([], false) }
            let earlier = try remove(request.member, now: time, db)
            let read = try transaction.row(
                ReadState.earlierSQL, [.text(request.member.text), .text(request.code.text)])
            try db.run(
                """
                INSERT INTO active_users (udid, device_token, nickname, secret_code, ip_address, app, app_version,
                    os_version, device_model, time_joined, time_updated, history_from, fetched_to, time_fetched)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
                    CASE WHEN ? = 'all' THEN 0 ELSE (SELECT coalesce(max(message_id), 0) FROM messages) END, ?, ?)
                """,
                [
                    request.member.text, token, request.nickname.text, request.code.text, client.address,
                    request.app.text, client.appVersion, client.osVersion, client.deviceModel, now, now,
                    try history(of: request.code, db).rawValue, try read?.int(0) ?? 0, read?.optionalText(1),
                ])
            return ([request.code] + earlier, isEmpty)
        }
        if !changed.isEmpty { noteMembership(of: request.member, changed) }
        return wasEmpty
    }

    package func leave(_ member: MemberID) async throws(ChatError) -> Bool {
        let rooms = try await database.writer.perform { db in
            try remove(member, now: database.now(), db)
        }
        if !rooms.isEmpty { noteMembership(of: member, rooms) }
        return !rooms.isEmpty
    }

    /// - Returns: The room that the member was in, if any.
    private func remove(_ member: MemberID, now: Timestamp, _ db: Database) throws -> [SecretCode] {
        try ReadState.remove(
            where: "udid = $1", [.text(member.text)], pending: activity.pendingFetch(of: member), now: now,
            SQLiteTransaction(db)
        ).map(\.room)
    }

    private func history(of room: SecretCode, _ db: Database) throws -> RoomHistory {
        let text: String? = try db.value("SELECT history FROM rooms WHERE secret_code = ?", [room.text])
        return text.flatMap(RoomHistory.init(rawValue:)) ?? settings().history
    }

    /// The client's details that the settings allow to store.
    private func kept(_ client: ClientInfo) -> ClientInfo {
        settings().keepsUsage ? client : ClientInfo(address: client.address)
    }

    /// Notifies the feed that the member has joined or left these rooms.
    private func noteMembership(of member: MemberID, _ rooms: [SecretCode]) {
        feed.note { changes in
            changes.members.insert(member)
            changes.memberships.formUnion(rooms)
        }
    }

    package func update(
        _ member: MemberID, token: DeviceToken, app: AppChoice, client: ClientInfo, user: UserReference?
    ) async throws(ChatError) {
        try await database.writer.perform { db in
            let now = database.now()
            let row = try db.row(
                "SELECT app, secret_code, app_version, os_version, device_model, device_token FROM active_users WHERE udid = ?",
                [member.text])
            guard let row else { throw ChatError.notJoined() }
            let (old, client) = (AppName(row[0]), kept(client))
            let app = try Self.app(app, of: token, after: old, settings())
            // A new token of the same app: the details known so far still apply, and the client need not send them
            // again.
            let known =
                app == old && row[5] != token.description
                ? ClientInfo(appVersion: row[2], osVersion: row[3], deviceModel: row[4]) : ClientInfo()
            let code = SecretCode(stored: row[1])
            try SQLiteTransaction(db).mergeForms(of: token, app: app)
            try SQLBans.requireAdmitted(member, token, from: client.address, to: code, now: now, SQLiteTransaction(db))
            let text = try Self.register(
                token, of: member, app: app, code: code, user: user,
                says: settings().keepsUsage ? known.updated(by: client) : nil, now: now, db)
            try db.run(
                """
                UPDATE active_users SET device_token = ?, app = ?, ip_address = coalesce(?, ip_address),
                    app_version = coalesce(?, app_version), os_version = coalesce(?, os_version),
                    device_model = coalesce(?, device_model), time_updated = ?
                WHERE udid = ?
                """,
                [
                    text, app.text, client.address, client.appVersion, client.osVersion, client.deviceModel,
                    now.sqlText, member.text,
                ])
        }
    }

    package func post(_ request: PostRequest) async throws(ChatError) -> PostReceipt {
        let posted = try await database.writer.perform { db in
            try insert(request, db)
        } committed: { posted in
            // Dispatchers may send the pushes immediately after the commit.
            queue.inserted(posted.pushes)
            if !posted.receipt.isRepeat { feed.note(posted.receipt.message, in: posted.room) }
        }
        if !posted.receipt.isRepeat, request.program == nil {
            activity.wrote(request.member, at: posted.receipt.time, from: request.client.address)
        }
        if posted.hasMore { jobs.start(.message(posted.receipt.message)) }
        return posted.receipt
    }

    package func messages(
        for member: MemberID, since: MessageID?, limit: Int, isPeek: Bool
    ) async throws(ChatError) -> MessagePage {
        let page = try await database.read { db in
            let room = try db.row(Self.roomSQL, [member.text])
            guard let room else { throw ChatError.notJoined() }
            let entry: MessageID = room[1]
            let title: String? = room[2]
            let since = max(since ?? entry, entry)
            let code = SecretCode(stored: room[0])
            let messages = try Message.messages(in: code, after: since, limit: limit, SQLiteTransaction(db))
            return MessagePage(
                messages: messages, next: messages.last?.id ?? since, room: code,
                title: title.map(RoomTitle.init(stored:)))
        }
        if !isPeek, let last = page.messages.last { activity.fetched(last.id, by: member) }
        return page
    }

    package func entries(
        for member: MemberID, since: MessageID?, limit: Int, isPeek: Bool
    ) async throws(ChatError) -> RoomEntryPage {
        let page = try await database.read { (transaction: SQLiteTransaction) in
            try RoomEntryPage(for: member, since: since, limit: limit, transaction)
        }
        if !isPeek, let newest = page.newestMessage { activity.fetched(newest, by: member) }
        return page
    }

    private static let roomSQL = """
        SELECT secret_code, history_from, (SELECT title FROM rooms r WHERE r.secret_code = u.secret_code)
        FROM active_users u WHERE udid = ?
        """

    package func shown(_ message: MessageID, to member: MemberID) async throws(ChatError) {
        try await database.read { db in
            let row = try db.row(
                """
                SELECT EXISTS (
                    SELECT 1 FROM messages m
                    WHERE m.message_id = ? AND m.secret_code = u.secret_code AND m.message_id > u.history_from)
                FROM active_users u WHERE u.udid = ?
                """, [message, member.text])
            guard let row else { throw ChatError.notJoined() }
            guard row[0] else { throw ChatError.notFound("message") }
        }
        activity.shown(message, to: member)
    }

    package func receipt(of message: MessageID, for member: MemberID) async throws(ChatError) -> Receipt {
        try await database.read { db in
            let stay = try db.row("SELECT secret_code, history_from FROM active_users WHERE udid = ?", [member.text])
            guard let stay else { throw ChatError.notJoined() }
            let room: String = stay[0]
            let found = try db.row(
                "SELECT 1 FROM messages WHERE message_id = ? AND secret_code = ? AND udid = ?",
                [message, room, member.text])
            guard found != nil, message > stay[1] else {
                throw ChatError.notOwnMessage
            }
            let subject = ReadState.Subject(message: message, writer: member, room: SecretCode(stored: room))
            return try ReadState.receipts(of: [subject], SQLiteTransaction(db))[0]
        }
    }

    package func ping() async throws(ChatError) {
        if let file = database.files.missing {
            let moved = ChatError.moved(file)
            throw ChatError(
                .unavailable, "The database file was deleted, moved or replaced", retryAfter: moved.retryAfter,
                cause: moved.cause)
        }
        _ = try await database.read { db in try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_schema") }
    }

    package static let largestRoom = RoomSize.largest

    /// Checks whether the room has members, and refuses a room that is full.
    /// - Returns: Whether the room is empty.
    private static func requireSpace(in code: SecretCode, for member: MemberID, _ db: Database) throws -> Bool {
        // Usually the member is in the room already. Skip the count then.
        let isIn = try db.row(
            "SELECT 1 FROM active_users WHERE udid = ? AND secret_code = ?", [member.text, code.text])
        if isIn != nil { return false }
        let first = try db.row("SELECT 1 FROM active_users WHERE secret_code = ? LIMIT 1", [code.text])
        guard first != nil else { return true }
        let last = try db.row(
            "SELECT member_id FROM active_users WHERE secret_code = ? ORDER BY member_id LIMIT 1 OFFSET ?",
            [code.text, largestRoom - 1])
        guard last == nil else {
            throw ChatError.roomIsFull
        }
        return false
    }

    /// Registers the member's device and returns the value for the column `device_token`.
    ///
    /// A token belongs to one installed app, and an app has one user. Other members with the token (the app's earlier
    /// user, or its earlier udid) therefore stay in their room and lose the token. A browser may be in several rooms,
    /// as a member of each.
    private static func register(
        _ token: DeviceToken?, of member: MemberID, app: AppName, code: SecretCode, user: UserReference?,
        says client: ClientInfo?, now: Timestamp, _ db: Database
    ) throws -> String {
        guard let text = token?.description else { return "0" }
        try db.run(
            """
            UPDATE active_users SET device_token = '0'
            WHERE device_token = ? AND app = ? AND device_token <> '0' AND udid <> ? AND (? IS NULL OR secret_code = ?)
            """, [text, app.text, member.text, app == .web ? code.text : nil, code.text])
        let device = SeenDevice(token: text, app: app.text, client: client ?? ClientInfo(), time: now)
        try DeviceUsage.setRegistered([device], keepsUsage: client != nil, SQLiteTransaction(db))
        if let user {
            try db.run(
                """
                UPDATE devices SET user_reference = ?1
                WHERE device_token = ?2 AND app = ?3 AND user_reference IS NOT ?1
                """, [user.text, text, app.text])
        }
        return text
    }

    // MARK: - Posting

    private struct Posted: Sendable {
        let receipt: PostReceipt
        let room: SecretCode
        var pushes: [DuePushes] = []
        /// Whether later steps have to queue pushes for members.
        var hasMore = false
    }

    /// Inserts the message, and the pushes if the room is small.
    private func insert(_ request: PostRequest, _ db: Database) throws -> Posted {
        let now = database.now()
        if let room = request.onlyRoom,
            try db.row(
                "SELECT 1 FROM active_users WHERE udid = ? AND secret_code = ?", [request.member.text, room.text])
                == nil
        {
            throw ChatError.notJoined()
        }
        if let earlier = try Self.earlier(request, db) {
            return Posted(receipt: earlier.receipt, room: earlier.room)
        }
        if let program = request.program {
            try SQLBans.requireOpen(program.room, now: now, SQLiteTransaction(db))
            try RoomRow.make([program.room.text], now: now, SQLiteTransaction(db))
        }
        guard let room = try PostRoom(of: request, db) else { throw ChatError.notJoined() }
        let settings = settings()
        func payload(_ app: String, _ message: MessageID) throws -> String {
            try settings.format(settings.current(app)).payload(
                of: ChatAlert(
                    nickname: Nickname(stored: room.nickname), content: request.content,
                    code: SecretCode(stored: room.code), message: message, isOfProgram: request.member.isProgram))
        }
        // If the payload cannot be made, fail this request and not each later step.
        if !room.isSmall, let app = room.app { _ = try payload(app, Int64.max) }
        let lastMember: Int64? =
            try room.isSmall
            ? nil : db.value("SELECT max(member_id) FROM active_users WHERE secret_code = ?", [room.code])
        let content = request.content
        try RawStatement(
            db, Self.insertSQL, room.code, request.member.text, room.nickname, request.client.address, now.sqlText,
            request.idempotencyKey, lastMember == nil ? nil : Int64(0), lastMember,
            content.text.text, content.title, content.link, content.priority.map { Int64($0) }, content.sound,
            Int64(content.isUrgent ? 1 : 0), content.extras.stored
        ).run()
        let message = db.lastInsertedRowID
        let pushes = try room.insertPushes(
            of: message, priority: content.priority, now: now, ids: queue.ids, settings: settings,
            payload: { try payload($0, message) }, db)
        let receipt = PostReceipt(
            message: message, time: now, isRepeat: false, queued: pushes.reduce(0) { $0 + $1.range.count })
        return Posted(
            receipt: receipt, room: SecretCode(stored: room.code), pushes: pushes, hasMore: !room.isSmall)
    }

    /// The content's parameters are last, in the order of its columns.
    private static let insertSQL = """
        INSERT INTO messages (secret_code, udid, nickname, ip_address, time_sent, idempotency_key, fanout_after,
            fanout_until, \(MessageContent.columns()))
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, \(MessageContent.placeholders))
        """

    /// The receipt of an earlier post with the same idempotency key. `nil` if there was none.
    private static func earlier(
        _ request: PostRequest, _ db: Database
    ) throws -> (receipt: PostReceipt, room: SecretCode)? {
        guard let key = request.idempotencyKey else { return nil }
        let code =
            try request.program?.room.text
            ?? db.value("SELECT secret_code FROM active_users WHERE udid = ?", [request.member.text])
        guard let code else { throw ChatError.notJoined() }
        let row = try SQLiteTransaction(db).row(
            "SELECT \(EarlierPost.columns()) FROM messages WHERE udid = $1 AND idempotency_key = $2",
            [.text(request.member.text), .text(key)])
        guard let row else { return nil }
        let (earlier, room) = (try EarlierPost(row), SecretCode(stored: code))
        if earlier.mayHaveFirstContent(request, to: code),
            try MessageRetries.hasFirstContent(request, of: earlier.message, room: room, SQLiteTransaction(db))
        {
            return (earlier.receipt, room)
        }
        return (try earlier.receipt(for: request, to: code), room)
    }
}
