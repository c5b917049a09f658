import ChatDomain

/// The triggers that write events into `webhook_events`, in the transaction of the change that they report.
///
/// They exist only while a webhook asks for their events. So posting costs nothing without webhooks, and rows of other
/// programs are reported as well. The names end in a version: a changed trigger gets a new name, and the relay ends those
/// with other names.
struct WebhookTrigger {
    private static let version = 2
    /// The maximum number of ids of devices in an event.
    static let mostDevices = 100

    let name: String
    let events: Set<WebhookEventKind>
    /// The statement that creates the trigger.
    private let lite: String
    private let postgres: (function: String, trigger: String)

    /// The changed rows of one statement, in PostgreSQL.
    private struct Batch {
        /// The transition tables.
        let tables: String
        /// Selects the rows to report. `nil` for all of `changed`.
        var rows: String?
    }

    /// - Parameters:
    ///   - change: The change of a row that the trigger reports, as in CREATE TRIGGER.
    ///   - row: Expressions for the columns of the changed row `n` that `insert` reads.
    ///   - batch: `nil` if PostgreSQL also fires the trigger for each row.
    ///   - insert: Returns the statement that writes the events of the rows `n`.
    private init(
        _ name: String, _ events: Set<WebhookEventKind>, after change: String, on table: String,
        when condition: String? = nil, row: String, batch: Batch? = nil,
        _ insert: (_ rows: String, SQLDialect) -> String
    ) {
        let name = "webhook_\(name)_\(Self.version)"
        let rowClause = "AFTER \(change) ON \(table) FOR EACH ROW \(condition.map { "WHEN (\($0))" } ?? "")"
        let verb = change.prefix { $0 != " " }
        let clause = batch.map { "AFTER \(verb) ON \(table) REFERENCING \($0.tables) FOR EACH STATEMENT" } ?? rowClause
        let rows = "(SELECT \(row)) n"
        self.name = name
        self.events = events
        lite = "CREATE TRIGGER \(name) \(rowClause) BEGIN \(insert(rows, .sqlite)); END"
        // The function has the rights of the relay, because the role of another program may have fewer. The transition
        // tables may have a thousand rows, but the function's plan may have been made for one.
        postgres = (
            """
            CREATE OR REPLACE FUNCTION \(name)() RETURNS trigger LANGUAGE plpgsql
            SECURITY DEFINER SET search_path FROM CURRENT SET enable_nestloop = off AS $webhook$
            BEGIN
                \(insert(batch.map { "(\($0.rows ?? "SELECT * FROM changed")) n" } ?? rows, .postgres));
                RETURN NULL;
            END $webhook$
            """,
            "CREATE OR REPLACE TRIGGER \(name) \(clause) EXECUTE FUNCTION \(name)()"
        )
    }

    // MARK: - The events

    /// - Parameters:
    ///   - rows: The changed rows, as a table `n`.
    ///   - values: Expressions for the columns of the event.
    ///   - condition: A further condition on the webhook `w`.
    private static func insert(
        _ type: String, from rows: String, room: String = "n.secret_code", _ values: KeyValuePairs<String, String>,
        where condition: String = "w.token IS NULL", _ dialect: SQLDialect, rest: String = ""
    ) -> String {
        """
        INSERT INTO webhook_events (webhook_id, type, secret_code, \(values.map(\.key).joined(separator: ", ")))
        SELECT w.webhook_id, \(type), \(room), \(values.map(\.value).joined(separator: ", "))
        FROM \(rows) CROSS JOIN webhooks w
        WHERE w.state <> 'ended' AND \(place(dialect))(w.events, ' ' || \(type) || ' ') > 0
            AND (w.secret_code IS NULL OR w.secret_code = \(room)) AND \(condition) \(rest)
        """
    }

    private static func place(_ dialect: SQLDialect) -> String { dialect == .sqlite ? "instr" : "strpos" }

    /// A bot gets no event for its own message, and a webhook of a token only its messages.
    private static func isHeard(_ author: String) -> String {
        "(w.token IS NULL OR \(author) = 'token:' || w.token) AND \(author) <> 'webhook:' || w.webhook_id"
    }

    private static func now(_ dialect: SQLDialect) -> String {
        dialect == .sqlite ? "strftime('%Y-%m-%d %H:%M:%f', 'now')" : "now()"
    }

