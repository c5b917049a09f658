-- PushChat Relay: the database, version 8.
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
    app_version TEXT,  -- this and the next two: what the client says of itself
    os_version TEXT,
    device_model TEXT,
    time_joined TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_updated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- last join or update
    time_last_message TEXT,
    history_from INTEGER NOT NULL DEFAULT 0,  -- the newest message when the room was entered
    fetched_to INTEGER NOT NULL DEFAULT 0,  -- the newest message that was handed out to it; some seconds behind
    time_fetched TEXT
) STRICT;
-- The members of a room, in the order of entry: whom a message goes to.
CREATE INDEX active_users_room ON active_users (secret_code, member_id);
-- Who uses a device.
CREATE INDEX active_users_device ON active_users (device_token, app) WHERE device_token <> '0';

-- What those had read who have left a room: its messages after history_from and up to fetched_to. One row a stay, kept for
-- messages.retention.
CREATE TABLE past_members (
    member_id INTEGER PRIMARY KEY,  -- as it stood in active_users
    secret_code TEXT NOT NULL,
    udid TEXT NOT NULL,
    nickname TEXT NOT NULL,
    history_from INTEGER NOT NULL,
    fetched_to INTEGER NOT NULL,
    time_fetched TEXT,
    time_left TEXT NOT NULL
) STRICT;
-- Who had read a message.
CREATE INDEX past_members_room ON past_members (secret_code, fetched_to);
-- What a member had read when it comes back.
CREATE INDEX past_members_udid ON past_members (udid, secret_code, fetched_to);
CREATE INDEX past_members_left ON past_members (time_left);

-- Devices that registered, by joining or by themselves. A gateway's answer deletes none: it deactivates, until the app registers
-- again.
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
    -- This and the next three: who uses the app. NULL where it is not known, and all of them with `analytics: off`.
    app_version TEXT,
    os_version TEXT,
    device_model TEXT,
    time_seen TEXT,  -- last, some minutes behind
    UNIQUE (device_token, app),
    CHECK ((time_deactivated IS NULL) = (deactivated_reason IS NULL))
) STRICT;
-- An app's devices, and a user's, in the order of registration. With what it takes to count them.
CREATE INDEX devices_app ON devices (app, device_id);
CREATE INDEX devices_user ON devices (user_reference, device_id, app, time_deactivated) WHERE user_reference IS NOT NULL;
CREATE INDEX devices_inactive ON devices (device_id, app, time_deactivated) WHERE time_deactivated IS NOT NULL;

-- How many devices were seen on a day: in all, and by what they said of themselves last on that day. Kept for 90 days; empty
-- with `analytics: off`.
CREATE TABLE device_days (
    day TEXT NOT NULL,  -- in UTC: 2026-05-07
    app TEXT NOT NULL,
    kind TEXT NOT NULL,  -- app_version, os_version, device_model; empty: all devices
    value TEXT NOT NULL,  -- empty where the device did not say; ' others': all values after the first 64 of the day
    devices INTEGER NOT NULL,
    PRIMARY KEY (day, app, kind, value)
) STRICT, WITHOUT ROWID;

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
    priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1),
    collapse_id TEXT,
    not_before INTEGER,  -- UNIX milliseconds; NULL for at once
    skip_unchanged INTEGER NOT NULL DEFAULT 0,  -- leave out devices whose last push of the kind said the same
    idempotency_key TEXT UNIQUE,
    devices INTEGER NOT NULL,  -- how many, as the answer to the request said
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_cancelled TEXT,
    -- Work that is left: pushes to queue, or after a cancellation to take back. In steps, behind the answer, and after a
    -- crash from where it stood: the audience's item `work_item`, from the device, member or push after `work_after` to
    -- `work_until`.
    work TEXT CHECK (work = 'queue' OR work = 'cancel'),
    work_item INTEGER NOT NULL DEFAULT 0,
    work_after INTEGER NOT NULL DEFAULT 0,
    work_until INTEGER NOT NULL DEFAULT 0,
    payload TEXT NOT NULL,  -- here once, not in each row of push_queue
    audience TEXT NOT NULL CHECK (json_valid(audience)),  -- {"tokens":[…]}, {"users":[…]}, {"tags":[…]}, {"room":"…"}, {"all":true}
    -- Its pushes have numbers from the one to the other; others' may lie between. NULL while there are none.
    first_push INTEGER,
    last_push INTEGER,
    token INTEGER  -- of api_tokens, with which it was sent; NULL: by the administrator
) STRICT;
CREATE INDEX notifications_work ON notifications (notification_id) WHERE work IS NOT NULL;

