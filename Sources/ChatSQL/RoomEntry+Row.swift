package import ChatDomain

extension MessageChange: SQLReadable {
    /// The columns of the table `message_states`. The first one is NULL for a message without changes.
    package static func columns(_ table: String = "") -> String {
        """
        \(table)change_id, \(table)change, \(table)message_id, \(table)author, \(table)message_key, \(table)is_apart, \
        \(table)revision, ms(\(table)time_changed)
        """
    }
    /// The number of ``columns(_:)``.
    package static let columnCount = 8

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        let (id, kind) = (try row.int(), Kind(rawValue: try row.text()))
        guard let kind else { throw UnexpectedColumn(column: 1) }
        self.init(
            id: id, kind: kind, message: try row.int(), author: MemberID(stored: try row.text()),
            key: row.optionalText().map(MessageKey.init(stored:)), isApart: try row.bool(),
            revision: Int(try row.int()),
            time: try row.time())
    }

    /// Returns `nil` if the message was not changed.
    package static func optional(_ row: some SQLRow, from first: Int = 0) throws -> MessageChange? {
        try row.optionalInt(first) == nil ? nil : MessageChange(row, from: first)
    }
}

extension RoomEntry {
    /// The messages of a room and the changes after `id`, in order.
    ///
    /// - Parameter history: Only changes of messages after this one.
    package static func entries(
        in room: SecretCode, after id: MessageID, history: MessageID = 0, limit: Int,
        _ transaction: some SQLTransaction
    ) throws -> [RoomEntry] {
        try transaction.rows(entriesSQL, [.text(room.text), .int(id), .int(limit), .int(history)]).map { row in
            let change = try MessageChange.optional(row)
            let message =
                try row.optionalInt(MessageChange.columnCount) == nil
                ? nil : Message(row, from: MessageChange.columnCount)
            switch (change, message) {
            case (let change?, let message): return .change(change, message)
            case (nil, let message?): return .message(message)
            case (nil, nil): throw UnexpectedColumn(column: 0)
            }
        }
    }

    /// The id of a room's newest message or change. 0 if it has none.
    package static func last(in room: SecretCode, _ transaction: some SQLTransaction) throws -> MessageID {
        let row = try transaction.row(
            """
            SELECT coalesce((SELECT max(message_id) FROM messages WHERE secret_code = $1), 0),
                coalesce((SELECT max(change_id) FROM message_states WHERE secret_code = $1 AND change_id IS NOT NULL), 0)
            """, [.text(room.text)])
        return try row.map { max(try $0.int(0), try $0.int(1)) } ?? 0
    }

    /// A single statement: between two of them, a commit could add both a message and a later change, of which the
    /// caller would see only one.
    package static let entriesSQL = """
        SELECT \(MessageChange.columns("s.")), \(Message.columns("m."))
        FROM (
            SELECT id, message FROM (
                SELECT message_id AS id, message_id AS message FROM messages
                WHERE secret_code = $1 AND message_id > $2 ORDER BY message_id LIMIT $3) a
            UNION ALL
            SELECT id, message FROM (
                SELECT change_id AS id, message_id AS message FROM message_states
                WHERE secret_code = $1 AND change_id > $2 AND message_id > $4 ORDER BY change_id LIMIT $3) b) e
        LEFT JOIN messages m ON m.message_id = e.message
        LEFT JOIN message_states s ON s.message_id = e.message AND s.change_id = e.id
        ORDER BY e.id LIMIT $3
        """
}

extension RoomEntryPage {
    /// The newest message on the page. Numbers of changes do not count.
    package var newestMessage: MessageID? { entries.compactMap(\.message?.id).max() }

    /// A member's page. Only entries that the member may read.
    package init(
        for member: MemberID, since: MessageID?, limit: Int, _ transaction: some SQLTransaction
    ) throws {
        let stay = try transaction.row(
            """
            SELECT u.secret_code, u.history_from, (SELECT r.title FROM rooms r WHERE r.secret_code = u.secret_code)
            FROM active_users u WHERE u.udid = $1
            """, [.text(member.text)])
        guard let stay else { throw ChatError.notJoined() }
        let (room, history) = (SecretCode(stored: try stay.text(0)), try stay.int(1))
        let since = max(since ?? history, history)
        let entries = try RoomEntry.entries(in: room, after: since, history: history, limit: limit, transaction)
        self.init(
            entries: entries, next: entries.last?.id ?? since, room: room,
            title: stay.optionalText(2).map(RoomTitle.init(stored:)))
    }
}
