import ChatDomain
import ChatSQL

/// A leased push, and its position in the lane.
struct LeasedRow: Sendable {
    let push: QueuedPush
    let floor: QueueLeases.Floor
}

/// Leases due pushes of an app in one statement, and reads their content. For one transaction.
struct QueueReader {
    private let app: AppName
    private let start: Int64
    private let now: Timestamp
    private let ids: APNSIDs
    private let plan: QueueLeases.Plan
    private let countsUnread: Bool
    private let transaction: PostgresTransaction
    /// Payloads of notifications that were read before. A payload never changes.
    private(set) var payloads: [NotificationID: [UInt8]]

    init(
        app: AppName, start: Int64, now: Timestamp, ids: APNSIDs, plan: QueueLeases.Plan, countsUnread: Bool,
        payloads: [NotificationID: [UInt8]], _ transaction: PostgresTransaction
    ) {
        self.app = app
        self.start = start
        self.now = now
        self.ids = ids
        self.plan = plan
        self.countsUnread = countsUnread
        self.payloads = payloads
        self.transaction = transaction
    }

    // MARK: - SQL

    /// The lane of a row, with the raw values of ``PushLane``. The indexes of `push_queue_due` contain the same
    /// expression, word for word.
    static let lane = "(CASE WHEN unanswered > 0 OR refused > 0 THEN 2 WHEN bulk THEN 1 ELSE 0 END)"

    /// Whether an operator has paused the app `$1`. The server evaluates it once per statement, before it reads pushes.
    static let isPaused = "EXISTS (SELECT FROM queue_pauses WHERE app = $1::text)"

    /// The unleased pushes of a lane, in order: those that waited for a time come before the others, because they were
    /// queued earlier. `$1` is the app, `$4` the time, and `$5` to `$7` are the positions from which to read.
    private static func source(_ lane: PushLane, isWaiting: Bool) -> (from: String, order: String) {
        let number = lane.rawValue + 1
        let rows = """
            FROM push_queue_due WHERE app = $1::text AND \(Self.lane) = \(lane.rawValue) AND state = 'pending'
                AND lease_start IS NULL
            """
        guard isWaiting else {
            return ("\(rows) AND not_before IS NULL AND message_id >= ($5::bigint[])[\(number)]", "message_id")
        }
        return (
            """
            \(rows) AND not_before IS NOT NULL AND not_before <= $4::bigint
                AND (not_before, message_id) >= (($6::bigint[])[\(number)], ($7::bigint[])[\(number)])
            """, "not_before, message_id"
        )
    }

    /// The pushes of other programs with a time in the wrong unit. They fail, because they would wait for ever.
    private static let misread = """
        FROM push_queue_due WHERE app = $1::text AND \(lane) = \(PushLane.normal.rawValue) AND state = 'pending'
            AND lease_start IS NULL AND not_before IS NOT NULL AND not_before > \(PushLifeCycle.latestNotBefore)
        """

