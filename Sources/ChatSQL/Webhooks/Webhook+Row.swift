import ChatDomain

extension WebhookSettings: SQLReadable {
    static let storedColumns = ["url", "secret_code", "token", "events", "bot", "only_mentions"]

    package static func columns(_ table: String = "") -> String {
        storedColumns.map { table + $0 }.joined(separator: ", ")
    }

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        let (url, room, token, events) = (try row.text(), row.optionalText(), try row.optionalInt(), try row.text())
        self.init(
            stored: url, room: room.map(SecretCode.init(stored:)), token: token,
            events: Set(events.split(separator: " ").compactMap { WebhookEventKind(rawValue: String($0)) }),
            bot: row.optionalText().map(Nickname.init(stored:)), onlyMentions: try row.bool())
    }

    /// The values of ``storedColumns``.
    var values: [SQLValue] {
        [
            .text(url), .optional(room?.text), .optional(token),
            .text(" " + events.map(\.rawValue).sorted().joined(separator: " ") + " "), .optional(bot?.text),
            .bool(onlyMentions),
        ]
    }
}

extension Webhook: SQLReadable {
    /// Selects webhooks `w` with their progress `p`.
    static let sql = "SELECT \(columns("w.")) FROM webhooks w JOIN webhook_progress p ON p.webhook_id = w.webhook_id"

    package static func columns(_ table: String) -> String {
        """
        \(table)webhook_id, \(table)state, \(table)reason, p.failures, \(table)rotates_until,
        ms(p.time_succeeded), ms(\(table)time_created),
        (SELECT count(*) FROM (SELECT 1 FROM webhook_events e WHERE e.webhook_id = \(table)webhook_id
            AND e.state = 'waiting' LIMIT \(countedEvents + 1)) c), \(WebhookSettings.columns(table))
        """
    }

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        let (id, state, reason, failures) = (try row.int(), try row.text(), row.optionalText(), try row.int())
        let (rotates, succeeded, created) = (try row.optionalTime(), try row.optionalTime(), try row.time())
        let waiting = try row.int()
        self.init(
            id: id, settings: try WebhookSettings(&row), state: State(rawValue: state) ?? .paused, reason: reason,
            failures: Int(clamping: failures), rotatesUntil: rotates,
            waiting: Int(waiting), lastSuccess: succeeded,
            createdAt: created)
    }
}

extension WebhookEvent: SQLReadable {
    package static func columns(_ table: String = "") -> String {
        let names =
            "event_id webhook_id type secret_code message_id events details state attempts not_before status error response duration"
        return names.split(separator: " ").map { table + $0 }.joined(separator: ", ") + ", ms(\(table)time_created)"
    }

    package init(_ row: inout SQLRowReader<some SQLRow>) throws {
        let (id, webhook, type, room) = (try row.int(), try row.int(), try row.text(), row.optionalText())
        let (message, count, details) = (try row.optionalInt(), try row.int(), try row.text())
        let (state, attempts, notBefore) = (try row.text(), try row.int(), try row.optionalTime())
        let (status, error, body, duration) = (
            try row.optionalInt(), row.optionalText(), row.optionalText(), try row.optionalInt()
        )
        self.init(
            id: id, webhook: webhook, type: type, room: room.map(SecretCode.init(stored:)), message: message,
            count: Int(clamping: count), details: (try? JSONValue(parsing: details))?.object ?? JSONObject(),
            time: try row.time(), state: State(rawValue: state) ?? .held,
            attempts: Int(clamping: attempts), notBefore: state == State.waiting.rawValue ? notBefore : nil,
            // An event that failed without an attempt has an error alone.
            response: duration == nil && error == nil
                ? nil
                : Response(
                    status: status.map { Int(clamping: $0) }, error: error, body: body,
                    duration: .milliseconds(duration ?? 0)))
    }
}

extension WebhookTotals {
    package static let sql = """
        SELECT (SELECT count(*) FROM webhooks WHERE state = 'active'),
            (SELECT count(*) FROM webhooks w JOIN webhook_progress p ON p.webhook_id = w.webhook_id
                WHERE w.state = 'active' AND p.failures >= \(WebhookLifeCycle.orderedAttempts)),
            (SELECT count(*) FROM webhooks WHERE state = 'paused'), (SELECT count(*) FROM webhooks WHERE state = 'ended'),
            (SELECT count(*) FROM (SELECT 1 FROM webhook_events WHERE state = 'waiting' LIMIT \(counted)) w),
            (SELECT count(*) FROM (SELECT 1 FROM webhook_events WHERE state = 'held' LIMIT \(counted)) h)
        """

    package init(_ row: some SQLRow) throws {
        self.init()
        (active, failing) = (Int(try row.int(0)), Int(try row.int(1)))
        active -= failing
        (paused, ended) = (Int(try row.int(2)), Int(try row.int(3)))
        (waiting, held) = (Int(try row.int(4)), Int(try row.int(5)))
    }
}
