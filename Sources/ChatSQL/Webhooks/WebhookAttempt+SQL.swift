import ChatDomain
import Synchronization

/// The leases that a relay has seen in the database. One ends when the relay has seen it for a time by its own clock, so that
/// no other relay's clock matters.
final class SeenLeases: Sendable {
    private let since = Mutex<[Int64: Timestamp]>([:])

    /// Returns those of the present leases that have ended.
    func ended(among leases: [Int64], at now: Timestamp) -> [Int64] {
        since.withLock { since in
            // A time in the future: the clock was set back.
            since = Dictionary(leases.map { ($0, min(since[$0] ?? now, now)) }) { first, _ in first }
            return since.filter { $0.value + WebhookLifeCycle.lease <= now }.map(\.key)
        }
    }
}

extension WebhookAttempt {
    /// The maximum number of events that one attempt adds up.
    private static let mostFolded = 5000

    // MARK: - Leases

    static func leases(_ transaction: some SQLTransaction) throws -> [Int64] {
        try transaction.rows("SELECT lease FROM webhook_progress WHERE lease <> 0", []).map { try $0.int(0) }
    }

    /// A condition: a time in milliseconds, which may be NULL, has come at `$1`, or the clock was set back.
    private static func isDue(_ column: String) -> String {
        "(coalesce(\(column), 0) <= $1 OR \(column) - \(WebhookLifeCycle.longestDelay.milliseconds) > $1)"
    }

    /// Webhooks with an event that is due, and the event. A test goes first. Of the others, the oldest event without enough
    /// attempts is the last one that may go. `$2` are the leases that have ended.
    private static func dueSQL(_ dialect: SQLDialect, lock: String = "") -> String {
        let isTest = "type = '\(WebhookEventKind.test)'"
        return """
            SELECT d.webhook_id, d.event_id FROM (
                SELECT w.webhook_id, coalesce(
                    (SELECT min(t.event_id) FROM webhook_events t
                    WHERE t.webhook_id = w.webhook_id AND t.state = 'waiting' AND t.\(isTest) AND \(isDue("t.not_before"))),
                    (SELECT min(e.event_id) FROM webhook_events e
                    WHERE e.webhook_id = w.webhook_id AND e.state = 'waiting' AND \(isDue("e.not_before"))
                        AND e.event_id <= coalesce((
                            SELECT min(h.event_id) FROM webhook_events h
                            WHERE h.webhook_id = w.webhook_id AND h.state = 'waiting' AND NOT h.\(isTest)
                                AND h.attempts < \(WebhookLifeCycle.orderedAttempts)), 9223372036854775807))) AS event_id
                FROM webhooks w JOIN webhook_progress p ON p.webhook_id = w.webhook_id
                WHERE w.state = 'active' AND \(isDue("p.not_before"))
                    AND (p.lease = 0 OR \(dialect.isAny("p.lease", of: "$2", "bigint")))
                ORDER BY w.webhook_id \(lock)) d
            WHERE d.event_id IS NOT NULL
            """
    }

    static func isAnyDue(at now: Timestamp, ended: [Int64], _ transaction: some SQLTransaction) throws -> Bool {
        let sql = dueSQL(transaction.dialect) + " LIMIT 1"
        return try transaction.row(sql, [.int(now.milliseconds), .ints(ended)]) != nil
    }

    /// Leases the next event of each webhook.
    ///
    /// - Parameter ended: The leases that have ended.
    static func lease(
        at now: Timestamp, ended: [Int64], _ transaction: some SQLTransaction
    ) throws -> [WebhookAttempt] {
        // Posters do not wait for this lock, and other relays leave out locked webhooks.
        let lock = transaction.dialect == .sqlite ? "" : "FOR NO KEY UPDATE OF p SKIP LOCKED"
        let sql = dueSQL(transaction.dialect, lock: lock)
        var attempts: [WebhookAttempt] = []
        for row in try transaction.rows(sql, [.int(now.milliseconds), .ints(ended)]) {
            let (webhook, id) = (try row.int(0), try row.int(1))
            // Another relay may have settled the event after this statement began. It is checked again.
            let leased = try transaction.row(
                """
                UPDATE webhook_events SET attempts = attempts + 1
                WHERE event_id = $2 AND state = 'waiting' AND \(isDue("not_before"))
                RETURNING \(WebhookEvent.columns()), fold
                """, [.int(now.milliseconds), .int(id)])
            guard let leased else { continue }
            var reader = SQLRowReader(leased)
            let event = try WebhookEvent(&reader)
            let folded = try fold(event, reader.optionalText(), transaction)
            attempts.append(try attempt(folded, of: webhook, now: now, transaction))
        }
        return attempts
    }