    /// Leases pushes. `$2` is the start and `$3` the limit. Skips rows that another lease has locked, and locks only as
    /// many rows as it takes. A start that other relays have ended leases nothing, because its leases would never be
    /// released.
    /// - Parameters:
    ///   - countsUnread: Whether to count also the messages that the device of each chat push has not fetched.
    ///   - passes: Whether to pass over the devices `$8`.
    static func leaseSQL(_ lanes: [PushLane], countsUnread: Bool, passes: Bool = false) -> String {
        let token = DeviceToken.storedSQL("q.device_token")
        let unread =
            countsUnread
            ? "CASE WHEN q.chat_message IS NOT NULL THEN (\(UnreadCount.sql(ofDevice: "q.device_token", app: "q.app"))) END"
            : "NULL::bigint"
        let rows =
            lanes.flatMap { lane in [true, false].map { source(lane, isWaiting: $0) } }
            + (lanes.contains(.normal) ? [(from: misread, order: "not_before, message_id")] : [])
        let isWanted = passes ? "AND NOT (device_token IN (SELECT unnest($8::text[])))" : ""
        let sources = rows.enumerated().map { index, rows in
            (
                name: "source\(index)",
                sql: """
                SELECT ctid AS place \(rows.from) \(isWanted)
                ORDER BY \(rows.order) LIMIT $3::bigint FOR UPDATE SKIP LOCKED
                """
            )
        }
        return """
            WITH \(sources.map { "\($0.name) AS (\($0.sql))" }.joined(separator: ",\n")),
            taken AS MATERIALIZED (
                SELECT place FROM (\(sources.map { "SELECT place FROM \($0.name)" }.joined(separator: " UNION ALL "))) s
                WHERE EXISTS (SELECT FROM relay_starts WHERE start_id = $2::bigint AND time_ended IS NULL)
                    AND NOT \(isPaused)
                LIMIT $3::bigint),
            leased AS (
                UPDATE push_queue_due q SET lease_start = $2::bigint, device = coalesce(device, CASE
                    WHEN chat_message IS NULL AND notification IS NULL THEN (
                        SELECT d.device_id FROM devices d
                        WHERE d.device_token = \(token) AND d.app = q.app) END)
                WHERE ctid = ANY (ARRAY(SELECT place FROM taken)) RETURNING q.*)
            SELECT q.message_id, q.device_token, q.payload, q.expires_at, q.priority, q.attempts, q.unanswered, q.refused,
                q.bulk, q.chat_message, q.push_type, q.collapse_id, q.apns_id, q.notification, q.device,
                coalesce(d.device_id, e.device_id), coalesce(d.time_deactivated, e.time_deactivated) IS NOT NULL,
                ms(q.time_queued), q.not_before, n.time_cancelled IS NOT NULL, n.notification_id IS NOT NULL,
                q.chat_message IS NOT NULL AND EXISTS (
                    SELECT FROM moderation m
                    WHERE m.last_push >= q.message_id AND (m.device_token IS NULL OR m.device_token = q.device_token)
                        AND (m.secret_code IS NULL OR m.secret_code = (
                            SELECT s.secret_code FROM messages s WHERE s.message_id = q.chat_message))),
                \(DeletedMessage.isOfOne),
                \(unread)
            FROM leased q LEFT JOIN devices d ON d.device_id = q.device
            LEFT JOIN devices e ON d.device_id IS NULL
                AND e.device_token = \(token) AND e.app = q.app
            LEFT JOIN notifications n ON n.notification_id = q.notification
            """
    }

    /// The lanes that contain an unleased push. Has the parameters of ``leaseSQL(_:countsUnread:)``.
    static let lanesSQL = PushLane.allCases.map { lane in
        let found = [true, false].map { isWaiting in
            "EXISTS (SELECT \(source(lane, isWaiting: isWaiting).from))"
        }
        return "SELECT \(lane.rawValue) WHERE \(found.joined(separator: " OR "))"
    }.joined(separator: " UNION ALL ")

    static let releaseSQL = """
        UPDATE push_queue_due SET lease_start = NULL
        WHERE message_id = ANY ($1::bigint[]) AND lease_start = $2::bigint AND state = 'pending'
        """

    // MARK: - Leasing

    private func places(limit: Int, due: [QueueLeases.Floor], waiting: [QueueLeases.Floor]) -> [SQLValue] {
        [
            .text(app.text), .int(start), .int(limit), .time(now), .ints(due.map(\.id)), .ints(waiting.map(\.time)),
            .ints(waiting.map(\.id)),
        ]
    }

    /// Leases pushes in the order of the lanes, and by push id within a lane.
    mutating func lease(_ lanes: [PushLane], limit: Int, passing devices: Set<Address>) throws -> [LeasedRow] {
        let passed: [SQLValue] = devices.isEmpty ? [] : [.texts(devices.map(\.description))]
        let rows = try transaction.rows(
            Self.leaseSQL(lanes, countsUnread: countsUnread, passes: !devices.isEmpty),
            places(limit: limit, due: plan.due, waiting: plan.waiting) + passed)
        let unread = Set(try rows.compactMap { try $0.optionalInt(13) }).filter { payloads[$0] == nil }
        if !unread.isEmpty {
            let found = try transaction.rows(
                "SELECT notification_id, payload FROM notifications WHERE notification_id = ANY ($1::bigint[])",
                [.ints(Array(unread))])
            for row in found { payloads[try row.int(0)] = Array(try row.text(1).utf8) }
        }
        let ranks = Dictionary(uniqueKeysWithValues: zip(lanes, 0...))
        return try rows.map(row).sorted { left, right in
            (ranks[left.push.lane] ?? 0, left.push.id) < (ranks[right.push.lane] ?? 0, right.push.id)
        }
    }

