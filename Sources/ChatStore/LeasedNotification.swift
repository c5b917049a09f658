import ChatDomain
import GRDB

/// What a lease must know of the notification of which an entry is one push.
struct LeasedNotification {
    /// UTF-8; shared by all entries of the lease.
    let payload: [UInt8]
    /// Then no entry is handed out, even before the cancellation has reached it.
    let isCancelled: Bool

    static func find(_ id: NotificationID, _ db: Database) throws -> LeasedNotification? {
        try Row.fetchOne(
            db.cachedStatement(
                sql: "SELECT time_cancelled IS NOT NULL, payload FROM notifications WHERE notification_id = ?"),
            arguments: [id]
        ).map { LeasedNotification(payload: Array(($0[1] as String).utf8), isCancelled: $0[0]) }
    }
}
