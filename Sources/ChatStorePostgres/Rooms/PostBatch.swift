import ChatDomain
import ChatSQL

/// Writes the posts of many callers in one transaction, with as many statements as for one post: locking the rooms,
/// reading, and writing.
struct PostBatch {
    /// A message that will be written.
    private struct Draft {
        let id: MessageID
        let request: PostRequest
        let found: Found
    }

    private let now: Timestamp
    private let settings: StoreSettings
    private let transaction: PostgresTransaction
    private var drafts: [Draft] = []
    private var pushes: ChatPushes
    private var earlier: [[String]: EarlierPost] = [:]

    /// - Returns: The result of each request.
    static func answers(
        to requests: [PostRequest], now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction
    ) throws -> [Result<PostReceipt, ChatError>] {
        var batch = PostBatch(now: now, settings, transaction)
        return try batch.answers(to: requests)
    }

    private init(now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction) {
        self.now = now
        self.settings = settings
        self.transaction = transaction
        pushes = ChatPushes(now: now, settings)
    }

    private mutating func answers(to requests: [PostRequest]) throws -> [Result<PostReceipt, ChatError>] {
        let (writers, rooms) = (requests.map(\.member.text), requests.map { $0.program?.room.text })
        let locked = Set(
            try transaction.rows(
                Self.lockSQL,
                [.texts(zip(writers, rooms).filter { $0.1 == nil }.map(\.0)), .texts(rooms.compactMap(\.self))]
            ).map { try $0.text(0) })
        var all = try transaction.rows(
            Self.findSQL,
            [
                .texts(writers), .optionalTexts(rooms), .optionalTexts(requests.map(\.idempotencyKey)), .time(now),
                .int(RoomSize.small + 2),
            ]
        ).map { try Found($0) }
        // Assign the ids in the order of the requests.
        for (id, index) in zip(all.compactMap(\.id).sorted(), all.indices.filter { all[$0].id != nil }) {
            all[index].id = id
        }
        var answers: [Result<PostReceipt, ChatError>] = []
        for (request, found) in zip(requests, all) {
            // The writer has moved to another room between the two statements.
            if let room = found.room, !locked.contains(room) { throw PostgresError.collision("the room of a writer") }
            if let known = found.earlier, let room = found.room, known.mayHaveFirstContent(request, to: room),
                try MessageRetries.hasFirstContent(
                    request, of: known.message, room: SecretCode(stored: room), transaction)
            {
                answers.append(.success(known.receipt))
                continue
            }
            do throws(ChatError) {
                answers.append(.success(try answer(request, found)))
            } catch {
                answers.append(.failure(error))
            }
        }
        guard !drafts.isEmpty else { return answers }
        return try write(answers)
    }

    /// The result of a request. Checks in the same order as the SQLite store.
    private mutating func answer(_ request: PostRequest, _ found: Found) throws(ChatError) -> PostReceipt {
        guard let room = found.room, room == request.onlyRoom?.text ?? room else { throw .notJoined() }
        let key = request.idempotencyKey.map { [request.member.text, $0] }
        if let known = found.earlier ?? key.flatMap({ earlier[$0] }) {
            return try known.receipt(for: request, to: room)
        }
        if found.isClosed { throw .banned(isClosed: true, reason: found.closedReason, until: found.closedUntil) }
        guard let id = found.id else { throw .notJoined() }
        let draft = Draft(id: id, request: request, found: found)
        let nickname = Nickname(stored: found.nickname ?? request.program?.nickname.text ?? "")
        func alert(_ message: MessageID) -> ChatAlert {
            ChatAlert(
                nickname: nickname, content: request.content, code: SecretCode(stored: room), message: message,
                isOfProgram: request.member.isProgram)
        }
        if let app = found.app, found.lastMember != nil {
            // If the payload cannot be made, fail this request and not each later step.
            let app = settings.current(app)
            _ = try settings.format(app).payload(of: alert(.max))
        } else if found.lastMember == nil {
            // If a payload cannot be made, the request fails. The payloads added so far belong to no message, and are
            // not queued.
            for app in found.apps { try pushes.add(alert(id), app: app) }
        }
        drafts.append(draft)
        if let key { earlier[key] = EarlierPost(message: id, time: now, room: room, content: request.content) }
        return PostReceipt(message: id, time: now, isRepeat: false, queued: 0)
    }

    private func write(_ answers: [Result<PostReceipt, ChatError>]) throws -> [Result<PostReceipt, ChatError>] {
        // The row of a member's room has existed since the member joined.
        try RoomRow.make(Set(drafts.compactMap(\.request.program?.room.text)), now: now, transaction)
        transaction.pipeline(
            Self.insertSQL,
            [
                .ints(drafts.map(\.id)), .texts(drafts.map { $0.found.room ?? "" }),
                .texts(drafts.map(\.request.member.text)),
                .texts(drafts.map { $0.found.nickname ?? $0.request.program?.nickname.text ?? "" }),
                .optionalTexts(drafts.map(\.request.client.address)), .time(now),
                .optionalTexts(drafts.map(\.request.idempotencyKey)), .optionalInts(drafts.map(\.found.lastMember)),
            ] + MessageContent.lists(of: drafts.map(\.request.content)))
        let queued = try pushes.queue(for: drafts.map(\.id), transaction)
        // Another relay has committed a message with one of the keys after this transaction read. The next attempt
        // finds it.
        guard queued.count == drafts.count else { throw PostgresError.collision("an idempotency key") }
        transaction.announcement.messages.formUnion(drafts.compactMap(\.found.room))
        if queued.values.contains(where: { $0 > 0 }) { transaction.announcement.apps.formUnion(pushes.apps) }
        if drafts.contains(where: { $0.found.lastMember != nil }) { transaction.announcement.jobs = true }
        return answers.map { answer in
            answer.map { receipt in
                guard !receipt.isRepeat, let count = queued[receipt.message] else { return receipt }
                return PostReceipt(message: receipt.message, time: receipt.time, isRepeat: false, queued: count)
            }
        }
    }

