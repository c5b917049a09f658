package import ChatDomain
import Synchronization

/// Programs' messages that change: the tables `message_states` and `message_retries`. `SQLSchedules.swift` has those for
/// later.
///
/// Each call holds the room's lock (``SQLLock/room``), so that the numbers of changes grow in the order of the commits.
/// It writes only the message and its state. Devices get the change in rounds (`MessageRound.swift`), and the first
/// pushes of a new message from the fan-out.
package final class SQLMessageChanges<Database: SQLDatabase>: MessageChanges {
    let database: Database
    let settings: @Sendable () -> StoreSettings
    let queue: MessageQueue
    let ids: APNSIDs
    private let outcomes: OutcomeCounter
    private let signals = Signals()

    package init(
        database: Database, outcomes: OutcomeCounter, ids: APNSIDs, queue: MessageQueue,
        settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.outcomes = outcomes
        self.ids = ids
        self.queue = queue
        self.settings = settings
    }

    // MARK: - Transactions

    /// One attempt of a transaction.
    struct Attempt {
        let transaction: Database.Transaction
        let now: Timestamp
        /// Whether an earlier attempt conflicted with another transaction.
        let isRepeated: Bool
    }

    /// The result of a transaction.
    struct Done: Sendable {
        var receipt: ChangeReceipt
        /// A new message, whose pushes are queued now.
        var posted: MessageID?
        var ended: [FinalStateCount] = []
        var queued: [QueuedUpdates] = []
        /// Whether there may be work for ``performDue()``.
        var hasWork = false
        /// The number of the request among those for the message. `nil` for the change's or the message's.
        var number: MessageID?
        /// The message of the request's retries. `nil` for that of the receipt.
        var retried: MessageID?
    }

    func write(_ body: @escaping @Sendable (Attempt) throws -> Done) async throws(ChatError) -> ChangeReceipt {
        let isRepeated = Atomic(false)
        let done = try await database.write(as: .answerOnce) { [database] transaction in
            let repeats = isRepeated.exchange(true, ordering: .relaxed)
            return try body(Attempt(transaction: transaction, now: database.now(), isRepeated: repeats))
        } committed: { [queue] done in
            if let message = done.posted { queue.startFanout(message) }
            for queued in done.queued { queue.queued(queued) }
        }
        outcomes.add(done.ended)
        if done.hasWork { signals.send() }
        return done.receipt
    }

    /// The receipt of a request that was repeated, with the message's present state.
    private func repeated(_ message: MessageID, in room: SecretCode?, _ attempt: Attempt) throws -> Done? {
        if message < 0 {
            guard let room else { throw ChatError.notFound("message") }
            let scheduled = MessageRetries.cancelled(message)
            return Done(receipt: ChangeReceipt(message: scheduled, room: room, time: attempt.now, isRepeat: true))
        }
        if let scheduled = try ScheduledMessage.of(message, attempt.transaction) {
            return Done(
                receipt: ChangeReceipt(
                    message: message, room: scheduled.room, time: attempt.now, revision: scheduled.revision,
                    isRepeat: true, due: scheduled.due))
        }
        guard let state = try MessageState.of(message, attempt.transaction) else { return nil }
        let posted = try attempt.transaction.row(
            "SELECT ms(time_sent) FROM messages WHERE message_id = $1", [.int(message)])
        return Done(
            receipt: ChangeReceipt(
                message: message, room: state.room, change: state.change?.id,
                time: try state.change?.time ?? posted?.time(0) ?? attempt.now, revision: state.revision,
                isRepeat: true,
                isApart: state.isApart))
    }

    /// The receipt of an earlier request with the same idempotency key. `nil` if there was none.
    ///
    /// - Parameter room: The room of the request. `nil` if it names none.
    private func replay(
        _ key: String?, of author: MemberID, _ digest: [UInt8], in room: SecretCode?, _ attempt: Attempt
    ) throws -> Done? {
        let earlier = try MessageRetries.message(of: author, key, digest, attempt.transaction)
        return try earlier.flatMap { try repeated($0, in: room, attempt) }
    }

    private func replay(_ request: MessageChangeRequest, _ digest: [UInt8], _ attempt: Attempt) throws -> Done? {
        try replay(
            request.idempotencyKey, of: request.author.writer, digest, in: request.author.room, attempt)
    }

    // MARK: - Posting

    package func post(_ post: KeyedPost) async throws(ChatError) -> ChangeReceipt {
        guard let program = post.request.program else { throw .notFound("program") }
        let digest = MessageRetries.digest(
            ofPost: post.request.content, key: post.key, room: program.room, renotify: post.renotify,
            notBefore: post.notBefore)
        return try await write { [self] attempt in
            let transaction = attempt.transaction
            try transaction.lock(room: program.room)
            if let done = try replay(
                post.request.idempotencyKey, of: post.request.member, digest, in: program.room, attempt)
            {
                return done
            }
            try SQLBans.requireOpen(program.room, now: attempt.now, transaction)
            let done: Done
            if let due = post.notBefore {
                done = try schedule(post, program, for: due, attempt)
            } else {
                try cancelScheduled(post.key, in: program.room, by: post.request.member, transaction)
                done = try insert(post, program, attempt)
            }
            try remember(post.request.idempotencyKey, of: post.request.member, digest, done, attempt)
            return done
        }
    }

    private func remember(
        _ key: String?, of author: MemberID, _ digest: [UInt8], _ done: Done, _ attempt: Attempt
    ) throws {
        try MessageRetries.remember(
            of: author, key, digest, message: done.retried ?? done.receipt.message,
            number: done.number ?? done.receipt.change ?? done.receipt.message, at: attempt.now, attempt.transaction)
    }

    /// Replaces the open message with the key, or posts a new one. The room is locked.
    func insert(_ post: KeyedPost, _ program: PostRequest.Program, _ attempt: Attempt) throws -> Done {
        let (transaction, author) = (attempt.transaction, post.request.member)
        if let key = post.key,
            let state = try MessageState.open(key, in: program.room, by: author, transaction).first
        {
            if let found = try lockMessage(state.message, transaction) {
                let state = try MessageState.locked(state.message, transaction) ?? state
                let edit = Change(
                    .edited, content: post.request.content, nickname: program.nickname, rings: post.renotify)
                return try apply(edit, to: state, found, attempt)
            }
            // Another program has deleted the message.
            try transaction.pipeline(
                "UPDATE message_states SET is_open = false WHERE message_id = $1", [.int(state.message)])
        }
        return try insertNew(post, program, attempt)
    }

    private func insertNew(_ post: KeyedPost, _ program: PostRequest.Program, _ attempt: Attempt) throws -> Done {
        let (transaction, room, author) = (attempt.transaction, program.room, post.request.member)
        let isApart =
            try post.key.map { key in
                try transaction.row(
                    """
                    SELECT 1 FROM message_states WHERE secret_code = $1 AND message_key = $2 AND author <> $3 LIMIT 1
                    """, [.text(room.text), .text(key.text), .text(author.text)]) != nil
            } ?? false
        let content = post.request.content.with(
            post.request.content.extras.with(key: post.key, at: attempt.now, isApart: isApart))
        try RoomRow.make([room.text], now: attempt.now, transaction)
        let row = try transaction.row(
            """
            INSERT INTO messages (secret_code, udid, nickname, ip_address, time_sent, fanout_after, fanout_until,
                \(MessageContent.columns()))
            VALUES ($1, $2, $3, $4, at($5),
                (SELECT CASE WHEN max(member_id) IS NOT NULL THEN 0 END FROM active_users WHERE secret_code = $1),
                (SELECT max(member_id) FROM active_users WHERE secret_code = $1),
                \(MessageContent.parameters(from: 6)))
            RETURNING message_id
            """,
            [
                .text(room.text), .text(author.text), .text(program.nickname.text),
                .optional(post.request.client.address), .time(attempt.now),
            ] + content.values)
        guard let message = try row?.int(0) else { throw UnexpectedColumn(column: 0) }
        try transaction.pipeline(
            """
            INSERT INTO message_states (message_id, secret_code, author, message_key, is_open, is_apart)
            VALUES ($1, $2, $3, $4, $5, $6)
            """,
            [
                .int(message), .text(room.text), .text(author.text), .optional(post.key?.text), .bool(post.key != nil),
                .bool(isApart),
            ])
        if post.key != nil {
            try transaction.pipeline(
                """
                UPDATE message_states SET is_open = false WHERE message_id IN (
                    SELECT message_id FROM message_states WHERE secret_code = $1 AND author = $2 AND is_open
                    ORDER BY message_id DESC LIMIT 1 OFFSET $3)
                """, [.text(room.text), .text(author.text), .int(MessageChangeLimits.openKeys)])
        }
        transaction.announcement.messages.insert(room.text)
        transaction.announcement.last = message
        transaction.announcement.jobs = true
        let receipt = ChangeReceipt(
            message: message, room: room, time: attempt.now, isNew: true, isApart: isApart)
        return Done(receipt: receipt, posted: message)
    }

    // MARK: - Changing

    package func change(_ request: MessageChangeRequest) async throws(ChatError) -> ChangeReceipt {
        let digest = MessageRetries.digest(of: request)
        return try await write { [self] attempt in
            if let done = try replay(request, digest, attempt) { return done }
            let done = try perform(request, digest, attempt)
            if done.receipt.isRepeat { return done }
            try remember(request.idempotencyKey, of: request.author.writer, digest, done, attempt)
            return done
        }
    }

    private func perform(_ request: MessageChangeRequest, _ digest: [UInt8], _ attempt: Attempt) throws -> Done {
        let transaction = attempt.transaction
        let room = try self.room(of: request.message, for: request.author, transaction)
        try transaction.lock(room: room)
        // The same request may have waited for the room as well.
        if let done = try replay(request, digest, attempt) { return done }
        let named: MessageState
        switch try target(of: request.message, in: room, for: request.author, isForLater: request.setsTime, transaction)
        {
        case .message(let found): named = found
        case .scheduled(let scheduled): return try change(scheduled, request, attempt)
        }
        guard let found = try lockMessage(named.message, transaction) else { throw ChatError.notFound("message") }
        let state = try MessageState.locked(named.message, transaction) ?? named
        guard found.record.room == room else { throw transaction.collision(with: "a room's code") }
        if request.endsKey, state.isOpen { try cancelScheduled(state.key, in: room, by: state.author, transaction) }
        switch request.action {
        case .delete:
            if let moderator = request.author.moderator, request.author.writer != state.author {
                try SQLModeration<Database>.record(
                    .delete, room: room.text, subject: "\(state.message)", by: moderator, at: attempt.now, transaction)
            }
            let result = try MessageDeletion.delete(
                found.record, isRepeated: attempt.isRepeated, now: attempt.now, settings(),
                queue, transaction)
            let receipt = ChangeReceipt(
                message: state.message, room: room, change: result.number, time: result.time, revision: state.revision,
                isApart: state.isApart)
            return Done(receipt: receipt, ended: result.ended, queued: result.queued)
        case .edit(let content, let revision, let renotify, let notBefore):
            guard notBefore == nil else { throw ChatError.invalid("not_before", "the message is posted already") }
            return try apply(
                Change(.edited, content: content, revision: revision, rings: renotify), to: state, found, attempt)
        case .clear:
            return try apply(Change(.cleared), to: state, found, attempt)
        case .resolve(let content, let renotify):
            return try apply(
                Change(.resolved, content: content, rings: content != nil && renotify), to: state, found, attempt)
        }
    }

    /// A change of a message's text or notification.
    private struct Change {
        let kind: MessageChange.Kind
        /// The new content. `nil` if the text stays, and devices remove the notification.
        let content: MessageContent?
        let nickname: Nickname?
        let revision: Int?
        let rings: Bool

        init(
            _ kind: MessageChange.Kind, content: MessageContent? = nil, nickname: Nickname? = nil, revision: Int? = nil,
            rings: Bool = false
        ) {
            self.kind = kind
            self.content = content
            self.nickname = nickname
            self.revision = revision
            self.rings = rings
        }

        var removes: Bool { content == nil }
    }

    /// Changes a message whose room and row are locked.
    private func apply(
        _ change: Change, to state: MessageState, _ found: LockedMessage, _ attempt: Attempt
    ) throws -> Done {
        let (transaction, message, old) = (attempt.transaction, state.message, found.record.message)
        guard state.author.isProgram else {
            throw ChatError(.forbidden, "Only messages of programs can be changed")
        }
        if change.content != nil { try SQLBans.requireOpen(state.room, now: attempt.now, transaction) }
        try requireRevision(change.revision, from: state.revision)
        let time = MessageState.time(ofChangeAt: attempt.now, after: state, of: old)
        let revision = change.removes ? state.revision : max(state.revision + 1, change.revision ?? 0)
        let number = try transaction.nextMessageID()
        let ended = try PushWithdrawal.withdraw(
            message, isDeletion: false, isRepeated: attempt.isRepeated, now: attempt.now, transaction)
        if change.content != nil, let key = found.idempotencyKey, state.revision == 1 {
            // A late retry of the post finds the first content here.
            try MessageRetries.remember(
                of: state.author, key, MessageRetries.digest(ofPost: old.content, key: nil, room: state.room),
                message: message, number: message, at: attempt.now, isNew: false, transaction)
        }
        let content = (change.content ?? old.content).with(
            (change.content ?? old.content).extras.with(
                key: state.key, revision: revision, change: change.kind, at: time, isApart: state.isApart,
                removes: change.removes))
        try transaction.pipeline(
            """
            UPDATE messages SET \(MessageContent.assignments(from: 3)), nickname = $2 WHERE message_id = $1
            """, [.int(message), .text(change.nickname?.text ?? old.nickname)] + content.values)
        let ringAfter = try self.ringAfter(change, state, transaction)
        try store(
            change, number: number, revision: revision, ringAfter: ringAfter,
            due: due(change, after: state, attempt.now),
            at: time, state, transaction)
        transaction.announcement.messages.insert(state.room.text)
        transaction.announcement.last = number
        let receipt = ChangeReceipt(
            message: message, room: state.room, change: number, time: time, revision: revision, isApart: state.isApart)
        return Done(receipt: receipt, ended: ended, hasWork: true)
    }

    /// Refuses a change to a revision that is lower than the message's own.
    func requireRevision(_ revision: Int?, from stored: Int) throws {
        if let revision, stored > revision {
            throw ChatError(.conflict, "Invalid revision: the message has revision \(stored)", field: "revision")
        }
    }

    /// The time at which devices get a change. A silent one waits until the last pushes are old enough, so that the newest
    /// of several wins.
    private func due(_ change: Change, after state: MessageState, _ now: Timestamp) -> Timestamp {
        if change.rings { return now }
        let next = state.pushBegan.map { $0 + MessageChangeLimits.spacing } ?? now
        // The clock may have been set back.
        let due = min(max(now, next), now + MessageChangeLimits.spacing)
        // A ring that devices have not got yet does not wait.
        return state.ringAfter > 0 ? min(state.pushDue ?? due, due) : due
    }

    /// The value of `ring_after`. A later silent change keeps it, because a device may not have got the ring.
    private func ringAfter(
        _ change: Change, _ state: MessageState, _ transaction: Database.Transaction
    ) throws -> Int64 {
        if change.removes { return 0 }
        guard change.rings else {
            // After the ring's round, members that join do not ring any more.
            return state.pushDue == nil ? -abs(state.ringAfter) : state.ringAfter
        }
        let last = try transaction.row("SELECT coalesce(\(transaction.dialect.lastID(of: "push_queue")), 0)")
        return max(1, try last?.int(0) ?? 0)
    }

    private func store(
        _ change: Change, number: MessageID, revision: Int, ringAfter: Int64, due: Timestamp, at time: Timestamp,
        _ state: MessageState, _ transaction: Database.Transaction
    ) throws {
        try transaction.pipeline(
            """
            INSERT INTO message_states (message_id, secret_code, author, revision, change_id, change, time_changed, removes,
                ring_after, push_due)
            VALUES ($1, $2, $3, $4, $5, $6, at($7), $8, $9, $10)
            ON CONFLICT (message_id) DO UPDATE SET revision = excluded.revision, change_id = excluded.change_id,
                change = excluded.change, time_changed = excluded.time_changed, removes = excluded.removes,
                ring_after = excluded.ring_after, push_due = excluded.push_due, push_after = 0, push_again = NULL,
                is_open = message_states.is_open AND $11
            """,
            [
                .int(state.message), .text(state.room.text), .text(state.author.text), .int(revision), .int(number),
                .text(change.kind.rawValue), .time(time), .bool(change.removes), .int(ringAfter),
                .int(due.milliseconds), .bool(change.kind != .resolved),
            ])
    }

    // MARK: - Finding

    /// A message whose row is locked until the end of the transaction.
    private struct LockedMessage {
        let record: MessageRecord
        let idempotencyKey: String?
    }

    /// Locks a message's row, which waits for a background step to end.
    private func lockMessage(_ message: MessageID, _ transaction: Database.Transaction) throws -> LockedMessage? {
        try transaction.row(
            """
            SELECT idempotency_key, \(MessageRecord.columns()) FROM messages
            WHERE message_id = $1 \(transaction.dialect.lockedToDelete("messages"))
            """, [.int(message)]
        ).map { LockedMessage(record: try MessageRecord($0, from: 1), idempotencyKey: $0.optionalText(0)) }
    }

    /// The room of a message that a caller names.
    private func room(
        of message: MessageReference, for author: ChangeAuthor, _ transaction: Database.Transaction
    ) throws -> SecretCode {
        guard case .id(let id) = message else {
            guard let room = author.room else { throw ChatError.missing("room") }
            return room
        }
        let row = try transaction.row(
            """
            SELECT secret_code FROM messages
            WHERE message_id = $1 OR message_id = (SELECT message_id FROM posted_schedules WHERE scheduled_id = $1)
            UNION ALL
            SELECT secret_code FROM scheduled_messages WHERE scheduled_id = $1
            """, [.int(id)])
        guard let room = try row.map({ SecretCode(stored: try $0.text(0)) }), author.room == nil || author.room == room
        else { throw ChatError.notFound("message") }
        return room
    }

    /// A message, or a scheduled one.
    private enum Target {
        case message(MessageState)
        case scheduled(ScheduledMessage)

        var id: MessageID {
            switch self {
            case .message(let state): state.message
            case .scheduled(let scheduled): scheduled.id
            }
        }

        var author: MemberID {
            switch self {
            case .message(let state): state.author
            case .scheduled(let scheduled): scheduled.author
            }
        }

        var room: SecretCode {
            switch self {
            case .message(let state): state.room
            case .scheduled(let scheduled): scheduled.room
            }
        }
    }

    /// The message in the room that a caller names and may change.
    ///
    /// - Parameter isForLater: Whether a key names the scheduled message if there are both. It names the open one otherwise.
    private func target(
        of message: MessageReference, in room: SecretCode, for author: ChangeAuthor, isForLater: Bool = false,
        _ transaction: Database.Transaction
    ) throws -> Target {
        switch message {
        case .key(let key):
            func targets(by author: MemberID?) throws -> [Target] {
                try self.targets(of: key, in: room, by: author, isForLater: isForLater, transaction)
            }
            if let own = try targets(by: author.writer).first { return own }
            let others = author.isAdmin ? try targets(by: nil) : []
            guard let other = others.first else { throw ChatError.notFound("message") }
            guard others.count == 1 else {
                var error = ChatError(
                    .conflict, "Several programs have a message with this key; name one by its id", field: "key")
                error.ids = others.map(\.id)
                throw error
            }
            return other
        case .id(let id):
            let target = try self.target(id, in: room, transaction)
            guard let target, author.isAdmin || target.author == author.writer else {
                throw ChatError.notFound("message")
            }
            return target
        }
    }

    /// - Throws: A collision if the room got a new code while the caller waited for its lock.
    private func target(
        _ id: MessageID, in room: SecretCode, _ transaction: Database.Transaction
    ) throws -> Target? {
        let row = try transaction.row(
            "SELECT \(MessageRecord.columns("m.")) FROM messages m WHERE m.message_id = $1", [.int(id)])
        let target: Target?
        if let record = try row.map({ try MessageRecord($0) }) {
            target = .message(try MessageState.of(id, transaction) ?? MessageState(unchanged: record))
        } else if let scheduled = try ScheduledMessage.of(id, transaction) {
            target = .scheduled(scheduled)
        } else {
            target = try transaction.row(
                """
                SELECT \(MessageState.columns()) FROM message_states
                WHERE message_id = (SELECT message_id FROM posted_schedules WHERE scheduled_id = $1)
                """, [.int(id)]
            ).map { .message(try MessageState($0)) }
        }
        if let target, target.room != room { throw transaction.collision(with: "a room's code") }
        return target
    }

    /// The messages with a key, one for each author.
    private func targets(
        of key: MessageKey, in room: SecretCode, by author: MemberID?, isForLater: Bool,
        _ transaction: Database.Transaction
    ) throws -> [Target] {
        let open = try MessageState.open(key, in: room, by: author, transaction).map { Target.message($0) }
        let scheduled = try ScheduledMessage.all(
            with: key, in: room, by: author, limit: MessageState.mostAuthors, transaction
        ).map { Target.scheduled($0) }
        let (first, second) = isForLater ? (scheduled, open) : (open, scheduled)
        let authors = Set(first.map(\.author))
        return first + second.filter { !authors.contains($0.author) }
    }

    package func find(
        _ message: MessageReference, for author: ChangeAuthor
    ) async throws(ChatError) -> FoundMessage {
        try await database.read { [self] transaction in
            let room = try self.room(of: message, for: author, transaction)
            switch try target(of: message, in: room, for: author, transaction) {
            case .scheduled(let scheduled): return .scheduled(scheduled)
            case .message(let state):
                let row = try transaction.row(
                    "SELECT \(MessageRecord.columns()) FROM messages WHERE message_id = $1", [.int(state.message)])
                guard let row else { throw ChatError.notFound("message") }
                return .message(try MessageRecord(row), state.change)
            }
        }
    }

    // MARK: - Due work

    package func performDue() async throws(ChatError) -> Bool {
        if try await performScheduled() { return true }
        return try await performRound()
    }

    package func nextDue() async throws(ChatError) -> Timestamp? {
        try await database.read { transaction in
            let row = try transaction.row(
                """
                SELECT (SELECT min(push_due) FROM message_states WHERE push_due IS NOT NULL),
                    (SELECT min(due) FROM scheduled_messages WHERE NOT is_held)
                """)
            return try row.flatMap { row in
                [try row.optionalTime(0), try row.optionalTime(1)].compactMap(\.self).min()
            }
        }
    }

    package func announceWork(to signal: AsyncStream<Void>.Continuation) { signals.add(signal, of: .default) }
}

