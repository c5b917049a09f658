package import ChatDomain

extension Delivery {
    /// The columns of the table `push_queue` as `q`.
    package static let columns = """
        q.message_id, q.notification, q.chat_message, q.device_token, q.app, q.state, q.reason, q.hint, q.attempts,
        ms(q.time_queued), q.not_before, ms(q.time_sent), ms(q.time_settled), q.apns_id
        """

    /// A condition: the push `q` is about a change of an earlier message. It may have been queued long after the message.
    /// The first push of a changed message to a device is not about the change.
    package static let isOfChange = """
        (q.silent OR EXISTS (
                SELECT 1 FROM message_states s WHERE s.message_id = q.chat_message AND s.change_id IS NOT NULL)
            AND EXISTS (
                SELECT 1 FROM push_queue e
                WHERE e.chat_message = q.chat_message AND e.device = q.device AND e.message_id < q.message_id))
        """

    /// The number of changed messages, the last changed first, whose pushes a page examines.
    package static let changedWindow: Int64 = 1000

    /// - Parameter row: Begins with ``columns``.
    package init(_ row: some SQLRow, _ ids: APNSIDs) throws {
        let (pushID, attempts) = (try row.int(0), Int(try row.int(8)))
        self.init(
            id: pushID, notification: try row.optionalInt(1), message: try row.optionalInt(2),
            token: try row.text(3), app: AppName(try row.text(4)),
            state: PushState(rawValue: try row.text(5)) ?? .pending, reason: row.optionalText(6),
            hint: row.optionalText(7), attempts: attempts, queuedAt: try row.time(9),
            notBefore: try row.optionalTime(10), sentAt: try row.optionalTime(11),
            settledAt: try row.optionalTime(12),
            apnsID: row.optionalText(13) ?? (attempts > 0 ? ids.id(of: pushID) : nil))
    }
}
