-- PushChat Relay: the database, version 1.
--
-- Times are UTC, as text that SQLite's date functions read (2026-05-07 21:57:29.123), except where a column's comment says
-- otherwise. The version stands in PRAGMA user_version; the relay upgrades an older file and refuses a newer one.
-- The tables active_users and push_queue are for your scripts too: insert into push_queue a device_token and a payload, and
-- the relay delivers it within a second.

-- Who is in which room. One row a member; leaving deletes it.
CREATE TABLE active_users (
    member_id INTEGER PRIMARY KEY AUTOINCREMENT,  -- grows with each entry into a room
    udid TEXT NOT NULL UNIQUE CHECK (length(udid) IN (32, 40)),
    device_token TEXT NOT NULL DEFAULT '0' CHECK (device_token <> ''),  -- lower-case hex; '0' while the app has none
    nickname TEXT NOT NULL CHECK (nickname <> ''),
    secret_code TEXT NOT NULL CHECK (secret_code <> ''),
    ip_address TEXT,  -- of the last request
    app TEXT NOT NULL DEFAULT 'default',
    app_version TEXT,
    os_version TEXT,
    device_model TEXT,
    time_joined TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_updated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- last join or update
    time_last_message TEXT,
    history_from INTEGER NOT NULL DEFAULT 0  -- the newest message when the room was entered
) STRICT;
-- The members of a room, in the order of entry: whom a message goes to.
CREATE INDEX active_users_room ON active_users (secret_code, member_id);
-- Who uses a device.
CREATE INDEX active_users_device ON active_users (device_token, app) WHERE device_token <> '0';

-- Devices that registered, by joining or by themselves. Never deleted for a gateway's word: deactivated, and active again when
-- the app registers again.
CREATE TABLE devices (
    device_id INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT NOT NULL,
    device_token TEXT NOT NULL CHECK (length(device_token) >= 2),
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_registered TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- last registration, join or update
    time_deactivated TEXT,  -- since when the push service says the app is gone; NULL while active
    deactivated_reason TEXT,
    refusals INTEGER NOT NULL DEFAULT 0,  -- pushes that were refused for the token, since the last registration
    UNIQUE (device_token, app),
    CHECK ((time_deactivated IS NULL) = (deactivated_reason IS NULL))
) STRICT;

-- What was said, kept for messages.retention.
CREATE TABLE messages (
    message_id INTEGER PRIMARY KEY AUTOINCREMENT,
    secret_code TEXT NOT NULL,
    udid TEXT NOT NULL,  -- the writer
    nickname TEXT NOT NULL,
    text TEXT NOT NULL,
    ip_address TEXT,
    time_sent TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    idempotency_key TEXT,
    -- While pushes are still to be queued: the members after fanout_after and up to fanout_until. A large room is served in
    -- steps behind the answer, and goes on after a crash where it stood.
    fanout_after INTEGER,
    fanout_until INTEGER,
    CHECK ((fanout_after IS NULL) = (fanout_until IS NULL))
) STRICT;
-- A room's history.
CREATE INDEX messages_room ON messages (secret_code, message_id);
-- A repeat with the same key is the same message.
CREATE UNIQUE INDEX messages_idempotency ON messages (udid, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX messages_fanout ON messages (message_id) WHERE fanout_after IS NOT NULL;

-- One row a push. Another program needs to set only device_token and payload.
CREATE TABLE push_queue (
    message_id INTEGER PRIMARY KEY AUTOINCREMENT,  -- the push's own number, and the order of sending
    device_token TEXT NOT NULL,
    payload ANY NOT NULL,  -- UTF-8 JSON, as text or blob
    time_queued TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_sent TEXT,  -- NULL until the gateway has taken it
    app TEXT NOT NULL DEFAULT 'default',
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'written', 'sent', 'failed', 'expired')),
    reason TEXT,  -- of a failure, in the gateway's own words; of the last one, while it is tried again
    chat_message INTEGER REFERENCES messages (message_id) ON DELETE SET NULL,  -- NULL if another program queued it
    expires_at INTEGER,  -- UNIX seconds after which it is not worth sending; NULL for never
    priority INTEGER CHECK (priority IN (5, 10)),
    not_before INTEGER,  -- UNIX milliseconds; NULL for now
    attempts INTEGER NOT NULL DEFAULT 0,  -- how often it was handed to a connection that did not give it back unread
    unanswered INTEGER NOT NULL DEFAULT 0,  -- how often that connection went without a word about it
    -- The sent-buffer: which connection of the running relay has it, and as what.
    connection_epoch INTEGER,
    identifier INTEGER,
    time_written TEXT,
    time_settled TEXT,  -- when it became sent, failed or expired
    CHECK (state <> 'written' OR (connection_epoch IS NOT NULL AND identifier IS NOT NULL)),
    CHECK ((state = 'sent') = (time_sent IS NOT NULL))
) STRICT;
-- What can go now, in order; what waits for its time.
CREATE INDEX push_queue_due ON push_queue (app, message_id) WHERE state = 'pending' AND not_before IS NULL;
CREATE INDEX push_queue_waiting ON push_queue (app, not_before) WHERE state = 'pending' AND not_before IS NOT NULL;
-- What a connection has in flight.
CREATE INDEX push_queue_written ON push_queue (connection_epoch, identifier) WHERE state = 'written';
-- What retention may delete.
CREATE INDEX push_queue_settled ON push_queue (time_settled) WHERE time_settled IS NOT NULL;
CREATE INDEX push_queue_chat_message ON push_queue (chat_message) WHERE chat_message IS NOT NULL;

-- What the feedback service reported; written down before it is acted on, because reading it clears it there.
CREATE TABLE feedback (
    feedback_id INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT NOT NULL,
    device_token TEXT NOT NULL,
    time_reported TEXT NOT NULL,  -- the gateway's: since when the app is gone
    time_received TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    result TEXT CHECK (result IN ('deactivated', 'kept', 'unknown'))  -- NULL until acted on
) STRICT;
CREATE INDEX feedback_open ON feedback (feedback_id) WHERE result IS NULL;
