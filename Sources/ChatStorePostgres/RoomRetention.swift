#if PostgreSQL
import ChatDomain

/// Deletes what was said long ago, and what those had read who left long ago, in steps.
struct RoomRetention: Sendable {
    /// Rows that one transaction deletes.
    private static let step = 500
    /// The oldest rows, of which those of a wrong clock or with work left may stay in the way.
    private static let window = 2000

    let database: PostgresDatabase

    /// - Returns: how many messages it deleted. Their pushes stay, with the numbers of messages that are gone.
    func apply(messages: Duration) async throws(ChatError) -> Int {
        let time = database.clock() - messages
        var (deleted, after) = (0, Int64.min)
        while true {
            let (count, last) = try await database.write(.upkeep, isRepeatable: true) { [after] transaction in
                let row = try transaction.row(
                    Self.messagesSQL, [.int(after), .int(Self.window), .time(time), .int(Self.step)])
                return (Int(try row?.int(0) ?? 0), try row?.optionalInt(1))
            }
            deleted += count
            guard let last, count == Self.step else { break }
            after = last
        }
        // Of those who left so long ago every message is deleted that they had read.
        while try await database.write(
            .upkeep, isRepeatable: true,
            { transaction in
                try transaction.run(Self.membersSQL, [.time(time), .int(Self.step)]) == Self.step
            })
        {}
        return deleted
    }

    /// Ids grow with time, so the oldest stand first and no index on the time is needed.
    static let messagesSQL = """
        WITH gone AS (
            DELETE FROM messages WHERE message_id IN (
                SELECT message_id FROM (
                    SELECT message_id, fanout_after, time_sent FROM messages WHERE message_id > $1::bigint
                    ORDER BY message_id LIMIT $2::bigint) m
                WHERE fanout_after IS NULL AND time_sent < at($3::bigint) ORDER BY message_id LIMIT $4::bigint)
            RETURNING message_id)
        SELECT count(*), max(message_id) FROM gone
        """

    private static let membersSQL = """
        DELETE FROM past_members WHERE member_id IN (
            SELECT member_id FROM past_members WHERE time_left < at($1::bigint) LIMIT $2::bigint)
        """
}
#endif
