package import ChatDomain

extension MessageContent: SQLReadable {
    /// The columns of the content in the table `messages`, with PostgreSQL's types. All statements have them in this order.
    private static let storedColumns = [
        ("text", "text"), ("title", "text"), ("link", "text"), ("priority", "bigint"), ("sound", "text"),
        ("urgent", "boolean"), ("extras", "text"),
    ]

    package static func columns(_ table: String = "") -> String {
        storedColumns.map { table + $0.0 }.joined(separator: ", ")
    }

    /// The parameters of one message's content, for SQLite.
    package static let placeholders = storedColumns.map { _ in "?" }.joined(separator: ", ")

    /// The parameters of many messages' contents (``lists(of:)``) for `unnest`, from `$first` on.
    package static func unnested(from first: Int) -> String {
        storedColumns.enumerated().map { "$\(first + $0.offset)::\($0.element.1)[]" }.joined(separator: ", ")
    }

    /// The parameters of one message's content, from `$first` on.
    static func parameters(from first: Int) -> String {
        storedColumns.indices.map { "$\(first + $0)" }.joined(separator: ", ")
    }

    /// Assigns the columns of one message to the parameters from `$first` on.
    static func assignments(from first: Int) -> String {
        storedColumns.enumerated().map { "\($0.element.0) = $\(first + $0.offset)" }.joined(separator: ", ")
    }

    /// The columns' values of one message.
    var values: [SQLValue] {
        [
            .text(text.text), .optional(title), .optional(link), .optional(priority.map(Int64.init)), .optional(sound),
            .bool(isUrgent), .optional(extras.stored),
        ]
    }

    /// The columns' values of many messages, a list for each column.
    package static func lists(of contents: [MessageContent]) -> [SQLValue] {
        [
            .texts(contents.map(\.text.text)), .optionalTexts(contents.map(\.title)),
            .optionalTexts(contents.map(\.link)), .optionalInts(contents.map { $0.priority.map(Int64.init) }),
            .optionalTexts(contents.map(\.sound)), .ints(contents.map { $0.isUrgent ? 1 : 0 }),
            .optionalTexts(contents.map(\.extras.stored)),
        ]
    }

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        self.init(
            stored: try row.text(), title: row.optionalText(), link: row.optionalText(),
            priority: try row.optionalInt().flatMap(UInt8.init(exactly:)), sound: row.optionalText(),
            isUrgent: try row.bool(), extras: MessageExtras(stored: row.optionalText()))
    }
}

extension Message: SQLReadable {
    package static func columns(_ table: String = "") -> String {
        "\(table)message_id, \(table)udid, \(table)nickname, ms(\(table)time_sent), " + MessageContent.columns(table)
    }

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        let (id, sender) = (try row.int(), MemberID(stored: try row.text()))
        let (nickname, time) = (try row.text(), try row.time())
        self.init(id: id, sender: sender, nickname: nickname, content: try MessageContent(&row), sentAt: time)
    }

    /// The messages of a room after `id`, oldest first.
    package static func messages(
        in room: SecretCode, after id: MessageID, limit: Int, _ transaction: some SQLTransaction
    ) throws -> [Message] {
        try transaction.rows(
            "SELECT \(columns()) FROM messages WHERE secret_code = $1 AND message_id > $2 ORDER BY message_id LIMIT $3",
            [.text(room.text), .int(id), .int(limit)]
        ).map { try Message($0) }
    }
}

extension MessageRecord: SQLReadable {
    package static func columns(_ table: String = "") -> String { "\(table)secret_code, " + Message.columns(table) }

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        let room = SecretCode(stored: try row.text())
        self.init(message: try Message(&row), room: room)
    }
}

extension EarlierPost: SQLReadable {
    package static func columns(_ table: String = "") -> String {
        "\(table)message_id, ms(\(table)time_sent), \(table)secret_code, " + MessageContent.columns(table)
    }

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        self.init(
            message: try row.int(), time: try row.time(), room: try row.text(), content: try MessageContent(&row))
    }
}
