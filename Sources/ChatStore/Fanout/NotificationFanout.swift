import ChatDomain
import ChatSQL
import GRDB

/// Queues the pushes of a notification: one push for each device of its audience.
///
/// The audience is a list of items, processed in order. A step covers a bounded number of devices of one or several
/// items. A UNIQUE constraint prevents a second push for a device.
struct NotificationFanout {
    /// The number of devices that one step examines, which takes a few milliseconds of writing. An item without devices
    /// counts as one.
    static let step = 500

    let id: NotificationID
    let request: NotificationRequest
    let items: [AudienceItem]
    /// The items before this one are done, and the devices of this one up to `after`.
    private(set) var item: Int
    private(set) var after: Int64
    /// The last device, or room member, when the notification was accepted. Later ones get no push.
    let until: Int64

    init(id: NotificationID, request: NotificationRequest, item: Int = 0, after: Int64 = 0, until: Int64) {
        self.id = id
        self.request = request
        self.items = AudienceItem.items(of: request.audience)
        self.item = item
        self.after = after
        self.until = until
    }

    /// Returns `nil` if the notification has no pushes left to queue.
    static func unfinished(_ id: NotificationID, _ db: Database) throws -> NotificationFanout? {
        let row = try SQLiteTransaction(db).row(
            """
            SELECT work_item, work_after, work_until, \(NotificationRecord.columns)
            FROM notifications WHERE notification_id = $1 AND work = 'queue'
            """, [.int(id)])
        guard let row else { return nil }
        return NotificationFanout(
            id: id, request: try NotificationRecord(row, from: 3).request, item: Int(try row.int(0)),
            after: try row.int(1), until: try row.int(2))
    }

    /// The last id of a fan-out that begins now.
    static func end(of audience: Audience, _ db: Database) throws -> Int64 {
        if case .room = audience { return try db.value("SELECT max(member_id) FROM active_users") ?? 0 }
        return try db.value("SELECT max(device_id) FROM devices") ?? 0
    }

    /// Queues the next pushes and records the progress.
    mutating func step(now: Timestamp, _ settings: StoreSettings, _ db: Database) throws -> BackgroundJob.Step {
        var result = BackgroundJob.Step()
        var (queued, skipped) = (0, 0)
        // The range of the new push ids. It has gaps: a device that already has a push uses up an id.
        var range: ClosedRange<Int64>?
        var budget = Self.step
        while item < items.count, budget > 0 {
            let piece = try piece(budget, now: now, settings, db)
            if let new = piece.range { range = (range ?? new).lowerBound...new.upperBound }
            queued += piece.queued
            skipped += piece.skipped
            result.ended += piece.failed
            budget -= max(1, piece.looked)
            if let next = piece.next {
                after = next
            } else {
                item += 1
                after = 0
            }
        }
        result.hasMore = item < items.count
        try db.run(
            "UPDATE notifications SET work = ?, work_item = ?, work_after = ? WHERE notification_id = ?",
            [result.hasMore ? "queue" : nil, item, after, id])
        try db.run(
            """
            UPDATE notification_counts SET queued = queued + ?, skipped = skipped + ?, failed = failed + ?
            WHERE notification_id = ?
            """, [queued, skipped, result.ended.count, id])
        guard let range else { return result }
        try db.run(
            "UPDATE notifications SET first_push = coalesce(first_push, ?), last_push = ? WHERE notification_id = ?",
            [range.lowerBound, range.upperBound, id])
        // The ranges that the queue gets after the commit. Pushes of several apps are interleaved, so each app gets the
        // same range.
        let rows = try db.rows(
            """
            SELECT app, count(*), max(bulk) FROM push_queue
            WHERE message_id BETWEEN ? AND ? AND state = 'pending' GROUP BY app
            """, [range.lowerBound, range.upperBound])
        if let time = request.notBefore {
            result.scheduled = (range, time, rows.map { AppName($0[0]) })
        } else {
            result.inserted = rows.map { row in
                DuePushes(range: range, count: row[1], lane: row[2] ? .bulk : .normal, app: AppName(row[0]))
            }
        }
        return result
    }

