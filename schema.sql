-- PushChat Relay: the SQLite database, version 15.
--
-- Times are UTC text that SQLite's date functions read (2026-05-07 21:57:29.123), unless a column's comment says
-- otherwise. PRAGMA user_version is the schema version. The relay upgrades an older file and refuses a newer one.
-- Your scripts may use the tables active_users and push_queue: insert a device_token and a payload into push_queue, and
-- the relay delivers the push within a second.

-- The members of rooms, one row each. Leaving deletes the row.
CREATE TABLE active_users (
    member_id INTEGER PRIMARY KEY AUTOINCREMENT,  -- increases with each entry into a room
    udid TEXT NOT NULL UNIQUE CHECK (length(udid) IN (32, 40)),
    device_token TEXT NOT NULL DEFAULT '0' CHECK (device_token <> ''),  -- lower-case hex; '0' while the app has none
    nickname TEXT NOT NULL CHECK (nickname <> ''),
    secret_code TEXT NOT NULL CHECK (secret_code <> ''),
    ip_address TEXT,  -- the address of the last request
    app TEXT NOT NULL DEFAULT 'default',
    app_version TEXT,  -- this and the next two columns: reported by the client
    os_version TEXT,
    device_model TEXT,
    time_joined TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_updated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- the last join or update
    time_last_message TEXT,
    history_from INTEGER NOT NULL DEFAULT 0,  -- the newest message when the member entered the room
    fetched_to INTEGER NOT NULL DEFAULT 0,  -- the newest message that the member has fetched; some seconds behind
    time_fetched TEXT,
    shown_to INTEGER NOT NULL DEFAULT 0  -- the newest message that the member's phone has shown; some seconds behind
) STRICT;
-- The members of a room in the order of entry: the recipients of a message.
CREATE INDEX active_users_room ON active_users (secret_code, member_id);
-- The members who use a device.
CREATE INDEX active_users_device ON active_users (device_token, app) WHERE device_token <> '0';

-- Former members of rooms and how far they had read: the messages after history_from, up to fetched_to. One row for
-- each stay, kept for messages.retention.
CREATE TABLE past_members (
    member_id INTEGER PRIMARY KEY,  -- as it was in active_users
    secret_code TEXT NOT NULL,
    udid TEXT NOT NULL,
    nickname TEXT NOT NULL,
    history_from INTEGER NOT NULL,
    fetched_to INTEGER NOT NULL,
    time_fetched TEXT,
    time_left TEXT NOT NULL
) STRICT;
-- The former members who had read a message.
CREATE INDEX past_members_room ON past_members (secret_code, fetched_to);
-- How far a member who comes back had read.
CREATE INDEX past_members_udid ON past_members (udid, secret_code, fetched_to);
CREATE INDEX past_members_left ON past_members (time_left);

-- Rooms. The relay creates a row when a member joins, a program posts, or the operator changes something for the room.
-- Rooms of members that scripts insert into active_users may have no row. The relay deletes the row when the room has
-- no members, messages, bans, tokens or choices of the operator left.
CREATE TABLE rooms (
    room_id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (room_id BETWEEN 1 AND 2147483647),  -- never reused
    secret_code TEXT NOT NULL UNIQUE,
    history TEXT CHECK (history = 'joined' OR history = 'all'),  -- the operator's choice; NULL: the setting messages.history applies
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    alias TEXT,  -- the room's name as a topic of ntfy; NULL until somebody needs it
    title TEXT  -- the name that people see instead of the secret code; NULL: none
) STRICT;
CREATE UNIQUE INDEX rooms_alias ON rooms (alias) WHERE alias IS NOT NULL;

-- Devices that registered, by joining a room or directly. A gateway's response never deletes a device. It deactivates
-- the device until the app registers again.
CREATE TABLE devices (
    device_id INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT NOT NULL,
    device_token TEXT NOT NULL CHECK (length(device_token) >= 2),
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_registered TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- the last registration, join or update
    time_deactivated TEXT,  -- since when the app is gone, according to the push service; NULL while active
    deactivated_reason TEXT,
    refusals INTEGER NOT NULL DEFAULT 0,  -- pushes that were rejected because of the token, since the last registration
    user_reference TEXT,  -- the device's user in the operator's own system
    client_info TEXT,  -- set by the app; not interpreted
    server_info TEXT,  -- set by the operator's server; not interpreted
    -- This and the next three columns describe the use of the app. NULL if unknown, and always with `analytics: off`.
    app_version TEXT,
    os_version TEXT,
    device_model TEXT,
    time_seen TEXT,  -- when the device was last seen; some minutes behind
    UNIQUE (device_token, app),
    CHECK ((time_deactivated IS NULL) = (deactivated_reason IS NULL))
) STRICT;
-- The devices of an app and of a user, in the order of registration. These indexes also serve counts.
CREATE INDEX devices_app ON devices (app, device_id);
CREATE INDEX devices_user ON devices (user_reference, device_id, app, time_deactivated) WHERE user_reference IS NOT NULL;
CREATE INDEX devices_inactive ON devices (device_id, app, time_deactivated) WHERE time_deactivated IS NOT NULL;

