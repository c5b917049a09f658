import ChatDomain
import GRDB

/// A notification on its way into the queue: one row for each device of its audience.
///
/// The audience is a list of items, worked through in order; a step covers a bounded number of devices of one item or of
/// several. That no device gets two rows, however often it is met, a constraint sees to.
struct NotificationFanout {
    /// Devices that one step looks at: some milliseconds of writing. An item without any counts as one.
    static let step = 500

    let id: NotificationID
    let request: NotificationRequest
    let items: [AudienceItem]
    /// Items before this one are done, and of this one the devices up to `after`.
    private(set) var item: Int
    private(set) var after: Int64
    /// The last device, or member, when the notification was accepted: who comes later gets none.
    let until: Int64

    init(id: NotificationID, request: NotificationRequest, item: Int = 0, after: Int64 = 0, until: Int64) {
        self.id = id
        self.request = request
        self.items = AudienceItem.items(of: request.audience)
        self.item = item
        self.after = after
        self.until = until
    }

    /// Nil when there is none left.
    static func unfinished(_ id: NotificationID, _ db: Database) throws -> NotificationFanout? {
        let row = try Row.fetchOne(
            db.cachedStatement(
                sql: """
                    SELECT work_item, work_after, work_until FROM notifications
                    WHERE notification_id = ? AND work = 'queue'
                    """), arguments: [id])
        guard let row, let record = try NotificationRecord.find(id, db) else { return nil }
        return NotificationFanout(id: id, request: record.request, item: row[0], after: row[1], until: row[2])
    }

    /// Where a fan-out that begins now will end.
    static func end(of audience: Audience, _ db: Database) throws -> Int64 {
        let sql =
            if case .room = audience {
                "SELECT max(member_id) FROM active_users"
            } else {
                "SELECT max(device_id) FROM devices"
            }
        return try Int64.fetchOne(db.cachedStatement(sql: sql)) ?? 0
    }

    /// Queues the next pushes, and writes down how far it has come.
    mutating func step(now: Timestamp, _ settings: StoreSettings, _ db: Database) throws -> BackgroundJob.Step {
        var result = BackgroundJob.Step()
        var skipped = 0
        var inserted: [Inserted] = []
        var budget = Self.step
        while item < items.count, budget > 0 {
            let piece = try piece(budget, now: now, settings, db)
            skipped += piece.skipped
            if let rows = piece.inserted { inserted.append(rows) }
            result.endings += piece.endings
            budget -= max(1, piece.looked)
            if let next = piece.next {
                after = next
            } else {
                item += 1
                after = 0
            }
        }
        result.hasMore = item < items.count
        try db.cachedStatement(
            sql: "UPDATE notifications SET work = ?, work_item = ?, work_after = ? WHERE notification_id = ?"
        ).execute(arguments: [result.hasMore ? "queue" : nil, item, after, id])
        try note(inserted, skipped: skipped, result.endings.reduce(0) { $0 + $1.count }, db)
        try tell(inserted, &result, db)
        return result
    }

    /// Rows of the queue: their number, and where they lie. Numbers in between may be nobody's: a device that has its row
    /// already uses one up.
    private struct Inserted {
        let range: ClosedRange<Int64>
        let count: Int
    }

    private func note(_ inserted: [Inserted], skipped: Int, _ failed: Int, _ db: Database) throws {
        try db.cachedStatement(
            sql: """
                UPDATE notification_counts SET queued = queued + ?, skipped = skipped + ?, failed = failed + ?
                WHERE notification_id = ?
                """
        ).execute(arguments: [inserted.reduce(0) { $0 + $1.count }, skipped, failed, id])
        guard let first = inserted.first?.range.lowerBound, let last = inserted.last?.range.upperBound else { return }
        try db.cachedStatement(
            sql:
                "UPDATE notifications SET first_push = coalesce(first_push, ?), last_push = ? WHERE notification_id = ?"
        ).execute(arguments: [first, last, id])
    }

    /// What the queue is to know of the rows after the commit.
    private func tell(_ inserted: [Inserted], _ result: inout BackgroundJob.Step, _ db: Database) throws {
        guard let first = inserted.first?.range.lowerBound, let last = inserted.last?.range.upperBound else { return }
        let rows = try Row.fetchAll(
            db.cachedStatement(
                sql: """
                    SELECT app, count(*), max(bulk) FROM push_queue
                    WHERE message_id BETWEEN ? AND ? AND state = 'pending' GROUP BY app
                    """), arguments: [first, last])
        let apps = rows.map { AppName($0[0]) }
        if let time = request.notBefore {
            result.scheduled = (first...last, time, apps)
        } else {
            // The rows of several apps lie among each other: each has its part of the same range.
            result.inserted = zip(rows, apps).map { row, app in
                InsertedPushes(range: first...last, count: row[1], lane: row[2] ? .bulk : .first, app: app)
            }
        }
    }

    /// What was done of one item.
    private struct Piece {
        var looked = 1
        var inserted: Inserted?
        var skipped = 0
        var endings: [Ending] = []
        /// Where the item goes on; nil when it is done.
        var next: Int64?
    }