    /// Returns the lanes that may contain more pushes.
    func lanesWithMore(after leased: [LeasedRow]) throws -> Set<PushLane> {
        func floors(_ floors: [QueueLeases.Floor], isWaiting: Bool) -> [QueueLeases.Floor] {
            PushLane.allCases.map { lane in
                let last = leased.lazy.filter { $0.push.lane == lane && ($0.floor.time != .min) == isWaiting }
                    .map(\.floor).max()
                return last ?? floors[lane.rawValue]
            }
        }
        let (due, waiting) = (floors(plan.due, isWaiting: false), floors(plan.waiting, isWaiting: true))
        // The statement does not use `$2` and `$3`, but PostgreSQL needs every parameter to appear.
        let rows = try transaction.rows(
            "SELECT * FROM (\(Self.lanesSQL)) l WHERE $2::bigint IS NOT NULL AND $3::bigint > 0",
            places(limit: 1, due: due, waiting: waiting))
        return Set(try rows.compactMap { PushLane(rawValue: Int(try $0.int(0))) })
    }

    private func row(_ row: PostgresRow) throws -> LeasedRow {
        // Other programs can write any value. A count above the limit is as good as a large number.
        func count(_ column: Int) throws -> Int { Int(min(max(try row.int(column), 0), SettlementWriter.mostCounted)) }
        let pushID = try row.int(0)
        let history = PushHistory(attempts: try count(5), unanswered: try count(6), refused: try count(7))
        let address = try row.text(1).withUTF8Bytes(Address.init(stored:))
        let (message, notification) = (try row.optionalInt(9), try row.optionalInt(13))
        let isOfNotification = try row.bool(20)
        var obstacle: QueuedPush.Obstacle?
        if try row.bool(19) {
            obstacle = .notificationCancelled
        } else if try row.bool(22) {
            obstacle = .messageDeleted
        } else if try row.bool(21) {
            obstacle = .memberRemoved
        } else if !row.isNull(15) {
            obstacle = try row.bool(16) ? .deviceInactive : nil
        } else if !row.isNull(14) {
            obstacle = .deviceForgotten
        }
        let lane = PushLane(history, isBulk: try row.bool(8))
        let dueAt = try row.optionalInt(18)
        // A retry has waited since it was queued.
        let start = history.attempts == 0 ? dueAt.map { Timestamp(milliseconds: max(0, $0)) } : nil
        let push = QueuedPush(
            id: pushID, lane: lane, history: history, address: address,
            payload: try notification.flatMap { payloads[$0] } ?? Array(try row.text(2).utf8),
            isOurs: message != nil || isOfNotification, expiration: try row.optionalInt(3),
            priority: try row.optionalInt(4), type: row.optionalText(10), collapseID: row.optionalText(11),
            notBefore: dueAt, apnsID: row.optionalText(12) ?? ids.id(of: pushID), notification: notification,
            message: message,
            dueSince: try start ?? row.optionalTime(17), obstacle: obstacle,
            unread: UnreadCount.shown(try row.optionalInt(23)))
        // The lane must not be read from a time in the wrong unit.
        let position = dueAt.map { $0 > PushLifeCycle.latestNotBefore ? 0 : $0 }
        return LeasedRow(push: push, floor: QueueLeases.Floor(time: position ?? .min, id: pushID))
    }
}

extension String {
    fileprivate func withUTF8Bytes<Value>(_ body: (UnsafeRawBufferPointer) -> Value) -> Value {
        var text = self
        return text.withUTF8 { body(UnsafeRawBufferPointer($0)) }
    }
}
