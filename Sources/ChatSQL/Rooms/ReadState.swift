package import ChatDomain

/// The read state of messages: `fetched_to` of members, including those who have left their room. A member's stay in a
/// room is one row: first in `active_users`, then in `past_members`, with the same id. During the stay, the member
/// could read the messages after `history_from`, and has read those up to `fetched_to`. So no message is counted twice
/// for a member that left and came back.
package enum ReadState {
    // MARK: - Members who leave

    /// A member that has left a room or was removed from it.
    package struct Removed: Sendable {
        package let member: MemberID
        package let room: SecretCode
        let nickname: String
        let token: String?

        /// The columns of the table `active_users`.
        static let columns = "udid, secret_code, nickname, nullif(device_token, '0')"

        /// - Parameter row: Begins with ``columns``.
        init(_ row: some SQLRow) throws {
            member = MemberID(stored: try row.text(0))
            room = SecretCode(stored: try row.text(1))
            nickname = try row.text(2)
            token = row.optionalText(3)
        }
    }

    /// Deletes the rows of members and keeps their read state.
    /// - Parameters:
    ///   - condition: A condition on `active_users`.
    ///   - pending: The latest fetch of a single member that is not recorded yet.
    package static func remove(
        where condition: String, _ values: [SQLValue], pending: (message: MessageID, time: Timestamp)? = nil,
        now: Timestamp, _ transaction: some SQLTransaction
    ) throws -> [Removed] {
        let pendingFetch = "CAST($\(values.count + 1) AS bigint)"
        func keep(_ source: String) -> String {
            """
            INSERT INTO past_members (member_id, secret_code, udid, nickname, history_from, fetched_to, time_fetched,
                time_left)
            SELECT member_id, secret_code, udid, nickname, history_from,
                CASE WHEN fetched_to < \(pendingFetch) THEN \(pendingFetch) ELSE fetched_to END,
                CASE WHEN fetched_to < \(pendingFetch) THEN at($\(values.count + 2)) ELSE time_fetched END,
                at($\(values.count + 3))
            FROM \(source) AND (fetched_to > history_from OR \(pendingFetch) > history_from)
            """
        }
        let more: [SQLValue] = [.int(pending?.message ?? 0), .optional(pending?.time), .time(now)]
        let delete = "DELETE FROM active_users WHERE \(condition) RETURNING"
        guard transaction.dialect == .postgres else {
            // SQLite has no `DELETE` within `WITH`, and needs none: no other transaction runs between the two.
            try transaction.run(keep("active_users WHERE (\(condition))"), values + more)
            return try transaction.rows("\(delete) \(Removed.columns)", values).map { try Removed($0) }
        }
        return try transaction.rows(
            "WITH gone AS (\(delete) *), kept AS (\(keep("gone WHERE true"))) SELECT \(Removed.columns) FROM gone",
            values + more
        ).map { try Removed($0) }
    }

    /// The last message of a room `$2` that a member `$1` had read when it left, and the time.
    package static let earlierSQL = """
        SELECT fetched_to, time_fetched FROM past_members WHERE udid = $1 AND secret_code = $2
        ORDER BY fetched_to DESC LIMIT 1
        """

    // MARK: - Readers of a message

    /// A message, its writer and its room.
    package struct Subject: Sendable {
        let message: MessageID
        let writer: MemberID
        let room: SecretCode

        package init(message: MessageID, writer: MemberID, room: SecretCode) {
            self.message = message
            self.writer = writer
            self.room = room
        }

        init(_ record: MessageRecord) {
            self.init(message: record.message.id, writer: record.message.sender, room: record.room)
        }
    }

    /// For each message, the number of devices that it was sent to, of members who can read it, and of those who have.
    /// Each is counted up to `most`.
    static func reach(
        of subjects: [Subject], most: Int?, _ transaction: some SQLTransaction
    ) throws -> [MessageReach] {
        try rows(reachSQL(transaction.dialect), subjects, most, [], transaction).map { row in
            MessageReach(
                sent: Int(try row.int(0)), readers: Int(try row.int(1)), shown: Int(try row.int(2)),
                fetched: Int(try row.int(3)))
        }
    }

    /// The nicknames of the first `limit` readers of each message.
    static func names(
        of subjects: [Subject], limit: Int, most: Int?, _ transaction: some SQLTransaction
    ) throws -> [MessageID: [String]] {
        try rows(namesSQL(transaction.dialect), subjects, most, [.int(limit)], transaction).reduce(into: [:]) {
            $0[try $1.int(0), default: []].append(try $1.text(1))
        }
    }

    package static func receipts(of subjects: [Subject], _ transaction: some SQLTransaction) throws -> [Receipt] {
        let reach = try reach(of: subjects, most: Receipt.mostCounted, transaction)
        let read = zip(subjects, reach).filter { $0.1.fetched > 0 }.map(\.0)
        let names = try names(of: read, limit: Receipt.mostNames, most: Receipt.mostCounted, transaction)
        return zip(subjects, reach).map { subject, reach in
            Receipt(
                message: subject.message, reached: reach.sent, fetched: reach.fetched,
                readers: names[subject.message] ?? [])
        }
    }

    /// For these members of a small room, the receipts of their last messages. Empty for a larger room.
    package static func receipts(
        in room: SecretCode, for members: Set<MemberID>, _ transaction: some SQLTransaction
    ) throws -> [MemberID: Receipt] {
        let present = try transaction.rows(
            "SELECT udid, history_from FROM active_users WHERE secret_code = $1 LIMIT $2",
            [.text(room.text), .int(Receipt.largestRoom + 1)])
        guard present.count <= Receipt.largestRoom else { return [:] }
        // A member may not see messages from before it joined. Rows of other programs may differ only in bytes that are
        // not part of a member's id.
        let positions = try present.map { (MemberID(stored: try $0.text(0)), try $0.int(1)) }
        let entries = Dictionary(positions) { first, _ in first }
        let recent = try transaction.rows(
            "SELECT message_id, udid FROM messages WHERE secret_code = $1 ORDER BY message_id DESC LIMIT $2",
            [.text(room.text), .int(Receipt.recent)])
        var last: [MemberID: Subject] = [:]
        for row in recent {
            let (message, writer) = (try row.int(0), MemberID(stored: try row.text(1)))
            guard members.contains(writer), last[writer] == nil, let entry = entries[writer], entry < message
            else { continue }
            last[writer] = Subject(message: message, writer: writer, room: room)
        }
        let subjects = Array(last.values)
        let receipts = try receipts(of: subjects, transaction)
        return Dictionary(uniqueKeysWithValues: zip(subjects.map(\.writer), receipts))
    }

    /// PostgreSQL answers for all messages at once. SQLite, which is in the process, answers for one after another.
    private static func rows<Transaction: SQLTransaction>(
        _ sql: String, _ subjects: [Subject], _ most: Int?, _ more: [SQLValue], _ transaction: Transaction
    ) throws -> [Transaction.Row] {
        let rest: [SQLValue] = [.int(most ?? Int.max)] + more
        guard transaction.dialect == .postgres else {
            return try subjects.flatMap { subject in
                try transaction.rows(
                    sql, [.int(subject.message), .text(subject.writer.text), .text(subject.room.text)] + rest)
            }
        }
        if subjects.isEmpty { return [] }
        let lists: [SQLValue] = [
            .ints(subjects.map(\.message)), .texts(subjects.map(\.writer.text)), .texts(subjects.map(\.room.text)),
        ]
        return try transaction.rows(sql, lists + rest)
    }

    /// The parts of a statement that depend on the dialect: the expressions for a message, its writer and its room, and
    /// where these come from.
    private static func asked(
        _ dialect: SQLDialect
    ) -> (message: String, writer: String, room: String, from: String, join: String, order: String) {
        guard dialect == .postgres else { return ("$1", "$2", "$3", "", "CROSS JOIN", "") }
        return (
            "a.message", "a.writer", "a.room",
            """
            unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS a (message, writer, room, place)
            CROSS JOIN LATERAL
            """, "CROSS JOIN LATERAL", "ORDER BY a.place"
        )
    }

    package static func reachSQL(_ dialect: SQLDialect) -> String {
        let asked = asked(dialect)
        return """
            SELECT s.sent, r.readers, r.shown, r.fetched FROM \(asked.from) (
                SELECT count(*) FILTER (WHERE state = 'sent' AND NOT silent) AS sent FROM (
                    SELECT state, silent FROM push_queue WHERE chat_message = \(asked.message) LIMIT $4) p) s
            \(asked.join) (
                SELECT count(*) AS readers, count(*) FILTER (WHERE has_shown) AS shown,
                    count(*) FILTER (WHERE has_fetched) AS fetched FROM (\(readersSQL(dialect))) u) r
            \(asked.order)
            """
    }

    package static func namesSQL(_ dialect: SQLDialect) -> String {
        let asked = asked(dialect)
        return """
            SELECT \(asked.message), n.nickname FROM \(asked.from) (
                SELECT nickname, member_id FROM (\(readersSQL(dialect))) u WHERE has_fetched
                ORDER BY member_id LIMIT $5) n
            \(asked.order.isEmpty ? "" : asked.order + ", n.member_id")
            """
    }

    /// The first `$4` members of the room, if they had joined before the message. Also past members who have read it:
    /// the first `$4` by `fetched_to`, who read the least beyond it, if they had joined before the message.
    private static func readersSQL(_ dialect: SQLDialect) -> String {
        let (message, writer, room, _, _, _) = asked(dialect)
        return """
            SELECT nickname, member_id, fetched_to >= \(message) AS has_fetched,
                fetched_to >= \(message) OR shown_to >= \(message) AS has_shown FROM (
                SELECT * FROM active_users WHERE secret_code = \(room) ORDER BY member_id LIMIT $4) m
            WHERE history_from < \(message) AND udid <> \(writer)
            UNION ALL
            SELECT nickname, member_id, true, true FROM (
                SELECT * FROM past_members WHERE secret_code = \(room) AND fetched_to >= \(message)
                ORDER BY fetched_to LIMIT $4) m
            WHERE history_from < \(message) AND udid <> \(writer)
            """
    }
}
