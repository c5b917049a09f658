extension Schema {
    /// What each released version became. Frozen: a file of any age goes through all that follow its own.
    static let releasedUpgrades: [Int: String] = [1: version2]

    /// The HTTP/2 provider API: `apns_id` and the like, priority 1, and the provider tokens. A CHECK cannot be changed in
    /// place, so the queue's table is made anew.
    private static let version2 = """
        CREATE TABLE new_push_queue (
            message_id INTEGER PRIMARY KEY AUTOINCREMENT,
            device_token TEXT NOT NULL,
            payload ANY NOT NULL,
            time_queued TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            time_sent TEXT,
            app TEXT NOT NULL DEFAULT 'default',
            state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'written', 'sent', 'failed', 'expired')),
            reason TEXT,
            hint TEXT,
            chat_message INTEGER REFERENCES messages (message_id) ON DELETE SET NULL,
            expires_at INTEGER,
            priority INTEGER CHECK (priority IN (1, 5, 10)),
            push_type TEXT,
            collapse_id TEXT,
            apns_id TEXT,
            not_before INTEGER,
            attempts INTEGER NOT NULL DEFAULT 0,
            unanswered INTEGER NOT NULL DEFAULT 0,
            connection_epoch INTEGER,
            identifier INTEGER,
            time_written TEXT,
            time_settled TEXT,
            CHECK (state <> 'written' OR (connection_epoch IS NOT NULL AND identifier IS NOT NULL)),
            CHECK ((state = 'sent') = (time_sent IS NOT NULL))
        ) STRICT;
        INSERT INTO new_push_queue (
            message_id, device_token, payload, time_queued, time_sent, app, state, reason, chat_message, expires_at,
            priority, not_before, attempts, unanswered, connection_epoch, identifier, time_written, time_settled)
        SELECT message_id, device_token, payload, time_queued, time_sent, app, state, reason, chat_message, expires_at,
            priority, not_before, attempts, unanswered, connection_epoch, identifier, time_written, time_settled
        FROM push_queue;
        -- Numbers are not used twice, not even those of deleted rows.
        INSERT INTO sqlite_sequence (name, seq) SELECT 'new_push_queue', 0
        WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'new_push_queue');
        UPDATE sqlite_sequence SET seq = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'push_queue'), 0)
        WHERE name = 'new_push_queue';
        DROP TABLE push_queue;
        ALTER TABLE new_push_queue RENAME TO push_queue;
        CREATE INDEX push_queue_due ON push_queue (app, message_id) WHERE state = 'pending' AND not_before IS NULL;
        CREATE INDEX push_queue_waiting ON push_queue (app, not_before)
            WHERE state = 'pending' AND not_before IS NOT NULL;
        CREATE INDEX push_queue_written ON push_queue (connection_epoch, identifier) WHERE state = 'written';
        CREATE INDEX push_queue_settled ON push_queue (time_settled) WHERE time_settled IS NOT NULL;
        CREATE INDEX push_queue_chat_message ON push_queue (chat_message) WHERE chat_message IS NOT NULL;
        CREATE TABLE provider_tokens (
            team_id TEXT NOT NULL,
            key_id TEXT NOT NULL,
            key_fingerprint TEXT NOT NULL,
            token TEXT NOT NULL,
            time_issued TEXT NOT NULL,
            PRIMARY KEY (team_id, key_id, key_fingerprint)
        ) STRICT, WITHOUT ROWID;
        """
}
