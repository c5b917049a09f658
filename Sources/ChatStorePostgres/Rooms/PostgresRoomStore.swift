package import ChatDomain
import ChatSQL

/// The store of members, rooms and messages: the tables `active_users` and `messages`.
package struct PostgresRoomStore: RoomStore {
    private let database: PostgresDatabase
    private let activity: MemberActivity<PostgresDatabase>
    private let settings: @Sendable () -> StoreSettings
    private let posts: GroupCommit<PostRequest, PostReceipt>

    init(
        database: PostgresDatabase, activity: MemberActivity<PostgresDatabase>,
        settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.activity = activity
        self.settings = settings
        posts = GroupCommit(database: database) { requests, transaction in
            try PostBatch.answers(to: requests, now: database.now(), settings(), transaction)
        }
    }

    // MARK: - Joining and leaving

    @discardableResult
    package func join(_ request: JoinRequest) async throws(ChatError) -> Bool {
        let settings = settings()
        let client = settings.keepsUsage ? request.client : ClientInfo(address: request.client.address)
        let (member, code) = (request.member, request.code)
        return try await database.write { transaction in
            let now = database.now()
            transaction.lock(
                [(.member, member.text)] + (request.token.map { [SQLLock.device(of: $0.description)] } ?? []))
            transaction.lockShared(address: client.address)
            Self.lockRooms(of: member, and: code, transaction)
            if let token = request.token { try transaction.mergeForms(of: token, app: request.app) }
            let isEmpty = try Self.requireSpace(in: code, for: request, now: now, transaction)
            try RoomRow.make([code.text], now: now, transaction)
            let token = Self.takeToken(request.token, of: member, app: request.app, code: code, transaction)
            // If the member joins the same room again, it keeps its row, its place in the order and its history.
            let count = try transaction.run(
                """
                UPDATE active_users SET device_token = $1::text, nickname = $2::text, ip_address = $3::text,
                    app_version = $4::text, os_version = $5::text, device_model = $6::text, time_updated = at($7::bigint)
                WHERE udid = $8::text AND secret_code = $9::text AND app = $10::text
                """,
                [
                    .text(token), .text(request.nickname.text), .optional(client.address),
                    .optional(client.appVersion), .optional(client.osVersion), .optional(client.deviceModel),
                    .time(now), .text(member.text), .text(code.text), .text(request.app.text),
                ])
            if count == 0 {
                let earlier = try remove(member, now: now, transaction)
                transaction.pipeline(
                    Self.enterSQL,
                    [
                        .text(member.text), .text(code.text), .text(token), .text(request.nickname.text),
                        .optional(client.address), .text(request.app.text), .optional(client.appVersion),
                        .optional(client.osVersion), .optional(client.deviceModel), .time(now),
                        .text(settings.history.rawValue),
                    ])
                note(member, [code] + earlier, transaction)
            }
            try register(request.token, app: request.app, user: request.user, says: client, now: now, transaction)
            return count == 0 && isEmpty
        }
    }

    /// Restores the read state of an earlier stay in the room.
    private static let enterSQL = """
        INSERT INTO active_users (udid, secret_code, device_token, nickname, ip_address, app, app_version, os_version,
            device_model, time_joined, time_updated, history_from, fetched_to, time_fetched)
        SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, at($10::bigint),
            at($10::bigint),
            CASE coalesce((SELECT r.history FROM rooms r WHERE r.secret_code = $2::text), $11::text) WHEN 'all' THEN 0
                ELSE (SELECT coalesce(max(message_id), 0) FROM messages) END,
            coalesce(p.fetched_to, 0), p.time_fetched
        FROM (VALUES (1)) AS one (row) LEFT JOIN (\(ReadState.earlierSQL)) p ON true
        """

    package func leave(_ member: MemberID) async throws(ChatError) -> Bool {
        try await database.write { transaction in
            transaction.lock([(.member, member.text)])
            Self.lockRooms(of: member, transaction)
            let rooms = try remove(member, now: database.now(), transaction)
            if !rooms.isEmpty { note(member, rooms, transaction) }
            return !rooms.isEmpty
        }
    }

    /// Locks the member's room and the room that it joins. A message that the member is sending is thus committed
    /// before the member leaves. Otherwise a ban, which looks up the room, would not wait for it.
    private static func lockRooms(
        of member: MemberID, and code: SecretCode? = nil, _ transaction: PostgresTransaction
    ) {
        transaction.pipeline(PostBatch.lockSQL, [.texts([member.text]), .texts(code.map { [$0.text] } ?? [])])
    }

    /// - Returns: The room that the member was in, if any.
    private func remove(
        _ member: MemberID, now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> [SecretCode] {
        try ReadState.remove(
            where: "udid = $1", [.text(member.text)], pending: activity.pendingFetch(of: member), now: now,
            transaction
        ).map(\.room)
    }

    /// Announces that the member has joined or left these rooms.
    private func note(_ member: MemberID, _ rooms: [SecretCode], _ transaction: PostgresTransaction) {
        transaction.announcement.members.insert(member.text)
        transaction.announcement.memberships.formUnion(rooms.map(\.text))
    }

    package func update(
        _ member: MemberID, token: DeviceToken, app: AppChoice, client: ClientInfo, user: UserReference?
    ) async throws(ChatError) {
        let client = settings().keepsUsage ? client : ClientInfo(address: client.address)
        try await database.write { transaction in
            let now = database.now()
            transaction.lock([(.member, member.text), SQLLock.device(of: token.description)])
            transaction.lockShared(address: client.address)
            let row = try transaction.row(
                """
                SELECT app, secret_code, app_version, os_version, device_model, device_token FROM active_users
                WHERE udid = $1::text FOR NO KEY UPDATE
                """, [.text(member.text)])
            guard let row else { throw ChatError.notJoined() }
            let (old, code) = (AppName(try row.text(0)), SecretCode(stored: try row.text(1)))
            let app = try Self.app(app, of: token, after: old, settings())
            // A new token of the same app: the details known so far still apply, and the client need not send them
            // again.
            let known =
                app == old && row.optionalText(5) != token.description
                ? ClientInfo(
                    appVersion: row.optionalText(2), osVersion: row.optionalText(3), deviceModel: row.optionalText(4))
                : ClientInfo()
            try transaction.mergeForms(of: token, app: app)
            try SQLBans.requireAdmitted(
                member, token, from: client.address, to: code, now: now, transaction)
            let text = Self.takeToken(token, of: member, app: app, code: code, transaction)
            transaction.pipeline(
                """
                UPDATE active_users SET device_token = $1::text, app = $2::text,
                    ip_address = coalesce($3::text, ip_address), app_version = coalesce($4::text, app_version),
                    os_version = coalesce($5::text, os_version), device_model = coalesce($6::text, device_model),
                    time_updated = at($7::bigint)
                WHERE udid = $8::text
                """,
                [
                    .text(text), .text(app.text), .optional(client.address), .optional(client.appVersion),
                    .optional(client.osVersion), .optional(client.deviceModel), .time(now), .text(member.text),
                ])
            try register(token, app: app, user: user, says: known.updated(by: client), now: now, transaction)
        }
    }

    /// Refuses a banned member, and a room that is full.
    /// - Returns: Whether the room is empty.
    private static func requireSpace(
        in code: SecretCode, for request: JoinRequest, now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> Bool {
        try SQLBans.requireAdmitted(
            request.member, request.token, from: request.client.address, to: code, now: now, transaction)
        // Usually the member is in the room already. Skip the count then.
        let row = try transaction.row(
            """
            SELECT m.is_in, EXISTS (SELECT 1 FROM active_users WHERE secret_code = $2::text),
                NOT m.is_in AND EXISTS (
                    SELECT 1 FROM active_users WHERE secret_code = $2::text ORDER BY member_id LIMIT 1 OFFSET $3::bigint)
            FROM (SELECT EXISTS (
                SELECT 1 FROM active_users WHERE udid = $1::text AND secret_code = $2::text) AS is_in OFFSET 0) m
            """, [.text(request.member.text), .text(code.text), .int(RoomSize.largest - 1)])
        if try row?.bool(2) ?? false { throw ChatError.roomIsFull }
        return try row?.bool(1) == false
    }

    /// Takes the token from other members and returns the value for the column `device_token`.
    ///
    /// A token belongs to one installed app, and an app has one user. Other members with the token (the app's earlier
    /// user, or its earlier udid) therefore stay in their room and lose the token. A browser may be in several rooms,
    /// as a member of each.
    private static func takeToken(
        _ token: DeviceToken?, of member: MemberID, app: AppName, code: SecretCode,
        _ transaction: PostgresTransaction
    ) -> String {
        guard let text = token?.description else { return "0" }
        transaction.pipeline(
            """
            UPDATE active_users SET device_token = '0'
            WHERE device_token = $1::text AND app = $2::text AND device_token <> '0' AND udid <> $3::text
                AND ($4::text IS NULL OR secret_code = $4::text)
            """,
            [.text(text), .text(app.text), .text(member.text), .optional(app == .web ? code.text : nil)])
        return text
    }

    /// Registers the member's device.
    /// - Parameter client: The details that the app has sent.
    private func register(
        _ token: DeviceToken?, app: AppName, user: UserReference?, says client: ClientInfo, now: Timestamp,
        _ transaction: PostgresTransaction
    ) throws {
        guard let token = token?.description else { return }
        let device = SeenDevice(token: token, app: app.text, client: client.withoutAddress, time: now)
        try DeviceUsage.setRegistered([device], keepsUsage: settings().keepsUsage, transaction)
        guard let user else { return }
        transaction.pipeline(
            """
            UPDATE devices SET user_reference = $1::text
            WHERE device_token = $2::text AND app = $3::text AND user_reference IS DISTINCT FROM $1::text
            """, [.text(user.text), .text(token), .text(app.text)])
    }

    // MARK: - Messages

    package func post(_ request: PostRequest) async throws(ChatError) -> PostReceipt {
        let receipt = try await posts(request)
        if !receipt.isRepeat, request.program == nil {
            activity.wrote(request.member, at: receipt.time, from: request.client.address)
        }
        return receipt
    }

    package func messages(
        for member: MemberID, since: MessageID?, limit: Int, isPeek: Bool
    ) async throws(ChatError) -> MessagePage {
        let page = try await database.read { transaction in
            let rows = try transaction.rows(
                Self.messagesSQL, [.text(member.text), .optional(since), .int(limit)])
            guard let first = rows.first else { throw ChatError.notJoined() }
            let messages = try rows.filter { !$0.isNull(3) }.map { try Message($0, from: 3) }
            return MessagePage(
                messages: messages, next: try messages.last?.id ?? max(since ?? .min, first.int(0)),
                room: SecretCode(stored: try first.text(1)), title: first.optionalText(2).map(RoomTitle.init(stored:)))
        }
        if !isPeek, let last = page.messages.last { activity.fetched(last.id, by: member) }
        return page
    }

    package func entries(
        for member: MemberID, since: MessageID?, limit: Int, isPeek: Bool
    ) async throws(ChatError) -> RoomEntryPage {
        let page = try await database.read { (transaction: PostgresTransaction) in
            try RoomEntryPage(for: member, since: since, limit: limit, transaction)
        }
        if !isPeek, let newest = page.newestMessage { activity.fetched(newest, by: member) }
        return page
    }

    package func shown(_ message: MessageID, to member: MemberID) async throws(ChatError) {
        try await database.read { transaction in
            let row = try transaction.row(
                """
                SELECT EXISTS (
                    SELECT 1 FROM messages m WHERE m.message_id = $1::bigint AND m.secret_code = u.secret_code
                        AND m.message_id > u.history_from)
                FROM active_users u WHERE u.udid = $2::text
                """, [.int(message), .text(member.text)])
            guard let row else { throw ChatError.notJoined() }
            guard try row.bool(0) else { throw ChatError.notFound("message") }
        }
        activity.shown(message, to: member)
    }

    /// Returns one row with only the member's columns if there are no messages.
    static let messagesSQL = """
        SELECT u.history_from, u.secret_code, (SELECT r.title FROM rooms r WHERE r.secret_code = u.secret_code), m.*
        FROM active_users u
        LEFT JOIN LATERAL (
            SELECT \(Message.columns()) FROM messages
            WHERE secret_code = u.secret_code AND message_id > greatest($2::bigint, u.history_from)
            ORDER BY message_id LIMIT $3::bigint) m ON true
        WHERE u.udid = $1::text ORDER BY m.message_id
        """

    package func receipt(of message: MessageID, for member: MemberID) async throws(ChatError) -> Receipt {
        try await database.read { transaction in
            let row = try transaction.row(
                """
                SELECT u.secret_code, EXISTS (
                    SELECT 1 FROM messages m WHERE m.message_id = $2::bigint AND m.secret_code = u.secret_code
                        AND m.udid = u.udid AND m.message_id > u.history_from)
                FROM active_users u WHERE u.udid = $1::text
                """, [.text(member.text), .int(message)])
            guard let row else { throw ChatError.notJoined() }
            guard try row.bool(1) else { throw ChatError.notOwnMessage }
            let subject = ReadState.Subject(
                message: message, writer: member, room: SecretCode(stored: try row.text(0)))
            return try ReadState.receipts(of: [subject], transaction)[0]
        }
    }

    package func ping() async throws(ChatError) {
        _ = try await database.read { try $0.row("SELECT 1").map { try $0.int(0) } }
    }
}