-- A notification's pushes by what became of them, kept up to date by the relay and its commands, not for what scripts change;
-- apart, because a notification's own row may be long and this one changes with each push.
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
    udid TEXT NOT NULL,  -- the writer; of a program `token:` and its token's id, or `admin`
    nickname TEXT NOT NULL,
    text TEXT NOT NULL,
    ip_address TEXT,
    time_sent TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    idempotency_key TEXT,
    -- While pushes are still to be queued: the members after fanout_after and up to fanout_until. A large room is served in
    -- steps behind the answer, and goes on after a crash where it stood.
    fanout_after INTEGER,
    fanout_until INTEGER,
    title TEXT,  -- this and the next three: of a program's message
    link TEXT,
    priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1),  -- of its pushes
    sound TEXT,  -- of its pushes; empty for none
    CHECK ((fanout_after IS NULL) = (fanout_until IS NULL))
) STRICT;
-- A room's history.
CREATE INDEX messages_room ON messages (secret_code, message_id);
-- A repeat with the same key is the same message.
CREATE UNIQUE INDEX messages_idempotency ON messages (udid, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX messages_fanout ON messages (message_id) WHERE fanout_after IS NOT NULL;

-- Bearer tokens with which programs call the relay, beside the configuration's admin.token.
CREATE TABLE api_tokens (
    token_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE CHECK (name <> ''),
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),  -- SHA-256; the token itself is kept nowhere
    scopes TEXT NOT NULL CHECK (json_valid(scopes)),  -- ["post","read","send","figures","admin"], or some of them
    room TEXT,  -- only in this room; NULL for any
    audience TEXT CHECK (audience IS NULL OR json_valid(audience)),  -- sends only to these: {"users":[…]} or {"tags":[…]}; NULL for anybody
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_expires TEXT,
    time_used TEXT,  -- last, some seconds behind
    used_from TEXT  -- the address that it came from
) STRICT;

-- Who may not come in. Ended bans stay for the record: they end by `time_ends`.
CREATE TABLE bans (
    ban_id INTEGER PRIMARY KEY AUTOINCREMENT,
    secret_code TEXT,  -- from this room; NULL: from every room
    udid TEXT,
    device_token TEXT,  -- neither udid nor device_token: nobody may come in, the room is closed
    nickname TEXT,  -- as the member was called
    reason TEXT,
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_ends TEXT,  -- NULL for never
    CHECK (secret_code IS NOT NULL OR udid IS NOT NULL OR device_token IS NOT NULL)
) STRICT;
CREATE INDEX bans_udid ON bans (udid) WHERE udid IS NOT NULL;
CREATE INDEX bans_device ON bans (device_token) WHERE device_token IS NOT NULL;
CREATE INDEX bans_room ON bans (secret_code) WHERE udid IS NULL AND device_token IS NULL;

-- Who did what to members, messages and rooms, and when.
CREATE TABLE moderation (
    moderation_id INTEGER PRIMARY KEY AUTOINCREMENT,
    action TEXT NOT NULL,  -- remove, ban, unban, delete, close, open
    secret_code TEXT,
    subject TEXT,  -- a member's nickname, a message's number
    actor TEXT NOT NULL,  -- the name of the token, or `admin`
    ip_address TEXT,
    time_done TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    -- Whose pushes are not sent any more: those of the room's messages (NULL: of every room) to this device (NULL: to all), up
    -- to this number.
    device_token TEXT,
    last_push INTEGER
) STRICT;
CREATE INDEX moderation_pushes ON moderation (last_push) WHERE last_push IS NOT NULL;

