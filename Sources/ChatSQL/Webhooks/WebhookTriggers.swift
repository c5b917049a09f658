import ChatDomain

/// The triggers that write events into `webhook_events`, in the transaction of the change that they report.
///
/// They exist only while a webhook asks for their events. So posting costs nothing without webhooks, and rows of other
/// programs are reported as well. The names end in a version: a changed trigger gets a new name.
struct WebhookTrigger {
    private static let version = 1

    let name: String
    let table: String
    let events: Set<WebhookEventKind>
    /// The statement that creates the trigger. PostgreSQL's may have a function.
    private let lite: String
    private let postgres: (function: String, trigger: String)

    /// - Parameters:
    ///   - postgres: The trigger's clause of PostgreSQL between its name and its function.
    ///   - insert: Returns the statement that writes the events. Its parameter is the place of the changed row.
    private init(
        _ name: String, on table: String, _ events: Set<WebhookEventKind>, lite: String, postgres: String,
        when condition: String? = nil, _ insert: (SQLDialect) -> String
    ) {
        self.name = "webhook_\(name)_\(Self.version)"
        self.table = table
        self.events = events
        self.lite = """
            CREATE TRIGGER \(self.name) \(lite) \(condition.map { "WHEN \($0)" } ?? "") BEGIN
                \(insert(.sqlite));
            END
            """
        // The function has the rights of the relay, because the role of another program may have fewer.
        self.postgres = (
            """
            CREATE OR REPLACE FUNCTION \(self.name)() RETURNS trigger LANGUAGE plpgsql
            SECURITY DEFINER SET search_path FROM CURRENT AS $webhook$
            BEGIN
                \(insert(.postgres));
                RETURN NULL;
            END $webhook$
            """,
            "CREATE TRIGGER \(self.name) \(postgres) EXECUTE FUNCTION \(self.name)()"
        )
    }

    // MARK: - The events

    /// - Parameters:
    ///   - row: The changed row, or rows.
    ///   - values: Expressions for the columns of the event.
    ///   - condition: A further condition on the webhook `w`.
    private static func insert(
        _ type: String, from row: String, room: String, _ values: KeyValuePairs<String, String>,
        where condition: String, _ dialect: SQLDialect, rest: String = ""
    ) -> String {
        let place = dialect == .sqlite ? "instr" : "strpos"
        return """
            INSERT INTO webhook_events (webhook_id, type, secret_code, \(values.map(\.key).joined(separator: ", ")))
            SELECT w.webhook_id, \(type), \(room), \(values.map(\.value).joined(separator: ", "))
            FROM \(row)webhooks w
            WHERE w.state <> 'ended' AND \(place)(w.events, ' ' || \(type) || ' ') > 0
                AND (w.secret_code IS NULL OR w.secret_code = \(room)) AND \(condition) \(rest)
            """
    }

    /// A bot gets no event for its own message, and a webhook of a token only its messages.
    private static func isHeard(_ author: String) -> String {
        "(w.token IS NULL OR \(author) = 'token:' || w.token) AND \(author) <> 'webhook:' || w.webhook_id"
    }

    private static func now(_ dialect: SQLDialect) -> String {
        dialect == .sqlite ? "strftime('%Y-%m-%d %H:%M:%f', 'now')" : "now()"
    }

    private static func member(_ row: String, _ dialect: SQLDialect) -> String {
        dialect == .sqlite
            ? "json_object('member', \(row).member_id, 'name', \(row).nickname)"
            : "json_build_object('member', \(row).member_id, 'name', \(row).nickname)::text"
    }

    private static func change(_ name: String, lite: String, postgres: String, when condition: String) -> WebhookTrigger
    {
        WebhookTrigger(
            name, on: "message_states", [.edited, .cleared, .resolved, .deleted], lite: lite, postgres: postgres,
            when: condition
        ) { dialect in
            insert(
                "'message.' || NEW.change", from: "", room: "NEW.secret_code",
                ["message_id": "NEW.message_id", "time_created": "NEW.time_changed"], where: isHeard("NEW.author"),
                dialect)
        }
    }

