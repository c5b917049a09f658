import ChatDomain
import GRDB

/// Reads due pushes of the queue. Use one reader per read, because it caches notifications.
struct QueueReader {
    private let app: String
    private let now: Timestamp
    private let ids: APNSIDs
    private let findsReaders: Bool
    private var notifications: [NotificationID: LeasedNotification] = [:]
    /// Pushes that other programs inserted without a device, and the devices with their tokens. They are recorded so
    /// that the pushes appear in the devices' history.
    private(set) var recognized: [(id: Int64, device: Int64)] = []

    /// Removals of members for whom pushes were waiting, by device token. The key `nil` has the removals that concern a
    /// whole room. `nil` until the first rows are read.
    private var removals: [String?: [Removal]]?

    private struct Removal {
        /// `nil` for all rooms.
        let room: String?
        let lastPush: Int64
    }

    private struct LeasedNotification {
        /// UTF-8. All pushes of the read share it.
        let payload: [UInt8]
        /// Whether the notification was cancelled. Its pushes are then not sent, even if the cancellation has not
        /// reached them yet.
        let isCancelled: Bool
    }

    /// - Parameter findsReaders: Whether to find out which chat pushes are for members who have fetched messages.
    init(app: AppName, now: Timestamp, ids: APNSIDs, findsReaders: Bool = false) {
        self.app = app.text
        self.now = now
        self.ids = ids
        self.findsReaders = findsReaders
    }

    /// Selects due pushes: pending ones whose time has come. A retry is also due if its time is further away than any
    /// retry waits: the clock was then set back. A time in the wrong unit may be that far away at once.
    static func sql(findsReaders: Bool) -> String { findsReaders ? sqlWithReaders : sqlWithoutReaders }

    private static let sqlWithReaders = makeSQL(findsReaders: true)
    private static let sqlWithoutReaders = makeSQL(findsReaders: false)

    private static func makeSQL(findsReaders: Bool) -> String {
        let isOfReader =
            findsReaders
            ? """
            EXISTS (SELECT 1 FROM active_users u WHERE u.member_id = q.member AND u.fetched_to > u.history_from)
            """ : "0"
        return """
            SELECT q.message_id, q.device_token, q.payload, q.expires_at, q.priority, q.attempts, q.unanswered, q.refused,
                q.bulk, q.chat_message, q.push_type, q.collapse_id, q.apns_id, q.notification, q.device,
                d.device_id, d.time_deactivated IS NOT NULL, q.time_queued, q.not_before, \(DeletedMessage.isOfOne),
                \(isOfReader)
            FROM push_queue q LEFT JOIN devices d ON d.device_id = q.device
            WHERE q.message_id BETWEEN ? AND ? AND q.state = 'pending' AND q.app = ?
                AND (q.not_before IS NULL OR q.not_before <= ? OR (q.attempts > 0 AND q.not_before > ?)
                    OR q.not_before > \(PushLifeCycle.latestNotBefore))
            ORDER BY q.message_id LIMIT ?
            """
    }

    /// - Parameter excluded: Push ids that are leased already, in order.
    /// - Returns: At most `limit` pushes, and whether there may be more.
    mutating func rows(
        in range: ClosedRange<Int64>, excluding excluded: [ClosedRange<Int64>], limit: Int, _ db: Database
    ) throws -> (pushes: [QueuedPush], hasMore: Bool) {
        let most = limit + excluded.reduce(0) { $0 + $1.count }
        if removals == nil { removals = try Self.removals(from: range.lowerBound, db) }
        let beyond = (now + PushLifeCycle.longestWait).milliseconds
        let rows = try RawStatement(
            db, Self.sql(findsReaders: findsReaders), range.lowerBound, range.upperBound, app, now.milliseconds, beyond,
            Int64(most))
        var pushes: [QueuedPush] = []
        var exclusion = 0
        var count = 0
        while try rows.step() {
            count += 1
            let pushID = rows.int(0)
            while exclusion < excluded.count, excluded[exclusion].upperBound < pushID { exclusion += 1 }
            if exclusion < excluded.count, excluded[exclusion].contains(pushID) { continue }
            pushes.append(try push(rows, pushID, db))
        }
        return (pushes, count == most)
    }

