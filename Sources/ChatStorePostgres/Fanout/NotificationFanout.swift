import ChatDomain
import ChatSQL

/// Queues the pushes of a notification: one push for each device of its audience.
///
/// The audience is a list of items, processed in order. A step covers a bounded number of devices of one or several
/// items, in one statement if possible. The relay that performs a step locks the notification's row. A device that
/// several items lead to gets one push: a unique index ensures it among unsettled pushes, and the statement checks the
/// settled ones.
struct NotificationFanout {
    /// The number of devices that one step examines, which takes a few milliseconds of writing. An item without devices
    /// counts as one.
    static let step = 500
    /// The maximum number of users or tags per statement.
    private static let mostNames = 100

    let id: NotificationID
    let request: NotificationRequest
    /// The number of devices in the response to the request.
    let devices: Int
    let items: [AudienceItem]
    /// The items before this one are done, and the devices of this one up to `after`.
    private(set) var item: Int
    private(set) var after: Int64
    /// The last device, or room member, when the notification was accepted. Later ones get no push.
    let until: Int64

    init(
        id: NotificationID, request: NotificationRequest, devices: Int, item: Int = 0, after: Int64 = 0, until: Int64
    ) {
        self.id = id
        self.request = request
        self.devices = devices
        self.items = AudienceItem.items(of: request.audience)
        self.item = item
        self.after = after
        self.until = until
    }

    /// Returns `nil` if the notification has no pushes left to queue.
    static func unfinished(_ id: NotificationID, _ transaction: PostgresTransaction) throws -> NotificationFanout? {
        let row = try transaction.row(
            """
            SELECT work_item, work_after, work_until, \(NotificationRecord.columns)
            FROM notifications WHERE notification_id = $1::bigint AND work = 'queue'
            """, [.int(id)])
        guard let row else { return nil }
        let record = try NotificationRecord(row, from: 3)
        return NotificationFanout(
            id: id, request: record.request, devices: record.devices, item: Int(clamping: max(0, try row.int(0))),
            after: try row.int(1),
            until: try row.int(2))
    }

    /// The last id of a fan-out that begins now.
    static func end(of audience: Audience, _ transaction: PostgresTransaction) throws -> Int64 {
        let isRoom = if case .room = audience { true } else { false }
        let (id, table) = isRoom ? ("member_id", "active_users") : ("device_id", "devices")
        return try transaction.row("SELECT max(\(id)) FROM \(table)")?.optionalInt(0) ?? 0
    }

    /// The result of a step.
    struct Step: Sendable {
        var looked = 0
        var queued = 0
        var skipped = 0
        var ended: [FinalStateCount] = []
        var hasMore = false
        fileprivate var range: ClosedRange<Int64>?
    }

    /// Queues the next pushes and records the progress.
    mutating func step(
        now: Timestamp, _ settings: StoreSettings, _ transaction: PostgresTransaction
    ) throws -> Step {
        var step = Step()
        while item < items.count, step.looked < Self.step {
            try queue(Self.step - step.looked, into: &step, now: now, settings, transaction)
        }
        step.hasMore = item < items.count
        transaction.pipeline(
            """
            UPDATE notifications SET work = $1::text, work_item = $2::bigint, work_after = $3::bigint,
                first_push = coalesce(first_push, $4::bigint), last_push = coalesce($5::bigint, last_push)
            WHERE notification_id = $6::bigint
            """,
            [
                step.hasMore ? "queue" : .null, .int(Int64(item)), .int(after), .optional(step.range?.lowerBound),
                .optional(step.range?.upperBound), .int(id),
            ])
        transaction.pipeline(
            """
            UPDATE notification_counts SET queued = queued + $1::bigint, skipped = skipped + $2::bigint,
                failed = failed + $3::bigint
            WHERE notification_id = $4::bigint
            """, [.int(step.queued), .int(step.skipped), .int(step.ended.count), .int(id)])
        return step
    }

    /// Queues pushes of one or several of the next items.
    private mutating func queue(
        _ budget: Int, into step: inout Step, now: Timestamp, _ settings: StoreSettings,
        _ transaction: PostgresTransaction
    ) throws {
        let names = try transaction.currentForms(
            of: items[item..<min(items.count, item + min(budget, items[item].mostTogether(Self.mostNames)))],
            app: request.app)
        var parameters = SQLParameters()
        let sql = insertSQL(names, budget, now: now, settings, &parameters)
        guard let row = try transaction.row(sql, parameters.values) else { return }
        // If a push was not inserted, another program's push has its id.
        guard try row.int(9) == row.int(4) else { throw PostgresError.numberTaken }
        let looked = Int(try row.int(0))
        step.looked += max(looked, names.count)
        step.skipped += Int(try row.int(3))
        step.queued += Int(try row.int(4))
        if let first = try row.optionalInt(5), let last = try row.optionalInt(6) {
            step.range = min(first, step.range?.lowerBound ?? first)...max(last, step.range?.upperBound ?? last)
        }
        transaction.announcement.apps.formUnion(try row.texts(7))
        step.ended += try row.texts(8).map {
            FinalStateCount(app: AppName($0), state: .failed, reason: PushLifeCycle.deviceInactive)
        }
        if let place = try row.optionalInt(1), let last = try row.optionalInt(2), looked > budget, items[item].isPaged {
            item += Int(place) - 1
            after = last
        } else {
            item = names.endIndex
            after = 0
        }
    }