    /// The events of a push or a device. While no attempt was made, further ones with the same value of `fold` only add to
    /// `events`, because a send to a million devices must not make a million events.
    private static let folded = """
        ON CONFLICT (webhook_id, type, fold) WHERE fold IS NOT NULL AND state = 'waiting' AND attempts = 0
        """
    /// The maximum number of ids of devices in an event.
    private static let mostDevices = 100

    static let all = [
        WebhookTrigger(
            "posted", on: "messages", [.posted], lite: "AFTER INSERT ON messages",
            postgres: "AFTER INSERT ON messages REFERENCING NEW TABLE AS added FOR EACH STATEMENT"
        ) { dialect in
            let row = dialect == .sqlite ? "NEW" : "n"
            return insert(
                "'message.posted'", from: dialect == .sqlite ? "" : "added n CROSS JOIN ", room: "\(row).secret_code",
                ["message_id": "\(row).message_id", "time_created": "\(row).time_sent"], where: isHeard("\(row).udid"),
                dialect, rest: dialect == .sqlite ? "" : "ORDER BY n.message_id")
        },
        change(
            "changed", lite: "AFTER UPDATE OF change_id ON message_states",
            postgres:
                "AFTER UPDATE ON message_states FOR EACH ROW WHEN (NEW.change_id IS DISTINCT FROM OLD.change_id AND NEW.change_id IS NOT NULL)",
            when: "NEW.change_id IS NOT OLD.change_id AND NEW.change_id IS NOT NULL"),
        change(
            "change_added", lite: "AFTER INSERT ON message_states",
            postgres: "AFTER INSERT ON message_states FOR EACH ROW WHEN (NEW.change_id IS NOT NULL)",
            when: "NEW.change_id IS NOT NULL"),
        WebhookTrigger(
            "joined", on: "active_users", [.joined], lite: "AFTER INSERT ON active_users",
            postgres: "AFTER INSERT ON active_users REFERENCING NEW TABLE AS added FOR EACH STATEMENT"
        ) { dialect in
            let row = dialect == .sqlite ? "NEW" : "n"
            return insert(
                "'member.joined'", from: dialect == .sqlite ? "" : "added n CROSS JOIN ", room: "\(row).secret_code",
                ["details": member(row, dialect), "time_created": "\(row).time_joined"], where: "w.token IS NULL",
                dialect, rest: dialect == .sqlite ? "" : "ORDER BY n.member_id")
        },
        WebhookTrigger(
            "left", on: "active_users", [.left], lite: "AFTER DELETE ON active_users",
            postgres: "AFTER DELETE ON active_users REFERENCING OLD TABLE AS gone FOR EACH STATEMENT"
        ) { dialect in
            let row = dialect == .sqlite ? "OLD" : "o"
            return insert(
                "'member.left'", from: dialect == .sqlite ? "" : "gone o CROSS JOIN ", room: "\(row).secret_code",
                ["details": member(row, dialect), "time_created": now(dialect)], where: "w.token IS NULL", dialect,
                rest: dialect == .sqlite ? "" : "ORDER BY o.member_id")
        },
        WebhookTrigger(
            "failed", on: "push_queue", [.pushFailed], lite: "AFTER UPDATE OF state ON push_queue",
            postgres: """
                AFTER UPDATE ON push_queue REFERENCING OLD TABLE AS earlier NEW TABLE AS changed FOR EACH STATEMENT
                """, when: "NEW.state = 'failed' AND OLD.state <> 'failed'"
        ) { dialect in
            let row = dialect == .sqlite ? "NEW" : "f"
            // The rows are grouped, because one statement must not touch a row of the conflict twice.
            let source =
                dialect == .sqlite
                ? ""
                : """
                (SELECT c.chat_message, c.notification, c.app, min(c.reason) AS reason, count(*) AS pushes
                    FROM changed c JOIN earlier e ON e.message_id = c.message_id
                    WHERE c.state = 'failed' AND e.state <> 'failed'
                    GROUP BY c.chat_message, c.notification, c.app ORDER BY 1, 2, 3) f CROSS JOIN
                """ + " "
            let room = "(SELECT m.secret_code FROM messages m WHERE m.message_id = \(row).chat_message)"
            let object = dialect == .sqlite ? "json_object" : "json_build_object"
            return insert(
                "'push.failed'", from: source, room: room,
                [
                    "message_id": "\(row).chat_message", "events": dialect == .sqlite ? "1" : "f.pushes",
                    "fold": dialect == .sqlite
                        ? "coalesce(NEW.chat_message, '') || ' ' || coalesce(NEW.notification, '') || ' ' || NEW.app"
                        : "concat_ws(' ', coalesce(f.chat_message, 0), coalesce(f.notification, 0), f.app)",
                    "details": """
                    \(object)('app', \(row).app, 'reason', \(row).reason, 'notification_id', \(row).notification)\
                    \(dialect == .sqlite ? "" : "::text")
                    """, "time_created": now(dialect),
                ], where: "w.token IS NULL", dialect,
                rest: "\(folded) DO UPDATE SET events = webhook_events.events + excluded.events")
        },
        WebhookTrigger(
            "gone", on: "devices", [.deviceGone], lite: "AFTER UPDATE OF time_deactivated ON devices",
            postgres: """
                AFTER UPDATE ON devices FOR EACH ROW
                WHEN (NEW.time_deactivated IS NOT NULL AND OLD.time_deactivated IS NULL)
                """, when: "NEW.time_deactivated IS NOT NULL AND OLD.time_deactivated IS NULL"
        ) { dialect in
            let details =
                dialect == .sqlite
                ? "json_object('app', NEW.app, 'reason', NEW.deactivated_reason, 'devices', json_array(NEW.device_id))"
                : """
                jsonb_build_object('app', NEW.app, 'reason', NEW.deactivated_reason, 'devices',
                    jsonb_build_array(NEW.device_id))::text
                """
            let added =
                dialect == .sqlite
                ? """
                json_insert(webhook_events.details, '$.devices[#]', json_extract(excluded.details, '$.devices[0]'))
                """
                : """
                jsonb_set(webhook_events.details::jsonb, '{devices}',
                    (webhook_events.details::jsonb -> 'devices') || (excluded.details::jsonb -> 'devices'))::text
                """
            return insert(
                "'device.gone'", from: "", room: "CAST(NULL AS text)",
                ["fold": "NEW.app", "details": details, "time_created": now(dialect)], where: "w.token IS NULL",
                dialect,
                rest: """
                    \(folded) DO UPDATE SET events = webhook_events.events + 1, details = CASE
                        WHEN webhook_events.events < \(mostDevices) THEN \(added) ELSE webhook_events.details END
                    """)
        },
    ]