    /// The result of one query for one item.
    private struct Piece {
        var looked = 1
        var queued = 0
        var range: ClosedRange<Int64>?
        var skipped = 0
        var failed: [FinalStateCount] = []
        /// The id after which the item continues. `nil` if the item is done.
        var next: Int64?
    }

    private func piece(
        _ budget: Int, now: Timestamp, _ settings: StoreSettings, _ db: Database
    ) throws -> Piece {
        let named = try SQLiteTransaction(db).currentForms(of: items[item...item], app: request.app)
        let item = named[item]
        let isOfOneApp = request.app != nil
        var piece = Piece()
        var arguments = arguments(item.value, now: now, settings)
        if let looked = item.candidatesSQL(ofOneApp: isOfOneApp) {
            arguments += ["budget": budget]
            let row = try db.row(looked, arguments)
            piece.looked = row?[0] ?? 0
            guard let upTo = row?[1] as Int64? else { return piece }
            if piece.looked == budget {
                let rest = try db.value(looked, arguments &+ ["after": upTo, "budget": 1]) ?? 0
                piece.next = rest == 0 ? nil : upTo
            }
            arguments += ["upTo": upTo]
        }
        if request.skipsUnchanged {
            piece.skipped = try db.value(Self.skippedSQL(item, ofOneApp: isOfOneApp), arguments) ?? 0
        }
        let before: Int64 = try db.value("SELECT seq FROM sqlite_sequence WHERE name = 'push_queue'") ?? 0
        piece.queued = try db.run(
            Self.insertSQL(item, ofOneApp: isOfOneApp, skips: request.skipsUnchanged), arguments)
        if piece.queued > 0 { piece.range = before + 1...db.lastInsertedRowID }
        if case .token(let token) = item { piece.failed = try failInactive(token, now: now, db) }
        return piece
    }

    /// - Parameter value: The value of the item.
    private func arguments(_ value: String?, now: Timestamp, _ settings: StoreSettings) -> StatementArguments {
        // Only tags can lead to a device several times, and a request has few tags.
        var earlier: String?
        if request.skipsUnchanged, case .tag = items[item] {
            earlier = JSONValue.texts(items[..<item].compactMap(\.value)).description
        }
        return [
            "id": id, "item": value, "tokenApp": (request.app ?? value.map(settings.app(ofToken:)))?.text,
            "after": after, "until": until, "app": request.app?.text,
            "defaultApp": settings.defaultApp.text, "now": now.sqlText, "expires": request.expiration,
            "priority": request.priority.map { Int64($0) }, "notBefore": request.notBefore?.milliseconds,
            "type": request.pushType, "collapse": request.collapseID, "payload": request.payload,
            "badge": request.skipsUnchanged ? request.badgeAlone : nil, "earlier": earlier,
            "nowMilliseconds": now.milliseconds,
            "apps": settings.apps.map { JSONValue.texts($0.map(\.text).sorted()).description },
        ]
    }

    /// The pushes repeat the columns of the notification, except for the payload.
    static func insertSQL(_ item: AudienceItem, ofOneApp: Bool, skips: Bool) -> String {
        let columns = item.columns
        return """
            INSERT INTO push_queue (device_token, payload, time_queued, app, expires_at, priority, not_before, push_type,
                collapse_id, notification, device, bulk)
            SELECT \(columns.token), '', :now, \(columns.app), :expires, :priority, :notBefore, :type, :collapse, :id,
                d.device_id, (SELECT n.devices > \(PushLifeCycle.bulkFrom) FROM notifications n WHERE n.notification_id = :id)
            FROM \(item.devices(ofOneApp: ofOneApp)) AND \(isConfigured(item))
                \(skips ? "AND \(isUnchanged) IS NOT TRUE" : "")
            ORDER BY \(columns.id)
            ON CONFLICT DO NOTHING
            """
    }