    // MARK: - The statement

    /// Selects the candidates, one more than the budget, and inserts the pushes. Returns one row with these columns:
    ///
    /// - the number of candidates
    /// - the index among the names and the id of the last candidate that was processed
    /// - the number of skipped devices
    /// - the number of inserted pushes, and the first and the last push id
    /// - the apps of the pending pushes
    /// - the apps of the pushes that failed immediately
    /// - the number of devices for which pushes should have been inserted
    ///
    /// The pushes repeat the columns of the notification, except for the payload. A device that was named by its token
    /// and is inactive gets a failed push as a record. It is not sent.
    func insertSQL(
        _ names: ArraySlice<AudienceItem>, _ budget: Int, now: Timestamp, _ settings: StoreSettings,
        _ parameters: inout SQLParameters
    ) -> String {
        let candidates = candidatesSQL(names, budget, settings, &parameters)
        let (id, time) = (parameters.add(.int(self.id)), "at(\(parameters.add(.time(now))))")
        // Skip apps that are not configured: no dispatcher would ever send their pushes.
        let isConfigured =
            settings.apps.map { "c.app = ANY (\(parameters.add(.texts($0.map(\.text).sorted()), "text[]")))" } ?? "true"
        let skips = request.skipsUnchanged ? unchangedSQL(id, now: now, &parameters) : "false"
        return """
            WITH c AS MATERIALIZED (\(candidates)),
            looked AS MATERIALIZED (SELECT * FROM c ORDER BY place, key LIMIT \(items[item].isPaged ? "\(budget)" : "ALL")),
            wanted AS MATERIALIZED (
                SELECT *, coalesce(\(skips), false) AS is_unchanged FROM looked c WHERE c.is_wanted AND \(isConfigured)),
            attempted AS MATERIALIZED (
                SELECT * FROM wanted w WHERE NOT w.is_unchanged
                    AND \(Self.isNew(id, in: mayRepeat ? "push_queue" : "push_queue_due"))),
            written AS (
                INSERT INTO push_queue_due (device_token, payload, time_queued, app, expires_at, priority, not_before,
                    push_type, collapse_id, notification, device, bulk, state, reason, time_settled)
                SELECT w.token, '', \(time), w.app, \(parameters.add(.optional(request.expiration))),
                    \(parameters.add(.int(request.priority.map { Int($0) }))),
                    \(parameters.add(.optional(request.notBefore?.milliseconds))), \(parameters.text(request.pushType)),
                    \(parameters.text(request.collapseID)), \(id), w.device,
                    \(parameters.add(.bool(devices > PushLifeCycle.bulkFrom), "boolean")),
                    CASE WHEN w.is_inactive THEN 'failed' ELSE 'pending' END,
                    CASE WHEN w.is_inactive THEN \(parameters.text(PushLifeCycle.deviceInactive)) END,
                    CASE WHEN w.is_inactive THEN \(time) END
                FROM attempted w ORDER BY w.place, w.key
                ON CONFLICT DO NOTHING RETURNING message_id, app, state)
            SELECT (SELECT count(*) FROM c), l.place, l.key,
                (SELECT count(*) FROM wanted w WHERE w.is_unchanged \(isFirst(names, &parameters))),
                r.count, r.first, r.last, array_to_json(coalesce(r.apps, '{}'))::text,
                array_to_json(coalesce(r.failed, '{}'))::text,
                (SELECT count(DISTINCT (w.app, w.device, CASE WHEN w.device IS NULL THEN w.token END)) FROM attempted w)
            FROM (SELECT count(*), min(message_id) AS first, max(message_id) AS last,
                    array_agg(DISTINCT app) FILTER (WHERE state = 'pending') AS apps,
                    array_agg(app) FILTER (WHERE state = 'failed') AS failed FROM written) r
            LEFT JOIN (SELECT place, key FROM looked ORDER BY place DESC, key DESC LIMIT 1) l ON true
            """
    }

    /// Whether two steps may reach the same device: through two names, two forms of an Android phone's token, or two
    /// members of a room.
    private var mayRepeat: Bool {
        switch items[item] {
        case .room: true
        case .user, .tag: items.count > 1
        case .token: items.count > Self.step
        case .all: false
        }
    }

