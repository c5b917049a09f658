package import ChatDomain

/// Webhooks and their events. ``WebhookTrigger`` writes the events.
package struct SQLWebhookStore<Database: SQLDatabase>: WebhookStore {
    /// The maximum number of attempts to create a webhook while another relay ends triggers.
    private static var maxTries: Int { 5 }
    /// The number of events that one step drops.
    private static var step: Int { 500 }
    /// The lock of everyone who creates or ends triggers.
    private static var lock: String { "webhooks" }
    /// The number of ids of events that one read looks through.
    private static var scanned: Int { 5000 }

    private let database: Database
    private let mostWaiting: Int
    private let leases = SeenLeases()

    package init(database: Database, mostWaiting: Int = WebhookLifeCycle.mostWaiting) {
        self.database = database
        self.mostWaiting = mostWaiting
    }

    // MARK: - Webhooks

    package func create(
        _ settings: WebhookSettings, secret: WebhookSecret, by moderator: Moderator
    ) async throws(ChatError) -> Webhook {
        let id = try await withTriggers(for: settings.events) { [database] transaction in
            let now = database.now()
            try Self.check(settings.token, transaction)
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
            try transaction.pipeline("INSERT INTO webhook_progress (webhook_id) VALUES ($1)", [.int(id)])
            try Self.record("created", id, settings, moderator, now, transaction)
            return id
        }
        return Webhook(id: id, settings: settings, createdAt: database.now())
    }

    package func webhooks() async throws(ChatError) -> [Webhook] {
        try await database.read { transaction in
            try transaction.rows("\(Webhook.sql) ORDER BY w.webhook_id", []).map { try Webhook($0) }
        }
    }

    package func webhook(_ id: Int64) async throws(ChatError) -> Webhook? {
        try await database.read { try Self.webhook(id, $0) }
    }

    private static func webhook(_ id: Int64, _ transaction: Database.Transaction) throws -> Webhook? {
        try transaction.row("\(Webhook.sql) WHERE w.webhook_id = $1", [.int(id)]).map { try Webhook($0) }
    }

    private static func check(_ token: Int64?, _ transaction: Database.Transaction) throws {
        guard let token else { return }
        guard try transaction.row("SELECT 1 FROM api_tokens WHERE token_id = $1", [.int(token)]) != nil else {
            throw ChatError.notFound("token")
        }
    }

    /// Makes a webhook due at once.
    private static func hurry(_ id: Int64, _ transaction: Database.Transaction) throws {
        try transaction.pipeline("UPDATE webhook_progress SET not_before = 0 WHERE webhook_id = $1", [.int(id)])
    }

    package func change(
        _ id: Int64, to edit: WebhookEdit, by moderator: Moderator
    ) async throws(ChatError) -> Webhook? {
        let changed = try await withTriggers(for: edit.settings.events) { [database] transaction -> Webhook? in
            let now = database.now()
            try Self.check(edit.settings.token, transaction)
            var (columns, values) = (WebhookSettings.storedColumns, edit.settings.values)
            if let state = edit.state {
                columns += ["state", "reason"]
                values += [.text(state.rawValue), .optional(state == .active ? nil : "by \(moderator.name)")]
            }
            let assignments = columns.enumerated().map { "\($0.element) = $\($0.offset + 2)" }
            let count = try transaction.run(
                "UPDATE webhooks SET \(assignments.joined(separator: ", ")) WHERE webhook_id = $1", [.int(id)] + values)
            guard count > 0 else { return nil }
            if let state = edit.state {
                if state == .active {
                    try transaction.pipeline(
                        "UPDATE webhook_progress SET failures = 0 WHERE webhook_id = $1", [.int(id)])
                }
                try Self.hurry(id, transaction)
                try WebhookEvent.hurry(of: id, transaction)
            }
            let word = edit.state.map { " to \($0.rawValue)" } ?? ""
            try Self.record("changed\(word)", id, edit.settings, moderator, now, transaction)
            return try Self.webhook(id, transaction)
        }
        // The upkeep repeats it.
        try? await adjustTriggers()
        return changed
    }

    package func delete(_ id: Int64, by moderator: Moderator) async throws(ChatError) -> Bool {
        let isDeleted = try await database.write(as: .answer) { [database] transaction in
            guard let webhook = try Self.webhook(id, transaction) else { return false }
            try transaction.pipeline("DELETE FROM webhooks WHERE webhook_id = $1", [.int(id)])
            try Self.record("deleted", id, webhook.settings, moderator, database.now(), transaction)
            return true
        }
        try? await adjustTriggers()
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
            try Self.record("got a new secret", id, webhook.settings, moderator, now, transaction)
            return webhook
        }
    }

    private static func record(
        _ change: String, _ id: Int64, _ settings: WebhookSettings, _ moderator: Moderator, _ now: Timestamp,
        _ transaction: Database.Transaction
    ) throws {
        _ = try ModerationRecord.write(
            .webhook, "webhook \(id) \(change): \(settings.origin)", in: settings.room?.text, by: moderator, at: now,
            transaction)
    }

    // MARK: - Triggers

    /// Writes while the triggers for these events fire.
    private func withTriggers<Value: Sendable>(
        for events: Set<WebhookEventKind>, _ body: @escaping @Sendable (Database.Transaction) throws -> Value
    ) async throws(ChatError) -> Value {
        let needed = Self.triggers(for: events)
        for _ in 0..<Self.maxTries {
            try await adjustTriggers(for: events)
            let value: Value? = try await database.write(as: .answerOnce) { transaction in
                try transaction.lock(Self.lock)
                guard try needed.isSubset(of: WebhookTrigger.active(transaction).keys) else { return nil }
                return try body(transaction)
            }
            if let value { return value }
        }
        throw ChatError(.unavailable, "Webhooks are being changed; try again", retryAfter: .seconds(1))
    }

    /// Makes the triggers what the stored webhooks need, because the database may be a copy, or of an older version. In
    /// SQLite, the leases of an earlier process end, because only one relay uses the file.
    package func prepare() async throws(ChatError) {
        if database.dialect == .sqlite {
            try await database.write(as: .upkeep) { transaction in
                try transaction.pipeline("UPDATE webhook_progress SET lease = 0 WHERE lease <> 0", [])
            }
        }
        try await adjustTriggers()
    }

    /// Ends triggers whose events no webhook asks for, and begins missing ones, each in a separate transaction: PostgreSQL
    /// waits there for the writers of its table, and must not hold another table while it waits.
    ///
    /// - Parameter events: Further events that are needed.
    /// - Throws: ``ChatError/Code/unavailable`` if another program holds a table in PostgreSQL.
    private func adjustTriggers(for events: Set<WebhookEventKind> = []) async throws(ChatError) {
        // The usual case needs no write transaction.
        let wrong = try await database.read { transaction in
            try Self.wanted(events, transaction).symmetricDifference(WebhookTrigger.active(transaction).keys).sorted()
        }
        for name in wrong {
            try await database.write(as: .answer) { transaction in
                try transaction.lock(Self.lock)
                let isWanted = try Self.wanted(events, transaction).contains(name)
                switch (isWanted, try WebhookTrigger.active(transaction)[name]) {
                case (true, nil): try WebhookTrigger.all.first { $0.name == name }?.begin(transaction)
                case (false, let table?): try WebhookTrigger.end(name, on: table, transaction)
                default: break
                }
            }
        }
    }

    private static func triggers(for events: Set<WebhookEventKind>) -> Set<String> {
        Set(WebhookTrigger.all.filter { !$0.events.isDisjoint(with: events) }.map(\.name))
    }

    /// The names of the triggers for these events, and for those that a webhook asks for.
    private static func wanted(
        _ events: Set<WebhookEventKind>, _ transaction: Database.Transaction
    ) throws -> Set<String> {
        let asked = try transaction.rows("SELECT events FROM webhooks WHERE state <> 'ended'", []).flatMap { row in
            try row.text(0).split(separator: " ").compactMap { WebhookEventKind(rawValue: String($0)) }
        }
        return triggers(for: events.union(asked))
    }

    // MARK: - Deliveries

    package func test(_ id: Int64) async throws(ChatError) -> Int64? {
        try await database.write(as: .answerOnce) { [database] transaction in
            guard let webhook = try Self.webhook(id, transaction) else { return nil }
            guard webhook.state == .active else {
                throw ChatError(.conflict, "The webhook is not active; resume it first", field: "state")
            }
            let row = try transaction.row(
                """
                INSERT INTO webhook_events (webhook_id, type, secret_code, time_created)
                VALUES ($1, '\(WebhookEventKind.test)', $2, at($3)) RETURNING event_id
                """, [.int(id), .optional(webhook.settings.room?.text), .time(database.now())])
            try Self.hurry(id, transaction)
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
            if try Self.webhook(id, transaction)?.state == .ended {
                throw ChatError(.conflict, "The webhook has ended; resume it first", field: "state")
            }
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
            try Self.hurry(id, transaction)
            return count
        }
    }

    // MARK: - Sending

    package func lease() async throws(ChatError) -> [WebhookAttempt] {
        let now = database.now()
        // The usual case needs no write transaction.
        let ended = try await database.read { [leases] transaction -> [Int64]? in
            let ended = leases.ended(among: try WebhookAttempt.leases(transaction), at: now)
            return try WebhookAttempt.isAnyDue(at: now, ended: ended, transaction) ? ended : nil
        }
        guard let ended else { return [] }
        return try await database.write(as: .upkeepOnce) { transaction in
            try WebhookAttempt.lease(at: now, ended: ended, transaction)
        }
    }

    package func settle(
        _ attempt: WebhookAttempt, _ settlement: WebhookSettlement, _ response: WebhookEvent.Response
    ) async throws(ChatError) {
        try await database.write(as: .upkeep) { [database] transaction in
            try attempt.settle(settlement, response, at: database.now(), transaction)
        }
    }

    package func release(_ attempt: WebhookAttempt) async throws(ChatError) {
        try await database.write(as: .upkeep) { try attempt.release($0) }
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
        for webhook in try await webhooks() where webhook.waiting > min(Webhook.countedEvents, mostWaiting) {
            while try await drop(of: webhook.id, byAge: false) {}
        }
        try await database.changeInSteps(
            """
            UPDATE webhook_events SET state = 'failed', not_before = NULL, error = 'the webhook has ended',
                time_settled = at($1)
            WHERE event_id IN (
                SELECT e.event_id FROM webhooks w JOIN webhook_events e ON e.webhook_id = w.webhook_id
                WHERE w.state = 'ended' AND e.state = 'waiting' LIMIT $2)
            """, [.time(database.now())])
        // A webhook that has ended, or whose token was revoked, needs none. A table may have been locked before.
        try await adjustTriggers()
    }

    /// Drops the oldest events in one step. Their last row becomes the event that says so, so that it keeps their place.
    ///
    /// - Parameter byAge: Whether to drop old events, instead of those above the largest number. The clock must be sure.
    /// - Returns: Whether more may remain.
    private func drop(of webhook: Int64, byAge: Bool) async throws(ChatError) -> Bool {
        let now = byAge ? database.now() : Timestamp(milliseconds: 0)
        return try await database.write(as: .upkeep) { [database, mostWaiting] transaction in
            let newest =
                try byAge
                ? nil
                : transaction.row(
                    """
                    SELECT event_id FROM webhook_events WHERE webhook_id = $1 AND state = 'waiting'
                    ORDER BY event_id DESC LIMIT 1 OFFSET \(mostWaiting)
                    """, [.int(webhook)])?.int(0)
            guard byAge || newest != nil else { return false }
            let rows = try transaction.rows(
                """
                SELECT event_id, type, attempts, ms(coalesce(time_queued, time_created)), ms(time_created), details
                FROM webhook_events WHERE webhook_id = $1 AND state = 'waiting' ORDER BY event_id LIMIT \(Self.step)
                \(transaction.dialect.lockedToDelete("webhook_events"))
                """, [.int(webhook)])
            let excess = try newest.map { newest in try rows.prefix { try $0.int(0) <= newest }.count } ?? 0
            let events = try rows.map { (type: try $0.text(1), queued: try $0.time(3), attempts: Int(try $0.int(2))) }
            let dropped = WebhookLifeCycle.dropped(events, excess: excess, now: now)
            guard dropped > 0 else { return false }
            var (count, from) = (Int64(0), Int64.max)
            for row in rows.prefix(dropped) {
                let gap = try row.text(1) == WebhookEventKind.gap ? JSONValue(parsing: row.text(5)).object : nil
                count += gap?["events"]?.integer ?? 1
                from = min(from, try gap?[WebhookEvent.firstDropped]?.integer ?? row.int(4))
            }
            let details: JSONObject = [
                "events": .number(count), "from": .time(Timestamp(milliseconds: from)),
                "to": .time(try rows[dropped - 1].time(4)), WebhookEvent.firstDropped: .number(from),
            ]
            try transaction.pipeline(
                "DELETE FROM webhook_events WHERE \(transaction.dialect.isAny("event_id", of: "$1", "bigint"))",
                [.ints(try rows.prefix(dropped - 1).map { try $0.int(0) })])
            try transaction.pipeline(
                """
                UPDATE webhook_events SET type = '\(WebhookEventKind.gap)', secret_code = NULL, message_id = NULL,
                    fold = NULL, attempts = 0, not_before = NULL, events = 1, details = $2, time_created = at($3),
                    time_queued = NULL WHERE event_id = $1
                """,
                [
                    .int(try rows[dropped - 1].int(0)), .text(JSONValue.object(details).description),
                    .time(database.now()),
                ])
            return dropped == Self.step
        }
    }

    /// Deletes events some time after their last attempt, those of deleted webhooks, and responses about messages that no
    /// longer exist. Drops events that have waited too long.
    package func applyRetention(_ ages: RetentionAges) async throws(ChatError) {
        for webhook in try await webhooks() where webhook.waiting > 0 {
            while try await drop(of: webhook.id, byAge: true) {}
        }
        for old in ["time_settled < at($1)", "state = 'held' AND coalesce(time_queued, time_created) < at($1)"] {
            try await database.changeInSteps(
                """
                DELETE FROM webhook_events WHERE event_id IN (
                    SELECT event_id FROM webhook_events WHERE \(old) LIMIT $2)
                """, [.time(database.now() - ages.webhooks)])
        }
        try await deleteOrphans()
        try await forgetResponses()
    }

    /// Deletes responses about messages that no longer exist, because a response may repeat the text. An index for this
    /// would cost every event more than the scan.
    private func forgetResponses() async throws(ChatError) {
        let ids = try await database.read { transaction in
            let row = try transaction.row("SELECT min(event_id), max(event_id) FROM webhook_events")
            return (first: try row?.optionalInt(0) ?? 1, last: try row?.optionalInt(1) ?? 0)
        }
        for first in stride(from: ids.first, through: ids.last, by: Self.scanned) {
            let events = try await database.read { transaction in
                try transaction.rows(
                    """
                    SELECT e.event_id FROM webhook_events e
                    WHERE e.event_id >= $1 AND e.event_id < $1 + \(Self.scanned)
                        AND e.response IS NOT NULL AND e.message_id IS NOT NULL
                        AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.message_id = e.message_id)
                    """, [.int(first)]
                ).map { try $0.int(0) }
            }
            guard !events.isEmpty else { continue }
            _ = try await database.write(as: .upkeep) { transaction in
                let these = transaction.dialect.isAny("event_id", of: "$1", "bigint")
                return try transaction.run("UPDATE webhook_events SET response = NULL WHERE \(these)", [.ints(events)])
            }
        }
    }

    /// Deletes the events of deleted webhooks. Goes from one webhook to the next by the index.
    private func deleteOrphans() async throws(ChatError) {
        let deleted = try await database.read { transaction in
            try transaction.rows(
                """
                WITH RECURSIVE ids (id) AS (
                    SELECT min(webhook_id) FROM webhook_events UNION ALL
                    SELECT (SELECT min(e.webhook_id) FROM webhook_events e WHERE e.webhook_id > ids.id)
                    FROM ids WHERE ids.id IS NOT NULL)
                SELECT id FROM ids WHERE id IS NOT NULL AND id NOT IN (SELECT webhook_id FROM webhooks)
                """, []
            ).map { try $0.int(0) }
        }
        for webhook in deleted {
            try await database.changeInSteps(
                """
                DELETE FROM webhook_events WHERE event_id IN (
                    SELECT event_id FROM webhook_events WHERE webhook_id = $1 LIMIT $2)
                """, [.int(webhook)])
        }
    }

    package func totals() async throws(ChatError) -> WebhookTotals {
        try await database.read { transaction in
            try transaction.row(WebhookTotals.sql).map { try WebhookTotals($0) } ?? WebhookTotals()
        }
    }
}