    private mutating func push(_ row: borrowing RawStatement, _ pushID: Int64, _ db: Database) throws -> QueuedPush {
        // Other programs can write any value. A count above the limit is as good as a large number.
        let history = PushHistory(attempts: row.count(5), unanswered: row.count(6), refused: row.count(7))
        let message = row.optionalInt(9)
        let notification = try row.optionalInt(13).map { ($0, try leased($0, db)) }
        let address = row.bytes(1).flatMap(Address.init(stored:))
        var obstacle: QueuedPush.Obstacle?
        if notification?.1?.isCancelled == true {
            obstacle = .notificationCancelled
        } else if row.bool(19) {
            obstacle = .messageDeleted
        } else if let message, try isTakenBack(pushID, of: message, to: address, db) {
            obstacle = .memberRemoved
        } else if !row.isNull(15) {
            obstacle = row.bool(16) ? .deviceInactive : nil
        } else if let device = try address.flatMap({ try self.device(of: $0, db) }) {
            // The push names no device, or one that unregistered and has registered again.
            if row.isNull(14), message == nil, notification == nil { recognized.append((pushID, device.id)) }
            obstacle = device.isInactive ? .deviceInactive : nil
        } else if !row.isNull(14) {
            obstacle = .deviceForgotten
        }
        // A retry has waited since it was queued.
        let start = history.attempts == 0 ? row.optionalInt(18).map { Timestamp(milliseconds: max(0, $0)) } : nil
        return QueuedPush(
            id: pushID, lane: PushLane(history, isBulk: row.bool(8)), history: history, address: address,
            payload: notification?.1?.payload ?? row.bytes(2).map { Array($0) },
            isOurs: message != nil || notification?.1 != nil, expiration: row.optionalInt(3),
            priority: row.optionalInt(4),
            type: row.text(10), collapseID: row.text(11), notBefore: row.optionalInt(18),
            apnsID: row.text(12) ?? ids.id(of: pushID),
            notification: notification?.0, message: message,
            dueSince: start ?? row.bytes(17).flatMap(Timestamp.init(sqlText:)), obstacle: obstacle,
            isOfReader: message != nil && row.bool(20))
    }

    static let removalsSQL = "SELECT device_token, secret_code, last_push FROM moderation WHERE last_push >= ?"

    /// The removals that may concern a push with this id or a higher one. There are mostly none.
    private static func removals(from pushID: Int64, _ db: Database) throws -> [String?: [Removal]] {
        let rows = try RawStatement(db, removalsSQL, pushID)
        var removals: [String?: [Removal]] = [:]
        while try rows.step() {
            removals[rows.text(0), default: []].append(Removal(room: rows.text(1), lastPush: rows.int(2)))
        }
        return removals
    }

    /// Whether a chat push was queued for a member who has been removed since.
    private func isTakenBack(
        _ pushID: Int64, of message: MessageID, to address: Address?, _ db: Database
    ) throws -> Bool {
        #if PLANTED_FAULTS
        if PlantedFault.removalIgnored.isPlanted { return false }
        #endif
        guard let removals, !removals.isEmpty else { return false }
        let found = [removals[nil], address.flatMap { removals[$0.description] }].compactMap(\.self).joined()
            .filter { pushID <= $0.lastPush }
        if found.isEmpty { return false }
        let room = try RawStatement(db, "SELECT secret_code FROM messages WHERE message_id = ?", message)
        let code = try room.step() ? room.text(0) : nil
        return found.contains { $0.room == nil || $0.room == code }
    }

    /// The device that is registered with an address.
    private func device(of address: Address, _ db: Database) throws -> (id: Int64, isInactive: Bool)? {
        let found = try RawStatement(
            db,
            "SELECT device_id, time_deactivated IS NOT NULL FROM devices WHERE device_token = ? AND app = ?",
            address.description, app)
        return try found.step() ? (found.int(0), found.bool(1)) : nil
    }

    private mutating func leased(_ id: NotificationID, _ db: Database) throws -> LeasedNotification? {
        if let known = notifications[id] { return known }
        let row = try RawStatement(
            db, "SELECT time_cancelled IS NOT NULL, payload FROM notifications WHERE notification_id = ?", id)
        guard try row.step() else { return nil }
        let notification = LeasedNotification(payload: row.bytes(1).map { Array($0) } ?? [], isCancelled: row.bool(0))
        notifications[id] = notification
        return notification
    }
}
