extension Schema {
    /// The upgrades from released versions. Frozen: an older file goes through all upgrades that follow its version, in one
    /// transaction. Upgrades therefore skip indexes and triggers that only intermediate versions had.
    ///
    /// Tables are changed in place and never rebuilt, so that the operator's own views, triggers, indexes and columns stay.
    static let releasedUpgrades: [Int: String] = [
        1: version2, 2: version3, 3: version8, 8: version9, 9: version10, 10: version11, 11: version12, 12: version13,
        13: version14, 14: version15, 15: version16,
    ]

    /// Apple's HTTP/2 API: `apns_id` and other columns, priority 1, and the provider tokens.
    ///
    /// SQLite has no statement that changes a CHECK. Its documentation (ALTER TABLE, "Making Other Kinds Of Table Schema
    /// Changes") edits the text of the table's definition instead. Rows that fit the old rule also fit the wider one.
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
        CREATE TABLE provider_tokens (
            team_id TEXT NOT NULL,
            key_id TEXT NOT NULL,
            key_fingerprint TEXT NOT NULL,
            token TEXT NOT NULL,
            time_issued TEXT NOT NULL,
            PRIMARY KEY (team_id, key_id, key_fingerprint)
        ) STRICT, WITHOUT ROWID;
        """

    /// Devices with users, tags and notes, and notifications to them.
    ///
    /// Existing pushes get no device: a device's history starts with the upgrade.
    private static let version3 = """
        ALTER TABLE devices ADD COLUMN user_reference TEXT;
        ALTER TABLE devices ADD COLUMN client_info TEXT;
        ALTER TABLE devices ADD COLUMN server_info TEXT;
        ALTER TABLE push_queue ADD COLUMN notification INTEGER;
        ALTER TABLE push_queue ADD COLUMN device INTEGER;
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = replace(sql, '''failed'', ''expired'')', '''failed'', ''expired'', ''cancelled'')')
        WHERE type = 'table' AND name = 'push_queue';
        PRAGMA writable_schema = RESET;
        CREATE INDEX devices_app ON devices (app, device_id);
        CREATE INDEX devices_user ON devices (user_reference, device_id, app, time_deactivated) WHERE user_reference IS NOT NULL;
        CREATE INDEX devices_inactive ON devices (device_id, app, time_deactivated) WHERE time_deactivated IS NOT NULL;
        CREATE TABLE device_tags (
            tag TEXT NOT NULL,
            device_id INTEGER NOT NULL REFERENCES devices (device_id) ON DELETE CASCADE,
            PRIMARY KEY (tag, device_id)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX device_tags_device ON device_tags (device_id);
        CREATE TABLE notifications (
            notification_id INTEGER PRIMARY KEY AUTOINCREMENT,
            app TEXT,
            push_type TEXT NOT NULL,
            expires_at INTEGER,
            priority INTEGER CHECK (priority IN (1, 5, 10)),
            collapse_id TEXT,
            not_before INTEGER,
            skip_unchanged INTEGER NOT NULL DEFAULT 0,
            idempotency_key TEXT UNIQUE,
            devices INTEGER NOT NULL,
            time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            time_cancelled TEXT,
            work TEXT CHECK (work IN ('queue', 'cancel')),
            work_item INTEGER NOT NULL DEFAULT 0,
            work_after INTEGER NOT NULL DEFAULT 0,
            work_until INTEGER NOT NULL DEFAULT 0,
            payload TEXT NOT NULL,
            audience TEXT NOT NULL CHECK (json_valid(audience))
        ) STRICT;
        CREATE INDEX notifications_work ON notifications (notification_id) WHERE work IS NOT NULL;
        CREATE TABLE notification_counts (
            notification_id INTEGER PRIMARY KEY REFERENCES notifications (notification_id) ON DELETE CASCADE,
            queued INTEGER NOT NULL DEFAULT 0,
            skipped INTEGER NOT NULL DEFAULT 0,
            sent INTEGER NOT NULL DEFAULT 0,
            failed INTEGER NOT NULL DEFAULT 0,
            expired INTEGER NOT NULL DEFAULT 0,
            cancelled INTEGER NOT NULL DEFAULT 0
        ) STRICT;
        DROP INDEX push_queue_waiting;
        CREATE INDEX push_queue_waiting ON push_queue (app, (attempts > 0), not_before, state)
            WHERE state = 'pending' AND not_before IS NOT NULL;
        CREATE UNIQUE INDEX push_queue_notification ON push_queue (notification, device)
            WHERE notification IS NOT NULL AND device IS NOT NULL;
        CREATE UNIQUE INDEX push_queue_notification_token ON push_queue (notification, app, device_token)
            WHERE notification IS NOT NULL AND device IS NULL;
        """

    /// The queue with leases in memory, browsers' subscriptions, programs that post, moderation, and usage of the app by device.
    ///
    /// DROP COLUMN rewrites the table, once for each of the three columns: about ten seconds in total for a million pushes. No
    /// other way leaves the table in place and fires no trigger of its users.
    ///
    /// `settled_to` stays within 62 bits, so that counting from it never overflows.
    ///
    /// Devices take over what their members' clients said about themselves: two lookups in the members' index for each device.
    private static let version8 = """
        DROP TRIGGER IF EXISTS push_queue_counted;
        DROP TRIGGER IF EXISTS push_queue_deleted;
        ALTER TABLE active_users ADD COLUMN fetched_to INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE active_users ADD COLUMN time_fetched TEXT;
        ALTER TABLE messages ADD COLUMN title TEXT;
        ALTER TABLE messages ADD COLUMN link TEXT;
        ALTER TABLE messages ADD COLUMN priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1);
        ALTER TABLE messages ADD COLUMN sound TEXT;
        ALTER TABLE devices ADD COLUMN app_version TEXT;
        ALTER TABLE devices ADD COLUMN os_version TEXT;
        ALTER TABLE devices ADD COLUMN device_model TEXT;
        ALTER TABLE devices ADD COLUMN time_seen TEXT;
        UPDATE devices SET (app_version, os_version, device_model) = (
            SELECT m.app_version, m.os_version, m.device_model FROM active_users m INDEXED BY active_users_device
            WHERE m.device_token = devices.device_token AND m.app = devices.app AND m.device_token <> '0'
            ORDER BY m.member_id DESC LIMIT 1)
        WHERE EXISTS (
            SELECT 1 FROM active_users m INDEXED BY active_users_device
            WHERE m.device_token = devices.device_token AND m.app = devices.app AND m.device_token <> '0');
        ALTER TABLE notifications ADD COLUMN first_push INTEGER;
        ALTER TABLE notifications ADD COLUMN last_push INTEGER;
        ALTER TABLE notifications ADD COLUMN token INTEGER;
        UPDATE notifications SET
            first_push = (SELECT min(q.message_id) FROM push_queue q WHERE q.notification = notification_id),
            last_push = (SELECT max(q.message_id) FROM push_queue q WHERE q.notification = notification_id);
        UPDATE push_queue SET state = 'pending', attempts = max(attempts - 1, 0) WHERE state = 'written';
        CREATE TABLE queue_state (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            settled_to INTEGER NOT NULL,
            id_key BLOB NOT NULL CHECK (length(id_key) = 16)
        ) STRICT;
        INSERT INTO queue_state (id, settled_to, id_key)
        SELECT 1,
            CASE
                WHEN first IS NOT NULL THEN min(max(first, -4611686018427387903), 4611686018427387904) - 1
                WHEN last IS NOT NULL THEN min(max(last, -4611686018427387904), 4611686018427387903)
                ELSE -4611686018427387904
            END,
            randomblob(16)
        FROM (
            SELECT
                (SELECT min(message_id) FROM push_queue INDEXED BY push_queue_due
                    WHERE state = 'pending' AND not_before IS NULL) AS first,
                (SELECT max(message_id) FROM push_queue) AS last);
        DROP INDEX push_queue_due;
        DROP INDEX push_queue_written;
        DROP INDEX push_queue_settled;
        DROP INDEX push_queue_chat_message;
        DROP INDEX IF EXISTS push_queue_of_notification;
        DROP INDEX IF EXISTS push_queue_device;
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = replace(replace(replace(replace(sql,
            'state IN (''pending'', ''written'', ''sent'', ''failed'', ''expired'', ''cancelled'')',
            'state = ''pending'' OR state = ''sent'' OR state = ''failed'' OR state = ''expired'' OR state = ''cancelled'''),
            'priority IN (1, 5, 10)', 'priority = 10 OR priority = 5 OR priority = 1'),
            '    -- The sent-buffer: which connection of the running relay has it, and as what.' || char(10), ''),
            '    CHECK (state <> ''written'' OR (connection_epoch IS NOT NULL AND identifier IS NOT NULL)),' || char(10), '')
        WHERE type = 'table' AND name = 'push_queue';
        UPDATE sqlite_schema SET sql = replace(replace(sql,
            'priority IN (1, 5, 10)', 'priority = 10 OR priority = 5 OR priority = 1'),
            'work IN (''queue'', ''cancel'')', 'work = ''queue'' OR work = ''cancel''')
        WHERE type = 'table' AND name = 'notifications';
        PRAGMA writable_schema = RESET;
        ALTER TABLE push_queue DROP COLUMN connection_epoch;
        ALTER TABLE push_queue DROP COLUMN identifier;
        ALTER TABLE push_queue DROP COLUMN time_written;
        ALTER TABLE push_queue ADD COLUMN bulk INTEGER NOT NULL DEFAULT 0 CHECK (bulk = 0 OR bulk = 1);
        ALTER TABLE push_queue ADD COLUMN member INTEGER;
        CREATE INDEX push_queue_lost ON push_queue (time_settled, message_id) WHERE state = 'failed' OR state = 'expired';
        CREATE INDEX push_queue_chat_message ON push_queue (chat_message, device) WHERE chat_message IS NOT NULL;
        CREATE INDEX push_queue_device ON push_queue (device, message_id) WHERE device IS NOT NULL AND chat_message IS NULL;
        CREATE TABLE subscriptions (
            device_token TEXT PRIMARY KEY,
            endpoint TEXT NOT NULL,
            p256dh BLOB NOT NULL CHECK (length(p256dh) = 65),
            auth BLOB NOT NULL CHECK (length(auth) = 16),
            expires_at INTEGER,
            time_kept TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE vapid_key (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            private_key TEXT NOT NULL
        ) STRICT;
        CREATE TABLE api_tokens (
            token_id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL UNIQUE CHECK (name <> ''),
            hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
            scopes TEXT NOT NULL CHECK (json_valid(scopes)),
            room TEXT,
            audience TEXT CHECK (audience IS NULL OR json_valid(audience)),
            time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            time_expires TEXT,
            time_used TEXT,
            used_from TEXT
        ) STRICT;
        CREATE TABLE bans (
            ban_id INTEGER PRIMARY KEY AUTOINCREMENT,
            secret_code TEXT,
            udid TEXT,
            device_token TEXT,
            nickname TEXT,
            reason TEXT,
            time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            time_ends TEXT,
            CHECK (secret_code IS NOT NULL OR udid IS NOT NULL OR device_token IS NOT NULL)
        ) STRICT;
        CREATE INDEX bans_udid ON bans (udid) WHERE udid IS NOT NULL;
        CREATE INDEX bans_device ON bans (device_token) WHERE device_token IS NOT NULL;
        CREATE INDEX bans_room ON bans (secret_code) WHERE udid IS NULL AND device_token IS NULL;
        CREATE TABLE moderation (
            moderation_id INTEGER PRIMARY KEY AUTOINCREMENT,
            action TEXT NOT NULL,
            secret_code TEXT,
            subject TEXT,
            actor TEXT NOT NULL,
            ip_address TEXT,
            time_done TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            device_token TEXT,
            last_push INTEGER
        ) STRICT;
        CREATE INDEX moderation_pushes ON moderation (last_push) WHERE last_push IS NOT NULL;
        CREATE TABLE past_members (
            member_id INTEGER PRIMARY KEY,
            secret_code TEXT NOT NULL,
            udid TEXT NOT NULL,
            nickname TEXT NOT NULL,
            history_from INTEGER NOT NULL,
            fetched_to INTEGER NOT NULL,
            time_fetched TEXT,
            time_left TEXT NOT NULL
        ) STRICT;
        CREATE INDEX past_members_room ON past_members (secret_code, fetched_to);
        CREATE INDEX past_members_udid ON past_members (udid, secret_code, fetched_to);
        CREATE INDEX past_members_left ON past_members (time_left);
        CREATE TABLE device_days (
            day TEXT NOT NULL,
            app TEXT NOT NULL,
            kind TEXT NOT NULL,
            value TEXT NOT NULL,
            devices INTEGER NOT NULL,
            PRIMARY KEY (day, app, kind, value)
        ) STRICT, WITHOUT ROWID;
        """

    /// Rooms, and bans of addresses.
    ///
    /// A room's `time_created` is the time of the first entry or message that is still stored.
    private static let version9 = """
        CREATE TABLE rooms (
            room_id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (room_id BETWEEN 1 AND 2147483647),
            secret_code TEXT NOT NULL UNIQUE,
            history TEXT CHECK (history = 'joined' OR history = 'all'),
            time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
        ) STRICT;
        INSERT INTO rooms (secret_code, time_created)
        SELECT secret_code, min(time_created) AS since FROM (
            SELECT secret_code, time_joined AS time_created FROM active_users
            WHERE member_id IN (SELECT min(member_id) FROM active_users GROUP BY secret_code)
            UNION ALL
            SELECT secret_code, time_sent FROM messages
            WHERE message_id IN (SELECT min(message_id) FROM messages GROUP BY secret_code))
        GROUP BY secret_code ORDER BY since, secret_code;
        ALTER TABLE bans ADD COLUMN address TEXT;
        DROP INDEX bans_room;
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema
        SET sql = replace(sql, 'device_token IS NOT NULL)', 'device_token IS NOT NULL OR address IS NOT NULL)')
        WHERE type = 'table' AND name = 'bans';
        PRAGMA writable_schema = RESET;
        CREATE INDEX bans_address ON bans (address) WHERE address IS NOT NULL;
        CREATE INDEX bans_room ON bans (secret_code) WHERE udid IS NULL AND device_token IS NULL AND address IS NULL;
        """

    /// Credentials of other apps, the aliases and titles of rooms, hidden messages, messages that phones have shown, and urgent
    /// messages.
    private static let version10 = """
        ALTER TABLE active_users ADD COLUMN shown_to INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE messages ADD COLUMN urgent INTEGER NOT NULL DEFAULT 0 CHECK (urgent = 0 OR urgent = 1);
        ALTER TABLE rooms ADD COLUMN alias TEXT;
        ALTER TABLE rooms ADD COLUMN title TEXT;
        CREATE UNIQUE INDEX rooms_alias ON rooms (alias) WHERE alias IS NOT NULL;
        CREATE TABLE credentials (
            credential_id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL CHECK (name <> ''),
            hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
            member INTEGER REFERENCES active_users (member_id) ON DELETE CASCADE,
            token INTEGER REFERENCES api_tokens (token_id) ON DELETE CASCADE,
            time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            time_used TEXT,
            used_from TEXT,
            CHECK ((member IS NULL) <> (token IS NULL))
        ) STRICT;
        CREATE INDEX credentials_member ON credentials (member);
        CREATE INDEX credentials_token ON credentials (token);
        CREATE TABLE hidden_messages (
            client TEXT NOT NULL,
            message_id INTEGER NOT NULL,
            PRIMARY KEY (client, message_id)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE hidden_history (
            client TEXT NOT NULL,
            room_id INTEGER NOT NULL,
            hidden_to INTEGER NOT NULL,
            PRIMARY KEY (client, room_id)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE polled_rooms (
            room_id INTEGER PRIMARY KEY REFERENCES rooms (room_id) ON DELETE CASCADE,
            announced_to INTEGER NOT NULL,
            not_before INTEGER NOT NULL DEFAULT 0,
            attempts INTEGER NOT NULL DEFAULT 0,
            time_polled TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
        ) STRICT;
        CREATE TABLE unifiedpush_topics (
            topic TEXT PRIMARY KEY,
            member INTEGER REFERENCES active_users (member_id) ON DELETE CASCADE,
            token INTEGER REFERENCES api_tokens (token_id) ON DELETE CASCADE,
            time_used TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            CHECK ((member IS NULL) <> (token IS NULL))
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX unifiedpush_topics_member ON unifiedpush_topics (member);
        CREATE INDEX unifiedpush_topics_token ON unifiedpush_topics (token);
        CREATE TABLE unifiedpush_messages (
            message_id INTEGER PRIMARY KEY,
            topic TEXT NOT NULL REFERENCES unifiedpush_topics (topic) ON DELETE CASCADE,
            size INTEGER NOT NULL,
            time_sent TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            body BLOB NOT NULL
        ) STRICT;
        CREATE INDEX unifiedpush_messages_topic ON unifiedpush_messages (topic, message_id, size);
        CREATE TABLE activities (
            activity_id INTEGER PRIMARY KEY AUTOINCREMENT,
            app TEXT NOT NULL,
            tag TEXT NOT NULL,
            audience TEXT CHECK (audience IS NULL OR json_valid(audience)),
            start TEXT NOT NULL CHECK (json_valid(start)),
            newest TEXT NOT NULL CHECK (json_valid(newest)),
            revision INTEGER NOT NULL DEFAULT 1,
            content_time INTEGER NOT NULL,
            started_by TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(started_by)),
            is_started INTEGER NOT NULL DEFAULT 0 CHECK (is_started = 0 OR is_started = 1),
            due INTEGER,
            leased_until INTEGER,
            channel_state TEXT,
            channel TEXT,
            channel_revision INTEGER NOT NULL DEFAULT 1,
            channel_failures INTEGER NOT NULL DEFAULT 0,
            channel_pause INTEGER,
            token INTEGER,
            time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            time_updated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            time_ended TEXT
        ) STRICT;
        CREATE UNIQUE INDEX activities_active ON activities (app, tag) WHERE time_ended IS NULL;
        CREATE INDEX activities_tag ON activities (app, tag, activity_id);
        CREATE INDEX activities_due ON activities (due) WHERE due IS NOT NULL;
        CREATE INDEX activities_updated ON activities (time_updated);
        CREATE TABLE activity_tokens (
            activity_token TEXT NOT NULL,
            app TEXT NOT NULL,
            activity INTEGER REFERENCES activities (activity_id) ON DELETE CASCADE,
            attributes_type TEXT,
            device_token TEXT NOT NULL,
            system_version INTEGER,
            revision INTEGER NOT NULL DEFAULT 1,
            notification INTEGER,
            time_reported TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            PRIMARY KEY (activity_token, app),
            CHECK ((activity IS NULL) <> (attributes_type IS NULL))
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX activity_tokens_activity ON activity_tokens (activity, activity_token) WHERE activity IS NOT NULL;
        CREATE INDEX activity_tokens_device ON activity_tokens (device_token, app);
        CREATE INDEX activity_tokens_reported ON activity_tokens (time_reported) WHERE activity IS NULL;
        CREATE TABLE queue_pauses (
            app TEXT PRIMARY KEY,
            reason TEXT,
            actor TEXT NOT NULL,
            time_paused TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
        ) STRICT, WITHOUT ROWID;
        """

    /// The users of credentials.
    private static let version11 = """
        ALTER TABLE credentials ADD COLUMN user_reference TEXT;
        ALTER TABLE credentials ADD COLUMN time_session TEXT;
        """

    /// The displayed fields of messages.
    private static let version12 = """
        ALTER TABLE messages ADD COLUMN extras TEXT CHECK (extras IS NULL OR json_valid(extras));
        """

    /// Messages that change, and messages for later.
    private static let version13 = """
        ALTER TABLE push_queue ADD COLUMN silent INTEGER NOT NULL DEFAULT 0 CHECK (silent = 0 OR silent = 1);
        CREATE TABLE message_states (
            message_id INTEGER PRIMARY KEY,
            secret_code TEXT NOT NULL,
            author TEXT NOT NULL,
            message_key TEXT,
            is_open INTEGER NOT NULL DEFAULT 0 CHECK (is_open = 0 OR is_open = 1),
            is_apart INTEGER NOT NULL DEFAULT 0 CHECK (is_apart = 0 OR is_apart = 1),
            revision INTEGER NOT NULL DEFAULT 1,
            change_id INTEGER,
            change TEXT CHECK (change IN ('edited', 'cleared', 'deleted', 'resolved')),
            time_changed TEXT,
            scheduled_id INTEGER,
            removes INTEGER NOT NULL DEFAULT 0 CHECK (removes = 0 OR removes = 1),
            ring_after INTEGER NOT NULL DEFAULT 0,
            push_due INTEGER,
            push_after INTEGER NOT NULL DEFAULT 0,
            push_again INTEGER,
            push_began INTEGER,
            CHECK ((change_id IS NULL) = (change IS NULL)),
            CHECK ((change_id IS NULL) = (time_changed IS NULL))
        ) STRICT;
        CREATE UNIQUE INDEX message_states_open ON message_states (secret_code, message_key, author) WHERE is_open;
        CREATE INDEX message_states_key ON message_states (secret_code, message_key, author) WHERE message_key IS NOT NULL;
        CREATE INDEX message_states_author ON message_states (secret_code, author, message_id) WHERE is_open;
        CREATE INDEX message_states_change ON message_states (secret_code, change_id) WHERE change_id IS NOT NULL;
        CREATE INDEX message_states_due ON message_states (push_due) WHERE push_due IS NOT NULL;
        CREATE UNIQUE INDEX message_states_scheduled ON message_states (scheduled_id) WHERE scheduled_id IS NOT NULL;
        CREATE TABLE message_retries (
            author TEXT NOT NULL,
            idempotency_key TEXT NOT NULL,
            message_id INTEGER NOT NULL,
            number INTEGER NOT NULL,
            digest BLOB NOT NULL CHECK (length(digest) = 32),
            time_used TEXT NOT NULL,
            PRIMARY KEY (author, idempotency_key)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX message_retries_message ON message_retries (message_id, number);
        CREATE INDEX message_retries_used ON message_retries (time_used);
        CREATE TABLE scheduled_messages (
            scheduled_id INTEGER PRIMARY KEY,
            secret_code TEXT NOT NULL,
            author TEXT NOT NULL,
            nickname TEXT NOT NULL,
            message_key TEXT,
            ip_address TEXT,
            text TEXT NOT NULL,
            title TEXT,
            link TEXT,
            priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1),
            sound TEXT,
            urgent INTEGER NOT NULL DEFAULT 0 CHECK (urgent = 0 OR urgent = 1),
            extras TEXT CHECK (extras IS NULL OR json_valid(extras)),
            renotify INTEGER NOT NULL DEFAULT 0 CHECK (renotify = 0 OR renotify = 1),
            revision INTEGER NOT NULL DEFAULT 1,
            due INTEGER NOT NULL,
            is_held INTEGER NOT NULL DEFAULT 0 CHECK (is_held = 0 OR is_held = 1),
            time_created TEXT NOT NULL
        ) STRICT;
        CREATE UNIQUE INDEX scheduled_messages_key ON scheduled_messages (secret_code, author, message_key)
            WHERE message_key IS NOT NULL;
        CREATE INDEX scheduled_messages_room ON scheduled_messages (secret_code, author, scheduled_id);
        CREATE INDEX scheduled_messages_due ON scheduled_messages (due) WHERE NOT is_held;
        """

    /// Several schedules of a message. Tokens for webhooks, and the memory of webhooks.
    private static let version14 = """
        CREATE TABLE posted_schedules (
            scheduled_id INTEGER PRIMARY KEY,
            message_id INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX posted_schedules_message ON posted_schedules (message_id, scheduled_id);
        INSERT INTO posted_schedules (scheduled_id, message_id)
            SELECT scheduled_id, message_id FROM message_states WHERE scheduled_id IS NOT NULL;
        DROP INDEX message_states_scheduled;
        ALTER TABLE message_states DROP COLUMN scheduled_id;
        ALTER TABLE api_tokens ADD COLUMN hook TEXT CHECK (hook IS NULL OR json_valid(hook));
        ALTER TABLE api_tokens ADD COLUMN unreadable TEXT CHECK (unreadable IS NULL OR json_valid(unreadable));
        CREATE TABLE hook_memory (
            token_id INTEGER NOT NULL REFERENCES api_tokens (token_id) ON DELETE CASCADE,
            hook_key TEXT NOT NULL,
            firing TEXT NOT NULL CHECK (json_valid(firing)),
            time_used TEXT NOT NULL,
            PRIMARY KEY (token_id, hook_key)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX hook_memory_used ON hook_memory (token_id, time_used);
        """

    /// Webhooks and their events.
    private static let version15 = """
        CREATE TABLE webhooks (
            webhook_id INTEGER PRIMARY KEY AUTOINCREMENT,
            url TEXT NOT NULL,
            secret_code TEXT,
            token INTEGER REFERENCES api_tokens (token_id) ON DELETE CASCADE,
            events TEXT NOT NULL,
            bot TEXT,
            only_mentions INTEGER NOT NULL DEFAULT 0 CHECK (only_mentions = 0 OR only_mentions = 1),
            secret BLOB NOT NULL,
            old_secret BLOB,
            rotates_until INTEGER,
            state TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended')),
            reason TEXT,
            failures INTEGER NOT NULL DEFAULT 0,
            not_before INTEGER NOT NULL DEFAULT 0,
            leased_until INTEGER NOT NULL DEFAULT 0,
            lease INTEGER NOT NULL DEFAULT 0,
            time_succeeded TEXT,
            time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
        ) STRICT;
        CREATE TABLE webhook_events (
            event_id INTEGER PRIMARY KEY AUTOINCREMENT,
            webhook_id INTEGER NOT NULL,
            type TEXT NOT NULL,
            secret_code TEXT,
            message_id INTEGER,
            fold TEXT,
            events INTEGER NOT NULL DEFAULT 1,
            details TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(details)),
            state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'failed', 'held')),
            attempts INTEGER NOT NULL DEFAULT 0,
            not_before INTEGER,
            status INTEGER,
            error TEXT,
            response TEXT,
            duration INTEGER,
            time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
            time_queued TEXT,
            time_settled TEXT
        ) STRICT;
        CREATE INDEX webhook_events_waiting ON webhook_events (webhook_id, event_id) WHERE state = 'waiting';
        CREATE INDEX webhook_events_webhook ON webhook_events (webhook_id, event_id);
        CREATE UNIQUE INDEX webhook_events_fold ON webhook_events (webhook_id, type, fold)
            WHERE fold IS NOT NULL AND state = 'waiting' AND attempts = 0;
        CREATE INDEX webhook_events_held ON webhook_events (event_id) WHERE state = 'held';
        CREATE INDEX webhook_events_settled ON webhook_events (time_settled) WHERE time_settled IS NOT NULL;
        """
    /// The progress of webhooks, apart from the table that the triggers read. The relay makes the triggers again.
    private static let version16 = """
        DROP TRIGGER IF EXISTS webhook_posted_1;
        DROP TRIGGER IF EXISTS webhook_changed_1;
        DROP TRIGGER IF EXISTS webhook_change_added_1;
        DROP TRIGGER IF EXISTS webhook_joined_1;
        DROP TRIGGER IF EXISTS webhook_left_1;
        DROP TRIGGER IF EXISTS webhook_failed_1;
        DROP TRIGGER IF EXISTS webhook_gone_1;
        CREATE TABLE webhook_progress (
            webhook_id INTEGER PRIMARY KEY REFERENCES webhooks (webhook_id) ON DELETE CASCADE,
            failures INTEGER NOT NULL DEFAULT 0,
            not_before INTEGER NOT NULL DEFAULT 0,
            lease INTEGER NOT NULL DEFAULT 0,
            time_succeeded TEXT
        ) STRICT;
        INSERT INTO webhook_progress (webhook_id, failures, not_before, time_succeeded)
            SELECT webhook_id, failures, not_before, time_succeeded FROM webhooks;
        ALTER TABLE webhooks DROP COLUMN failures;
        ALTER TABLE webhooks DROP COLUMN not_before;
        ALTER TABLE webhooks DROP COLUMN leased_until;
        ALTER TABLE webhooks DROP COLUMN lease;
        ALTER TABLE webhooks DROP COLUMN time_succeeded;
        CREATE INDEX webhook_events_test ON webhook_events (webhook_id, event_id)
            WHERE state = 'waiting' AND type = 'webhook.test';
        """
}
