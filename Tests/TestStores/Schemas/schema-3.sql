-- PushChat Relay: the database, version 3.
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
    user_reference TEXT,  -- whose it is, in the operator's own system
    client_info TEXT,  -- what the app says of itself; not interpreted
    server_info TEXT,  -- what the operator's server keeps about it; not interpreted
    UNIQUE (device_token, app),
    CHECK ((time_deactivated IS NULL) = (deactivated_reason IS NULL))
) STRICT;
-- An app's devices, and a user's, in the order of registration. With what it takes to count them.
CREATE INDEX devices_app ON devices (app, device_id);
CREATE INDEX devices_user ON devices (user_reference, device_id, app, time_deactivated) WHERE user_reference IS NOT NULL;
CREATE INDEX devices_inactive ON devices (device_id, app, time_deactivated) WHERE time_deactivated IS NOT NULL;

-- Words that group devices.
CREATE TABLE device_tags (
    tag TEXT NOT NULL,
    device_id INTEGER NOT NULL REFERENCES devices (device_id) ON DELETE CASCADE,
    PRIMARY KEY (tag, device_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX device_tags_device ON device_tags (device_id);

-- What was sent to devices on request, kept for queue.retention after its last push.
CREATE TABLE notifications (
    notification_id INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT,  -- only devices of this app; NULL for all
    push_type TEXT NOT NULL,
    expires_at INTEGER,  -- as in push_queue
    priority INTEGER CHECK (priority IN (1, 5, 10)),
    collapse_id TEXT,
    not_before INTEGER,  -- UNIX milliseconds; NULL for at once
    skip_unchanged INTEGER NOT NULL DEFAULT 0,  -- leave out devices whose last push had the same payload
    idempotency_key TEXT UNIQUE,
    devices INTEGER NOT NULL,  -- how many, as the answer to the request said
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_cancelled TEXT,
    -- Work that is left: pushes to queue, or after a cancellation to take back. In steps, behind the answer, and after a
    -- crash from where it stood: the audience's item `work_item`, from the device, member or push after `work_after` to
    -- `work_until`.
    work TEXT CHECK (work IN ('queue', 'cancel')),
    work_item INTEGER NOT NULL DEFAULT 0,
    work_after INTEGER NOT NULL DEFAULT 0,
    work_until INTEGER NOT NULL DEFAULT 0,
    payload TEXT NOT NULL,  -- here once, not in each row of push_queue
    audience TEXT NOT NULL CHECK (json_valid(audience))  -- {"tokens":[…]}, {"users":[…]}, {"tags":[…]}, {"room":"…"}, {"all":true}
) STRICT;
CREATE INDEX notifications_work ON notifications (notification_id) WHERE work IS NOT NULL;

-- A notification's pushes by what became of them, kept up to date by triggers; apart, because a notification's own row may
-- be long and this one changes with each push.
CREATE TABLE notification_counts (
    notification_id INTEGER PRIMARY KEY REFERENCES notifications (notification_id) ON DELETE CASCADE,
    queued INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,  -- devices that skip_unchanged left out
    sent INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0
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
    payload ANY NOT NULL,  -- UTF-8 JSON, as text or blob; empty where `notification` has it
    time_queued TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_sent TEXT,  -- NULL until the gateway has taken it
    app TEXT NOT NULL DEFAULT 'default',
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'written', 'sent', 'failed', 'expired', 'cancelled')),
    reason TEXT,  -- of a failure, in the gateway's own words; of the last one, while it is tried again
    chat_message INTEGER REFERENCES messages (message_id) ON DELETE SET NULL,  -- NULL if another program queued it
    expires_at INTEGER,  -- UNIX seconds after which it is not worth sending; NULL for never; 0: the gateway tries once
    priority INTEGER CHECK (priority IN (1, 5, 10)),
    not_before INTEGER,  -- UNIX milliseconds; NULL for now
    attempts INTEGER NOT NULL DEFAULT 0,  -- how often it was handed to a connection that did not give it back unread
    unanswered INTEGER NOT NULL DEFAULT 0,  -- how often that connection went without a word about it
    -- The sent-buffer: which connection of the running relay has it, and as what.
    connection_epoch INTEGER,
    identifier INTEGER,
    time_written TEXT,
    time_settled TEXT,  -- when it became sent, failed, expired or cancelled
    hint TEXT,  -- what a final reason may mean, for people
    push_type TEXT,  -- as Apple spells it; NULL: background if the payload only wakes the app, else alert
    collapse_id TEXT,  -- of pushes with the same, the device shows one
    apns_id TEXT,  -- what Apple knows the push by: a UUID, given before it is first written, kept over repeats
    refused INTEGER NOT NULL DEFAULT 0,  -- how often the gateway sent it back, or did not accept the credentials with it
    notification INTEGER,  -- of which it is one push; NULL for the chat's and other programs'
    device INTEGER,  -- the device it is for, where that was registered; stays when the device is gone
    CHECK (state <> 'written' OR (connection_epoch IS NOT NULL AND identifier IS NOT NULL)),
    CHECK ((state = 'sent') = (time_sent IS NOT NULL))
) STRICT;
-- What can go now, in order, what has made trouble behind the rest; what waits for its time, the scheduled apart from the
-- repeats. With what it takes to count them.
CREATE INDEX push_queue_due ON push_queue (app, (unanswered > 0 OR refused > 0), message_id, state, not_before)
    WHERE state = 'pending' AND not_before IS NULL;
