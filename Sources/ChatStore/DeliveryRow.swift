import ChatDomain
import GRDB

/// A row of the queue as a record of what became of a push.
enum DeliveryRow {
    /// Of the table `push_queue` as `q`.
    static let columns = """
        q.message_id, q.notification, q.chat_message, q.device_token, q.app, q.state, q.reason, q.hint, q.attempts,
        q.time_queued, q.not_before, q.time_sent, q.time_settled, q.apns_id
        """

    static func delivery(_ row: Row, _ ids: PushIDs) -> Delivery {
        let attempts: Int = row[8]
        return Delivery(
            entry: row[0], notification: row[1], message: row[2], token: row[3], app: AppName(row[4]),
            state: PushState(rawValue: row[5]) ?? .pending, reason: row[6], hint: row[7], attempts: attempts,
            queuedAt: row.time(9), notBefore: (row[10] as Int64?).map(Timestamp.init(milliseconds:)),
            sentAt: row.optionalTime(11), settledAt: row.optionalTime(12),
            pushID: row[13] ?? (attempts > 0 ? ids.id(of: row[0]) : nil))
    }
}
