import ChatDomain
import GRDB

/// A row of the queue as a record of what became of a push.
enum DeliveryRow {
    /// Of the table `push_queue` as `q`.
    static let columns = """
        q.message_id, q.notification, q.chat_message, q.device_token, q.app, q.state, q.reason, q.hint, q.attempts,
        q.time_queued, q.not_before, q.time_written, q.time_settled, q.apns_id
        """

    static func delivery(_ row: Row) -> Delivery {
        Delivery(
            entry: row[0], notification: row[1], message: row[2], token: row[3], app: AppName(row[4]),
            state: PushState(rawValue: row[5]) ?? .pending, reason: row[6], hint: row[7], attempts: row[8],
            queuedAt: row.time(9), notBefore: (row[10] as Int64?).map(Timestamp.init(milliseconds:)),
            writtenAt: row.optionalTime(11), settledAt: row.optionalTime(12), apnsID: row[13])
    }
}