    /// Counts the skipped devices, each with the first item that leads to it.
    static func skippedSQL(_ item: AudienceItem, ofOneApp: Bool) -> String {
        let isFirst =
            if case .tag = item {
                """
                AND NOT EXISTS (SELECT 1 FROM json_each(:earlier) e JOIN device_tags o
                    ON o.tag = e.value AND o.device_id = d.device_id)
                """
            } else {
                ""
            }
        return """
            SELECT count(*) FROM \(item.devices(ofOneApp: ofOneApp)) AND \(isConfigured(item))
                AND \(isUnchanged) IS TRUE \(isFirst)
            """
    }

    /// Skips apps that are not configured: no dispatcher would ever send their pushes.
    private static func isConfigured(_ item: AudienceItem) -> String {
        "(:apps IS NULL OR \(item.columns.app) IN (SELECT value FROM json_each(:apps)))"
    }

    /// Whether the device's previous push of the same kind, sent or on its way, had the same content. Chat pushes are
    /// not considered. A push whose message was deleted has no `chat_message`, but a `member`. A push that is scheduled
    /// for later is not on its way. A notification with nothing but a badge (`:badge`) is compared with the last badge.
    /// Any other notification is compared as a whole with the last one that had more than a badge.
    private static let isUnchanged = """
        (SELECT iif(:badge IS NULL, n.payload = :payload, \(badge) = :badge)
        FROM push_queue p INDEXED BY push_queue_device
        LEFT JOIN notifications n ON n.notification_id = p.notification
        WHERE p.device = d.device_id AND p.chat_message IS NULL AND p.member IS NULL
            AND (p.state = 'pending' OR p.state = 'sent')
            AND p.notification IS NOT :id
            AND NOT (p.state = 'pending' AND p.attempts = 0 AND coalesce(p.not_before, 0) > :nowMilliseconds)
            AND iif(:badge IS NULL, \(badge) IS NULL OR \(content("$.aps.alert")) IS NOT NULL, \(badge) IS NOT NULL)
        ORDER BY p.message_id DESC LIMIT 1)
        """

    private static let badge = content("$.aps.badge")

    /// A part of a push's payload. NULL if the payload is not JSON, because other programs can write any payload.
    private static func content(_ path: String) -> String {
        let payload = "coalesce(n.payload, p.payload)"
        return "iif(typeof(\(payload)) = 'text' AND json_valid(\(payload)), json_extract(\(payload), '\(path)'), NULL)"
    }

    /// A device that was named by its token and is inactive gets a failed push as a record. It is not sent.
    private func failInactive(_ token: String, now: Timestamp, _ db: Database) throws -> [FinalStateCount] {
        let apps: [String] = try db.values(
            """
            UPDATE push_queue SET state = 'failed', reason = ?, time_settled = ?
            WHERE notification = ? AND state = 'pending' AND device IN (
                SELECT device_id FROM devices WHERE device_token = ? AND time_deactivated IS NOT NULL)
            RETURNING app
            """, [PushLifeCycle.deviceInactive, now.sqlText, id, token])
        return apps.map { FinalStateCount(app: AppName($0), state: .failed, reason: PushLifeCycle.deviceInactive) }
    }
}

