import ChatDomain

/// The deletion of a message: by its member, its program, or the operator.
enum MessageDeletion {
    /// The time after which devices remove the notification of a push that a gateway has during the deletion.
    private static let inFlightWait = Duration.seconds(30)
    /// The maximum number of pushes of a message whose notifications are removed. All of them are queued in the
    /// transaction of the deletion.
    private static let mostRemoved = 5000

    struct Result: Sendable {
        /// The number of the change.
        let number: MessageID
        let time: Timestamp
        let ended: [FinalStateCount]
        let queued: [QueuedUpdates]
    }

    /// Deletes a message and its text, withdraws its pushes, and leaves the change in `message_states`. For the largest
    /// room that takes a few seconds, in one transaction, so that no later request for the message succeeds.
    ///
    /// The caller holds the room's lock, and that of the message's row, which waits for a background step to end.
    static func delete(
        _ record: MessageRecord, isRepeated: Bool, now: Timestamp, _ settings: StoreSettings,
        _ queue: MessageQueue, _ transaction: some SQLTransaction
    ) throws -> Result {
        let (message, room) = (record.message.id, record.room)
        let time = MessageState.time(
            ofChangeAt: now, after: try MessageState.locked(message, transaction), of: record.message)
        if isRepeated { try PushWithdrawal.makeSettlementsWait(transaction) }
        let number = try transaction.nextMessageID()
        let queued = try queueRemovals(of: record, now: now, settings, queue, transaction)
        let ended = try PushWithdrawal.withdraw(
            message, isDeletion: true, isRepeated: false, now: now, transaction)
        // The next step of the fan-out no longer finds the message, and ends.
        try transaction.pipeline("DELETE FROM messages WHERE message_id = $1", [.int(message)])
        try transaction.pipeline(
            """
            INSERT INTO message_states (message_id, secret_code, author, change_id, change, time_changed)
            VALUES ($1, $2, $3, $4, 'deleted', at($5))
            ON CONFLICT (message_id) DO UPDATE SET change_id = excluded.change_id, change = excluded.change,
                time_changed = excluded.time_changed, is_open = false, push_due = NULL, push_after = 0, push_again = NULL
            """,
            [.int(message), .text(room.text), .text(record.message.sender.text), .int(number), .time(time)])
        transaction.announcement.deleted[room.text, default: []].append(message)
        transaction.announcement.messages.insert(room.text)
        transaction.announcement.last = number
        return Result(number: number, time: time, ended: ended, queued: queued)
    }

    /// A condition: a device may show the push. A cancelled one may have been sent before its relay was killed.
    private static let mayBeShown =
        "(state = 'sent' OR state = 'pending' OR state = 'cancelled' AND reason = '\(PushLifeCycle.messageReplaced)')"

    /// Queues pushes that remove the notification, for devices that have it and can remove it without showing something.
    /// It is done here, because SQLite's rows forget the message.
    private static func queueRemovals(
        of record: MessageRecord, now: Timestamp, _ settings: StoreSettings, _ queue: MessageQueue,
        _ transaction: some SQLTransaction
    ) throws -> [QueuedUpdates] {
        let dialect = transaction.dialect
        try transaction.useIndexes()
        let message = SQLValue.int(record.message.id)
        let apps = try transaction.rows(
            "SELECT DISTINCT app FROM push_queue WHERE chat_message = $1 AND \(mayBeShown)", [message]
        ).map { try $0.text(0) }
        let alert = ChatAlert(of: record)
        var updates: [String: PushUpdate] = [:]
        for app in apps {
            updates[app] = try? settings.format(settings.current(app)).update(.remove, of: alert, endpoint: nil)
        }
        guard !updates.isEmpty else { return [] }
        let (isLeased, isInDoubt) =
            dialect == .postgres ? ("lease_start IS NOT NULL", "in_doubt") : ("false", "false")
        if dialect == .postgres {
            // No relay may lease a push between this read and its cancellation.
            try transaction.pipeline(
                "SELECT 1 FROM push_queue_due WHERE chat_message = $1 AND state = 'pending' LIMIT $2 FOR UPDATE",
                [message, .int(mostRemoved + 1)])
        }
        let rows = try transaction.rows(
            """
            SELECT message_id, device_token, app, device, member, state, \(isLeased), \(isInDoubt) FROM push_queue
            WHERE chat_message = $1 AND \(mayBeShown) AND \(dialect.isAny("app", of: "$2", "text"))
            ORDER BY message_id LIMIT $3
            """, [message, .texts(updates.keys.sorted()), .int(mostRemoved + 1)])
        guard rows.count <= mostRemoved else { return [] }
        var (shown, inFlight) = ([String: UpdatePush](), [String: UpdatePush]())
        for row in rows {
            let (token, app) = (try row.text(1), try row.text(2))
            guard let update = updates[app] else { continue }
            let push = UpdatePush(
                token: token, app: settings.current(app), device: try row.optionalInt(3),
                member: try row.optionalInt(4), update: update, isSilent: true, collapseID: nil)
            let (id, state) = (try row.int(0), PushState(rawValue: try row.text(5)))
            let isInDoubt = try row.bool(7) || queue.isInDoubt(id)
            // SQLite's dispatchers may lease a push until the commit.
            let mayBeLeased = try dialect == .sqlite || row.bool(6)
            if state == .pending && (mayBeLeased || isInDoubt) || state == .cancelled && queue.isInFlight(id) {
                inFlight[app + "\n" + token] = push
            } else if state == .sent || state == .cancelled && isInDoubt {
                shown[app + "\n" + token] = push
            }
        }
        for device in inFlight.keys { shown[device] = nil }
        func insert(_ pushes: [String: UpdatePush], notBefore: Timestamp?) throws -> QueuedUpdates? {
            try UpdatePush.insert(
                pushes.sorted { $0.key < $1.key }.map(\.value), of: nil, notBefore: notBefore, now: now, settings,
                transaction)
        }
        return [
            try insert(shown, notBefore: nil), try insert(inFlight, notBefore: now + inFlightWait),
        ].compactMap(\.self)
    }
}