    private func piece(
        _ budget: Int, now: Timestamp, _ settings: StoreSettings, _ db: Database
    ) throws -> Piece {
        let item = items[item]
        let isOfOneApp = request.app != nil
        var piece = Piece()
        var arguments = arguments(now: now, settings)
        if let places = item.places(ofOneApp: isOfOneApp) {
            arguments += ["budget": budget]
            let looked = try db.cachedStatement(sql: "SELECT count(*), max(place) FROM (\(places))")
            let row = try Row.fetchOne(looked, arguments: arguments)
            piece.looked = row?[0] ?? 0
            guard let upTo = row?[1] as Int64? else { return piece }
            if piece.looked == budget {
                let rest = try Int.fetchOne(looked, arguments: arguments &+ ["after": upTo, "budget": 1])
                piece.next = rest == 0 ? nil : upTo
            }
            arguments += ["upTo": upTo]
        }
        if request.skipsUnchanged {
            piece.skipped =
                try Int.fetchOne(
                    db.cachedStatement(sql: Self.skippedSQL(item, ofOneApp: isOfOneApp)), arguments: arguments) ?? 0
        }
        let before =
            try Int64.fetchOne(db.cachedStatement(sql: "SELECT seq FROM sqlite_sequence WHERE name = 'push_queue'"))
            ?? 0
        try db.cachedStatement(sql: Self.insertSQL(item, ofOneApp: isOfOneApp, skips: request.skipsUnchanged))
            .execute(arguments: arguments)
        let (count, last) = (db.changesCount, db.lastInsertedRowID)
        if count > 0 { piece.inserted = Inserted(range: before + 1...last, count: count) }
        if case .token(let token) = item { piece.endings = try failInactive(token, now: now, db) }
        return piece
    }

    private func arguments(now: Timestamp, _ settings: StoreSettings) -> StatementArguments {
        // Only a device's tags are looked for among the earlier items, and there are few.
        var earlier: String?
        if request.skipsUnchanged, case .tag = items[item] {
            earlier = JSONValue.array(items[..<item].compactMap { $0.value.map(JSONValue.string) }).description
        }
        return [
            "id": id, "item": items[item].value, "after": after, "until": until, "app": request.app?.text,
            "defaultApp": settings.defaultApp.text, "now": now.sqlText, "expires": request.expiration,
            "priority": request.priority.map { Int64($0) }, "notBefore": request.notBefore?.milliseconds,
            "type": request.pushType, "collapse": request.collapseID, "payload": request.payload,
            "earlier": earlier, "nowMilliseconds": now.milliseconds,
            "apps": settings.apps.map { apps in
                JSONValue.array(apps.sorted().map { .string($0.text) }).description
            },
        ]
    }

    /// The columns of the notification stand in its pushes, too, but for the payload.
    static func insertSQL(_ item: AudienceItem, ofOneApp: Bool, skips: Bool) -> String {
        let columns = item.columns
        return """
            INSERT INTO push_queue (device_token, payload, time_queued, app, expires_at, priority, not_before, push_type,
                collapse_id, notification, device, bulk)
            SELECT \(columns.token), '', :now, \(columns.app), :expires, :priority, :notBefore, :type, :collapse, :id,
                d.device_id, (SELECT n.devices > \(PushLifeCycle.bulkFrom) FROM notifications n WHERE n.notification_id = :id)
            FROM \(item.devices(ofOneApp: ofOneApp)) AND \(isConfigured(item))
                \(skips ? "AND \(isUnchanged) IS NOT TRUE" : "")
            ORDER BY \(columns.place)
            ON CONFLICT DO NOTHING
            """
    }

    /// Counts devices that are left out, each with the first item that leads to it.
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

    /// Nobody would ever send what is queued for another app.
    private static func isConfigured(_ item: AudienceItem) -> String {
        "(:apps IS NULL OR \(item.columns.app) IN (SELECT value FROM json_each(:apps)))"
    }

    /// Whether the device's last push beside the chat's, sent or on its way, had the same payload. What is scheduled for later
    /// is not on its way.
    private static let isUnchanged = """
        (SELECT n.payload = :payload
        FROM push_queue p INDEXED BY push_queue_device
        LEFT JOIN notifications n ON n.notification_id = p.notification
        WHERE p.device = d.device_id AND p.chat_message IS NULL AND (p.state = 'pending' OR p.state = 'sent')
            AND p.notification IS NOT :id
            AND NOT (p.state = 'pending' AND p.attempts = 0 AND coalesce(p.not_before, 0) > :nowMilliseconds)
        ORDER BY p.message_id DESC LIMIT 1)
        """

    /// A device that was named and is inactive has its record, and nothing is sent to it.
    private func failInactive(_ token: String, now: Timestamp, _ db: Database) throws -> [Ending] {
        try String.fetchAll(
            db.cachedStatement(
                sql: """
                    UPDATE push_queue SET state = 'failed', reason = ?, time_settled = ?
                    WHERE notification = ? AND state = 'pending' AND device IN (
                        SELECT device_id FROM devices WHERE device_token = ? AND time_deactivated IS NOT NULL)
                    RETURNING app
                    """), arguments: [PushLifeCycle.deviceInactive, now.sqlText, id, token]
        ).map { Ending(app: AppName($0), state: .failed, reason: PushLifeCycle.deviceInactive) }
    }
}
