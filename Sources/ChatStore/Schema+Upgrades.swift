extension Schema {
    /// What each released version became. Frozen: a file of any age goes through all that follow its own.
    ///
    /// Tables are changed in place and never made anew, because views, triggers, indexes and columns of their users are to
    /// stay.
    static let releasedUpgrades: [Int: String] = [1: version2]

    /// The HTTP/2 provider API: `apns_id` and the like, priority 1, and the provider tokens.
    ///
    /// SQLite has no statement that changes a CHECK. What its documentation offers instead is to correct the text of the
    /// table's definition; what is stored under the old rule is good under the wider one.
    private static let version2 = """
        ALTER TABLE push_queue ADD COLUMN hint TEXT;
        ALTER TABLE push_queue ADD COLUMN push_type TEXT;
        ALTER TABLE push_queue ADD COLUMN collapse_id TEXT;
        ALTER TABLE push_queue ADD COLUMN apns_id TEXT;
        ALTER TABLE push_queue ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = replace(sql, 'priority IN (5, 10)', 'priority IN (1, 5, 10)')
        WHERE type = 'table' AND name = 'push_queue';
        PRAGMA writable_schema = RESET;
        DROP INDEX push_queue_due;
        CREATE INDEX push_queue_due ON push_queue (app, (unanswered > 0 OR refused > 0), message_id)
            WHERE state = 'pending' AND not_before IS NULL;
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
