import ChatDomain

/// The state of a message that has a key or was changed: its row in `message_states`.
struct MessageState {
    let message: MessageID
    let room: SecretCode
    let author: MemberID
    let key: MessageKey?
    let isOpen: Bool
    let isApart: Bool
    let revision: Int
    /// The last push id when a change last asked for a ring. 0 if none did. Negative if the ring's round has ended, so that
    /// members that have joined since do not ring.
    let ringAfter: Int64
    /// Whether the last change removes the notification.
    let removes: Bool
    /// The time at which devices get the next pushes. `nil` if none remain.
    let pushDue: Timestamp?
    /// The time at which devices last got pushes about a change.
    let pushBegan: Timestamp?
    /// `nil` if the message was not changed.
    let change: MessageChange?

    private static let ownColumns = [
        "message_id", "secret_code", "author", "message_key", "is_open", "is_apart", "revision", "ring_after",
        "removes",
        "push_due", "push_began",
    ]

    static func columns(_ table: String = "") -> String {
        ownColumns.map { table + $0 }.joined(separator: ", ") + ", " + MessageChange.columns(table)
    }

    init(_ row: some SQLRow) throws {
        var reader = SQLRowReader(row)
        message = try reader.int()
        room = SecretCode(stored: try reader.text())
        author = MemberID(stored: try reader.text())
        key = reader.optionalText().map(MessageKey.init(stored:))
        isOpen = try reader.bool()
        isApart = try reader.bool()
        revision = Int(try reader.int())
        ringAfter = try reader.int()
        removes = try reader.bool()
        pushDue = try reader.optionalInt().map(Timestamp.init(milliseconds:))
        pushBegan = try reader.optionalInt().map(Timestamp.init(milliseconds:))
        change = try MessageChange.optional(row, from: Self.ownColumns.count)
    }

    /// The state of a message without a key that was not changed.
    init(unchanged record: MessageRecord) {
        (message, room, author) = (record.message.id, record.room, record.message.sender)
        (key, isOpen, isApart, revision, ringAfter, removes) = (nil, false, false, 1, 0, false)
        (pushDue, pushBegan, change) = (nil, nil, nil)
    }

    /// The time of a change. Clients of ntfy take the version of a message with the latest second.
    static func time(ofChangeAt now: Timestamp, after state: MessageState?, of message: Message) -> Timestamp {
        max(now, Timestamp(seconds: (state?.change?.time ?? message.sentAt).seconds + 1))
    }

    static func of(_ message: MessageID, _ transaction: some SQLTransaction) throws -> MessageState? {
        try transaction.row("SELECT \(columns()) FROM message_states WHERE message_id = $1", [.int(message)])
            .map { try MessageState($0) }
    }

    /// Locks the state until the end of the transaction, which waits for a step of a round to end. Its pushes are then
    /// withdrawn as well. The caller holds the locks of the room and of the message's row.
    static func locked(_ message: MessageID, _ transaction: some SQLTransaction) throws -> MessageState? {
        try transaction.row(
            """
            SELECT \(columns()) FROM message_states
            WHERE message_id = $1 \(transaction.dialect.lockedToDelete("message_states"))
            """, [.int(message)]
        ).map { try MessageState($0) }
    }

    /// The open messages with a key, by one author or by all.
    static func open(
        _ key: MessageKey, in room: SecretCode, by author: MemberID?, _ transaction: some SQLTransaction
    ) throws -> [MessageState] {
        try transaction.rows(
            """
            SELECT \(columns()) FROM message_states
            WHERE secret_code = $1 AND message_key = $2 AND is_open \(author == nil ? "" : "AND author = $3")
            ORDER BY message_id LIMIT \(mostAuthors)
            """, [.text(room.text), .text(key.text)] + (author.map { [.text($0.text)] } ?? [])
        ).map { try MessageState($0) }
    }

    /// The maximum number of messages with one key to name in an error.
    static let mostAuthors = 20
}