    /// Adds the events to a leased one that have the same value of `fold`, if no attempt was made before.
    private static func fold(
        _ event: WebhookEvent, _ value: String?, _ transaction: some SQLTransaction
    ) throws -> WebhookEvent {
        guard let value, event.attempts == 1 else { return event }
        let others = try transaction.rows(
            """
            DELETE FROM webhook_events WHERE event_id IN (
                SELECT event_id FROM webhook_events
                WHERE webhook_id = $1 AND type = $2 AND fold = $3 AND state = 'waiting' AND attempts = 0
                ORDER BY event_id LIMIT \(mostFolded))
            RETURNING events, details
            """, [.int(event.webhook), .text(event.type), .text(value)])
        guard !others.isEmpty else { return event }
        var (count, details) = (Int64(0), event.details)
        for row in others {
            count += try row.int(0)
            if let devices = details["devices"]?.array, devices.count < WebhookTrigger.mostDevices {
                let more = try JSONValue(parsing: row.text(1)).object?["devices"]?.array ?? []
                details["devices"] = .array(Array((devices + more).prefix(WebhookTrigger.mostDevices)))
            }
        }
        let row = try transaction.row(
            """
            UPDATE webhook_events SET events = events + $2, details = $3 WHERE event_id = $1
            RETURNING \(WebhookEvent.columns())
            """, [.int(event.id), .int(count), .text(JSONValue.object(details).description)])
        return try row.map { try WebhookEvent($0) } ?? event
    }

    private static func attempt(
        _ event: WebhookEvent, of webhook: Int64, now: Timestamp, _ transaction: some SQLTransaction
    ) throws -> WebhookAttempt {
        let lease = Int64.random(in: 1 ... .max)
        try transaction.pipeline(
            "UPDATE webhook_progress SET lease = $2 WHERE webhook_id = $1", [.int(webhook), .int(lease)])
        let row = try transaction.row(
            """
            SELECT p.failures, w.secret, CASE WHEN w.rotates_until > $2 THEN 1 ELSE 0 END,
                coalesce(w.old_secret, w.secret), \(WebhookSettings.columns("w."))
            FROM webhooks w JOIN webhook_progress p ON p.webhook_id = w.webhook_id WHERE w.webhook_id = $1
            """, [.int(webhook), .int(now.milliseconds)])
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

    // MARK: - Results

    func settle(
        _ settlement: WebhookSettlement, _ response: WebhookEvent.Response, at now: Timestamp,
        _ transaction: some SQLTransaction
    ) throws {
        let webhook = event.webhook
        let isHeld =
            try transaction.run(
                """
                UPDATE webhook_progress SET lease = 0, failures = $3, not_before = $4,
                    time_succeeded = coalesce(at($5), time_succeeded)
                WHERE webhook_id = $1 AND lease = $2
                """,
                [
                    .int(webhook), .int(lease), .int(settlement.failures),
                    .int(settlement.notBefore?.milliseconds ?? 0),
                    .optional(settlement.event == .delivered && response.status != nil ? now : nil),
                ]) > 0
        // Another relay may be sending the event again.
        guard isHeld || settlement.event == .delivered else { return }
        let change: (state: Webhook.State, reason: String)? =
            switch settlement.change {
            case .paused(let reason)? where isHeld: (.paused, reason)
            case .ended(let reason)? where isHeld: (.ended, reason)
            default: nil
            }
        if let change {
            try transaction.pipeline(
                "UPDATE webhooks SET state = $2, reason = $3 WHERE webhook_id = $1",
                [.int(webhook), .text(change.state.rawValue), .text(change.reason)])
        }
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
            WHERE event_id = $1 AND state = 'waiting' AND attempts >= $9 AND type = $10
            """,
            [
                .int(event.id), .text(next.rawValue), .optional(due?.milliseconds), .int(response.status),
                .optional(response.error), .optional(response.body),
                .int(Int64(response.duration / .milliseconds(1))),
                .optional(next == .waiting ? nil : now),
                // Since then, the row may have become the event that replaces dropped ones, or be sent again by hand.
                .int(event.attempts), .text(event.type),
            ])
        if settlement.isRecovery { try WebhookEvent.hurry(of: webhook, transaction) }
    }

    func release(_ transaction: some SQLTransaction) throws {
        let count = try transaction.run(
            "UPDATE webhook_progress SET lease = 0 WHERE webhook_id = $1 AND lease = $2",
            [.int(event.webhook), .int(lease)])
        guard count > 0 else { return }
        try transaction.pipeline(
            "UPDATE webhook_events SET attempts = attempts - 1, fold = NULL WHERE event_id = $1 AND state = 'waiting'",
            [.int(event.id)])
    }
}

extension WebhookEvent {
    /// Makes those of a webhook's events due that wait for their next attempt.
    static func hurry(of id: Int64, _ transaction: some SQLTransaction) throws {
        try transaction.pipeline(
            """
            UPDATE webhook_events SET not_before = NULL
            WHERE webhook_id = $1 AND state = 'waiting' AND not_before IS NOT NULL
            """, [.int(id)])
    }
}
