package import ChatDomain

/// Webhooks and their events. ``WebhookTrigger`` writes the events.
package struct SQLWebhookStore<Database: SQLDatabase>: WebhookStore {
    /// The maximum number of attempts to create a webhook while another relay ends triggers.
    private static var maxTries: Int { 5 }
    /// The number of events that one step drops, holds back or deletes.
    private static var step: Int { 500 }
    /// The lock of everyone who creates or ends triggers.
    private static var lock: String { "webhooks" }

    private let database: Database

    package init(database: Database) {
        self.database = database
    }

    // MARK: - Webhooks

    package func create(
        _ settings: WebhookSettings, secret: WebhookSecret, by moderator: Moderator
    ) async throws(ChatError) -> Webhook {
        let id = try await withTriggers(for: settings.events) { [database] transaction in
            let now = database.now()
            if let token = settings.token,
                try transaction.row("SELECT 1 FROM api_tokens WHERE token_id = $1", [.int(token)]) == nil
            {
                throw ChatError.notFound("token")
            }
            guard try transaction.row("SELECT count(*) FROM webhooks")?.int(0) ?? 0 < WebhookSettings.most else {
                throw ChatError(.conflict, "There are \(WebhookSettings.most) webhooks already; delete one first")
            }
            let columns = WebhookSettings.storedColumns
            let row = try transaction.row(
                """
                INSERT INTO webhooks (\(columns.joined(separator: ", ")), secret, time_created)
                VALUES (\(columns.indices.map { "$\($0 + 3)" }.joined(separator: ", ")), $1, at($2)) RETURNING webhook_id
                """, [.bytes(secret.bytes), .time(now)] + settings.values)
            let id = try row?.int(0) ?? 0
            try Self.record("webhook \(id) created: \(settings.origin)", settings.room, moderator, now, transaction)
            return id
        }
        return Webhook(id: id, settings: settings, createdAt: database.now())
    }

    package func webhooks() async throws(ChatError) -> [Webhook] {
        try await database.read { transaction in
            try transaction.rows("SELECT \(Webhook.columns("w.")) FROM webhooks w ORDER BY w.webhook_id", [])
                .map { try Webhook($0) }
        }
    }

    package func webhook(_ id: Int64) async throws(ChatError) -> Webhook? {
        try await database.read { try Self.webhook(id, $0) }
    }

    private static func webhook(_ id: Int64, _ transaction: Database.Transaction) throws -> Webhook? {
        try transaction.row("SELECT \(Webhook.columns("w.")) FROM webhooks w WHERE w.webhook_id = $1", [.int(id)])
            .map { try Webhook($0) }
    }

    package func change(
        _ id: Int64, to edit: WebhookEdit, by moderator: Moderator
    ) async throws(ChatError) -> Webhook? {
        let changed = try await withTriggers(for: edit.settings.events) { [database] transaction -> Webhook? in
            let now = database.now()
            let assignments = WebhookSettings.storedColumns.enumerated().map { "\($0.element) = $\($0.offset + 2)" }
            let count = try transaction.run(
                "UPDATE webhooks SET \(assignments.joined(separator: ", ")) WHERE webhook_id = $1",
                [.int(id)] + edit.settings.values)
            guard count > 0 else { return nil }
            if let state = edit.state {
                try transaction.pipeline(
                    """
                    UPDATE webhooks SET state = $2, reason = $3, not_before = 0,
                        failures = CASE WHEN $2 = 'active' THEN 0 ELSE failures END WHERE webhook_id = $1
                    """,
                    [
                        .int(id), .text(state.rawValue),
                        .optional(state == .active ? nil : "by \(moderator.name)"),
                    ])
                // Events that wait for their next attempt are due as well.
                try transaction.pipeline(
                    "UPDATE webhook_events SET not_before = NULL WHERE webhook_id = $1 AND state = 'waiting'",
                    [.int(id)])
            }
            let word = edit.state.map { " to \($0.rawValue)" } ?? ""
            try Self.record(
                "webhook \(id) changed\(word): \(edit.settings.origin)", edit.settings.room, moderator, now, transaction
            )
            return try Self.webhook(id, transaction)
        }
        try await adjustTriggers()
        return changed
    }

    package func delete(_ id: Int64, by moderator: Moderator) async throws(ChatError) -> Bool {
        let isDeleted = try await database.write(as: .answer) { [database] transaction in
            guard let webhook = try Self.webhook(id, transaction) else { return false }
            try transaction.pipeline("DELETE FROM webhooks WHERE webhook_id = $1", [.int(id)])
            try Self.record(
                "webhook \(id) deleted: \(webhook.settings.origin)", webhook.settings.room, moderator, database.now(),
                transaction)
            return true
        }
        try await adjustTriggers()
        try await deleteOrphans()
        return isDeleted
    }

    package func rotate(
        _ id: Int64, to secret: WebhookSecret, by moderator: Moderator
    ) async throws(ChatError) -> Webhook? {
        try await database.write(as: .answerOnce) { [database] transaction in
            let now = database.now()
            let count = try transaction.run(
                "UPDATE webhooks SET old_secret = secret, secret = $2, rotates_until = $3 WHERE webhook_id = $1",
                [.int(id), .bytes(secret.bytes), .int((now + Webhook.rotation).milliseconds)])
            guard count > 0, let webhook = try Self.webhook(id, transaction) else { return nil }
            try Self.record(
                "webhook \(id) got a new secret: \(webhook.settings.origin)", webhook.settings.room, moderator, now,
                transaction)
            return webhook
        }
    }

    private static func record(
        _ subject: String, _ room: SecretCode?, _ moderator: Moderator, _ now: Timestamp,
        _ transaction: Database.Transaction
    ) throws {
        _ = try ModerationRecord.write(.webhook, subject, in: room?.text, by: moderator, at: now, transaction)
    }

    // MARK: - Triggers

    /// Writes while the triggers for these events fire. Each trigger begins in a separate transaction: PostgreSQL waits
    /// there for the writers of its table, and must not hold another table while it waits.
    private func withTriggers<Value: Sendable>(
        for events: Set<WebhookEventKind>, _ body: @escaping @Sendable (Database.Transaction) throws -> Value
    ) async throws(ChatError) -> Value {
        let needed = WebhookTrigger.all.filter { !$0.events.isDisjoint(with: events) }.map(\.name)
        for _ in 0..<Self.maxTries {
            for name in needed { try await enable(name) }
            let value: Value? = try await database.write(as: .answerOnce) { transaction in
                try transaction.lock(Self.lock)
                guard try WebhookTrigger.active(transaction).isSuperset(of: needed) else { return nil }
                return try body(transaction)
            }
            if let value { return value }
        }
        throw ChatError(.unavailable, "Webhooks are being changed; try again", retryAfter: .seconds(1))
    }

    private func enable(_ name: String) async throws(ChatError) {
        try await database.write(as: .answer) { transaction in
            try transaction.lock(Self.lock)
            guard try !WebhookTrigger.active(transaction).contains(name) else { return }
            try WebhookTrigger.all.first { $0.name == name }?.enable(transaction)
        }
    }

    /// Ends triggers whose events no webhook asks for, and begins missing ones.
    package func adjustTriggers() async throws(ChatError) {
        // The usual case needs no write transaction.
        let wrong = try await database.read { transaction in
            let (wanted, active) = (try Self.wanted(transaction), try WebhookTrigger.active(transaction))
            return wanted.symmetricDifference(active).sorted()
        }
        for name in wrong {
            try await database.write(as: .answer) { transaction in
                try transaction.lock(Self.lock)
                guard let trigger = WebhookTrigger.all.first(where: { $0.name == name }) else { return }
                let isWanted = try Self.wanted(transaction).contains(name)
                guard try WebhookTrigger.active(transaction).contains(name) != isWanted else { return }
                try isWanted ? trigger.enable(transaction) : trigger.disable(transaction)
            }
        }
    }

    /// The names of the triggers whose events a webhook asks for.
    private static func wanted(_ transaction: Database.Transaction) throws -> Set<String> {
        let events = try transaction.rows("SELECT events FROM webhooks WHERE state <> 'ended'", []).flatMap { row in
            try row.text(0).split(separator: " ").compactMap { WebhookEventKind(rawValue: String($0)) }
        }
        return Set(WebhookTrigger.all.filter { !$0.events.isDisjoint(with: events) }.map(\.name))
    }

    // MARK: - Deliveries

    package func test(_ id: Int64) async throws(ChatError) -> Int64? {
        try await database.write(as: .answerOnce) { [database] transaction in
            let row = try transaction.row(
                """
                INSERT INTO webhook_events (webhook_id, type, secret_code, time_created)
                SELECT webhook_id, '\(WebhookEventKind.test)', secret_code, at($2) FROM webhooks WHERE webhook_id = $1
                RETURNING event_id
                """, [.int(id), .time(database.now())])
            try transaction.pipeline("UPDATE webhooks SET not_before = 0 WHERE webhook_id = $1", [.int(id)])
            return try row?.int(0)
        }
    }

    package func deliveries(
        of id: Int64, in state: WebhookEvent.State?, before cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<WebhookEvent> {
        try await database.read { transaction in
            let page = try transaction.page(
                """
                SELECT \(WebhookEvent.columns()) FROM webhook_events WHERE webhook_id = $1 AND event_id < $2
                ORDER BY event_id DESC LIMIT \(SQLPage.window + 1)
                """, [.int(id), .int(cursor ?? .max)], limit: limit
            ) { row in
                guard let state else { return true }
                return try row.text(7) == state.rawValue
            }
            return Page(items: try page.rows.map { try WebhookEvent($0) }, next: page.next)
        }
    }

    package func redeliver(_ events: WebhookRedelivery, of id: Int64) async throws(ChatError) -> Int {
        try await database.write(as: .answer) { [database] transaction in
            let chosen: String
            var values: [SQLValue] = [.int(id), .time(database.now())]
            switch events {
            case .events(let ids):
                chosen = transaction.dialect.isAny("event_id", of: "$3", "bigint")
                values.append(.ints(ids))
            case .all(let state):
                chosen = """
                    event_id IN (SELECT event_id FROM webhook_events WHERE webhook_id = $1 AND state = $3
                        ORDER BY event_id LIMIT \(WebhookRedelivery.most))
                    """
                values.append(.text(state.rawValue))
            }
            let count = try transaction.run(
                """
                UPDATE webhook_events SET state = 'waiting', attempts = 0, not_before = NULL, fold = NULL,
                    time_queued = at($2), time_settled = NULL
                WHERE webhook_id = $1 AND state <> 'waiting' AND \(chosen)
                """, values)
            try transaction.pipeline("UPDATE webhooks SET not_before = 0 WHERE webhook_id = $1", [.int(id)])
            return count
        }
    }

    // MARK: - Sending

    /// Webhooks with an event that is due, and the event. The oldest event without enough attempts is the last one that
    /// may go.
    static func dueSQL(lock: String) -> String {
        """
        SELECT d.webhook_id, d.event_id FROM (
            SELECT w.webhook_id, (
                SELECT min(e.event_id) FROM webhook_events e
                WHERE e.webhook_id = w.webhook_id AND e.state = 'waiting' AND coalesce(e.not_before, 0) <= $1
                    AND e.event_id <= coalesce((
                        SELECT min(h.event_id) FROM webhook_events h
                        WHERE h.webhook_id = w.webhook_id AND h.state = 'waiting'
                            AND h.attempts < \(WebhookLifeCycle.orderedAttempts)), 9223372036854775807)) AS event_id
            FROM webhooks w
            WHERE w.state = 'active' AND w.leased_until <= $1 AND w.not_before <= $1
            ORDER BY w.webhook_id \(lock)) d
        WHERE d.event_id IS NOT NULL
        """
    }

    package func lease() async throws(ChatError) -> [WebhookAttempt] {
        let now = database.now()
        // The usual case needs no write transaction.
        let isDue = try await database.read { transaction in
            try transaction.row(Self.dueSQL(lock: "") + " LIMIT 1", [.int(now.milliseconds)]) != nil
        }
        guard isDue else { return [] }
        return try await database.write(as: .upkeepOnce) { transaction in
            // Posters do not wait for this lock, and other relays leave out locked webhooks.
            let lock = transaction.dialect == .sqlite ? "" : "FOR NO KEY UPDATE OF w SKIP LOCKED"
            var attempts: [WebhookAttempt] = []
            for row in try transaction.rows(Self.dueSQL(lock: lock), [.int(now.milliseconds)]) {
                let (webhook, event) = (try row.int(0), try row.int(1))
                // Another relay may have settled the event after this statement began. It is checked again.
                let leased = try transaction.row(
                    """
                    UPDATE webhook_events SET attempts = attempts + 1
                    WHERE event_id = $1 AND state = 'waiting' AND coalesce(not_before, 0) <= $2
                    RETURNING \(WebhookEvent.columns())
                    """, [.int(event), .int(now.milliseconds)])
                guard let leased else { continue }
                attempts.append(try Self.attempt(WebhookEvent(leased), of: webhook, now: now, transaction))
            }
            return attempts
        }
    }

    private static func attempt(
        _ event: WebhookEvent, of webhook: Int64, now: Timestamp, _ transaction: Database.Transaction
    ) throws -> WebhookAttempt {
        let lease = Int64.random(in: 1 ... .max)
        let row = try transaction.row(
            """
            UPDATE webhooks SET lease = $2, leased_until = $3 WHERE webhook_id = $1
            RETURNING failures, secret, CASE WHEN rotates_until > $4 THEN 1 ELSE 0 END, coalesce(old_secret, secret),
                \(WebhookSettings.columns())
            """,
            [
                .int(webhook), .int(lease), .int((now + WebhookLifeCycle.lease).milliseconds), .int(now.milliseconds),
            ])
        guard let row else { throw transaction.collision(with: "webhook \(webhook)") }
        let record = try event.message.flatMap { id in
            try transaction.row(
                "SELECT \(MessageRecord.columns()) FROM messages WHERE message_id = $1", [.int(id)]
            ).map { try MessageRecord($0) }
        }
        let secrets = [try row.bytes(1)] + (try row.int(2) == 1 ? [try row.bytes(3)] : [])
        return WebhookAttempt(
            lease: lease, event: event, settings: try WebhookSettings(row, from: 4),
            secrets: secrets.map(WebhookSecret.init(stored:)), failures: Int(try row.int(0)), record: record)
    }

    package func settle(
        _ attempt: WebhookAttempt, _ settlement: WebhookSettlement, _ response: WebhookEvent.Response
    ) async throws(ChatError) {
        try await database.write(as: .upkeep) { [database] transaction in
            let now = database.now()
            let webhook = attempt.event.webhook
            let (state, reason): (String?, String?) =
                switch settlement.change {
                case .paused(let reason)?: ("paused", reason)
                case .ended(let reason)?: ("ended", reason)
                case nil: (nil, nil)
                }
            // An operator may have paused it since the lease.
            let isHeld =
                try transaction.run(
                    """
                    UPDATE webhooks SET leased_until = 0, lease = 0, failures = $3, not_before = $4,
                        reason = CASE WHEN CAST($5 AS text) IS NULL THEN reason ELSE $6 END,
                        state = CASE WHEN CAST($5 AS text) IS NULL THEN state ELSE $5 END,
                        time_succeeded = coalesce(at($7), time_succeeded)
                    WHERE webhook_id = $1 AND lease = $2
                    """,
                    [
                        .int(webhook), .int(attempt.lease), .int(settlement.failures),
                        .int(settlement.notBefore?.milliseconds ?? 0), .optional(state), .optional(reason),
                        .optional(settlement.event == .delivered && response.status != nil ? now : nil),
                    ]) > 0
            // Another relay may be sending the event again.
            guard isHeld || settlement.event == .delivered else { return }
            let (next, due): (WebhookEvent.State, Timestamp?) =
                switch settlement.event {
                case .delivered: (.delivered, nil)
                case .waiting(let until): (.waiting, until)
                case .failed: (.failed, nil)
                }
            try transaction.pipeline(
                """
                UPDATE webhook_events SET state = $2, not_before = $3, status = $4, error = $5, response = $6,
                    duration = $7, time_settled = at($8)
                WHERE event_id = $1 AND state = 'waiting' AND attempts >= $9
                """,
                [
                    .int(attempt.event.id), .text(next.rawValue), .optional(due?.milliseconds), .int(response.status),
                    .optional(response.error), .optional(response.body),
                    .int(Int64(response.duration / .milliseconds(1))),
                    .optional(next == .waiting ? nil : now),
                    // Since then, the row may have become the event that replaces dropped ones, or be sent again by hand.
                    .int(attempt.event.attempts),
                ])
            if settlement.isRecovery {
                try transaction.pipeline(
                    """
                    UPDATE webhook_events SET not_before = NULL
                    WHERE webhook_id = $1 AND state = 'waiting' AND not_before IS NOT NULL
                    """, [.int(webhook)])
            }
            if state == Webhook.State.ended.rawValue {
                try transaction.pipeline(
                    """
                    UPDATE webhook_events SET state = 'failed', error = 'the webhook has ended', time_settled = at($2)
                    WHERE webhook_id = $1 AND state = 'waiting'
                    """, [.int(webhook), .time(now)])
            }
        }
    }

    package func release(_ attempt: WebhookAttempt) async throws(ChatError) {
        try await database.write(as: .upkeep) { transaction in
            let count = try transaction.run(
                "UPDATE webhooks SET leased_until = 0, lease = 0 WHERE webhook_id = $1 AND lease = $2",
                [.int(attempt.event.webhook), .int(attempt.lease)])
            guard count > 0 else { return }
            try transaction.pipeline(
                "UPDATE webhook_events SET attempts = attempts - 1, fold = NULL WHERE event_id = $1 AND state = 'waiting'",
                [.int(attempt.event.id)])
        }
    }

    package func botMessages(in room: SecretCode, since: Timestamp) async throws(ChatError) -> Int {
        try await database.read { transaction in
            let row = try transaction.row(
                """
                SELECT count(*) FROM (
                    SELECT udid, time_sent FROM messages WHERE secret_code = $1 ORDER BY message_id DESC LIMIT 200) m
                WHERE m.udid LIKE 'webhook:%' AND m.time_sent > at($2)
                """, [.text(room.text), .time(since)])
            return Int(try row?.int(0) ?? 0)
        }
    }

    // MARK: - Upkeep

    package func dropExcess() async throws(ChatError) {
        for webhook in try await webhooks() where webhook.waiting > Webhook.countedEvents {
            while try await drop(of: webhook.id, byAge: false) {}
        }
        // A webhook that has ended, or whose token was revoked, needs none.
        try await adjustTriggers()
    }

    /// Drops the oldest events in one step. Their last row becomes the event that says so, so that it keeps their place.
    ///
    /// - Parameter byAge: Whether to drop old events, instead of those above the largest number. The clock must be sure.
    /// - Returns: Whether more may remain.
    private func drop(of webhook: Int64, byAge: Bool) async throws(ChatError) -> Bool {
        let now = database.now()
        let most = WebhookLifeCycle.mostWaiting
        let plan = try await database.read { transaction -> (events: [Int64], count: Int64, from: Int64, to: Int64)? in
            let last =
                byAge
                ? nil
                : try transaction.row(
                    """
                    SELECT event_id FROM webhook_events WHERE webhook_id = $1 AND state = 'waiting'
                    ORDER BY event_id DESC LIMIT 1 OFFSET \(most)
                    """, [.int(webhook)])?.int(0)
            let rows = try transaction.rows(
                """
                SELECT event_id, type, attempts, ms(coalesce(time_queued, time_created)), events, ms(time_created), details
                FROM webhook_events WHERE webhook_id = $1 AND state = 'waiting' ORDER BY event_id LIMIT \(Self.step)
                """, [.int(webhook)])
            let excess = try last.map { last in try rows.prefix { try $0.int(0) <= last }.count } ?? 0
            let events = try rows.map { row in
                (type: try row.text(1), queued: try row.time(3), attempts: Int(try row.int(2)))
            }
            let dropped = WebhookLifeCycle.dropped(
                events, excess: excess, now: byAge ? now : Timestamp(milliseconds: 0))
            guard dropped > 0 else { return nil }
            var (count, from) = (Int64(0), Int64.max)
            for row in rows.prefix(dropped) {
                let isGap = try row.text(1) == WebhookEventKind.gap
                let details = try JSONValue(parsing: row.text(6)).object
                count += isGap ? details?["events"]?.integer ?? 0 : 1
                let since = isGap ? details?[WebhookEvent.firstDropped]?.integer : nil
                from = min(from, try since ?? row.int(5))
            }
            return (try rows.prefix(dropped).map { try $0.int(0) }, count, from, try rows[dropped - 1].int(5))
        }
        guard let plan, let last = plan.events.last else { return false }
        try await database.write(as: .upkeep) { transaction in
            let details: JSONObject = [
                "events": .number(plan.count), "from": .time(Timestamp(milliseconds: plan.from)),
                "to": .time(Timestamp(milliseconds: plan.to)), WebhookEvent.firstDropped: .number(plan.from),
            ]
            let isDropped = transaction.dialect.isAny("event_id", of: "$1", "bigint")
            // Only if no relay has sent or replaced one since.
            let found = try transaction.row(
                "SELECT count(*) FROM webhook_events WHERE \(isDropped) AND state = 'waiting'", [.ints(plan.events)])
            guard try found?.int(0) == Int64(plan.events.count) else { return }
            try transaction.pipeline(
                "DELETE FROM webhook_events WHERE \(isDropped)", [.ints(Array(plan.events.dropLast()))])
            try transaction.pipeline(
                """
                UPDATE webhook_events SET type = '\(WebhookEventKind.gap)', secret_code = NULL, message_id = NULL,
                    fold = NULL, attempts = 0, not_before = NULL, events = 1, details = $2, time_created = at($3),
                    time_queued = NULL WHERE event_id = $1
                """, [.int(last), .text(JSONValue.object(details).description), .time(now)])
        }
        return plan.events.count == Self.step
    }

    /// Deletes events some time after their last attempt, and those of deleted webhooks. Drops events that have waited too
    /// long.
    package func applyRetention(_ ages: RetentionAges) async throws(ChatError) {
        for webhook in try await webhooks() where webhook.waiting > 0 {
            while try await drop(of: webhook.id, byAge: true) {}
        }
        try await database.deleteInSteps(
            """
            DELETE FROM webhook_events WHERE event_id IN (
                SELECT event_id FROM webhook_events WHERE time_settled < at($1) LIMIT $2)
            """, before: database.now() - ages.webhooks)
        try await database.deleteInSteps(
            """
            DELETE FROM webhook_events WHERE event_id IN (
                SELECT event_id FROM webhook_events
                WHERE state = 'held' AND coalesce(time_queued, time_created) < at($1) LIMIT $2)
            """, before: database.now() - ages.webhooks)
        try await deleteOrphans()
    }

    /// Deletes the events of deleted webhooks. Goes from one webhook to the next by the index.
    private func deleteOrphans() async throws(ChatError) {
        var last: Int64 = 0
        while let webhook = try await Self.webhook(withEventsAfter: last, database) {
            last = webhook.id
            if webhook.exists { continue }
            let events = "SELECT event_id FROM webhook_events WHERE webhook_id = $1 LIMIT \(Self.step)"
            while try await database.write(
                as: .upkeep,
                { transaction in
                    try transaction.run(
                        "DELETE FROM webhook_events WHERE event_id IN (\(events))", [.int(webhook.id)])
                }) == Self.step
            {}
        }
    }

    private static func webhook(
        withEventsAfter last: Int64, _ database: Database
    ) async throws(ChatError) -> (id: Int64, exists: Bool)? {
        try await database.read { transaction in
            let next = try transaction.row(
                "SELECT webhook_id FROM webhook_events WHERE webhook_id > $1 ORDER BY webhook_id LIMIT 1", [.int(last)])
            guard let id = try next?.int(0) else { return nil }
            return (id, try transaction.row("SELECT 1 FROM webhooks WHERE webhook_id = $1", [.int(id)]) != nil)
        }
    }

    package func totals() async throws(ChatError) -> WebhookTotals {
        try await database.read { transaction in
            try transaction.row(WebhookTotals.sql).map { try WebhookTotals($0) } ?? WebhookTotals()
        }
    }
}

extension WebhookTotals {
    package static let sql = """
        SELECT (SELECT count(*) FROM webhooks WHERE state = 'active'),
            (SELECT count(*) FROM webhooks WHERE state = 'paused'), (SELECT count(*) FROM webhooks WHERE state = 'ended'),
            (SELECT count(*) FROM (SELECT 1 FROM webhook_events WHERE state = 'waiting' LIMIT \(counted)) w),
            (SELECT count(*) FROM (SELECT 1 FROM webhook_events WHERE state = 'held' LIMIT \(counted)) h)
        """

    package init(_ row: some SQLRow) throws {
        self.init()
        (active, paused, ended) = (Int(try row.int(0)), Int(try row.int(1)), Int(try row.int(2)))
        (waiting, held) = (Int(try row.int(3)), Int(try row.int(4)))
    }
}
