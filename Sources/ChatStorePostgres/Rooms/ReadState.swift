import ChatDomain
import ChatSQL

/// The read state of messages: `fetched_to` of members, including those who have left their room. A member's stay in a
/// room is one row: first in `active_users`, then in `past_members`, with the same id. During the stay, the member
/// could read the messages after `history_from`, and has read those up to `fetched_to`. So no message is counted twice
/// for a member that left and came back.
///
/// SQLite has other statements: it lacks `LATERAL`, and `DELETE` within `WITH`.
enum ReadState {
    /// A member that has left a room or was removed from it.
    struct Removed: Sendable {
        let member: MemberID
        let room: SecretCode
        let nickname: String
        let token: String?

        /// The columns of the table `active_users`.
        static let columns = "udid, secret_code, nickname, nullif(device_token, '0')"

        /// - Parameter row: Has ``columns``.
        init(_ row: PostgresRow) throws {
            member = MemberID(stored: try row.text(0))
            room = SecretCode(stored: try row.text(1))
            nickname = try row.text(2)
            token = row.optionalText(3)
        }
    }

    /// Deletes the rows of members and keeps their read state.
    /// - Parameters:
    ///   - condition: A condition on `active_users`, with parameters from `$4` on.
    ///   - pending: The latest fetch of a single member that is not recorded yet.
    static func remove(
        where condition: String, _ values: [SQLValue], pending: (message: MessageID, time: Timestamp)? = nil,
        now: Timestamp, _ transaction: PostgresTransaction
    ) throws -> [Removed] {
        try transaction.rows(
            """
            WITH gone AS (DELETE FROM active_users WHERE \(condition) RETURNING *),
            kept AS (
                INSERT INTO past_members (member_id, secret_code, udid, nickname, history_from, fetched_to, time_fetched,
                    time_left)
                SELECT member_id, secret_code, udid, nickname, history_from, greatest(fetched_to, $1::bigint),
                    CASE WHEN fetched_to < $1::bigint THEN at($2::bigint) ELSE time_fetched END, at($3::bigint)
                FROM gone WHERE greatest(fetched_to, $1::bigint) > history_from)
            SELECT \(Removed.columns) FROM gone
            """, [.int(pending?.message ?? 0), .optional(pending?.time), .time(now)] + values
        ).map(Removed.init)
    }

    /// The last message of a room `$2` that a member `$1` had read when it left.
    static let earlierSQL = """
        SELECT fetched_to, time_fetched FROM past_members WHERE udid = $1::text AND secret_code = $2::text
        ORDER BY fetched_to DESC LIMIT 1
        """

    // MARK: - Readers of a message

    /// A message, its writer and its room.
    struct Subject: Sendable {
        let message: MessageID
        let writer: MemberID
        let room: SecretCode
    }

    /// For each message, the number of devices that it was sent to, of members who can read it, and of those who have.
    /// Each is counted up to `most`.
    static func reach(
        of subjects: [Subject], most: Int?, _ transaction: PostgresTransaction
    ) throws -> [MessageReach] {
        guard !subjects.isEmpty else { return [] }
        return try transaction.rows(reachSQL, values(subjects, most)).map { row in
            MessageReach(
                sent: Int(try row.int(0)), readers: Int(try row.int(1)), shown: Int(try row.int(2)),
                fetched: Int(try row.int(3)))
        }
    }

    /// The nicknames of the first `limit` readers of each message.
    static func names(
        of subjects: [Subject], limit: Int, most: Int?, _ transaction: PostgresTransaction
    ) throws -> [MessageID: [String]] {
        guard !subjects.isEmpty else { return [:] }
        return try transaction.rows(namesSQL, values(subjects, most) + [.int(limit)]).reduce(into: [:]) {
            $0[try $1.int(0), default: []].append(try $1.text(1))
        }
    }

    static func receipts(of subjects: [Subject], _ transaction: PostgresTransaction) throws -> [Receipt] {
        let reach = try reach(of: subjects, most: Receipt.mostCounted, transaction)
        let read = zip(subjects, reach).filter { $0.1.fetched > 0 }.map(\.0)
        let names = try names(of: read, limit: Receipt.mostNames, most: Receipt.mostCounted, transaction)
        return zip(subjects, reach).map { subject, reach in
            Receipt(
                message: subject.message, reached: reach.sent, fetched: reach.fetched,
                readers: names[subject.message] ?? [])
        }
    }

    private static func values(_ subjects: [Subject], _ most: Int?) -> [SQLValue] {
        [
            .ints(subjects.map(\.message)), .texts(subjects.map(\.writer.text)), .texts(subjects.map(\.room.text)),
            .int(most),
        ]
    }

    private static let asked = """
        unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS a (message, writer, room, place)
        """

    static let reachSQL = """
        SELECT s.sent, r.readers, r.shown, r.fetched FROM \(asked)
        CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE state = 'sent') AS sent FROM (
                SELECT state FROM push_queue WHERE chat_message = a.message LIMIT $4::bigint) p) s
        CROSS JOIN LATERAL (
            SELECT count(*) AS readers, count(*) FILTER (WHERE has_shown) AS shown,
                count(*) FILTER (WHERE has_fetched) AS fetched FROM (\(readersSQL)) u) r
        ORDER BY a.place
        """

    static let namesSQL = """
        SELECT a.message, n.nickname FROM \(asked)
        CROSS JOIN LATERAL (
            SELECT nickname, member_id FROM (\(readersSQL)) u WHERE has_fetched ORDER BY member_id LIMIT $5::bigint) n
        ORDER BY a.place, n.member_id
        """

    /// The first `$4` members of the room, if they had joined before the message. Also past members who have read it:
    /// the first `$4` by `fetched_to`, who read the least beyond it, if they had joined before the message.
    private static let readersSQL = """
        SELECT nickname, member_id, fetched_to >= a.message AS has_fetched,
            greatest(fetched_to, shown_to) >= a.message AS has_shown FROM (
            SELECT * FROM active_users WHERE secret_code = a.room ORDER BY member_id LIMIT $4::bigint) m
        WHERE history_from < a.message AND udid <> a.writer
        UNION ALL
        SELECT nickname, member_id, true, true FROM (
            SELECT * FROM past_members WHERE secret_code = a.room AND fetched_to >= a.message
            ORDER BY fetched_to LIMIT $4::bigint) m
        WHERE history_from < a.message AND udid <> a.writer
        """
}

extension ReadState.Subject {
    fileprivate init(_ record: MessageRecord) {
        self.init(message: record.message.id, writer: record.message.sender, room: record.room)
    }
}

/// ``ReadState`` and ``RoomRow`` for ``SQLRoomRecords``.
struct PostgresReadState: SQLReadState {
    func reach(
        of messages: [MessageRecord], most: Int?, _ transaction: PostgresTransaction
    ) throws -> [MessageReach] {
        try ReadState.reach(of: messages.map(ReadState.Subject.init), most: most, transaction)
    }

    func names(of message: MessageRecord, limit: Int, _ transaction: PostgresTransaction) throws -> [String] {
        try ReadState.names(of: [ReadState.Subject(message)], limit: limit, most: nil, transaction)[message.message.id]
            ?? []
    }

    func makeRow(of room: SecretCode, now: Timestamp, _ transaction: PostgresTransaction) {
        transaction.lock([(.room, room.text)])
        RoomRow.make([room.text], now: now, transaction)
    }

    func changed(_ room: SecretCode) {}
}
