package import ChatDomain

extension ScheduledMessage: SQLReadable {
    package static func columns(_ table: String = "") -> String {
        """
        \(table)scheduled_id, \(table)secret_code, \(table)author, \(table)nickname, \(table)message_key, \
        \(table)revision, \(table)due, \(table)is_held, \(MessageContent.columns(table))
        """
    }

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        let (id, room, author) = (try row.int(), try row.text(), try row.text())
        let (nickname, key, revision) = (try row.text(), row.optionalText(), try row.int())
        let (due, isHeld) = (try row.time(), try row.bool())
        self.init(
            id: id, room: SecretCode(stored: room), author: MemberID(stored: author), nickname: nickname,
            key: key.map(MessageKey.init(stored:)), content: try MessageContent(&row), revision: Int(revision),
            due: due, isHeld: isHeld)
    }

    static func of(_ id: MessageID, _ transaction: some SQLTransaction) throws -> ScheduledMessage? {
        try transaction.row("SELECT \(columns()) FROM scheduled_messages WHERE scheduled_id = $1", [.int(id)])
            .map { try ScheduledMessage($0) }
    }

    /// The scheduled messages with a key, by one author or by all.
    static func all(
        with key: MessageKey, in room: SecretCode, by author: MemberID?, limit: Int, _ transaction: some SQLTransaction
    ) throws -> [ScheduledMessage] {
        try transaction.rows(
            """
            SELECT \(columns()) FROM scheduled_messages
            WHERE secret_code = $1 AND message_key = $2 \(author == nil ? "" : "AND author = $4")
            ORDER BY scheduled_id LIMIT $3
            """, [.text(room.text), .text(key.text), .int(limit)] + (author.map { [.text($0.text)] } ?? [])
        ).map { try ScheduledMessage($0) }
    }

    /// Deletes scheduled messages, and writes a record for each room.
    ///
    /// - Parameter condition: Selects the rows. The parameters are its values.
    static func drop(
        where condition: String, _ values: [SQLValue], by moderator: Moderator, at now: Timestamp,
        _ transaction: some SQLTransaction
    ) throws {
        let rows = try transaction.rows(
            "DELETE FROM scheduled_messages WHERE \(condition) RETURNING secret_code", values)
        let counts = try rows.reduce(into: [String: Int]()) { $0[try $1.text(0), default: 0] += 1 }
        for (room, count) in counts.sorted(by: { $0.key < $1.key }) {
            try recordDrop(of: count, in: room, by: moderator, at: now, transaction)
        }
    }

    static func recordDrop(
        of count: Int, in room: String, by moderator: Moderator, at now: Timestamp, _ transaction: some SQLTransaction
    ) throws {
        _ = try ModerationRecord.write(
            .unschedule, "\(count) scheduled message\(count == 1 ? "" : "s")", in: room, by: moderator, at: now,
            transaction)
    }

    /// Remembers the message that a scheduled one has become. An open message may get several, of which it keeps the last
    /// numbers.
    static func remember(
        _ scheduled: MessageID, postedAs message: MessageID, _ transaction: some SQLTransaction
    ) throws {
        try transaction.pipeline(
            "INSERT INTO posted_schedules (scheduled_id, message_id) VALUES ($1, $2)",
            [.int(scheduled), .int(message)])
        try transaction.pipeline(
            """
            DELETE FROM posted_schedules WHERE message_id = $1 AND scheduled_id <= (
                SELECT scheduled_id FROM posted_schedules WHERE message_id = $1
                ORDER BY scheduled_id DESC LIMIT 1 OFFSET $2)
            """, [.int(message), .int(MessageChangeLimits.retries)])
    }
}

extension ScheduledMessage.Backlog {
    package static func sql(at now: Timestamp) -> String {
        """
        SELECT (SELECT count(*) FROM scheduled_messages WHERE is_held),
            (SELECT count(*) FROM scheduled_messages WHERE NOT is_held AND due < \((now - .seconds(60)).milliseconds))
        """
    }

    package init(_ row: some SQLRow) throws {
        self.init(held: Int(try row.int(0)), overdue: Int(try row.int(1)))
    }
}
