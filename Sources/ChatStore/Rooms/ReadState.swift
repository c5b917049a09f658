import ChatDomain
import ChatSQL
import GRDB

/// The read state of messages: `fetched_to` of members, including those who have left their room. A member's stay in a
/// room is one row: first in `active_users`, then in `past_members`, with the same id. During the stay, the member
/// could read the messages after `history_from`, and has read those up to `fetched_to`. So no message is counted twice
/// for a member that left and came back.
///
/// PostgreSQL has other statements, which answer for many messages at once. SQLite cannot run them: it lacks
/// `LATERAL`, and `DELETE` within `WITH`.
enum ReadState {
    /// Keeps the read state of members who are about to leave, in the transaction that deletes their rows.
    ///
    /// - Parameters:
    ///   - condition: A condition on `active_users`, with `arguments`.
    ///   - pending: The latest fetch of a single member that is not recorded yet.
    static func keep(
        where condition: String, _ arguments: [String: (any DatabaseValueConvertible)?],
        pending: (message: MessageID, time: Timestamp)? = nil, now: Timestamp, _ db: Database
    ) throws {
        try db.run(
            """
            INSERT INTO past_members (member_id, secret_code, udid, nickname, history_from, fetched_to, time_fetched, time_left)
            SELECT member_id, secret_code, udid, nickname, history_from, max(fetched_to, :pending),
                CASE WHEN fetched_to < :pending THEN :pendingTime ELSE time_fetched END, :now
            FROM active_users WHERE \(condition) AND max(fetched_to, :pending) > history_from
            """,
            StatementArguments(
                arguments.merging(
                    ["pending": pending?.message ?? 0, "pendingTime": pending?.time.sqlText, "now": now.sqlText]
                ) { old, _ in old }))
    }

    /// The last message of a room that a member had read when it left, and the time; 0 if it had read none.
    static func earlier(_ member: MemberID, in room: SecretCode, _ db: Database) throws -> (MessageID, String?) {
        let row = try db.row(earlierSQL, [member.text, room.text])
        return row.map { ($0[0], $0[1]) } ?? (0, nil)
    }

    static let earlierSQL = """
        SELECT fetched_to, time_fetched FROM past_members WHERE udid = ? AND secret_code = ? ORDER BY fetched_to DESC LIMIT 1
        """

    /// The number of devices that a message was sent to, of members who can read it, and of those who have. Each is
    /// counted up to `most`.
    static func reach(
        of message: MessageID, by writer: MemberID, in room: String, most: Int?, _ db: Database
    ) throws -> MessageReach {
        let sent: Int? = try db.value(sentSQL, [message, most ?? -1])
        let readers = try db.row(
            """
            SELECT count(*), coalesce(sum(has_shown), 0), coalesce(sum(has_fetched), 0) FROM (\(readersSQL))
            """, ["message": message, "writer": writer.text, "room": room, "most": most ?? -1])
        return MessageReach(
            sent: sent ?? 0, readers: readers?[0] ?? 0, shown: readers?[1] ?? 0, fetched: readers?[2] ?? 0)
    }

    static func names(
        of message: MessageID, by writer: MemberID, in room: String, limit: Int, most: Int?, _ db: Database
    ) throws -> [String] {
        try db.values(
            "SELECT nickname FROM (\(readersSQL)) WHERE has_fetched ORDER BY member_id LIMIT :limit",
            ["message": message, "writer": writer.text, "room": room, "most": most ?? -1, "limit": limit])
    }

    static let sentSQL = """
        SELECT coalesce(sum(state = 'sent'), 0) FROM (SELECT state FROM push_queue WHERE chat_message = ? LIMIT ?)
        """

    /// The first `:most` members of the room, if they had joined before the message. Also past members who have read
    /// it: the first `:most` by `fetched_to`, who read the least beyond it, if they had joined before the message.
    static let readersSQL = """
        SELECT nickname, member_id, fetched_to >= :message AS has_fetched,
            max(fetched_to, shown_to) >= :message AS has_shown FROM (
            SELECT * FROM active_users WHERE secret_code = :room ORDER BY member_id LIMIT :most)
        WHERE history_from < :message AND udid <> :writer
        UNION ALL
        SELECT nickname, member_id, 1, 1 FROM (
            SELECT * FROM past_members WHERE secret_code = :room AND fetched_to >= :message ORDER BY fetched_to LIMIT :most)
        WHERE history_from < :message AND udid <> :writer
        """

    static func receipt(
        of message: MessageID, by writer: MemberID, in room: String, _ db: Database
    ) throws -> Receipt {
        let reach = try reach(of: message, by: writer, in: room, most: Receipt.mostCounted, db)
        let names =
            reach.fetched == 0
            ? [] : try names(of: message, by: writer, in: room, limit: Receipt.mostNames, most: Receipt.mostCounted, db)
        return Receipt(message: message, reached: reach.sent, fetched: reach.fetched, readers: names)
    }
}

/// ``ReadState`` and ``RoomRow`` for ``SQLRoomRecords``.
struct SQLiteReadState: SQLReadState {
    let feed: SQLiteRoomFeed

    func reach(
        of messages: [MessageRecord], most: Int?, _ transaction: SQLiteTransaction
    ) throws -> [MessageReach] {
        try messages.map { record in
            let message = record.message
            return try ReadState.reach(
                of: message.id, by: message.sender, in: record.room.text, most: most, transaction.db)
        }
    }

    func names(of record: MessageRecord, limit: Int, _ transaction: SQLiteTransaction) throws -> [String] {
        let message = record.message
        return try ReadState.names(
            of: message.id, by: message.sender, in: record.room.text, limit: limit, most: nil, transaction.db)
    }

    func makeRow(of room: SecretCode, now: Timestamp, _ transaction: SQLiteTransaction) throws {
        try RoomRow.make(room, now: now, transaction.db)
    }

    func changed(_ room: SecretCode) { feed.note { $0.memberships.insert(room) } }
}
