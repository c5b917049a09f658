package import ChatDomain

/// The operator's view of rooms.
package struct SQLRoomRecords<Database: SQLDatabase>: RoomRecords {
    private let database: Database
    private let ids: APNSIDs

    package init(database: Database, ids: APNSIDs) {
        self.database = database
        self.ids = ids
    }

    package func rooms(
        startingWith prefix: String, after cursor: SecretCode?, limit: Int
    ) async throws(ChatError) -> RoomPage {
        try await database.read(.administration) { transaction in
            let rows = try transaction.rows(
                SQLRoomStatements.rooms,
                [.text(prefix), .text(cursor?.text ?? ""), .int(limit + 1), .text(prefix + "\u{10FFFF}")])
            let rooms = try rows.prefix(limit).map { row in
                RoomRecord(
                    code: SecretCode(stored: try row.text(0)), members: Int(try row.int(1)),
                    lastMessage: try row.optionalInt(2), lastMessageAt: try row.optionalTime(3),
                    choices: RoomChoices(row, from: 4))
            }
            return RoomPage(rooms: rooms, next: rows.count > limit ? rooms.last?.code : nil)
        }
    }

    package func edit(_ room: SecretCode, _ edit: RoomEdit) async throws(ChatError) -> RoomChoices {
        try await database.write(as: .answer) { [database] transaction in
            try transaction.lock(room: room)
            try RoomRow.make([room.text], now: database.now(), transaction)
            let row = try transaction.row(
                "SELECT history, title FROM rooms WHERE secret_code = $1 \(transaction.dialect.locked("rooms"))",
                [.text(room.text)])
            let choices = (row.map { RoomChoices($0, from: 0) } ?? RoomChoices()).edited(by: edit)
            try transaction.pipeline(
                "UPDATE rooms SET history = $1, title = $2 WHERE secret_code = $3",
                [.optional(choices.history?.rawValue), .optional(choices.title?.text), .text(room.text)])
            transaction.announcement.memberships.insert(room.text)
            return choices
        }
    }

    package func exists(_ room: SecretCode) async throws(ChatError) -> Bool {
        try await database.read { transaction in
            try transaction.row("SELECT 1 WHERE \(RoomRules.exists("$1"))", [.text(room.text)]) != nil
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
                FROM active_users WHERE secret_code = $1 AND member_id > $2 ORDER BY member_id LIMIT $3
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
                messages = try Message.messages(in: room, after: id, limit: limit + 1, transaction)
            case .newestFirst(let id):
                messages = try transaction.rows(
                    """
                    SELECT \(Message.columns()) FROM messages WHERE secret_code = $1 AND message_id < $2
                    ORDER BY message_id DESC LIMIT $3
                    """, [.text(room.text), .int(id ?? Int64.max), .int(limit + 1)]
                ).map { try Message($0) }
            }
            let page = messages.prefix(limit)
            return Page(
                items: page.map { MessageRecord(message: $0, room: room) },
                next: messages.count > limit ? page.last?.id : nil)
        }
    }

    package func search(_ search: MessageSearch, limit: Int) async throws(ChatError) -> Page<MessageRecord> {
        try await database.read(.search) { transaction in
            let (room, from): (SecretCode, MessageID) =
                switch search.scope {
                case .room(let code): (code, 0)
                case .member(let member): try Self.stay(of: member, transaction)
                }
            var (found, examined, last) = ([MessageID](), 0, search.before ?? .max)
            let end = ContinuousClock.now + search.limit
            var isEnd = false
            // Reads only the texts, because most messages do not match.
            read: while examined < MessageSearch.mostExamined {
                let rows = try transaction.rows(
                    """
                    SELECT message_id, text, title FROM messages
                    WHERE secret_code = $1 AND message_id > $2 AND message_id < $3 ORDER BY message_id DESC LIMIT $4
                    """, [.text(room.text), .int(from), .int(last), .int(MessageSearch.step)])
                for row in rows {
                    // A further message ends the page. It need not match.
                    if found.count == limit { break read }
                    last = try row.int(0)
                    if search.text.isFound(inText: try row.text(1), title: row.optionalText(2)) { found.append(last) }
                }
                isEnd = rows.count < MessageSearch.step
                if isEnd { break }
                examined += rows.count
                if ContinuousClock.now >= end { break }
            }
            let messages = try transaction.rows(
                """
                SELECT \(MessageRecord.columns()) FROM messages
                WHERE \(transaction.dialect.isAny("message_id", of: "$1", "bigint")) ORDER BY message_id DESC
                """, [.ints(found)]
            ).map { try MessageRecord($0) }
            return Page(items: messages, next: isEnd ? nil : last)
        }
    }

    /// Returns a member's room, and the message after which it may read.
    private static func stay(
        of member: MemberID, _ transaction: Database.Transaction
    ) throws -> (SecretCode, MessageID) {
        let row = try transaction.row(
            "SELECT secret_code, history_from FROM active_users WHERE udid = $1", [.text(member.text)])
        guard let row else { throw ChatError.notJoined() }
        return (SecretCode(stored: try row.text(0)), try row.int(1))
    }

    package func members(
        for member: MemberID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> RoomMemberPage {
        try await database.read { transaction in
            let (room, from) = try Self.stay(of: member, transaction)
            let page = try transaction.page(
                """
                SELECT member_id, udid, nickname, ms(time_joined), ms(time_updated), ms(time_last_message),
                    ms(time_fetched)
                FROM active_users WHERE secret_code = $1 AND member_id > $2 ORDER BY member_id LIMIT $3
                """, [.text(room.text), .int(cursor ?? Int64(0)), .int(limit + 1)], limit: limit)
            let members = try page.rows.map { row in
                let times = [try row.time(3), try row.time(4), try row.optionalTime(5), try row.optionalTime(6)]
                return RoomMember(
                    nickname: try row.text(2), isOwn: try row.text(1) == member.text,
                    lastSeen: times.compactMap(\.self).max() ?? Timestamp(seconds: 0))
            }
            return RoomMemberPage(
                members: Page(items: members, next: page.next),
                programs: cursor == nil ? try Self.programs(in: room, after: from, transaction) : [],
                receivers: cursor == nil ? try Self.receivers(of: room, transaction) : [])
        }
    }

    /// Returns the receivers of a room's events, each once. An ended webhook sends nothing. A paused one does later.
    private static func receivers(
        of room: SecretCode, _ transaction: Database.Transaction
    ) throws -> [RoomReceiver] {
        let rows = try transaction.rows(
            """
            SELECT \(WebhookSettings.columns()) FROM webhooks
            WHERE state <> 'ended' AND (secret_code IS NULL OR secret_code = $1) ORDER BY webhook_id
            """, [.text(room.text)])
        var receivers: [RoomReceiver] = []
        for row in rows {
            if let receiver = RoomReceiver(try WebhookSettings(row)), !receivers.contains(receiver) {
                receivers.append(receiver)
            }
        }
        return receivers
    }

    private static func programs(
        in room: SecretCode, after from: MessageID, _ transaction: Database.Transaction
    ) throws -> [RoomProgram] {
        let rows = try transaction.rows(
            """
            SELECT udid, nickname, ms(time_sent) FROM messages
            WHERE secret_code = $1 AND message_id > $2 ORDER BY message_id DESC LIMIT $3
            """, [.text(room.text), .int(from), .int(RoomProgram.recent)])
        var programs: [RoomProgram] = []
        for row in rows where programs.count < RoomProgram.most {
            let (writer, name) = (MemberID(stored: try row.text(0)), try row.text(1))
            let isOperator = writer == .administrator
            guard writer.isProgram, !programs.contains(where: { $0.name == name && $0.isOperator == isOperator })
            else { continue }
            programs.append(RoomProgram(name: name, isOperator: isOperator, lastSeen: try row.time(2)))
        }
        return programs
    }

    package func reach(of messages: [MessageRecord]) async throws(ChatError) -> [MessageReach] {
        try await database.read(.administration) { transaction in
            try ReadState.reach(of: messages.map(ReadState.Subject.init), most: Receipt.mostCounted, transaction)
        }
    }

    package func progress(of message: MessageID) async throws(ChatError) -> MessageProgress {
        try await database.read(.administration) { transaction in
            let row = try transaction.row(
                "SELECT fanout_after IS NOT NULL, \(MessageRecord.columns()) FROM messages WHERE message_id = $1",
                [.int(message)])
            guard let row else { throw ChatError.notFound("message") }
            let (isQueueing, record) = (try row.bool(0), try MessageRecord(row, from: 1))
            var counts: [PushState: Int] = [:]
            for row in try transaction.rows(
                "SELECT state, count(*) FROM push_queue WHERE chat_message = $1 GROUP BY state", [.int(message)])
            {
                if let state = PushState(rawValue: try row.text(0)) { counts[state] = Int(try row.int(1)) }
            }
            let subject = ReadState.Subject(record)
            let reach = try ReadState.reach(of: [subject], most: nil, transaction)[0]
            return MessageProgress(
                message: record, isQueueing: isQueueing, counts: counts, readers: reach.readers,
                shown: reach.shown, fetched: reach.fetched,
                fetchedBy: try ReadState.names(
                    of: [subject], limit: MessageProgress.mostNames, most: nil, transaction)[message] ?? [])
        }
    }

    package func deliveries(
        ofMessage message: MessageID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<MessageDelivery> {
        try await database.read(.administration) { [ids] transaction in
            let page = try transaction.page(
                SQLRoomStatements.messageDeliveries(transaction.dialect),
                [.int(message), .int(cursor ?? Int64.min), .int(limit + 1)], limit: limit)
            let deliveries = try page.rows.map { row in
                MessageDelivery(delivery: try Delivery(row, ids), isFetched: try row.bool(14))
            }
            return Page(items: deliveries, next: page.next)
        }
    }

    package func failures(
        of app: AppName?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Delivery> {
        try await database.read(.administration) { [ids] transaction in
            let last: SQLValue = .optional(cursor)
            if cursor != nil, try transaction.row(SQLRoomStatements.failureTime, [last]) == nil {
                throw ChatError.invalid("cursor", "that failure no longer exists; start from the first page")
            }
            let window = app == nil ? limit + 1 : SQLPage.window + 1
            let page = try transaction.page(
                SQLRoomStatements.failures(transaction.dialect), [last, .int(window)], limit: limit
            ) { row in app.map { row.optionalText(4) == $0.text } ?? true }
            return Page(items: try page.rows.map { try Delivery($0, ids) }, next: page.next)
        }
    }
}

extension RoomChoices {
    /// - Parameter row: Has the columns `history` and `title` of the table `rooms`, beginning at `first`.
    fileprivate init(_ row: some SQLRow, from first: Int) {
        self.init(
            history: row.optionalText(first).flatMap(RoomHistory.init(rawValue:)),
            title: row.optionalText(first + 1).map(RoomTitle.init(stored:)))
    }
}

/// The statements of ``SQLRoomRecords``.
package enum SQLRoomStatements {
    /// Jumps from one code to the next through the indexes of members and of messages. A room may have only members or
    /// only messages. The rows come in the order of the jumps. The last row of `codes` is NULL, unless the limit ends
    /// the search.
    package static let rooms = """
        WITH RECURSIVE codes (code) AS (
            SELECT min(code) FROM (
                SELECT min(secret_code) AS code FROM active_users WHERE secret_code > $2 AND secret_code >= $1
                UNION ALL
                SELECT min(secret_code) FROM messages WHERE secret_code > $2 AND secret_code >= $1) f
            UNION ALL
            SELECT (SELECT min(code) FROM (
                SELECT min(secret_code) AS code FROM active_users WHERE secret_code > c.code
                UNION ALL
                SELECT min(secret_code) FROM messages WHERE secret_code > c.code) n)
            FROM codes c WHERE c.code IS NOT NULL)
        SELECT r.code, r.members, r.last, (SELECT ms(m.time_sent) FROM messages m WHERE m.message_id = r.last),
            (SELECT o.history FROM rooms o WHERE o.secret_code = r.code),
            (SELECT o.title FROM rooms o WHERE o.secret_code = r.code)
        FROM (
            SELECT c.code AS code,
                (SELECT count(*) FROM active_users u WHERE u.secret_code = c.code) AS members,
                (SELECT max(m.message_id) FROM messages m WHERE m.secret_code = c.code) AS last
            FROM (SELECT code FROM codes LIMIT $3) c WHERE c.code < $4) r
        """

    /// In the order of the queue. The index has a message's pushes in the order of their devices. Each page therefore
    /// reads all of them and keeps the lowest push ids after the cursor. There are at most as many as the room has
    /// members: 100,000 cost 20 ms in SQLite, and 1,000 cost 0.2 ms. Pushes from before schema version 8 name no member:
    /// use the member that has the device now.
    package static func messageDeliveries(_ dialect: SQLDialect) -> String {
        let pushes =
            dialect == .sqlite
            ? """
            (SELECT message_id AS push_id FROM push_queue WHERE chat_message = $1 AND message_id > $2
                ORDER BY message_id LIMIT $3) p
            CROSS JOIN push_queue q ON q.message_id = p.push_id
            """
            : """
            (SELECT * FROM (SELECT * FROM push_queue WHERE chat_message = $1 AND message_id > $2 OFFSET 0) p
                ORDER BY message_id LIMIT $3) q
            """
        return """
            SELECT \(Delivery.columns), EXISTS (
                SELECT 1 FROM active_users u WHERE u.member_id = q.member AND u.fetched_to >= q.chat_message)
            OR EXISTS (
                SELECT 1 FROM past_members u WHERE u.member_id = q.member AND u.fetched_to >= q.chat_message)
            OR q.member IS NULL AND EXISTS (
                SELECT 1 FROM active_users u JOIN messages m ON m.message_id = q.chat_message
                WHERE u.device_token = q.device_token AND u.device_token <> '0' AND u.app = q.app
                    AND u.secret_code = m.secret_code AND u.history_from < q.chat_message
                    AND u.fetched_to >= q.chat_message)
            FROM \(pushes) ORDER BY q.message_id
            """
    }

    /// The time of the failure `$1`. Another partition of PostgreSQL may have a push with the same id.
    package static let failureTime = """
        SELECT time_settled FROM push_queue
        WHERE message_id = $1 AND (state = 'failed' OR state = 'expired') AND time_settled IS NOT NULL LIMIT 1
        """

    /// In the order of failure, the latest first, from before the failure `$1`, which may be NULL. The condition on the
    /// state is that of the index, word for word: SQLite uses a partial index only if the statement contains the same
    /// term.
    package static func failures(_ dialect: SQLDialect) -> String {
        let latest = "at(253402300799999)"
        return """
            SELECT \(Delivery.columns) FROM push_queue q \(dialect.indexed(by: "push_queue_lost"))
            WHERE (q.state = 'failed' OR q.state = 'expired')
                AND (q.time_settled, q.message_id) < (coalesce((\(failureTime)), \(latest)), coalesce(CAST($1 AS bigint), 0))
            ORDER BY q.time_settled DESC, q.message_id DESC LIMIT $2
            """
    }
}

extension RoomSummary {
    /// Reads the summary of a room, which need not exist.
    package init(of room: SecretCode, _ transaction: some SQLTransaction) throws {
        let row = try transaction.row(
            """
            SELECT (SELECT count(*) FROM active_users WHERE secret_code = $1),
                (SELECT title FROM rooms WHERE secret_code = $1)
            """, [.text(room.text)])
        self.init(
            members: Int(try row?.int(0) ?? 0),
            title: row?.optionalText(1).map(RoomTitle.init(stored:)))
    }
}
