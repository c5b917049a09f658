package import ChatDomain

/// Live Activities and the tokens of devices for them.
package final class SQLActivityStore<Database: SQLDatabase>: ActivityStore {
    /// The time after which a push-to-start token that no app reports any more is deleted.
    private static var startTokenLifetime: Duration { .seconds(180 * 86_400) }
    /// The time for which an activity may be on a screen: 8 hours active, and 4 hours after its end.
    private static var shortestRetention: Duration { .seconds(12 * 3600) }

    private let database: Database
    private let signals = Signals()

    package init(database: Database) {
        self.database = database
    }

    // MARK: - Calls

    package func accept(
        _ request: ActivityRequest
    ) async throws(ChatError) -> (activity: ActivityRecord, isRepeat: Bool) {
        let now = database.now()
        let (id, isRepeat) = try await database.write(as: .answer) { transaction in
            try transaction.lock("activity \(request.app) \(request.tag)")
            let active = try transaction.row(
                "SELECT \(Self.columns) FROM activities a WHERE a.app = $1 AND a.tag = $2 AND a.time_ended IS NULL",
                [.text(request.app.text), .text(request.tag.text)]
            ).map { try Self.record($0) }
            if request.content.event == .start {
                if let active {
                    guard active.start.isSame(as: request.content), active.audience == request.audience,
                        active.token == request.token, (active.channel != nil) == request.wantsChannel
                    else {
                        throw ChatError(
                            .conflict, "An activity with this tag is active: update or end it", field: "tag")
                    }
                    return (active.id, true)
                }
                return (try Self.insert(request, now: now, transaction), false)
            }
            guard let active, request.isAdministrator || active.token == request.token else {
                throw ChatError.notFound("active activity")
            }
            var content = request.content
            content.state = content.state ?? active.newest.state
            try transaction.run(
                """
                UPDATE activities SET newest = $2, revision = revision + 1, due = $3, time_updated = at($4),
                    content_time = CASE WHEN content_time >= $5 THEN content_time + 1 ELSE $5 END,
                    time_ended = \(content.event == .end ? "at($4)" : "NULL")
                WHERE activity_id = $1
                """,
                [
                    .int(active.id), .text(JSONValue.object(content.json).description), .int(now.milliseconds),
                    .time(now), .int(now.seconds),
                ])
            return (active.id, false)
        }
        signals.send()
        return (try await activity(id), isRepeat)
    }

    private static func insert(
        _ request: ActivityRequest, now: Timestamp, _ transaction: Database.Transaction
    ) throws -> ActivityID {
        let content = JSONValue.object(request.content.json).description
        let row = try transaction.row(
            """
            INSERT INTO activities (app, tag, audience, start, newest, content_time, is_started, due, token, time_created,
                time_updated, channel_state, channel_revision)
            VALUES ($1, $2, $3, $4, $4, $5, $6, $7, $8, at($9), at($9), $10, 1) RETURNING activity_id
            """,
            [
                .text(request.app.text), .text(request.tag.text), .optional(request.audience?.json.description),
                .text(content), .int(now.seconds), .bool(request.audience == nil),
                request.audience == nil && !request.wantsChannel ? .null : .int(now.milliseconds),
                .optional(request.token), .time(now),
                .optional(request.wantsChannel ? ActivityChannel.State.wanted.rawValue : nil),
            ])
        guard let id = try row?.int(0) else { throw ChatError(.internalError, "the activity got no id") }
        return id
    }

    // MARK: - Tokens

    package func report(_ report: ActivityTokenReport, by member: MemberID) async throws(ChatError) {
        let now = database.now()
        _ = try await database.write(as: .answer) { transaction in
            let row = try transaction.row(
                "SELECT device_token, app FROM active_users WHERE udid = $1", [.text(member.text)])
            guard let row else { throw ChatError.notJoined() }
            let (device, app) = (try row.text(0), try row.text(1))
            guard let token = try? DeviceToken(parsing: device) else {
                throw ChatError.invalid("udid", "has no device token; send cmd=update with the app's token first")
            }
            try Self.keep(report, device: token, app: app, now, transaction)
        }
        signals.send()
    }

    package func report(
        _ report: ActivityTokenReport, of device: DeviceToken, app: AppName
    ) async throws(ChatError) {
        let now = database.now()
        _ = try await database.write(as: .answer) { transaction in
            try Self.keep(report, device: device, app: app.text, now, transaction)
        }
        signals.send()
    }

    private static func keep(
        _ report: ActivityTokenReport, device: DeviceToken, app: String, _ now: Timestamp,
        _ transaction: Database.Transaction
    ) throws {
        let (token, system) = (report.token, report.system)
        switch report.use {
        case .start(let type):
            try keep(token, type: type, system: system, device: device, app: app, now, transaction)
        case .update(let tag): try keep(token, tag: tag, system: system, device: device, app: app, now, transaction)
        }
    }

    /// Stores a push-to-start token.
    private static func keep(
        _ token: DeviceToken, type: String, system: Int?, device: DeviceToken, app: String, _ now: Timestamp,
        _ transaction: Database.Transaction
    ) throws {
        try transaction.lock("activity tokens of \(device)")
        try transaction.run(
            """
            DELETE FROM activity_tokens
            WHERE device_token = $1 AND app = $2 AND attributes_type = $3 AND activity_token <> $4
            """, [.text(device.description), .text(app), .text(type), .text(token.description)])
        let others = try transaction.row(
            """
            SELECT count(*) FROM activity_tokens
            WHERE device_token = $1 AND app = $2 AND activity IS NULL AND activity_token <> $3
            """, [.text(device.description), .text(app), .text(token.description)])
        if try others?.int(0) ?? 0 >= ActivityLimits.startTokens {
            // Forget the type that the app has not reported for the longest time.
            try transaction.run(
                """
                DELETE FROM activity_tokens WHERE app = $2 AND activity_token = (
                    SELECT t.activity_token FROM activity_tokens t
                    WHERE t.device_token = $1 AND t.app = $2 AND t.activity IS NULL
                    ORDER BY t.time_reported, t.activity_token LIMIT 1)
                """, [.text(device.description), .text(app)])
        }
        try insert(token, activity: nil, type: type, system: system, device: device, app: app, now, transaction)
    }

    /// Stores an update token. It is due if the activity has changed since its start.
    private static func keep(
        _ token: DeviceToken, tag: ActivityTag, system: Int?, device: DeviceToken, app: String, _ now: Timestamp,
        _ transaction: Database.Transaction
    ) throws {
        try transaction.lock("activity \(app) \(tag)")
        // An app that learns its token late still gets the end of the activity.
        let row = try transaction.row(
            """
            SELECT a.activity_id, a.audience, a.revision FROM activities a WHERE a.app = $1 AND a.tag = $2
            ORDER BY a.activity_id DESC LIMIT 1
            """, [.text(app), .text(tag.text)])
        guard let row else { throw ChatError.notFound("activity") }
        let (id, revision) = (try row.int(0), try row.int(2))
        if let audience = row.optionalText(1).map(Audience.init(stored:)) {
            let (condition, values) = condition(audience, of: ("$1", "$2"), from: 3, transaction.dialect)
            let isIn = try transaction.row(
                "SELECT 1 WHERE \(condition)", [.text(device.description), .text(app)] + values)
            guard isIn != nil else { throw ChatError.notFound("activity") }
        }
        let count = try transaction.row(
            """
            SELECT count(*) FROM (
                SELECT 1 FROM activity_tokens WHERE activity = $1 AND activity_token <> $2 LIMIT $3) c
            """, [.int(id), .text(token.description), .int(ActivityLimits.devices)])
        guard try count?.int(0) ?? 0 < ActivityLimits.devices else {
            throw ChatError.invalid("tag", "has \(ActivityLimits.devices) devices, which is the limit")
        }
        try transaction.run(
            "DELETE FROM activity_tokens WHERE activity = $1 AND device_token = $2 AND activity_token <> $3",
            [.int(id), .text(device.description), .text(token.description)])
        try insert(token, activity: id, type: nil, system: system, device: device, app: app, now, transaction)
        if revision > 1 {
            try transaction.run(
                "UPDATE activities SET due = $2 WHERE activity_id = $1", [.int(id), .int(now.milliseconds)])
        }
    }

    private static func insert(
        _ token: DeviceToken, activity: ActivityID?, type: String?, system: Int?, device: DeviceToken, app: String,
        _ now: Timestamp, _ transaction: Database.Transaction
    ) throws {
        try transaction.run(
            """
            INSERT INTO activity_tokens (activity_token, app, activity, attributes_type, device_token, system_version,
                revision, time_reported)
            VALUES ($1, $2, $3, $4, $5, $6, 1, at($7))
            ON CONFLICT (activity_token, app) DO UPDATE SET activity = excluded.activity,
                attributes_type = excluded.attributes_type, device_token = excluded.device_token,
                system_version = excluded.system_version, time_reported = excluded.time_reported,
                revision = CASE WHEN activity_tokens.activity = excluded.activity
                    THEN activity_tokens.revision ELSE excluded.revision END,
                notification = CASE WHEN activity_tokens.activity = excluded.activity
                    THEN activity_tokens.notification END
            """,
            [
                .text(token.description), .text(app), .optional(activity), .optional(type), .text(device.description),
                .int(system), .time(now),
            ])
    }

    // MARK: - Lists

    package func activities(
        startedWith token: Int64?, before cursor: ActivityID?, limit: Int
    ) async throws(ChatError) -> Page<ActivityRecord> {
        try await database.read { transaction in
            let page = try transaction.page(
                "SELECT \(Self.columns) FROM activities a WHERE a.activity_id < $1 ORDER BY a.activity_id DESC LIMIT $2",
                [.int(cursor ?? Int64.max), .int(token == nil ? limit + 1 : SQLPage.window + 1)], limit: limit
            ) { row in try token == nil || row.optionalInt(11) == token }
            // One record must not hide the others. The sender logs those that it cannot read.
            return Page(items: page.rows.compactMap { try? Self.record($0) }, next: page.next)
        }
    }

    package func activity(_ id: ActivityID) async throws(ChatError) -> ActivityRecord {
        let record = try await database.read { transaction in
            try transaction.row("SELECT \(Self.columns) FROM activities a WHERE a.activity_id = $1", [.int(id)])
                .map { try Self.record($0) }
        }
        guard let record else { throw .notFound("activity") }
        return record
    }

    private static var columns: String {
        """
        a.activity_id, a.app, a.tag, a.audience, a.start, a.newest, a.revision, a.content_time, a.started_by, a.is_started,
        (SELECT count(*) FROM activity_tokens t WHERE t.activity = a.activity_id), a.token, ms(a.time_created),
        ms(a.time_updated), ms(a.time_ended), a.channel_state, a.channel, a.channel_revision, a.channel_failures,
        a.channel_pause
        """
    }

    private static func record(_ row: some SQLRow, lease: Timestamp? = nil) throws -> ActivityRecord {
        func content(_ column: Int) throws -> ActivityContent {
            guard let object = try JSONValue(parsing: row.text(column)).object else {
                throw UnexpectedColumn(column: column)
            }
            return try ActivityContent(object)
        }
        let channel = try row.optionalText(15).map { text in
            guard let state = ActivityChannel.State(rawValue: text) else { throw UnexpectedColumn(column: 15) }
            return ActivityChannel(
                state: state, id: row.optionalText(16), revision: try row.int(17), failures: Int(try row.int(18)),
                notBefore: try row.optionalTime(19))
        }
        let started = try JSONValue(parsing: row.text(8)).array ?? []
        return ActivityRecord(
            id: try row.int(0), tag: ActivityTag(stored: try row.text(2)), app: AppName(try row.text(1)),
            audience: row.optionalText(3).map(Audience.init(stored:)), start: try content(4), newest: try content(5),
            revision: try row.int(6), timestamp: try row.int(7), startedBy: started.compactMap(\.integer),
            isStarted: try row.bool(9), devices: Int(try row.int(10)), token: try row.optionalInt(11),
            createdAt: try row.time(12), updatedAt: try row.time(13), endedAt: try row.optionalTime(14),
            channel: channel,
            lease: lease)
    }

    // MARK: - Sending

    package func announceWork(to signal: AsyncStream<Void>.Continuation) { signals.add(signal, of: .default) }

    package func nextDue() async throws(ChatError) -> Timestamp? {
        try await database.read { transaction in
            try transaction.row(
                """
                SELECT min(CASE WHEN leased_until > due THEN leased_until ELSE due END) FROM activities
                WHERE due IS NOT NULL
                """)?.optionalTime(0)
        }
    }

    package func lease() async throws(ChatError) -> ActivityLease? {
        // The usual case needs no write transaction.
        let now = database.now()
        let due = """
            FROM activities a WHERE a.due <= $1 AND coalesce(a.leased_until, 0) <= $1
            ORDER BY a.due, a.activity_id LIMIT 1
            """
        let isDue = try await database.read { transaction in
            try transaction.row("SELECT a.activity_id \(due)", [.int(now.milliseconds)]) != nil
        }
        guard isDue else { return nil }
        return try await database.write(as: .upkeepOnce) { transaction in
            let lock = transaction.dialect.lockedOrSkipped("a")
            let row = try transaction.row("SELECT \(Self.columns) \(due) \(lock)", [.int(now.milliseconds)])
            guard let row else { return nil }
            let end = now + ActivityLimits.lease
            let (lease, due): (ActivityLease, Timestamp)
            do {
                (lease, due) = (.activity(try Self.record(row, lease: end)), end)
            } catch {
                // One record must not hold back the others.
                (lease, due) = (.unreadable(try row.int(0), "\(error)"), now + ActivityLimits.unreadablePause)
            }
            try transaction.run(
                "UPDATE activities SET due = $2, leased_until = $2 WHERE activity_id = $1",
                [.int(try row.int(0)), .int(due.milliseconds)])
            return lease
        }
    }

    package func startTokens(
        of activity: ActivityRecord, _ part: ActivityAudiencePart, after cursor: DeviceToken?, limit: Int
    ) async throws(ChatError) -> [DeviceToken] {
        guard let audience = activity.audience else { return [] }
        let systems =
            switch part {
            case .all: ""
            case .channel: "AND t.system_version >= \(ActivityChannel.firstSystem)"
            case .noChannel: "AND coalesce(t.system_version, 0) < \(ActivityChannel.firstSystem)"
            }
        return try await database.read { transaction in
            let (condition, values) = Self.condition(
                audience, of: ("t.device_token", "t.app"), from: 5, transaction.dialect)
            return try transaction.rows(
                """
                SELECT t.activity_token FROM activity_tokens t
                WHERE t.activity IS NULL AND t.app = $1 AND t.attributes_type = $2 AND t.activity_token > $3
                    \(systems) AND \(condition)
                ORDER BY t.activity_token LIMIT $4
                """,
                [
                    .text(activity.app.text), .text(activity.start.type), .text(cursor?.description ?? ""),
                    .int(limit),
                ] + values
            ).compactMap { try? DeviceToken(parsing: $0.text(0)) }
        }
    }

    /// Returns the condition that a device is active and belongs to an audience, and its parameters.
    /// - Parameters:
    ///   - device: The columns, or parameters, with the device's token and app.
    ///   - first: The number of the first parameter.
    private static func condition(
        _ audience: Audience, of device: (token: String, app: String), from first: Int, _ dialect: SQLDialect
    ) -> (sql: String, values: [SQLValue]) {
        let list = dialect.each("$\(first)", "text")
        let (restriction, values): (String, [SQLValue]) =
            switch audience {
            case .all: ("", [])
            case .tokens(let tokens): ("AND d.device_token IN (\(list))", [.texts(tokens.map(\.description))])
            case .users(let users): ("AND d.user_reference IN (\(list))", [.texts(users.map(\.text))])
            case .tags(let tags):
                (
                    "AND d.device_id IN (SELECT g.device_id FROM device_tags g WHERE g.tag IN (\(list)))",
                    [.texts(tags.map(\.text))]
                )
            case .room(let code):
                (
                    """
                    AND EXISTS (
                        SELECT 1 FROM active_users u WHERE u.secret_code = $\(first)
                            AND u.device_token = d.device_token AND u.app = d.app)
                    """, [.text(code.text)]
                )
            }
        return (
            """
            (\(device.token), \(device.app)) IN (
                SELECT d.device_token, d.app FROM devices d WHERE d.time_deactivated IS NULL \(restriction))
            """, values
        )
    }

    package func started(_ activity: ActivityRecord, by notifications: [NotificationID]) async throws(ChatError) {
        let ids = JSONValue.array(notifications.map { .number($0) }).description
        try await change(activity, "is_started = true, started_by = $3", [.text(ids)])
    }

    /// Changes the row of an activity that this process has leased.
    ///
    /// - Parameters:
    ///   - values: The parameters from `$3` on.
    /// - Throws: An error if the lease has ended, because another relay may have leased the activity.
    private func change(
        _ activity: ActivityRecord, _ assignments: String, _ values: [SQLValue]
    ) async throws(ChatError) {
        let changed = try await database.write(as: .upkeep) { transaction in
            try transaction.run(
                "UPDATE activities SET \(assignments) WHERE activity_id = $1 AND leased_until = $2",
                [.int(activity.id), .optional(activity.lease?.milliseconds)] + values)
        }
        guard changed > 0 else {
            throw ChatError(.conflict, "the lease of activity \(activity.id) has ended, and it is due again")
        }
    }

    package func targets(of activity: ActivityRecord, limit: Int) async throws(ChatError) -> [ActivityTarget] {
        try await database.read { transaction in
            try transaction.rows(
                """
                SELECT activity_token, notification FROM activity_tokens WHERE activity = $1 AND revision < $2
                ORDER BY activity_token LIMIT $3
                """, [.int(activity.id), .int(activity.revision), .int(limit)]
            ).compactMap { row in
                guard let token = try? DeviceToken(parsing: row.text(0)) else { return nil }
                return ActivityTarget(token: token, notification: try row.optionalInt(1))
            }
        }
    }

    package func sent(
        _ activity: ActivityRecord, to tokens: [DeviceToken], in notification: NotificationID
    ) async throws(ChatError) {
        _ = try await database.write(as: .upkeep) { transaction in
            try transaction.run(
                """
                UPDATE activity_tokens SET revision = $2, notification = $3
                WHERE activity = $1 AND activity_token IN (\(transaction.dialect.each("$4", "text")))
                """,
                [
                    .int(activity.id), .int(activity.revision), .int(notification),
                    .texts(tokens.map(\.description)),
                ])
        }
    }

    package func forget(_ tokens: [DeviceToken], of app: AppName) async throws(ChatError) {
        guard !tokens.isEmpty else { return }
        _ = try await database.write(as: .upkeep) { transaction in
            try transaction.run(
                """
                DELETE FROM activity_tokens
                WHERE app = $1 AND activity_token IN (\(transaction.dialect.each("$2", "text")))
                """, [.text(app.text), .texts(tokens.map(\.description))])
        }
    }

    package func record(_ channel: ActivityChannel, of activity: ActivityRecord) async throws(ChatError) {
        try await change(
            activity,
            """
            channel_state = $3, channel = $4, channel_revision = $5, channel_failures = $6, channel_pause = $7
            """,
            [
                .text(channel.state.rawValue), .optional(channel.id), .int(channel.revision), .int(channel.failures),
                .optional(channel.notBefore?.milliseconds),
            ])
    }

    package func settle(_ activity: ActivityRecord, next: Timestamp?) async throws(ChatError) {
        guard let lease = activity.lease else { return }
        _ = try await database.write(as: .upkeep) { transaction in
            try transaction.run(
                """
                UPDATE activities SET leased_until = NULL, due = CASE WHEN due = $2 THEN $3 ELSE due END
                WHERE activity_id = $1 AND leased_until = $2
                """,
                [.int(activity.id), .int(lease.milliseconds), .optional(next?.milliseconds)])
        }
    }

    /// Deletes activities without a call for as long as pushes are kept, and push-to-start tokens that no app reports any
    /// more. An activity with an open channel ends first, so that the channel is deleted.
    package func applyRetention(_ ages: RetentionAges) async throws(ChatError) {
        let now = database.now()
        let limit = now - max(ages.queue, Self.shortestRetention)
        _ = try await database.write(as: .upkeep) { transaction in
            try transaction.run(
                """
                UPDATE activities SET time_ended = at($2), due = $3
                WHERE time_updated < at($1) AND channel_state = 'open' AND time_ended IS NULL
                """, [.time(limit), .time(now), .int(now.milliseconds)])
        }
        let isOld = "a.time_updated < at($1) AND coalesce(a.channel_state, '') <> 'open'"
        // An activity may have thousands of tokens.
        try await database.changeInSteps(
            """
            DELETE FROM activity_tokens WHERE (activity_token, app) IN (
                SELECT t.activity_token, t.app FROM activities a JOIN activity_tokens t ON t.activity = a.activity_id
                WHERE \(isOld) LIMIT $2)
            """, [.time(limit)])
        try await database.changeInSteps(
            "DELETE FROM activities WHERE activity_id IN (SELECT a.activity_id FROM activities a WHERE \(isOld) LIMIT $2)",
            [.time(limit)])
        try await database.changeInSteps(
            """
            DELETE FROM activity_tokens WHERE (activity_token, app) IN (
                SELECT activity_token, app FROM activity_tokens WHERE activity IS NULL AND time_reported < at($1) LIMIT $2)
            """, [.time(now - Self.startTokenLifetime)])
    }
}