    /// A time that another program may have written. An invalid one is replaced, because it would make the event old.
    private static func time(_ column: String, _ dialect: SQLDialect) -> String {
        dialect == .sqlite
            ? "coalesce(strftime('%Y-%m-%d %H:%M:%f', \(column)), \(now(dialect)))"
            : "CASE WHEN isfinite(\(column)) THEN \(column) ELSE now() END"
    }

    private static func object(_ members: String, _ dialect: SQLDialect) -> String {
        "CAST(\(dialect == .sqlite ? "json_object" : "json_build_object")(\(members)) AS text)"
    }

    private static func columns(_ names: String, of row: String) -> String {
        names.split(separator: " ").map { "\(row).\($0) AS \($0)" }.joined(separator: ", ")
    }

    private static func member(
        _ name: String, _ kind: WebhookEventKind, after change: String, of row: String,
        time: @escaping (SQLDialect) -> String
    ) -> WebhookTrigger {
        WebhookTrigger(
            name, [kind], after: change, on: "active_users",
            row: columns("member_id nickname secret_code time_joined", of: row),
            batch: Batch(tables: "\(row) TABLE AS changed")
        ) { rows, dialect in
            let details = object("'member', n.member_id, 'name', n.nickname", dialect)
            return insert(
                "'\(kind.rawValue)'", from: rows, ["details": details, "time_created": time(dialect)], dialect,
                rest: "ORDER BY n.member_id")
        }
    }

    private static func change(_ name: String, after change: String, when condition: String) -> WebhookTrigger {
        WebhookTrigger(
            name, [.edited, .cleared, .resolved, .deleted], after: change, on: "message_states", when: condition,
            row: columns("message_id secret_code author change time_changed", of: "NEW")
        ) { rows, dialect in
            insert(
                "'message.' || n.change", from: rows,
                ["message_id": "n.message_id", "time_created": time("n.time_changed", dialect)],
                where: isHeard("n.author"), dialect)
        }
    }

    /// Many events of pushes or devices are one, because a send to a million devices must not make a million events. SQLite
    /// adds a row to an event without an attempt that has the same value of `fold`. In PostgreSQL, transactions would wait
    /// for each other there, so each statement writes a row, and the first attempt adds them up.
    private static func folded(
        _ kind: WebhookEventKind, from rows: String, room: String, message: String, _ dialect: SQLDialect,
        details: String = "details"
    ) -> String {
        insert(
            "'\(kind.rawValue)'", from: rows, room: room,
            [
                "message_id": message, "fold": "n.fold", "events": "n.events", "details": "n.details",
                "time_created": now(dialect),
            ], dialect,
            rest: dialect == .postgres
                ? "ORDER BY n.fold"
                : """
                ON CONFLICT (webhook_id, type, fold) WHERE fold IS NOT NULL AND state = 'waiting' AND attempts = 0
                DO UPDATE SET events = events + 1, details = \(details)
                """)
    }

    private static let failedDetails = "'app', NEW.app, 'reason', NEW.reason, 'notification_id', NEW.notification"
    private static let failedFold =
        "coalesce(NEW.chat_message, 0) || ' ' || coalesce(NEW.notification, 0) || ' ' || NEW.app"

