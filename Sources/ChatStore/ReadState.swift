import ChatDomain
import GRDB

/// Who has read what: `fetched_to` of members, and of those who have left their room since. A member's stay in a room is one row:
/// in `active_users`, then in `past_members`, with the same number. It may have read what came after `history_from`, and has
/// read that up to `fetched_to`; so no message is counted twice of a member that left and came back.
enum ReadState {
    /// Keeps what members have read who are about to leave, in the transaction that takes their rows away.
    ///
    /// - Parameters:
    ///   - condition: on `active_users`, with `arguments`.
    ///   - pending: what a single member has fetched that is not written down.
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

    /// Up to where a member had read a room when it left it, and when; 0 for nothing.
    static func earlier(_ member: MemberID, in room: SecretCode, _ db: Database) throws -> (MessageID, String?) {
        let row = try db.row(earlierSQL, [member.text, room.text])
        return row.map { ($0[0], $0[1]) } ?? (0, nil)
    }

    static let earlierSQL = """
        SELECT fetched_to, time_fetched FROM past_members WHERE udid = ? AND secret_code = ? ORDER BY fetched_to DESC LIMIT 1
        """

    /// The devices that a message was sent to, those who may read it, and who has. Each is counted up to `most`.
    static func reach(
        of message: MessageID, by writer: MemberID, in room: String, most: Int?, _ db: Database
    ) throws -> MessageReach {
        let sent: Int? = try db.value(sentSQL, [message, most ?? -1])
        let readers = try db.row(
            """
            SELECT count(*), coalesce(sum(has_fetched), 0) FROM (\(readersSQL))
            """, ["message": message, "writer": writer.text, "room": room, "most": most ?? -1])
        return MessageReach(sent: sent ?? 0, readers: readers?[0] ?? 0, fetched: readers?[1] ?? 0)
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

    /// Of the room's members the first `most`, who have been there when it was said; and of those who have left as many of
    /// those that read it and the least beyond it, for the same reason.
    static let readersSQL = """
        SELECT nickname, member_id, fetched_to >= :message AS has_fetched FROM (
            SELECT * FROM active_users WHERE secret_code = :room ORDER BY member_id LIMIT :most)
        WHERE history_from < :message AND udid <> :writer
        UNION ALL
        SELECT nickname, member_id, 1 FROM (
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