    // MARK: - Statements

    /// The data that a request needs.
    private struct Found {
        /// `nil` if the member has not joined a room.
        let room: String?
        /// The nickname and the app of the writer. `nil` for a program.
        let nickname: String?
        let app: String?
        let earlier: EarlierPost?
        let isClosed: Bool
        let closedReason: String?
        let closedUntil: Timestamp?
        /// The apps of the other members with a device. Empty for a larger room.
        let apps: [String]
        /// The last member of a larger room. `nil` for a small room.
        let lastMember: Int64?
        /// The id for the message. `nil` if no message will be written.
        var id: MessageID?

        init(_ row: PostgresRow) throws {
            room = row.optionalText(0)
            (nickname, app) = (row.optionalText(1), row.optionalText(2))
            isClosed = !row.isNull(3)
            closedReason = row.optionalText(4)
            closedUntil = try row.optionalTime(5)
            apps = row.optionalText(6).map(ChatPushes.apps) ?? []
            lastMember = try row.optionalInt(7)
            id = try row.optionalInt(8)
            earlier = row.isNull(9) ? nil : try EarlierPost(row, from: 9)
        }
    }

    /// Locks the rooms of the members `$1` and the rooms `$2`, and returns their codes.
    static let lockSQL = """
        SELECT code, pg_advisory_xact_lock(key) FROM (
            SELECT code, hashtextextended(code, \(SQLLock.room.rawValue)) AS key FROM (
                SELECT secret_code AS code FROM active_users WHERE udid = ANY ($1::text[])
                UNION
                SELECT unnest($2::text[])) c
            ORDER BY key) k
        """

    /// Reads the data for each request: the writer `$1`, a program's room `$2` and the key `$3`, at the time `$4`.
    /// Reads at most `$5` members of a room. With that many it is not small, whether or not the writer is one of them.
    static let findSQL = """
        SELECT coalesce(a.room, w.secret_code), w.nickname, w.app, c.is_closed, c.reason, ms(c.time_ends),
            CASE WHEN NOT r.is_large THEN r.apps END,
            CASE WHEN r.is_large THEN (
                SELECT max(u.member_id) FROM active_users u WHERE u.secret_code = coalesce(a.room, w.secret_code)) END,
            CASE WHEN e.message_id IS NULL AND coalesce(a.room, w.secret_code) IS NOT NULL
                THEN nextval('messages_message_id_seq') END,
            \(EarlierPost.columns("e."))
        FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS a (udid, room, key, place)
        LEFT JOIN active_users w ON w.udid = a.udid AND a.room IS NULL
        LEFT JOIN messages e ON e.udid = a.udid AND e.idempotency_key = a.key
        LEFT JOIN LATERAL (
            SELECT true AS is_closed, b.reason, b.time_ends FROM bans b
            WHERE b.udid IS NULL AND b.device_token IS NULL AND b.address IS NULL AND b.secret_code = a.room
                AND (b.time_ends IS NULL OR b.time_ends > at($4::bigint))
            ORDER BY b.time_ends DESC NULLS FIRST LIMIT 1) c ON true
        CROSS JOIN LATERAL (
            SELECT count(*) + (a.room IS NOT NULL)::int >= $5::bigint AS is_large,
                string_agg(DISTINCT u.app, E'\\n') FILTER (WHERE u.device_token <> '0' AND u.udid <> a.udid) AS apps
            FROM (
                SELECT * FROM active_users WHERE secret_code = coalesce(a.room, w.secret_code)
                ORDER BY member_id LIMIT $5::bigint) u) r
        ORDER BY a.place
        """

    static let insertSQL = """
        INSERT INTO messages (message_id, secret_code, udid, nickname, ip_address, time_sent, idempotency_key,
            fanout_after, fanout_until, \(MessageContent.columns()))
        SELECT id, code, udid, nickname, address, at($6::bigint), key, CASE WHEN until IS NOT NULL THEN 0 END, until,
            \(MessageContent.columns())
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $7::text[], $8::bigint[],
            \(MessageContent.unnested(from: 9)))
            AS m (id, code, udid, nickname, address, key, until, \(MessageContent.columns()))
        ON CONFLICT (udid, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        """
}

extension PostgresError {
    /// Another transaction has changed data that was read. The transaction is retried.
    static func collision(_ what: String) -> PostgresError {
        PostgresError(kind: .refused, state: "40001", message: "\(what) has changed in the meantime")
    }
}