-- One row a push. Another program needs to set only device_token and payload. `message_id` is the push's own number, which the
-- log calls `entry`; the message of the chat is `chat_message`, which the log calls `message_id`.
CREATE TABLE push_queue (
    message_id INTEGER PRIMARY KEY AUTOINCREMENT,  -- the push's own number, and the order of sending
    device_token TEXT NOT NULL,
    payload ANY NOT NULL,  -- UTF-8 JSON, as text or blob; empty where `notification` has it
    time_queued TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_sent TEXT,  -- NULL until the gateway has taken it
    app TEXT NOT NULL DEFAULT 'default',
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state = 'pending' OR state = 'sent' OR state = 'failed' OR state = 'expired' OR state = 'cancelled'),
    reason TEXT,  -- of a failure, in the gateway's own words; of the last one, while it is tried again
    chat_message INTEGER REFERENCES messages (message_id) ON DELETE SET NULL,  -- NULL if another program queued it
    expires_at INTEGER,  -- UNIX seconds after which it is not worth sending; NULL for never; 0: a single attempt
    priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1),
    not_before INTEGER,  -- UNIX milliseconds; NULL for now
    attempts INTEGER NOT NULL DEFAULT 0,  -- how often it was handed to a connection that did not give it back unread
    unanswered INTEGER NOT NULL DEFAULT 0,  -- how often that connection ended without an answer to it
    time_settled TEXT,  -- when it became sent, failed, expired or cancelled
    hint TEXT,  -- what a final reason may mean, for people
    push_type TEXT,  -- in the gateway's words; NULL: what the payload says
    collapse_id TEXT,  -- of pushes with the same, the device shows one
    apns_id TEXT,  -- what Apple is to know the push by: a UUID; NULL: one that is made of message_id and queue_state.id_key
    refused INTEGER NOT NULL DEFAULT 0,  -- how often the gateway sent it back, or did not accept the credentials with it
    notification INTEGER,  -- of which it is one push; NULL for the chat's and other programs'
    device INTEGER,  -- the device it is for, where that was registered; stays when the device is gone
    bulk INTEGER NOT NULL DEFAULT 0 CHECK (bulk = 0 OR bulk = 1),  -- 1: one of very many, with lower priority
    member INTEGER,  -- of the chat's: the member it is for, in active_users or past_members
    CHECK ((state = 'sent') = (time_sent IS NOT NULL))
) STRICT;
-- What waits for its time, the scheduled apart from the repeats. What can go at once has no index: the relay knows it in
-- memory, and finds it again by its numbers, from queue_state.settled_to on. With what it takes to count them.
CREATE INDEX push_queue_waiting ON push_queue (app, (attempts > 0), not_before, state)
    WHERE state = 'pending' AND not_before IS NOT NULL;
-- What went wrong last.
CREATE INDEX push_queue_lost ON push_queue (time_settled, message_id) WHERE state = 'failed' OR state = 'expired';
-- A chat message's pushes, and the one to a device.
CREATE INDEX push_queue_chat_message ON push_queue (chat_message, device) WHERE chat_message IS NOT NULL;
-- A device gets a notification once: registered devices, and tokens that are not registered.
CREATE UNIQUE INDEX push_queue_notification ON push_queue (notification, device)
    WHERE notification IS NOT NULL AND device IS NOT NULL;
CREATE UNIQUE INDEX push_queue_notification_token ON push_queue (notification, app, device_token)
    WHERE notification IS NOT NULL AND device IS NULL;
-- What a device was sent beside the chat's.
CREATE INDEX push_queue_device ON push_queue (device, message_id) WHERE device IS NOT NULL AND chat_message IS NULL;

-- What the relay remembers of the queue as a whole. One row.
CREATE TABLE queue_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    settled_to INTEGER NOT NULL,  -- no push up to this number is due; those that wait for their time are in their index
    id_key BLOB NOT NULL CHECK (length(id_key) = 16)  -- of which the pushes' UUIDs are made
) STRICT;
INSERT INTO queue_state (id, settled_to, id_key) VALUES (1, -4611686018427387904, randomblob(16));

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

-- Signed tokens with which the relay proves itself to Apple, which accepts a new one every twenty minutes only: a restart
-- goes on with the one that is here.
CREATE TABLE provider_tokens (
    team_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    key_fingerprint TEXT NOT NULL,  -- SHA-256 of the public key
    token TEXT NOT NULL,
    time_issued TEXT NOT NULL,
    PRIMARY KEY (team_id, key_id, key_fingerprint)
) STRICT, WITHOUT ROWID;

-- What it takes to reach a browser. Its device is in `devices`, with the hash of the endpoint as token.
CREATE TABLE subscriptions (
    device_token TEXT PRIMARY KEY,  -- SHA-256 of the endpoint, lower-case hex
    endpoint TEXT NOT NULL,  -- who knows it can send to the browser: do not show it
    p256dh BLOB NOT NULL CHECK (length(p256dh) = 65),
    auth BLOB NOT NULL CHECK (length(auth) = 16),
    expires_at INTEGER,  -- UNIX seconds; NULL if the browser did not say
    time_kept TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))  -- when the browser brought it last
) STRICT, WITHOUT ROWID;

-- The key with which the relay names itself to browsers' push services. One row. Another key ends every subscription.
CREATE TABLE vapid_key (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    private_key TEXT NOT NULL  -- 32 bytes in base64url, as other servers write it
) STRICT;
