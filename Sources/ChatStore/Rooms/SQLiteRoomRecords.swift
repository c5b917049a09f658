package import ChatDomain
import ChatSQL
import GRDB

/// The operator's view of rooms, from the SQLite file.
package struct SQLiteRoomRecords: RoomRecords {
    let database: SQLiteDatabase
    let ids: APNSIDs

    package func rooms(
        startingWith prefix: String, after cursor: SecretCode?, limit: Int
    ) async throws(ChatError) -> RoomPage {
        try await database.read { db in
            let rows = try db.rows(
                Self.roomsSQL, ["prefix": prefix, "after": cursor?.text ?? "", "limit": limit + 1])
            let rooms = rows.prefix(limit).map { row in
                RoomRecord(
                    code: SecretCode(stored: row[0]), members: row[1], lastMessage: row[2],
                    lastMessageAt: row.optionalTime(3),
                    history: (row[4] as String?).flatMap(RoomHistory.init(rawValue:)))
            }
            return RoomPage(rooms: rooms, next: rows.count > limit ? rooms.last?.code : nil)
        }
    }

    /// Jumps from one code to the next through the indexes of members and of messages. A room may have only members or
    /// only messages.
    static let roomsSQL = """
        WITH RECURSIVE codes (code) AS (
            SELECT (SELECT min(code) FROM (
                SELECT min(secret_code) AS code FROM active_users WHERE secret_code > :after AND secret_code >= :prefix
                UNION ALL
                SELECT min(secret_code) FROM messages WHERE secret_code > :after AND secret_code >= :prefix))
            UNION ALL
            SELECT (SELECT min(code) FROM (
                SELECT min(secret_code) AS code FROM active_users WHERE secret_code > c.code
                UNION ALL
                SELECT min(secret_code) FROM messages WHERE secret_code > c.code))
            FROM codes c WHERE c.code IS NOT NULL
            LIMIT :limit)
        SELECT r.code, r.members, r.last, (SELECT m.time_sent FROM messages m WHERE m.message_id = r.last),
            (SELECT o.history FROM rooms o WHERE o.secret_code = r.code)
        FROM (
            SELECT c.code AS code,
                (SELECT count(*) FROM active_users u WHERE u.secret_code = c.code) AS members,
                (SELECT max(m.message_id) FROM messages m WHERE m.secret_code = c.code) AS last
            FROM codes c WHERE c.code < :prefix || char(0x10FFFF)) r
        """

    package func setHistory(_ history: RoomHistory?, of room: SecretCode) async throws(ChatError) {
        _ = try await database.writer.perform { db in
            try RoomRow.setHistory(history, of: room, now: database.now(), db)
        }
    }

    package func members(
        of room: SecretCode, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<MemberRecord> {
        try await database.read { db in
            let page = try db.page(
                """
                SELECT member_id, nickname, nullif(device_token, '0'), app, time_joined, time_last_message,
                    nullif(fetched_to, 0), time_fetched, nullif(shown_to, 0)
                FROM active_users WHERE secret_code = ? AND member_id > ? ORDER BY member_id LIMIT ?
                """, [room.text, cursor ?? 0, limit + 1], limit: limit)
            let members = page.rows.map { row in
                MemberRecord(
                    id: row[0], nickname: row[1], token: row[2], app: AppName(row[3]), joinedAt: row.time(4),
                    lastMessageAt: row.optionalTime(5), fetchedTo: row[6], fetchedAt: row.optionalTime(7),
                    shownTo: row[8])
            }
            return Page(items: members, next: page.next)
        }
    }

    package func messages(
        of room: SecretCode, _ order: MessageOrder, limit: Int
    ) async throws(ChatError) -> Page<MessageRecord> {
        try await database.read { db in
            let messages: [Message]
            switch order {
            case .oldestFirst(let id):
                messages = try SQLiteRoomFeed.messages(in: room, after: id, limit: limit + 1, db)
            case .newestFirst(let id):
                messages = try db.rows(
                    """
                    SELECT \(Message.columns) FROM messages WHERE secret_code = ? AND message_id < ?
                    ORDER BY message_id DESC LIMIT ?
                    """, [room.text, id ?? Int64.max, limit + 1]
                ).map(Message.init)
            }
            let page = messages.prefix(limit)
            return Page(
                items: page.map { MessageRecord(message: $0, room: room) },
                next: messages.count > limit ? page.last?.id : nil)
        }
    }

    package func reach(of messages: [MessageRecord]) async throws(ChatError) -> [MessageReach] {
        try await database.read { db in
            try messages.map { record in
                try ReadState.reach(
                    of: record.message.id, by: record.message.sender, in: record.room.text, most: Receipt.mostCounted,
                    db)
            }
        }
    }

    package func progress(of message: MessageID) async throws(ChatError) -> MessageProgress {
        try await database.read { db in
            let row = try db.row(
                "SELECT \(Message.columns), secret_code, fanout_after IS NOT NULL FROM messages WHERE message_id = ?",
                [message])
            guard let row else { throw ChatError.notFound("message") }
            let record = MessageRecord(message: Message(row), room: SecretCode(stored: row[9]))
            let counts = try db.rows(
                "SELECT state, count(*) FROM push_queue WHERE chat_message = ? GROUP BY state", [message])
            let (writer, room) = (record.message.sender, record.room.text)
            let reach = try ReadState.reach(of: message, by: writer, in: room, most: nil, db)
            return MessageProgress(
                message: record, isQueueing: row[10],
                counts: counts.reduce(into: [:]) { counts, row in
                    if let state = PushState(rawValue: row[0]) { counts[state] = row[1] }
                },
                readers: reach.readers, shown: reach.shown, fetched: reach.fetched,
                fetchedBy: try ReadState.names(
                    of: message, by: writer, in: room, limit: MessageProgress.mostNames, most: nil, db))
        }
    }

    package func deliveries(
        ofMessage message: MessageID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<MessageDelivery> {
        try await database.read { db in
            let page = try db.page(
                Self.messageDeliveriesSQL, [message, cursor ?? Int64.min, limit + 1], limit: limit)
            let deliveries = try page.rows.map { row in
                MessageDelivery(delivery: try Delivery(SQLiteRow(row: row), ids), isFetched: row[14])
            }
            return Page(items: deliveries, next: page.next)
        }
    }

    /// In the order of the queue. The index has a message's pushes in the order of their devices. Each page therefore
    /// reads all of them and keeps the lowest push ids after the cursor. There are at most as many as the room has
    /// members: 100,000 cost 20 ms, and 1,000 cost 0.2 ms. Pushes from before schema version 8 name no member: use the
    /// member that has the device now.
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
            SELECT message_id AS push_id FROM push_queue WHERE chat_message = ? AND message_id > ?
            ORDER BY message_id LIMIT ?) p
        CROSS JOIN push_queue q ON q.message_id = p.push_id ORDER BY p.push_id
        """

    package func failures(
        of app: AppName?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read { db in
            var end: String?
            if let cursor {
                end = try db.value(
                    """
                    SELECT time_settled FROM push_queue
                    WHERE message_id = ? AND (state = 'failed' OR state = 'expired') AND time_settled IS NOT NULL
                    """, [cursor])
                guard end != nil else {
                    throw ChatError.invalid("cursor", "that failure no longer exists; start from the first page")
                }
            }
            let page = try db.page(
                Self.failuresSQL,
                [end ?? "9999", cursor ?? 0, app == nil ? limit + 1 : SQLPage.window + 1], limit: limit
            ) { row in app.map { row[4] as String == $0.text } ?? true }
            return Page(items: try page.rows.map { try Delivery(SQLiteRow(row: $0), ids) }, next: page.next)
        }
    }

    /// In the order of failure, the latest first. The condition on the state is that of the index, word for word:
    /// SQLite uses a partial index only if the statement contains the same term.
    static let failuresSQL = """
        SELECT \(Delivery.columns) FROM push_queue q INDEXED BY push_queue_lost
        WHERE (q.state = 'failed' OR q.state = 'expired') AND (q.time_settled, q.message_id) < (?, ?)
        ORDER BY q.time_settled DESC, q.message_id DESC LIMIT ?
        """
}