    /// A condition that the device has no push of this notification. A subquery per device, so that the planner's
    /// estimate of the number of pushes does not matter.
    /// - Parameter table: `push_queue_due` if no two steps reach the same device. That suffices to detect devices that
    ///   are merged during the fan-out, after an app was renamed.
    private static func isNew(_ id: String, in table: String) -> String {
        """
        CASE WHEN w.device IS NULL THEN (
            SELECT 1 FROM \(table) p WHERE p.notification = \(id) AND p.device IS NULL AND p.app = w.app
                AND p.device_token = w.token LIMIT 1)
        ELSE (SELECT 1 FROM \(table) p WHERE p.notification = \(id) AND p.device = w.device LIMIT 1) END IS NULL
        """
    }

    /// Whether the device's previous push of the same kind, sent or on its way, had the same content. Chat pushes are
    /// not considered. A push that is scheduled for later is not on its way. A notification with nothing but a badge is
    /// compared with the last badge. Any other notification is compared as a whole with the last one that had more than
    /// a badge.
    private func unchangedSQL(_ id: String, now: Timestamp, _ parameters: inout SQLParameters) -> String {
        let payload = "coalesce(n.payload, p.payload)"
        let badge = "json_part(\(payload), '{aps,badge}')"
        let (says, isOfKind): (String, String)
        if let alone = request.badgeAlone {
            (says, isOfKind) = ("\(badge) = \(parameters.text(String(alone)))", "\(badge) IS NOT NULL")
        } else {
            says = "n.payload = \(parameters.text(request.payload))"
            isOfKind = "(\(badge) IS NULL OR json_part(\(payload), '{aps,alert}') IS NOT NULL)"
        }
        return """
            (SELECT \(says) FROM push_queue p LEFT JOIN notifications n ON n.notification_id = p.notification
            WHERE p.device = c.device AND p.chat_message IS NULL AND p.state IN ('pending', 'sent')
                AND p.notification IS DISTINCT FROM \(id)
                AND NOT (p.state = 'pending' AND p.attempts = 0
                    AND coalesce(p.not_before, 0) > \(parameters.add(.time(now)))) AND \(isOfKind)
            ORDER BY p.message_id DESC LIMIT 1)
            """
    }

    /// Counts each skipped device with the first tag that leads to it.
    private func isFirst(_ names: ArraySlice<AudienceItem>, _ parameters: inout SQLParameters) -> String {
        guard request.skipsUnchanged, case .tag = items[item] else { return "" }
        let tags = parameters.add(.texts(items.compactMap(\.value)), "text[]")
        return """
            AND NOT EXISTS (SELECT FROM device_tags o WHERE o.device_id = w.device
                AND o.tag = ANY ((\(tags))[1 : (\(names.startIndex) + w.place - 1)::integer]))
            """
    }