CREATE INDEX push_queue_waiting ON push_queue (app, (attempts > 0), not_before, state)
    WHERE state = 'pending' AND not_before IS NOT NULL;
-- What a connection has in flight.
CREATE INDEX push_queue_written ON push_queue (connection_epoch, identifier) WHERE state = 'written';
-- What retention may delete.
CREATE INDEX push_queue_settled ON push_queue (time_settled) WHERE time_settled IS NOT NULL;
CREATE INDEX push_queue_chat_message ON push_queue (chat_message) WHERE chat_message IS NOT NULL;
-- A device gets a notification once: registered devices, and tokens that are not registered.
CREATE UNIQUE INDEX push_queue_notification ON push_queue (notification, device)
    WHERE notification IS NOT NULL AND device IS NOT NULL;
CREATE UNIQUE INDEX push_queue_notification_token ON push_queue (notification, app, device_token)
    WHERE notification IS NOT NULL AND device IS NULL;
-- A notification's pushes, and a device's, in order.
CREATE INDEX push_queue_of_notification ON push_queue (notification, message_id) WHERE notification IS NOT NULL;
CREATE INDEX push_queue_device ON push_queue (device, message_id) WHERE device IS NOT NULL;
-- Count what became of a notification's pushes.
CREATE TRIGGER push_queue_counted AFTER UPDATE OF state ON push_queue
WHEN new.notification IS NOT NULL AND old.state <> new.state
    AND (new.state NOT IN ('pending', 'written') OR old.state NOT IN ('pending', 'written'))
BEGIN
    UPDATE notification_counts SET
        sent = sent + (new.state = 'sent') - (old.state = 'sent'),
        failed = failed + (new.state = 'failed') - (old.state = 'failed'),
        expired = expired + (new.state = 'expired') - (old.state = 'expired'),
        cancelled = cancelled + (new.state = 'cancelled') - (old.state = 'cancelled')
    WHERE notification_id = new.notification;
END;
CREATE TRIGGER push_queue_deleted AFTER DELETE ON push_queue
WHEN old.notification IS NOT NULL AND old.state IN ('pending', 'written')
BEGIN
    UPDATE notification_counts SET queued = queued - 1 WHERE notification_id = old.notification;
END;

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

-- Signed tokens with which the relay proves itself to Apple, which puts up with a new one every twenty minutes only: a
-- restart goes on with the one that is here.
CREATE TABLE provider_tokens (
    team_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    key_fingerprint TEXT NOT NULL,  -- SHA-256 of the public key
    token TEXT NOT NULL,
    time_issued TEXT NOT NULL,
    PRIMARY KEY (team_id, key_id, key_fingerprint)
) STRICT, WITHOUT ROWID;
