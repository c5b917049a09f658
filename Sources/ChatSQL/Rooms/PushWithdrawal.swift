import ChatDomain

/// Withdraws the pushes of a message that was changed or deleted.
///
/// Cancels the pushes that wait, and empties the payload of all pushes of the message (``DeletedMessage``), including
/// those that were sent. So the earlier text is gone, and no retry sends it. A push that is not empty has the newest
/// text. A row never gets another text: its lease may still have the earlier one, and its outcome would mark the newer
/// one as sent.
package enum PushWithdrawal {
    /// - Parameters:
    ///   - isDeletion: Whether the message is deleted. After another change, PostgreSQL's leased pushes stay pending, so
    ///     that the round of the change waits for their outcome. SQLite knows its leases without the rows.
    ///   - isRepeated: Whether an earlier attempt of the transaction conflicted with relays that were settling pushes.
    /// - Returns: The cancelled pushes.
    static func withdraw(
        _ message: MessageID, isDeletion: Bool, isRepeated: Bool, now: Timestamp, _ transaction: some SQLTransaction
    ) throws -> [FinalStateCount] {
        let reason = isDeletion ? PushLifeCycle.messageDeleted : PushLifeCycle.messageReplaced
        transaction.announcement.withdrawal = true
        let values: [SQLValue] = [.int(message), .text(reason), .time(now)]
        func counts(_ rows: [some SQLRow]) throws -> [FinalStateCount] {
            try rows.map { row in
                FinalStateCount(
                    app: AppName(try row.text(0)), state: .cancelled, reason: reason, count: Int(try row.int(1)))
            }
        }
        guard transaction.dialect == .postgres else {
            let cancelled = try counts(transaction.rows(waiting, [.int(message)]))
            try transaction.run(isDeletion ? cancelAndForget : cancelAndEmpty, values)
            return cancelled
        }
        if isRepeated { try makeSettlementsWait(transaction) }
        try transaction.useIndexes()
        let cancelled = try counts(
            transaction.rows(
                """
                WITH cancelled AS (
                    UPDATE push_queue_due SET state = 'cancelled', reason = $2, time_settled = at($3), payload = ''
                    WHERE chat_message = $1 AND state = 'pending' \(isDeletion ? "" : "AND lease_start IS NULL")
                    RETURNING app)
                SELECT app, count(*) FROM cancelled GROUP BY app
                """, values))
        // Also settled pushes, in the partitions of their days. If a relay moves one at this moment, the transaction is
        // retried.
        try transaction.run(empty, [.int(message)])
        return cancelled
    }

    /// Makes relays of PostgreSQL wait that settle the message's pushes: the first attempt conflicted with them. Must be
    /// called before the transaction writes to the queue.
    static func makeSettlementsWait(_ transaction: some SQLTransaction) throws {
        guard transaction.dialect == .postgres else { return }
        try transaction.pipeline("SET LOCAL lock_timeout = '2s'", [])
        try transaction.pipeline("LOCK TABLE push_queue_due IN EXCLUSIVE MODE", [])
        try transaction.pipeline("SET LOCAL lock_timeout = 0", [])
    }

    /// Begins another round for changed messages, some of whose pushes are due again although they were recorded as sent.
    /// They have no text any more: they will be cancelled, and their devices need the newest text.
    ///
    /// - Parameters:
    ///   - messages: A list of message ids, as SQL.
    ///   - now: The parameter with the time, in milliseconds.
    package static func beginRoundSQL(for messages: String, now: String) -> String {
        """
        UPDATE message_states SET push_due = coalesce(push_due, \(now)), push_after = 0, push_again = NULL
        WHERE message_id IN (\(messages)) AND change <> 'deleted'
        """
    }

    /// SQLite: the pushes that wait, by app.
    package static let waiting = """
        SELECT app, count(*) FROM push_queue WHERE chat_message = $1 AND state = 'pending' GROUP BY app
        """
    /// SQLite, for a deleted message. Also clears `chat_message`, as the foreign key would when the message is deleted, so
    /// that each row is written only once.
    package static let cancelAndForget = """
        UPDATE push_queue SET payload = '', chat_message = NULL, \(cancel)
        WHERE chat_message = $1
        """
    /// SQLite, for a changed message.
    package static let cancelAndEmpty = """
        UPDATE push_queue SET payload = '', \(cancel)
        WHERE chat_message = $1 AND (payload <> '' OR state = 'pending')
        """
    private static let cancel = """
        state = iif(state = 'pending', 'cancelled', state), reason = iif(state = 'pending', $2, reason),
            time_settled = iif(state = 'pending', at($3), time_settled)
        """
    /// PostgreSQL: the settled pushes, and the leased ones.
    package static let empty = "UPDATE push_queue SET payload = '' WHERE chat_message = $1 AND payload <> ''"
}