    static let all = [
        WebhookTrigger(
            "posted", [.posted], after: "INSERT", on: "messages",
            row: columns("message_id secret_code udid text time_sent", of: "NEW"),
            batch: Batch(tables: "NEW TABLE AS changed")
        ) { rows, dialect in
            // The sender looks for the bot's name.
            let isMentioned = "(NOT w.only_mentions OR \(place(dialect))(n.text, '@') > 0)"
            return insert(
                "'message.posted'", from: rows,
                ["message_id": "n.message_id", "time_created": time("n.time_sent", dialect)],
                where: "\(isHeard("n.udid")) AND \(isMentioned)", dialect, rest: "ORDER BY n.message_id")
        },
        change(
            "changed", after: "UPDATE OF change_id",
            when: "NEW.change_id IS NOT NULL AND NEW.change_id <> coalesce(OLD.change_id, 0)"),
        change("change_added", after: "INSERT", when: "NEW.change_id IS NOT NULL"),
        member("joined", .joined, after: "INSERT", of: "NEW") { time("n.time_joined", $0) },
        member("left", .left, after: "DELETE", of: "OLD", time: now),
        WebhookTrigger(
            "failed", [.pushFailed], after: "UPDATE OF state", on: "push_queue",
            when: "NEW.state = 'failed' AND OLD.state <> 'failed'",
            row: """
                NEW.chat_message AS message, \(failedFold) AS fold, 1 AS events,
                \(object(failedDetails, .sqlite)) AS details
                """,
            batch: Batch(
                tables: "OLD TABLE AS earlier NEW TABLE AS changed",
                rows: """
                    SELECT c.chat_message AS message, count(*) AS events,
                        \(failedFold.replacing("NEW.", with: "c.")) AS fold,
                        \(object(failedDetails.replacing("NEW.reason", with: "min(c.reason)").replacing("NEW.", with: "c."), .postgres)) AS details
                    FROM changed c JOIN earlier e ON e.message_id = c.message_id
                    WHERE c.state = 'failed' AND e.state <> 'failed' GROUP BY c.chat_message, c.notification, c.app
                    """)
        ) { rows, dialect in
            folded(
                .pushFailed, from: rows,
                room: "(SELECT m.secret_code FROM messages m WHERE m.message_id = n.message)", message: "n.message",
                dialect)
        },
        WebhookTrigger(
            "gone", [.deviceGone], after: "UPDATE OF time_deactivated", on: "devices",
            when: "NEW.time_deactivated IS NOT NULL AND OLD.time_deactivated IS NULL",
            row: """
                NEW.app AS fold, 1 AS events, \(object(
                    "'app', NEW.app, 'reason', NEW.deactivated_reason, 'devices', json_array(NEW.device_id)", .sqlite)) AS details
                """,
            batch: Batch(
                tables: "OLD TABLE AS earlier NEW TABLE AS changed",
                rows: """
                    SELECT c.app AS fold, count(*) AS events, \(object(
                        """
                        'app', c.app, 'reason', min(c.deactivated_reason),
                        'devices', to_json((array_agg(c.device_id ORDER BY c.device_id))[1:\(mostDevices)])
                        """, .postgres)) AS details
                    FROM changed c JOIN earlier e ON e.device_id = c.device_id
                    WHERE c.time_deactivated IS NOT NULL AND e.time_deactivated IS NULL GROUP BY c.app
                    """)
        ) { rows, dialect in
            folded(
                .deviceGone, from: rows, room: "CAST(NULL AS text)", message: "CAST(NULL AS bigint)", dialect,
                details: """
                    CASE WHEN events < \(mostDevices) THEN json_insert(
                        details, '$.devices[#]', json_extract(excluded.details, '$.devices[0]')) ELSE details END
                    """)
        },
    ]

    // MARK: - The database

    /// Returns the names of the triggers that fire, with their tables.
    static func active(_ transaction: some SQLTransaction) throws -> [String: String] {
        let sql =
            transaction.dialect == .sqlite
            ? "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'webhook\\_%' ESCAPE '\\'"
            : """
            SELECT t.tgname::text, c.relname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
            JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = current_schema() AND t.tgname LIKE 'webhook\\_%' AND t.tgenabled <> 'D'
            """
        let places = try transaction.rows(sql, []).map { (try $0.text(0), try $0.text(1)) }
        return Dictionary(places) { first, _ in first }
    }

    /// Makes the trigger fire. In PostgreSQL, this waits for the transactions that write to the table, and later writers wait
    /// as well: not for long, because one of those transactions may be a script's.
    func begin(_ transaction: some SQLTransaction) throws {
        guard transaction.dialect == .postgres else { return try transaction.pipeline(lite, []) }
        try Self.waitBriefly(transaction)
        // Without the last name, temporary tables of another program would be found first.
        try transaction.pipeline(
            "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)", [])
        try transaction.pipeline(postgres.function, [])
        try transaction.pipeline(postgres.trigger, [])
    }

    /// Ends that. PostgreSQL's trigger stays, because dropping it would wait for everyone who reads the table.
    static func end(_ name: String, on table: String, _ transaction: some SQLTransaction) throws {
        try waitBriefly(transaction)
        try transaction.pipeline(
            transaction.dialect == .sqlite
                ? "DROP TRIGGER \(name)" : "ALTER TABLE ONLY \(table) DISABLE TRIGGER \(name)", [])
    }

    private static func waitBriefly(_ transaction: some SQLTransaction) throws {
        if transaction.dialect == .postgres { try transaction.pipeline("SET LOCAL lock_timeout = '1s'", []) }
    }
}