-- The number of devices seen on a day: in total, and by the values that they last reported on that day. Kept for 90
-- days. Empty with `analytics: off`.
CREATE TABLE device_days (
    day TEXT NOT NULL,  -- in UTC: 2026-05-07
    app TEXT NOT NULL,
    kind TEXT NOT NULL,  -- app_version, os_version, device_model; empty: all devices
    value TEXT NOT NULL,  -- empty if the device reported none; ' others': all values after the first 64 of the day
    devices INTEGER NOT NULL,
    PRIMARY KEY (day, app, kind, value)
) STRICT, WITHOUT ROWID;

-- Tags, which group devices.
CREATE TABLE device_tags (
    tag TEXT NOT NULL,
    device_id INTEGER NOT NULL REFERENCES devices (device_id) ON DELETE CASCADE,
    PRIMARY KEY (tag, device_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX device_tags_device ON device_tags (device_id);

-- Notifications: requests to notify many devices. Kept for queue.retention after the last push.
CREATE TABLE notifications (
    notification_id INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT,  -- only devices of this app; NULL: of all apps
    push_type TEXT NOT NULL,
    expires_at INTEGER,  -- as in push_queue
    priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1),
    collapse_id TEXT,
    not_before INTEGER,  -- UNIX milliseconds; NULL: at once
    skip_unchanged INTEGER NOT NULL DEFAULT 0,  -- skip devices whose last push of this kind had the same content
    idempotency_key TEXT UNIQUE,
    devices INTEGER NOT NULL,  -- the number of devices, as in the response to the request
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_cancelled TEXT,
    -- Remaining work: pushes to enqueue, or to cancel after a cancellation. The relay works in steps after the
    -- response, and resumes after a crash: at item `work_item` of the audience, with the devices, members or pushes
    -- after `work_after`, up to `work_until`.
    work TEXT CHECK (work = 'queue' OR work = 'cancel'),
    work_item INTEGER NOT NULL DEFAULT 0,
    work_after INTEGER NOT NULL DEFAULT 0,
    work_until INTEGER NOT NULL DEFAULT 0,
    payload TEXT NOT NULL,  -- stored once here, not in each row of push_queue
    audience TEXT NOT NULL CHECK (json_valid(audience)),  -- {"tokens":[…]}, {"users":[…]}, {"tags":[…]}, {"room":"…"}, {"all":true}
    -- The first and the last push id of its pushes. Ids of other pushes may lie between them. NULL while there are
    -- none.
    first_push INTEGER,
    last_push INTEGER,
    token INTEGER  -- the token in api_tokens that sent it; NULL: sent by the administrator
) STRICT;
CREATE INDEX notifications_work ON notifications (notification_id) WHERE work IS NOT NULL;

-- The number of a notification's pushes by state. The relay and its commands keep it up to date; changes by scripts are
-- not counted. A separate table, because a notification's row may be long and this one changes with each push.
CREATE TABLE notification_counts (
    notification_id INTEGER PRIMARY KEY REFERENCES notifications (notification_id) ON DELETE CASCADE,
    queued INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,  -- devices that skip_unchanged left out
    sent INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Messages, kept for messages.retention.
CREATE TABLE messages (
    message_id INTEGER PRIMARY KEY AUTOINCREMENT,
    secret_code TEXT NOT NULL,
    udid TEXT NOT NULL,  -- the sender; for a program, `token:` and the id of its token, or `admin`
    nickname TEXT NOT NULL,
    text TEXT NOT NULL,
    ip_address TEXT,
    time_sent TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    idempotency_key TEXT,
    -- Set while pushes remain to be enqueued: for the members after fanout_after, up to fanout_until. The relay serves
    -- a large room in steps after the response, and resumes after a crash.
    fanout_after INTEGER,
    fanout_until INTEGER,
    title TEXT,  -- this and the columns below: for messages of programs
    link TEXT,
    priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1),  -- the priority of its pushes
    sound TEXT,  -- the sound of its pushes; empty: none
    urgent INTEGER NOT NULL DEFAULT 0 CHECK (urgent = 0 OR urgent = 1),  -- its pushes are time-sensitive
    extras TEXT CHECK (extras IS NULL OR json_valid(extras)),  -- an object of fields that are only displayed; NULL: none
    CHECK ((fanout_after IS NULL) = (fanout_until IS NULL))
) STRICT;
-- A room's history.
CREATE INDEX messages_room ON messages (secret_code, message_id);
-- A retry with the same key refers to the same message.
CREATE UNIQUE INDEX messages_idempotency ON messages (udid, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX messages_fanout ON messages (message_id) WHERE fanout_after IS NOT NULL;

-- The state of messages of programs that have a key or were changed, and of deleted messages. A row outlives its message
-- until retention.
CREATE TABLE message_states (
    message_id INTEGER PRIMARY KEY,  -- in messages, unless `change` is deleted or retention has deleted the message
    secret_code TEXT NOT NULL,
    author TEXT NOT NULL,  -- udid in messages
    message_key TEXT,  -- also after it has ended; NULL: none
    is_open INTEGER NOT NULL DEFAULT 0 CHECK (is_open = 0 OR is_open = 1),  -- 1: the next post with the key changes this message
    is_apart INTEGER NOT NULL DEFAULT 0 CHECK (is_apart = 0 OR is_apart = 1),  -- 1: another author's message had the key first
    revision INTEGER NOT NULL DEFAULT 1,
    change_id INTEGER,  -- the last change: one of the ids of `messages`, where no row has it; NULL: not changed
    change TEXT CHECK (change IN ('edited', 'cleared', 'deleted', 'resolved')),
    time_changed TEXT,
    removes INTEGER NOT NULL DEFAULT 0 CHECK (removes = 0 OR removes = 1),  -- 1: devices remove the notification
    ring_after INTEGER NOT NULL DEFAULT 0,  -- devices ring unless a push with a higher id has rung; negative: only those that had a push; 0: none asked for it
    push_due INTEGER,  -- when devices get the next pushes, in UNIX milliseconds; NULL: none remain
    push_after INTEGER NOT NULL DEFAULT 0,  -- the member after which these pushes continue
    push_again INTEGER,  -- the member before the first one that has to wait; NULL: none waits
    push_began INTEGER,  -- when devices began to get the last change, in UNIX milliseconds
    CHECK ((change_id IS NULL) = (change IS NULL)),
    CHECK ((change_id IS NULL) = (time_changed IS NULL))
) STRICT;
-- The open message of an author with a key.
CREATE UNIQUE INDEX message_states_open ON message_states (secret_code, message_key, author) WHERE is_open;
-- All messages with a key, also those whose key has ended.
CREATE INDEX message_states_key ON message_states (secret_code, message_key, author) WHERE message_key IS NOT NULL;
-- The open keys of an author, the oldest first.
CREATE INDEX message_states_author ON message_states (secret_code, author, message_id) WHERE is_open;
-- The changes in a room.
CREATE INDEX message_states_change ON message_states (secret_code, change_id) WHERE change_id IS NOT NULL;
CREATE INDEX message_states_due ON message_states (push_due) WHERE push_due IS NOT NULL;

-- The idempotency keys of the last 20 changes of each message, so that a late retry changes nothing.
CREATE TABLE message_retries (
    author TEXT NOT NULL,  -- the caller: as udid in messages
    idempotency_key TEXT NOT NULL,
    message_id INTEGER NOT NULL,  -- in message_states, or in scheduled_messages; negative: was cancelled there
    number INTEGER NOT NULL,  -- of the change, or of the message
    digest BLOB NOT NULL CHECK (length(digest) = 32),  -- SHA-256 of the request
    time_used TEXT NOT NULL,
    PRIMARY KEY (author, idempotency_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_retries_message ON message_retries (message_id, number);
CREATE INDEX message_retries_used ON message_retries (time_used);

-- Messages for later. A message that is due gets a new id in `messages`, and its row here is deleted.
CREATE TABLE scheduled_messages (
    scheduled_id INTEGER PRIMARY KEY,  -- one of the ids of `messages`, where no row has it
    secret_code TEXT NOT NULL,
    author TEXT NOT NULL,  -- udid in messages
    nickname TEXT NOT NULL,
    message_key TEXT,
    ip_address TEXT,
    text TEXT NOT NULL,  -- this and the columns to extras: as in messages
    title TEXT,
    link TEXT,
    priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1),
    sound TEXT,
    urgent INTEGER NOT NULL DEFAULT 0 CHECK (urgent = 0 OR urgent = 1),
    extras TEXT CHECK (extras IS NULL OR json_valid(extras)),
    renotify INTEGER NOT NULL DEFAULT 0 CHECK (renotify = 0 OR renotify = 1),  -- 1: devices ring also if it replaces a message
    revision INTEGER NOT NULL DEFAULT 1,
    due INTEGER NOT NULL,  -- UNIX milliseconds
    is_held INTEGER NOT NULL DEFAULT 0 CHECK (is_held = 0 OR is_held = 1),  -- 1: was due before a restore, and waits for a decision
    time_created TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX scheduled_messages_key ON scheduled_messages (secret_code, author, message_key)
    WHERE message_key IS NOT NULL;
CREATE INDEX scheduled_messages_room ON scheduled_messages (secret_code, author, scheduled_id);
CREATE INDEX scheduled_messages_due ON scheduled_messages (due) WHERE NOT is_held;

-- The messages that scheduled ones have become: for each message, the last 20.
CREATE TABLE posted_schedules (
    scheduled_id INTEGER PRIMARY KEY,  -- was in scheduled_messages
    message_id INTEGER NOT NULL  -- in message_states
) STRICT;
CREATE INDEX posted_schedules_message ON posted_schedules (message_id, scheduled_id);

-- Bearer tokens that programs use to call the relay, in addition to admin.token in the configuration.
CREATE TABLE api_tokens (
    token_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE CHECK (name <> ''),
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),  -- SHA-256; the token itself is not stored
    scopes TEXT NOT NULL CHECK (json_valid(scopes)),  -- ["post","read","send","figures","admin"], or some of them
    room TEXT,  -- valid only in this room; NULL: in any room
    audience TEXT CHECK (audience IS NULL OR json_valid(audience)),  -- may send only to these: {"users":[…]} or {"tags":[…]}; NULL: to everyone
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_expires TEXT,
    time_used TEXT,  -- the last use; some seconds behind
    used_from TEXT,  -- the address of the last use
    hook TEXT CHECK (hook IS NULL OR json_valid(hook)),  -- the webhook that the token is for: {"format":…,"secret":…,"template":…}; NULL: a token for the APIs
    unreadable TEXT CHECK (unreadable IS NULL OR json_valid(unreadable))  -- deliveries to the webhook that could not be read: {"count":…,"at":…,"reason":…}
) STRICT;

-- The alerts that the senders of webhooks last reported as firing.
CREATE TABLE hook_memory (
    token_id INTEGER NOT NULL REFERENCES api_tokens (token_id) ON DELETE CASCADE,
    hook_key TEXT NOT NULL,  -- the key of the message
    firing TEXT NOT NULL CHECK (json_valid(firing)),  -- {"id of an alert":severity,…}
    time_used TEXT NOT NULL,  -- the time of the last delivery
    PRIMARY KEY (token_id, hook_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX hook_memory_used ON hook_memory (token_id, time_used);

-- Secrets with which other apps, clients of ntfy and Gotify, read and post as a member or with a token's rights.
CREATE TABLE credentials (
    credential_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL CHECK (name <> ''),
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),  -- SHA-256; the secret itself is not stored
    member INTEGER REFERENCES active_users (member_id) ON DELETE CASCADE,  -- ends when the member leaves
    token INTEGER REFERENCES api_tokens (token_id) ON DELETE CASCADE,
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_used TEXT,  -- the last use; some seconds behind
    used_from TEXT,  -- the address of the last use
    -- This and the next column: with `registration: session`. The member's user in the operator's own system, and its
    -- last call with a valid session; up to an hour behind.
    user_reference TEXT,
    time_session TEXT,
    CHECK ((member IS NULL) <> (token IS NULL))
) STRICT;
CREATE INDEX credentials_member ON credentials (member);
CREATE INDEX credentials_token ON credentials (token);

-- Messages that a client of Gotify has deleted. Only this client does not see them.
CREATE TABLE hidden_messages (
    client TEXT NOT NULL,  -- `credential:` or `token:` and its id, or `admin`
    message_id INTEGER NOT NULL,
    PRIMARY KEY (client, message_id)
) STRICT, WITHOUT ROWID;
-- The message up to which a client of Gotify has deleted all messages.
CREATE TABLE hidden_history (
    client TEXT NOT NULL,
    room_id INTEGER NOT NULL,  -- 0: in all rooms
    hidden_to INTEGER NOT NULL,
    PRIMARY KEY (client, room_id)
) STRICT, WITHOUT ROWID;

-- Rooms that ntfy's app has polled by their alias. An upstream server tells the app on iPhones about their messages.
CREATE TABLE polled_rooms (
    room_id INTEGER PRIMARY KEY REFERENCES rooms (room_id) ON DELETE CASCADE,
    announced_to INTEGER NOT NULL,  -- the upstream server knows of messages up to this one, or need not know
    not_before INTEGER NOT NULL DEFAULT 0,  -- the next request, in UNIX milliseconds; later while a relay sends one
    attempts INTEGER NOT NULL DEFAULT 0,  -- the number of failed requests for the next message
    time_polled TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))  -- up to an hour behind
) STRICT;

-- Topics at which ntfy's app receives pushes of other apps (UnifiedPush), with their owners. They are not rooms.
CREATE TABLE unifiedpush_topics (
    topic TEXT PRIMARY KEY,  -- `up` with 12 letters and digits
    member INTEGER REFERENCES active_users (member_id) ON DELETE CASCADE,
    token INTEGER REFERENCES api_tokens (token_id) ON DELETE CASCADE,
    time_used TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- up to an hour behind
    CHECK ((member IS NULL) <> (token IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX unifiedpush_topics_member ON unifiedpush_topics (member);
CREATE INDEX unifiedpush_topics_token ON unifiedpush_topics (token);
-- Pushes that the app has not confirmed.
CREATE TABLE unifiedpush_messages (
    message_id INTEGER PRIMARY KEY,  -- one of the ids of `messages`, where no row has it
    topic TEXT NOT NULL REFERENCES unifiedpush_topics (topic) ON DELETE CASCADE,
    size INTEGER NOT NULL,
    time_sent TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    body BLOB NOT NULL
) STRICT;
CREATE INDEX unifiedpush_messages_topic ON unifiedpush_messages (topic, message_id, size);

-- Live Activities. Kept for queue.retention after the last call, and for twelve hours at least.
CREATE TABLE activities (
    activity_id INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT NOT NULL,
    tag TEXT NOT NULL,  -- its name in the operator's own system; used again only after the activity has ended
    audience TEXT CHECK (audience IS NULL OR json_valid(audience)),  -- as in notifications; NULL: the apps start it
    start TEXT NOT NULL CHECK (json_valid(start)),  -- the members of the call that started it
    newest TEXT NOT NULL CHECK (json_valid(newest)),  -- the members of the newest call
    revision INTEGER NOT NULL DEFAULT 1,  -- the number of calls
    content_time INTEGER NOT NULL,  -- UNIX seconds of the newest call; increases with each call
    started_by TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(started_by)),  -- the notifications with the start
    is_started INTEGER NOT NULL DEFAULT 0 CHECK (is_started = 0 OR is_started = 1),  -- 1: nothing is left to start
    due INTEGER,  -- since when pushes remain to be queued, in UNIX milliseconds; later while a relay queues them
    leased_until INTEGER,  -- until when a relay queues them, in UNIX milliseconds; no other relay does meanwhile
    channel_state TEXT,  -- wanted, requested, open, refused or deleted; NULL: the start asked for no channel
    channel TEXT,  -- the id of the broadcast channel at Apple
    channel_revision INTEGER NOT NULL DEFAULT 1,  -- the newest revision that needs no broadcast
    channel_failures INTEGER NOT NULL DEFAULT 0,  -- requests about the channel that failed in a row
    channel_pause INTEGER,  -- when to ask Apple again, in UNIX milliseconds
    token INTEGER,  -- the token in api_tokens that started it; NULL: started by the administrator
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_updated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_ended TEXT
) STRICT;
CREATE UNIQUE INDEX activities_active ON activities (app, tag) WHERE time_ended IS NULL;
CREATE INDEX activities_tag ON activities (app, tag, activity_id);
CREATE INDEX activities_due ON activities (due) WHERE due IS NOT NULL;
CREATE INDEX activities_updated ON activities (time_updated);

-- Tokens that apps have reported for Live Activities: for updates of one activity, or to start activities of a type.
CREATE TABLE activity_tokens (
    activity_token TEXT NOT NULL,
    app TEXT NOT NULL,
    activity INTEGER REFERENCES activities (activity_id) ON DELETE CASCADE,  -- NULL: to start activities
    attributes_type TEXT,  -- NULL: for updates
    device_token TEXT NOT NULL,  -- the device's token for other pushes, as in devices
    system_version INTEGER,  -- the major version of the device's system; NULL if unknown
    revision INTEGER NOT NULL DEFAULT 1,  -- the activity's revision that was last queued for the device
    notification INTEGER,  -- the notification with it
    time_reported TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    PRIMARY KEY (activity_token, app),
    CHECK ((activity IS NULL) <> (attributes_type IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX activity_tokens_activity ON activity_tokens (activity, activity_token) WHERE activity IS NOT NULL;
CREATE INDEX activity_tokens_device ON activity_tokens (device_token, app);
CREATE INDEX activity_tokens_reported ON activity_tokens (time_reported) WHERE activity IS NULL;

-- Bans. A ban ends at `time_ends`; its row is kept for moderation.retention after that.
CREATE TABLE bans (
    ban_id INTEGER PRIMARY KEY AUTOINCREMENT,
    secret_code TEXT,  -- from this room; NULL: from every room
    udid TEXT,
    device_token TEXT,  -- a ban without udid, device_token and address closes the room to everyone
    nickname TEXT,  -- the member's nickname at the time of the ban
    reason TEXT,
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_ends TEXT,  -- NULL: never
    address TEXT,  -- an IPv4 address, or the prefix of an IPv6 network: 2001:db8:0:1::/64
    CHECK (secret_code IS NOT NULL OR udid IS NOT NULL OR device_token IS NOT NULL OR address IS NOT NULL)
) STRICT;
CREATE INDEX bans_udid ON bans (udid) WHERE udid IS NOT NULL;
CREATE INDEX bans_device ON bans (device_token) WHERE device_token IS NOT NULL;
CREATE INDEX bans_address ON bans (address) WHERE address IS NOT NULL;
CREATE INDEX bans_room ON bans (secret_code) WHERE udid IS NULL AND device_token IS NULL AND address IS NULL;

-- The record of moderation: actions on members, messages and rooms, with actor and time.
CREATE TABLE moderation (
    moderation_id INTEGER PRIMARY KEY AUTOINCREMENT,
    action TEXT NOT NULL,  -- remove, ban, unban, delete, close, open, recode; retry, cancel, purge, pause, resume
    secret_code TEXT,
    subject TEXT,  -- a member's nickname, a message's id, a room's previous code, or the pushes of a change
    actor TEXT NOT NULL,  -- the name of the token, `admin`, or `command line`
    ip_address TEXT,
    time_done TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    -- The pushes that are no longer sent: for messages of the room (NULL: of every room), to this device (NULL: to all
    -- devices), up to this push id.
    device_token TEXT,
    last_push INTEGER
) STRICT;
CREATE INDEX moderation_pushes ON moderation (last_push) WHERE last_push IS NOT NULL;

-- Pushes, one row each. Other programs need to set only device_token and payload. `message_id` is the push id, which
-- the log calls `entry`. The chat message's id is `chat_message`, which the log calls `message_id`.
CREATE TABLE push_queue (
    message_id INTEGER PRIMARY KEY AUTOINCREMENT,  -- the push id, and the order of sending
    device_token TEXT NOT NULL,
    payload ANY NOT NULL,  -- UTF-8 JSON, as text or blob; empty if `notification` has it
    time_queued TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_sent TEXT,  -- NULL until the gateway has accepted it
    app TEXT NOT NULL DEFAULT 'default',
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state = 'pending' OR state = 'sent' OR state = 'failed' OR state = 'expired' OR state = 'cancelled'),
    reason TEXT,  -- the reason of the failure, in the gateway's words; during retries, that of the last failure
    chat_message INTEGER REFERENCES messages (message_id) ON DELETE SET NULL,  -- NULL if another program enqueued it
    expires_at INTEGER,  -- when it expires, in UNIX seconds; NULL: never; 0: a single attempt
    priority INTEGER CHECK (priority = 10 OR priority = 5 OR priority = 1),
    not_before INTEGER,  -- UNIX milliseconds; NULL: now
    attempts INTEGER NOT NULL DEFAULT 0,  -- how often a connection took it and did not return it unread
    unanswered INTEGER NOT NULL DEFAULT 0,  -- how often that connection ended without a response to it
    time_settled TEXT,  -- when it became sent, failed, expired or cancelled
    hint TEXT,  -- the likely meaning of a final reason, for people
    push_type TEXT,  -- in the gateway's words; NULL: derived from the payload
    collapse_id TEXT,  -- the device shows one of the pushes with the same value
    apns_id TEXT,  -- the UUID that identifies the push to Apple; NULL: derived from message_id and queue_state.id_key
    refused INTEGER NOT NULL DEFAULT 0,  -- how often the gateway returned it, or rejected the credentials with it
    notification INTEGER,  -- the notification that it belongs to; NULL for pushes of the chat and of other programs
    device INTEGER,  -- its device, if registered; kept when the device is deleted
    bulk INTEGER NOT NULL DEFAULT 0 CHECK (bulk = 0 OR bulk = 1),  -- 1: one of a very large send, with lower priority
    member INTEGER,  -- for pushes of the chat: the member, in active_users or past_members
    silent INTEGER NOT NULL DEFAULT 0 CHECK (silent = 0 OR silent = 1),  -- 1: replaces or removes a notification without a ring
    CHECK ((state = 'sent') = (time_sent IS NOT NULL))
) STRICT;
-- Pushes that wait for their time: scheduled pushes apart from retries. The index also serves counts. Pushes that are
-- due have no index: the relay keeps them in memory, and finds them again by push id, after queue_state.settled_to.
CREATE INDEX push_queue_waiting ON push_queue (app, (attempts > 0), not_before, state)
    WHERE state = 'pending' AND not_before IS NOT NULL;
-- The latest failures.
CREATE INDEX push_queue_lost ON push_queue (time_settled, message_id) WHERE state = 'failed' OR state = 'expired';
-- The pushes of a chat message, and the one for a device.
CREATE INDEX push_queue_chat_message ON push_queue (chat_message, device) WHERE chat_message IS NOT NULL;
-- A device gets a notification once. For registered devices, and for tokens that are not registered.
CREATE UNIQUE INDEX push_queue_notification ON push_queue (notification, device)
    WHERE notification IS NOT NULL AND device IS NOT NULL;
CREATE UNIQUE INDEX push_queue_notification_token ON push_queue (notification, app, device_token)
    WHERE notification IS NOT NULL AND device IS NULL;
-- The pushes to a device, without those of the chat.
CREATE INDEX push_queue_device ON push_queue (device, message_id) WHERE device IS NOT NULL AND chat_message IS NULL;

-- The state of the queue as a whole. One row.
CREATE TABLE queue_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    settled_to INTEGER NOT NULL,  -- no push up to this id is due; those that wait for their time are in push_queue_waiting
    id_key BLOB NOT NULL CHECK (length(id_key) = 16)  -- the UUIDs of pushes are derived from it
) STRICT;
INSERT INTO queue_state (id, settled_to, id_key) VALUES (1, -4611686018427387904, randomblob(16));

-- Webhooks, which send events to other programs. While there is one, triggers named `webhook_…` write the events in the
-- transactions that they report. The relay creates and drops the triggers.
CREATE TABLE webhooks (
    webhook_id INTEGER PRIMARY KEY AUTOINCREMENT,
    url TEXT NOT NULL,  -- keep it secret: it may contain a password of the receiver
    secret_code TEXT,  -- only events of this room; NULL: of all rooms
    token INTEGER REFERENCES api_tokens (token_id) ON DELETE CASCADE,  -- only messages of this token; NULL: all
    events TEXT NOT NULL,  -- the types of events, with a blank before and after each
    bot TEXT,  -- the name of the bot; NULL: responses are not posted
    only_mentions INTEGER NOT NULL DEFAULT 0 CHECK (only_mentions = 0 OR only_mentions = 1),
    secret BLOB NOT NULL,  -- signs the requests
    old_secret BLOB,  -- signs as well until rotates_until
    rotates_until INTEGER,  -- UNIX milliseconds
    state TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended')),
    reason TEXT,  -- why it was paused or has ended
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) STRICT;

-- The progress of each webhook. Every request changes it, so it is apart from the table that the triggers read.
CREATE TABLE webhook_progress (
    webhook_id INTEGER PRIMARY KEY REFERENCES webhooks (webhook_id) ON DELETE CASCADE,
    failures INTEGER NOT NULL DEFAULT 0,  -- requests that failed since the last success
    not_before INTEGER NOT NULL DEFAULT 0,  -- the next request, in UNIX milliseconds
    lease INTEGER NOT NULL DEFAULT 0,  -- a random number of the relay that sends an event; 0: none does
    time_succeeded TEXT
) STRICT;

-- The events of webhooks, one row for each event and webhook. Kept for webhooks.retention after the last attempt.
CREATE TABLE webhook_events (
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook_id INTEGER NOT NULL,
    type TEXT NOT NULL,
    secret_code TEXT,
    message_id INTEGER,  -- in messages; the request has the text that the message has then
    fold TEXT,  -- while no attempt was made, later events with the same value only add to `events`
    events INTEGER NOT NULL DEFAULT 1,
    details TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(details)),
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'failed', 'held')),
    attempts INTEGER NOT NULL DEFAULT 0,  -- the attempt that is under way counts
    not_before INTEGER,  -- the next attempt, in UNIX milliseconds; NULL: now
    status INTEGER,  -- of the last response
    error TEXT,  -- why there was no response
    response TEXT,  -- the beginning of its body
    duration INTEGER,  -- of the last attempt, in milliseconds
    time_created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    time_queued TEXT,  -- when somebody asked to send it again
    time_settled TEXT
) STRICT;
-- The events to send, in their order.
CREATE INDEX webhook_events_waiting ON webhook_events (webhook_id, event_id) WHERE state = 'waiting';
CREATE INDEX webhook_events_webhook ON webhook_events (webhook_id, event_id);
CREATE UNIQUE INDEX webhook_events_fold ON webhook_events (webhook_id, type, fold)
    WHERE fold IS NOT NULL AND state = 'waiting' AND attempts = 0;
CREATE INDEX webhook_events_test ON webhook_events (webhook_id, event_id)
    WHERE state = 'waiting' AND type = 'webhook.test';
CREATE INDEX webhook_events_held ON webhook_events (event_id) WHERE state = 'held';
CREATE INDEX webhook_events_settled ON webhook_events (time_settled) WHERE time_settled IS NOT NULL;

-- The apps whose pushes an operator holds back.
CREATE TABLE queue_pauses (
    app TEXT PRIMARY KEY,
    reason TEXT,
    actor TEXT NOT NULL,  -- the name of the token, `admin`, or `command line`
    time_paused TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) STRICT, WITHOUT ROWID;

-- Reports of the feedback service. The relay stores them before it acts on them, because reading clears them at the
-- service.
CREATE TABLE feedback (
    feedback_id INTEGER PRIMARY KEY AUTOINCREMENT,
    app TEXT NOT NULL,
    device_token TEXT NOT NULL,
    time_reported TEXT NOT NULL,  -- since when the app is gone, by the gateway's clock
    time_received TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    result TEXT CHECK (result IN ('deactivated', 'kept', 'unknown'))  -- NULL until the relay has acted on it
) STRICT;
CREATE INDEX feedback_open ON feedback (feedback_id) WHERE result IS NULL;

-- Signed tokens that authenticate the relay to Apple. Apple accepts a new token only every twenty minutes, so a
-- restarted relay uses the stored one.
CREATE TABLE provider_tokens (
    team_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    key_fingerprint TEXT NOT NULL,  -- SHA-256 of the public key
    token TEXT NOT NULL,
    time_issued TEXT NOT NULL,
    PRIMARY KEY (team_id, key_id, key_fingerprint)
) STRICT, WITHOUT ROWID;

-- Web Push subscriptions of browsers. A browser's device is in `devices`, with the hash of the endpoint as its token.
CREATE TABLE subscriptions (
    device_token TEXT PRIMARY KEY,  -- SHA-256 of the endpoint, lower-case hex
    endpoint TEXT NOT NULL,  -- keep it secret: with it, anyone can send to the browser
    p256dh BLOB NOT NULL CHECK (length(p256dh) = 65),
    auth BLOB NOT NULL CHECK (length(auth) = 16),
    expires_at INTEGER,  -- UNIX seconds; NULL if the browser gave none
    time_kept TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))  -- when the browser last sent it
) STRICT, WITHOUT ROWID;

-- The key that identifies the relay to browsers' push services. One row. Another key ends every subscription.
CREATE TABLE vapid_key (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    private_key TEXT NOT NULL  -- 32 bytes in base64url, the form that other servers use
) STRICT;