    /// Selects the next devices or members in order, with the columns `place` (the index among the names, from 1),
    /// `key`, `device`, `token`, `app`, `is_inactive` and `is_wanted`. Leaves out inactive devices, except for those
    /// that were named by their token.
    private func candidatesSQL(
        _ names: ArraySlice<AudienceItem>, _ budget: Int, _ settings: StoreSettings,
        _ parameters: inout SQLParameters
    ) -> String {
        let values = names.compactMap(\.value)
        let unnest =
            values.isEmpty
            ? "" : "unnest(\(parameters.add(.texts(values), "text[]"))) WITH ORDINALITY AS i (name, place)"
        let defaultApp = parameters.text(settings.defaultApp.text)
        let app = request.app.map { parameters.text($0.text) }
        /// Replaces `default`, the app of rows that name none, by the name of the configured default app.
        func current(_ name: String) -> String { "CASE WHEN \(name) = 'default' THEN \(defaultApp) ELSE \(name) END" }
        func ofApp(_ name: String) -> String { app.map { "AND \(name) = \($0)" } ?? "" }
        if case .token = items[item] {
            let apps = parameters.add(.texts(values.map { (request.app ?? settings.app(ofToken: $0)).text }), "text[]")
            return """
                SELECT i.place, coalesce(d.device_id, 0) AS key, d.device_id AS device, i.name AS token,
                    \(current("coalesce(d.app, (\(apps))[i.place])")) AS app,
                    d.time_deactivated IS NOT NULL AS is_inactive, true AS is_wanted
                FROM \(unnest) LEFT JOIN devices d ON d.device_token = i.name \(ofApp("d.app"))
                """
        }
        let (after, until) = (parameters.add(.int(self.after)), parameters.add(.int(self.until)))
        let devices = """
            d.device_id AS key, d.device_id AS device, d.device_token AS token, \(current("d.app")) AS app,
                false AS is_inactive, d.time_deactivated IS NULL \(ofApp("d.app")) AS is_wanted
            """
        // The remaining devices of the first name, and all devices of the others.
        let range = "> CASE WHEN i.place = 1 THEN \(after) ELSE 0 END"
        switch items[item] {
        case .user, .token:
            return """
                SELECT i.place, \(devices) FROM \(unnest) CROSS JOIN LATERAL (
                    SELECT x.* FROM devices x
                    WHERE x.user_reference = i.name AND x.device_id \(range) AND x.device_id <= \(until)
                    ORDER BY x.device_id LIMIT \(budget + 1)) d
                ORDER BY i.place, d.device_id LIMIT \(budget + 1)
                """
        case .tag:
            return """
                SELECT t.place, \(devices) FROM (
                    SELECT i.place, x.device_id FROM \(unnest) CROSS JOIN LATERAL (
                        SELECT t.device_id FROM device_tags t
                        WHERE t.tag = i.name AND t.device_id \(range) AND t.device_id <= \(until)
                        ORDER BY t.device_id LIMIT \(budget + 1)) x
                    ORDER BY i.place, x.device_id LIMIT \(budget + 1)) t
                JOIN devices d ON d.device_id = t.device_id
                """
        case .room:
            return """
                SELECT u.place, u.member_id AS key, d.device_id AS device, u.device_token AS token,
                    \(current("u.app")) AS app, false AS is_inactive,
                    u.device_token <> '0' AND d.time_deactivated IS NULL \(ofApp("u.app")) AS is_wanted
                FROM (SELECT i.place, x.* FROM \(unnest) CROSS JOIN LATERAL (
                    SELECT u.member_id, u.device_token, u.app FROM active_users u
                    WHERE u.secret_code = i.name AND u.member_id > \(after) AND u.member_id <= \(until)
                    ORDER BY u.member_id LIMIT \(budget + 1)) x) u
                LEFT JOIN devices d ON d.device_token = u.device_token AND d.app = u.app
                """
        case .all:
            return """
                SELECT 1 AS place, \(devices) FROM devices d
                WHERE d.device_id > \(after) AND d.device_id <= \(until) \(ofApp("d.app"))
                ORDER BY d.device_id LIMIT \(budget + 1)
                """
        }
    }
}

extension AudienceItem {
    /// The maximum number of items of this kind per statement.
    /// - Parameter names: The limit for users and tags.
    func mostTogether(_ names: Int) -> Int {
        switch self {
        case .token: NotificationFanout.step
        case .user, .tag: names
        case .room, .all: 1
        }
    }

    /// Whether it may have more devices than a step processes. Items with a token never do.
    fileprivate var isPaged: Bool {
        if case .token = self { false } else { true }
    }

    /// The current number of devices of the audience, for the response to a request that is too large to finish
    /// immediately. Where there can be many devices, the count only reads indexes.
    static func count(of request: NotificationRequest, _ transaction: PostgresTransaction) throws -> Int {
        var parameters = SQLParameters()
        let app = request.app.map { parameters.text($0.text) }
        func ofApp(_ name: String) -> String { app.map { "AND \(name) = \($0)" } ?? "" }
        let sql: String
        switch request.audience {
        case .tokens(let tokens): return tokens.count
        case .users(let users):
            sql = """
                SELECT count(*) FROM devices d
                WHERE d.user_reference = ANY (\(parameters.add(.texts(users.map(\.text)), "text[]")))
                    AND d.time_deactivated IS NULL \(ofApp("d.app"))
                """
        case .tags(let tags):
            let tags = parameters.add(.texts(tags.map(\.text)), "text[]")
            sql =
                request.app == nil
                ? """
                SELECT (SELECT count(*) FROM device_tags WHERE tag = ANY (\(tags))) - (
                    SELECT count(*) FROM devices d JOIN device_tags t ON t.device_id = d.device_id
                    WHERE t.tag = ANY (\(tags)) AND d.time_deactivated IS NOT NULL)
                """
                : """
                SELECT count(*) FROM device_tags t JOIN devices d ON d.device_id = t.device_id
                WHERE t.tag = ANY (\(tags)) AND d.time_deactivated IS NULL \(ofApp("d.app"))
                """
        case .room(let code):
            sql = """
                SELECT count(*) FROM active_users u LEFT JOIN devices d
                    ON d.device_token = u.device_token AND d.app = u.app
                WHERE u.secret_code = \(parameters.text(code.text)) AND u.device_token <> '0'
                    AND d.time_deactivated IS NULL \(ofApp("u.app"))
                """
        case .all:
            sql = """
                SELECT (SELECT count(*) FROM devices d WHERE true \(ofApp("d.app")))
                    - (SELECT count(*) FROM devices d WHERE d.time_deactivated IS NOT NULL \(ofApp("d.app")))
                """
        }
        return Int(try transaction.row(sql, parameters.values)?.int(0) ?? 0)
    }
}
