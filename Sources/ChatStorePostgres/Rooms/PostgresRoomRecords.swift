package import ChatDomain
import ChatSQL

/// The operator's view of rooms.
package struct PostgresRoomRecords: RoomRecords {
    private let database: PostgresDatabase
    private let ids: APNSIDs

    init(database: PostgresDatabase) {
        self.database = database
        ids = APNSIDs(key: database.idKey)
    }

    package func rooms(
        startingWith prefix: String, after cursor: SecretCode?, limit: Int
    ) async throws(ChatError) -> RoomPage {
        try await database.read { transaction in
            let rows = try transaction.rows(
                Self.roomsSQL, [.text(prefix), .text(cursor?.text ?? ""), .int(limit + 1)])
            let rooms = try rows.prefix(limit).map { row in
                RoomRecord(
                    code: SecretCode(stored: try row.text(0)), members: Int(try row.int(1)),
                    lastMessage: try row.optionalInt(2), lastMessageAt: try row.optionalTime(3),
                    history: row.optionalText(4).flatMap(RoomHistory.init(rawValue:)))
            }
            return RoomPage(rooms: rooms, next: rows.count > limit ? rooms.last?.code : nil)
        }
    }

    /// Jumps from one code to the next through the indexes of members and of messages. A room may have only members or
    /// only messages. The last row of `codes` is NULL, unless the limit ends the search.
    static let roomsSQL = """
        WITH RECURSIVE codes (code) AS (
            SELECT least(
                (SELECT min(secret_code) FROM active_users WHERE secret_code > $2::text AND secret_code >= $1::text),
                (SELECT min(secret_code) FROM messages WHERE secret_code > $2::text AND secret_code >= $1::text))
            UNION ALL
            SELECT least(
                (SELECT min(secret_code) FROM active_users WHERE secret_code > c.code),
                (SELECT min(secret_code) FROM messages WHERE secret_code > c.code))
            FROM codes c WHERE c.code IS NOT NULL)
        SELECT c.code, u.members, m.message_id, ms(m.time_sent),
            (SELECT r.history FROM rooms r WHERE r.secret_code = c.code)
        FROM (SELECT code FROM codes LIMIT $3::bigint) c
        CROSS JOIN LATERAL (SELECT count(*) AS members FROM active_users WHERE secret_code = c.code) u
        LEFT JOIN LATERAL (
            SELECT message_id, time_sent FROM messages WHERE secret_code = c.code ORDER BY message_id DESC LIMIT 1) m ON true
        WHERE c.code < $1::text || chr(1114111) ORDER BY c.code
        """

    package func setHistory(_ history: RoomHistory?, of room: SecretCode) async throws(ChatError) {
        try await database.write(isRepeatable: true) { [database] transaction in
            RoomRow.setHistory(history, of: room, now: database.now(), transaction)
        }
    }

    package func members(
        of room: SecretCode, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<MemberRecord> {
        try await database.read { transaction in
            let page = try transaction.page(
                """
                SELECT member_id, nickname, nullif(device_token, '0'), app, ms(time_joined), ms(time_last_message),
                    nullif(fetched_to, 0), ms(time_fetched), nullif(shown_to, 0)
                FROM active_users WHERE secret_code = $1::text AND member_id > $2::bigint
                ORDER BY member_id LIMIT $3::bigint
                """, [.text(room.text), .int(cursor ?? Int64(0)), .int(limit + 1)], limit: limit)
            let members = try page.rows.map { row in
                MemberRecord(
                    id: try row.int(0), nickname: try row.text(1), token: row.optionalText(2),
                    app: AppName(try row.text(3)), joinedAt: try row.time(4), lastMessageAt: try row.optionalTime(5),
                    fetchedTo: try row.optionalInt(6), fetchedAt: try row.optionalTime(7),
                    shownTo: try row.optionalInt(8))
            }
            return Page(items: members, next: page.next)
        }
    }

    package func messages(
        of room: SecretCode, _ order: MessageOrder, limit: Int
    ) async throws(ChatError) -> Page<MessageRecord> {
        try await database.read { transaction in
            let messages: [Message]
            switch order {
            case .oldestFirst(let id):
                messages = try PostgresRoomFeed.messages(in: room, after: id, limit: limit + 1, transaction)
            case .newestFirst(let id):
                messages = try transaction.rows(
                    """
                    SELECT \(Message.columns) FROM messages WHERE secret_code = $1::text AND message_id < $2::bigint
                    ORDER BY message_id DESC LIMIT $3::bigint
                    """, [.text(room.text), .int(id ?? Int64.max), .int(limit + 1)]
                ).map { try Message($0) }
            }
            let page = messages.prefix(limit)
            return Page(
                items: page.map { MessageRecord(message: $0, room: room) },
                next: messages.count > limit ? page.last?.id : nil)
        }
    }

    package func reach(of messages: [MessageRecord]) async throws(ChatError) -> [MessageReach] {
        try await database.read { transaction in
            try ReadState.reach(of: messages.map(ReadState.Subject.init), most: Receipt.mostCounted, transaction)
        }
    }

    package func progress(of message: MessageID) async throws(ChatError) -> MessageProgress {
        try await database.read { transaction in
            let row = try transaction.row(
                """
                SELECT \(Message.columns), secret_code, fanout_after IS NOT NULL FROM messages WHERE message_id = $1::bigint
                """, [.int(message)])
            guard let row else { throw ChatError.notFound("message") }
            let record = MessageRecord(message: try Message(row), room: SecretCode(stored: try row.text(9)))
            var counts: [PushState: Int] = [:]
            for row in try transaction.rows(
                "SELECT state, count(*) FROM push_queue WHERE chat_message = $1::bigint GROUP BY state",
                [.int(message)])
            {
                if let state = PushState(rawValue: try row.text(0)) { counts[state] = Int(try row.int(1)) }
            }
            let subjects = [ReadState.Subject(record)]
            let reach = try ReadState.reach(of: subjects, most: nil, transaction)[0]
            let names = try ReadState.names(
                of: subjects, limit: MessageProgress.mostNames, most: nil, transaction)
            return MessageProgress(
                message: record, isQueueing: try row.bool(10), counts: counts, readers: reach.readers,
                shown: reach.shown, fetched: reach.fetched, fetchedBy: names[message] ?? [])
        }
    }

    package func deliveries(
        ofMessage message: MessageID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<MessageDelivery> {
        try await database.read { transaction in
            let page = try transaction.page(
                Self.messageDeliveriesSQL, [.int(message), .int(cursor ?? Int64.min), .int(limit + 1)], limit: limit)
            let deliveries = try page.rows.map { row in
                MessageDelivery(delivery: try Delivery(row, ids), isFetched: try row.bool(14))
            }
            return Page(items: deliveries, next: page.next)
        }
    }

    /// In the order of the queue. The index has a message's pushes in the order of their devices. Each page therefore
    /// reads all of them and keeps the lowest push ids after the cursor. There are at most as many as the room has
    /// members. Pushes that an early version queued name no member: use the member that has the device now.
    static let messageDeliveriesSQL = """
        SELECT \(Delivery.columns), EXISTS (
            SELECT 1 FROM active_users u WHERE u.member_id = q.member AND u.fetched_to >= q.chat_message)
        OR EXISTS (
            SELECT 1 FROM past_members u WHERE u.member_id = q.member AND u.fetched_to >= q.chat_message)
        OR q.member IS NULL AND EXISTS (
            SELECT 1 FROM active_users u JOIN messages m ON m.message_id = q.chat_message
            WHERE u.device_token = q.device_token AND u.device_token <> '0' AND u.app = q.app
                AND u.secret_code = m.secret_code AND u.history_from < q.chat_message
                AND u.fetched_to >= q.chat_message)
        FROM (
            SELECT * FROM (SELECT * FROM push_queue WHERE chat_message = $1::bigint AND message_id > $2::bigint OFFSET 0) p
            ORDER BY message_id LIMIT $3::bigint) q
        ORDER BY q.message_id
        """

    package func failures(
        of app: AppName?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read { transaction in
            var end: Timestamp?
            if let cursor {
                let row = try transaction.row(
                    """
                    SELECT ms(time_settled) FROM push_queue
                    WHERE message_id = $1::bigint AND state IN ('failed', 'expired') AND time_settled IS NOT NULL
                    """, [.int(cursor)])
                guard let row else {
                    throw ChatError.invalid("cursor", "that failure no longer exists; start from the first page")
                }
                end = try row.time(0)
            }
            let window = app == nil ? limit + 1 : SQLPage.window + 1
            let page = try transaction.page(
                Self.failuresSQL, [.optional(end), .int(cursor ?? Int64(0)), .int(window)], limit: limit
            ) { row in app.map { row.optionalText(4) == $0.text } ?? true }
            return Page(items: try page.rows.map { try Delivery($0, ids) }, next: page.next)
        }
    }

    /// In the order of failure, the latest first.
    static let failuresSQL = """
        SELECT \(Delivery.columns) FROM push_queue q
        WHERE q.state IN ('failed', 'expired')
            AND (q.time_settled, q.message_id) < (coalesce(at($1::bigint), 'infinity'::timestamptz), $2::bigint)
        ORDER BY q.time_settled DESC, q.message_id DESC LIMIT $3::bigint
        """
}

extension ReadState.Subject {
    fileprivate init(_ record: MessageRecord) {
        self.init(message: record.message.id, writer: record.message.sender, room: record.room)
    }
}