/// The SQL uses an item's `value` as `:item`.
extension AudienceItem {
    /// Selects the number of the next `:budget` candidates after `:after` and up to `:until`, and the id of the last
    /// one. Candidates are devices, or members of a room. `nil` for a token, which needs only one step.
    func candidatesSQL(ofOneApp: Bool) -> String? {
        let (table, condition): (String, String)
        var id = "device_id"
        switch self {
        case .token: return nil
        case .user: (table, condition) = ("devices INDEXED BY devices_user", "user_reference = :item AND")
        case .tag: (table, condition) = ("device_tags", "tag = :item AND")
        case .room: (table, condition, id) = ("active_users", "secret_code = :item AND", "member_id")
        case .all where ofOneApp: (table, condition) = ("devices INDEXED BY devices_app", "app = :app AND")
        case .all: (table, condition) = ("devices", "")
        }
        return """
            SELECT count(*), max(id) FROM (
                SELECT \(id) AS id FROM \(table) WHERE \(condition) \(id) > :after AND \(id) <= :until
                ORDER BY \(id) LIMIT :budget)
            """
    }

    /// `FROM … WHERE …` for the devices `d` after `:after` and up to `:upTo`, limited to `:app` if requested. Leaves
    /// out inactive devices, except for those that were named by their token.
    func devices(ofOneApp: Bool) -> String {
        let range = "d.device_id > :after AND d.device_id <= :upTo AND d.time_deactivated IS NULL"
        let app = ofOneApp ? "AND d.app = :app" : ""
        switch self {
        case .token: return "(SELECT 1) LEFT JOIN devices d ON d.device_token = :item \(app) WHERE TRUE"
        case .user: return "devices d INDEXED BY devices_user WHERE d.user_reference = :item AND \(range) \(app)"
        case .tag:
            return """
                device_tags t CROSS JOIN devices d ON d.device_id = t.device_id
                WHERE t.tag = :item AND t.device_id > :after AND t.device_id <= :upTo AND d.time_deactivated IS NULL \(app)
                """
        case .room:
            return """
                active_users u LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
                WHERE u.secret_code = :item AND u.member_id > :after AND u.member_id <= :upTo AND u.device_token <> '0'
                    AND d.time_deactivated IS NULL \(ofOneApp ? "AND u.app = :app" : "")
                """
        case .all where ofOneApp: return "devices d INDEXED BY devices_app WHERE d.app = :app AND \(range)"
        case .all: return "devices d WHERE \(range)"
        }
    }

    /// The token and the app of the push, and the id that defines the order.
    var columns: (token: String, app: String, id: String) {
        switch self {
        case .token: (":item", Self.current("coalesce(d.app, :tokenApp)"), "d.device_id")
        case .room: ("u.device_token", Self.current("u.app"), "u.member_id")
        case .tag: ("d.device_token", Self.current("d.app"), "t.device_id")
        case .user, .all: ("d.device_token", Self.current("d.app"), "d.device_id")
        }
    }

    /// Replaces `default`, the app of rows that name none, by the name of the configured default app.
    private static func current(_ app: String) -> String { "iif(\(app) = 'default', :defaultApp, \(app))" }

    /// The current number of devices, for the response to a request that is too large to finish immediately. Where
    /// there can be many devices, the count only reads indexes.
    func count(app: AppName?, _ db: Database) throws -> Int {
        func count(_ sql: String, _ places: StatementArguments = [:]) throws -> Int {
            try db.value("SELECT count(*) FROM \(sql)", ["item": value, "app": app?.text] &+ places) ?? 0
        }
        let isInactive = "d.time_deactivated IS NOT NULL"
        switch (self, app) {
        case (.token, _): return 1
        case (.all, nil): return try count("devices") - count("devices d WHERE \(isInactive)")
        case (.all, _?):
            return try count("devices INDEXED BY devices_app WHERE app = :app")
                - count("devices d INDEXED BY devices_inactive WHERE \(isInactive) AND d.app = :app")
        case (.tag, nil):
            return try count("device_tags WHERE tag = :item")
                - count(
                    """
                    devices d INDEXED BY devices_inactive CROSS JOIN device_tags t ON t.tag = :item
                    AND t.device_id = d.device_id WHERE \(isInactive)
                    """)
        case (.tag, _?), (.user, _), (.room, _):
            return try count(devices(ofOneApp: app != nil), ["after": 0, "upTo": Int64.max])
        }
    }
}