extension MessageChangeRequest {
    /// Whether the request sets the time of a scheduled message.
    fileprivate var setsTime: Bool {
        if case .edit(_, _, _, .some) = action { true } else { false }
    }

    /// Whether the next post with the message's key is a new message.
    fileprivate var endsKey: Bool {
        switch action {
        case .resolve, .delete: true
        case .edit, .clear: false
        }
    }
}

/// The parts of SQLite's queue that changes of messages use. PostgreSQL's relays find everything in the database.
package struct MessageQueue: Sendable {
    /// Starts the fan-out of a new message.
    package let startFanout: @Sendable (MessageID) -> Void
    /// Whether a dispatcher has leased a push.
    package let isInFlight: @Sendable (Int64) -> Bool
    /// Whether an earlier process may have sent a push whose outcome is not recorded.
    package let isInDoubt: @Sendable (Int64) -> Bool
    /// Adds pushes that were committed. Called on the writer's thread.
    package let queued: @Sendable (QueuedUpdates) -> Void

    package init(
        startFanout: @escaping @Sendable (MessageID) -> Void, isInFlight: @escaping @Sendable (Int64) -> Bool,
        isInDoubt: @escaping @Sendable (Int64) -> Bool,
        queued: @escaping @Sendable (QueuedUpdates) -> Void
    ) {
        self.startFanout = startFanout
        self.isInFlight = isInFlight
        self.isInDoubt = isInDoubt
        self.queued = queued
    }

    package static let inDatabase = MessageQueue(
        startFanout: { _ in }, isInFlight: { _ in false }, isInDoubt: { _ in false }, queued: { _ in })
}
