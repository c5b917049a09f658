/// A table that `pushchat migrate` copies from one store into the other. Both stores have it, with these columns.
package struct MigratedTable: Sendable {
    package struct Column: Sendable {
        /// The type of a column. SQLite stores times as text, flags as 0 and 1, and a payload as text or blob.
        package enum Kind: Sendable {
            case number, text, bytes, flag, time
        }

        package let name: String
        package let kind: Kind
        /// The expression to read, in SQL that both databases understand. Usually the column's name.
        package let source: String
    }

    package let name: String
    /// The columns. The columns of the primary key come first.
    package let columns: [Column]
    /// The number of columns in the primary key, by which rows are ordered.
    package let keys: Int
    /// Whether the database numbers the rows, and never uses a number twice.
    package let isNumbered: Bool
    /// A condition for the rows to copy, in SQL that both databases understand. `nil` for all.
    package let condition: String?

    private init(
        _ name: String, key: String, isNumbered: Bool = false, numbers: String = "", texts: String = "",
        bytes: String = "", flags: String = "", times: String = "", sources: [String: String] = [:],
        condition: String? = nil
    ) {
        func words(_ list: String) -> [String] { list.split(separator: " ").map(String.init) }
        let kinds: [(Column.Kind, String)] = [
            (.number, numbers), (.text, texts), (.bytes, bytes), (.flag, flags), (.time, times),
        ]
        let keys = words(key)
        let all = kinds.flatMap { kind, list in
            words(list).map { Column(name: $0, kind: kind, source: sources[$0] ?? $0) }
        }
        self.name = name
        self.columns = keys.compactMap { key in all.first { $0.name == key } } + all.filter { !keys.contains($0.name) }
        self.keys = keys.count
        self.isNumbered = isNumbered
        self.condition = condition
    }

    /// The rows to copy, for a `FROM` clause.
    package var rows: String { name + (condition.map { " WHERE \($0)" } ?? "") }

    package func index(of column: String) -> Int? { columns.firstIndex { $0.name == column } }

    /// A condition on rows that end with a member or a token. A script may have deleted the owner without SQLite's
    /// foreign keys.
    private static let hasOwner =
        "member IN (SELECT member_id FROM active_users) OR token IN (SELECT token_id FROM api_tokens)"

    /// All tables. Each comes after the tables that its rows refer to. Each store lists its additional tables and
    /// columns itself.
    package static let all = [
        MigratedTable("queue_state", key: "id", numbers: "id", bytes: "id_key"),
        MigratedTable(
            "active_users", key: "member_id", isNumbered: true,
            numbers: "member_id history_from fetched_to shown_to",
            texts: "udid device_token nickname secret_code ip_address app app_version os_version device_model",
            times: "time_joined time_updated time_last_message time_fetched"),
        MigratedTable(
            "past_members", key: "member_id", numbers: "member_id history_from fetched_to",
            texts: "secret_code udid nickname", times: "time_fetched time_left"),
        MigratedTable(
            "rooms", key: "room_id", isNumbered: true, numbers: "room_id", texts: "secret_code history alias title",
            times: "time_created"),
        MigratedTable(
            "devices", key: "device_id", isNumbered: true, numbers: "device_id refusals",
            texts: """
                app device_token deactivated_reason user_reference client_info server_info app_version os_version \
                device_model
                """,
            times: "time_created time_registered time_deactivated time_seen"),
        MigratedTable("device_days", key: "day app kind value", numbers: "devices", texts: "day app kind value"),
        MigratedTable(
            "device_tags", key: "tag device_id", numbers: "device_id", texts: "tag",
            condition: "device_id IN (SELECT device_id FROM devices)"),
        MigratedTable(
            "notifications", key: "notification_id", isNumbered: true,
            numbers: """
                notification_id expires_at priority not_before devices work_item work_after work_until first_push \
                last_push token
                """,
            texts: "app push_type collapse_id idempotency_key work payload audience", flags: "skip_unchanged",
            times: "time_created time_cancelled",
            // The two stores count the progress of a cancellation differently, so the target starts the cancellation
            // again. Pushes that are cancelled stay cancelled.
            sources: [
                "work_after": "CASE WHEN work = 'cancel' THEN 0 ELSE work_after END",
                "work_until": "CASE WHEN work = 'cancel' THEN 0 ELSE work_until END",
            ]),
        MigratedTable(
            "notification_counts", key: "notification_id",
            numbers: "notification_id queued skipped sent failed expired cancelled",
            condition: "notification_id IN (SELECT notification_id FROM notifications)"),
        MigratedTable(
            "messages", key: "message_id", isNumbered: true, numbers: "message_id fanout_after fanout_until priority",
            texts: "secret_code udid nickname text ip_address idempotency_key title link sound extras",
            flags: "urgent", times: "time_sent"),
        MigratedTable(
            "message_states", key: "message_id",
            numbers: """
                message_id revision change_id ring_after push_due push_after push_again push_began
                """,
            texts: "secret_code author message_key change", flags: "is_open is_apart removes", times: "time_changed"),
        MigratedTable(
            "message_retries", key: "author idempotency_key", numbers: "message_id number",
            texts: "author idempotency_key", bytes: "digest", times: "time_used"),
        MigratedTable(
            "scheduled_messages", key: "scheduled_id", numbers: "scheduled_id priority revision due",
            texts: "secret_code author nickname message_key ip_address text title link sound extras",
            flags: "urgent renotify is_held", times: "time_created"),
        MigratedTable("posted_schedules", key: "scheduled_id", numbers: "scheduled_id message_id"),
        MigratedTable(
            "api_tokens", key: "token_id", isNumbered: true, numbers: "token_id",
            texts: "name scopes room audience used_from hook unreadable", bytes: "hash",
            times: "time_created time_expires time_used"),
        MigratedTable(
            "hook_memory", key: "token_id hook_key", numbers: "token_id", texts: "hook_key firing", times: "time_used",
            condition: "token_id IN (SELECT token_id FROM api_tokens)"),
        MigratedTable(
            "credentials", key: "credential_id", isNumbered: true, numbers: "credential_id member token",
            texts: "name used_from user_reference", bytes: "hash", times: "time_created time_used time_session",
            condition: hasOwner),
        MigratedTable(
            "webhooks", key: "webhook_id", isNumbered: true,
            numbers: "webhook_id token rotates_until",
            texts: "url secret_code events bot state reason", bytes: "secret old_secret", flags: "only_mentions",
            times: "time_created"),
        MigratedTable(
            "webhook_progress", key: "webhook_id", numbers: "webhook_id failures not_before lease",
            times: "time_succeeded", condition: "webhook_id IN (SELECT webhook_id FROM webhooks)"),
        MigratedTable(
            "webhook_events", key: "event_id", isNumbered: true,
            numbers: "event_id webhook_id message_id events attempts not_before status duration",
            texts: "type secret_code fold details state error response", times: "time_created time_queued time_settled",
            // In PostgreSQL alone, several events may wait to become one.
            sources: ["fold": "CAST(NULL AS text)"]),
        MigratedTable("hidden_messages", key: "client message_id", numbers: "message_id", texts: "client"),
        MigratedTable("hidden_history", key: "client room_id", numbers: "room_id hidden_to", texts: "client"),
        MigratedTable(
            "polled_rooms", key: "room_id", numbers: "room_id announced_to not_before attempts", times: "time_polled",
            condition: "room_id IN (SELECT room_id FROM rooms)"),
        MigratedTable(
            "unifiedpush_topics", key: "topic", numbers: "member token", texts: "topic", times: "time_used",
            condition: hasOwner),
        MigratedTable(
            "unifiedpush_messages", key: "message_id", numbers: "message_id size", texts: "topic", bytes: "body",
            times: "time_sent", condition: "topic IN (SELECT topic FROM unifiedpush_topics WHERE \(hasOwner))"),
        MigratedTable(
            "activities", key: "activity_id", isNumbered: true,
            numbers:
                "activity_id revision content_time due leased_until token channel_revision channel_failures channel_pause",
            texts: "app tag audience start newest started_by channel_state channel", flags: "is_started",
            times: "time_created time_updated time_ended"),
        MigratedTable(
            "activity_tokens", key: "activity_token app",
            numbers: "activity system_version revision notification",
            texts: "activity_token app attributes_type device_token", times: "time_reported",
            condition: "activity IS NULL OR activity IN (SELECT activity_id FROM activities)"),
        MigratedTable(
            "bans", key: "ban_id", isNumbered: true, numbers: "ban_id",
            texts: "secret_code udid device_token address nickname reason", times: "time_created time_ends"),
        MigratedTable(
            "moderation", key: "moderation_id", isNumbered: true, numbers: "moderation_id last_push",
            texts: "action secret_code subject actor ip_address device_token", times: "time_done"),
        MigratedTable(
            "push_queue", key: "message_id", isNumbered: true,
            numbers: """
                message_id chat_message expires_at priority not_before attempts unanswered refused notification device \
                member
                """,
            texts: "device_token payload app state reason hint push_type collapse_id apns_id", flags: "bulk silent",
            times: "time_queued time_sent time_settled",
            // SQLite's foreign key sets the id of a deleted message to NULL. PostgreSQL keeps the id.
            sources: [
                "chat_message": "(SELECT m.message_id FROM messages m WHERE m.message_id = push_queue.chat_message)"
            ]),
        MigratedTable("queue_pauses", key: "app", texts: "app reason actor", times: "time_paused"),
        MigratedTable(
            "feedback", key: "feedback_id", isNumbered: true, numbers: "feedback_id", texts: "app device_token result",
            times: "time_reported time_received"),
        MigratedTable(
            "provider_tokens", key: "team_id key_id key_fingerprint", texts: "team_id key_id key_fingerprint token",
            times: "time_issued"),
        MigratedTable(
            "subscriptions", key: "device_token", numbers: "expires_at", texts: "device_token endpoint",
            bytes: "p256dh auth", times: "time_kept"),
        MigratedTable("vapid_key", key: "id", numbers: "id", texts: "private_key"),
    ]

    /// Returns the tables and columns that a user has added, as `table` or `table.column`. They are neither copied nor
    /// left out on purpose.
    ///
    /// - Parameter leftOut: The tables and columns that the store does not copy, in the same form.
    package static func unknown(
        among columns: [(table: String, column: String)], leftOut: Set<String>
    ) -> [String] {
        var found: [String] = []
        for (table, column) in columns {
            let known = all.first { $0.name == table }
            let name = known == nil ? table : "\(table).\(column)"
            if known?.index(of: column) == nil, !leftOut.contains(name), !found.contains(name) { found.append(name) }
        }
        return found
    }
}

/// A database whose rows can be read in the form of ``RowWriter``.
package protocol MigrationSource {
    /// Calls `row` with each row in the order of the key. A row ends with its line feed.
    func read(_ table: MigratedTable, _ row: (UnsafeRawBufferPointer) throws -> Void) throws
    /// The highest number that any row of the table ever had. 0 if there was none.
    func highestNumber(of table: MigratedTable) throws -> Int64
    /// Tables and columns that a user has added, and that are not copied.
    func unknown() throws -> [String]
}

/// An empty database that receives the rows.
package protocol MigrationTarget: MigrationSource {
    /// Writes the rows that `rows` supplies. `rows` calls the function that it receives once with each row.
    func write(
        _ table: MigratedTable, _ rows: (_ row: (UnsafeRawBufferPointer) throws -> Void) throws -> Void
    ) throws
    /// Makes the next row get a higher number than `number`.
    func setHighestNumber(of table: MigratedTable, _ number: Int64) throws
}