    // MARK: - The database

    /// Returns the names of the triggers that fire.
    static func active(_ transaction: some SQLTransaction) throws -> Set<String> {
        let sql =
            transaction.dialect == .sqlite
            ? "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
            : """
            SELECT t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
            JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = current_schema() AND NOT t.tgisinternal AND t.tgenabled <> 'D'
            """
        return Set(try transaction.rows(sql, []).map { try $0.text(0) }).intersection(all.map(\.name))
    }

    /// Makes the trigger fire. In PostgreSQL, this waits for the transactions that write to the table.
    func enable(_ transaction: some SQLTransaction) throws {
        guard transaction.dialect == .postgres else { return try transaction.pipeline(lite, []) }
        let isDisabled = try transaction.row(
            """
            SELECT 1 FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
            JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = current_schema() AND c.relname = $1 AND t.tgname = $2
            """, [.text(table), .text(name)])
        if isDisabled != nil { return try transaction.pipeline("ALTER TABLE ONLY \(table) ENABLE TRIGGER \(name)", []) }
        try transaction.pipeline(postgres.function, [])
        try transaction.pipeline(postgres.trigger, [])
    }

    /// Ends that. PostgreSQL's trigger stays, because dropping it would wait for everyone who reads the table.
    func disable(_ transaction: some SQLTransaction) throws {
        try transaction.pipeline(
            transaction.dialect == .sqlite
                ? "DROP TRIGGER \(name)" : "ALTER TABLE ONLY \(table) DISABLE TRIGGER \(name)", [])
    }
}
