package import ChatDomain

/// Messages for later: the table `scheduled_messages`.
///
/// Each call holds the room's lock, so that a scheduled message is not posted between its read and its change. Dropping
/// those of a revoked token is the exception.
extension SQLMessageChanges {
    // MARK: - Storing

    /// Stores a post for later. If the author has a scheduled message with the key, replaces its content and its time.
    func schedule(
        _ post: KeyedPost, _ program: PostRequest.Program, for due: Timestamp, _ attempt: Attempt
    ) throws -> Done {
        let (transaction, room, author) = (attempt.transaction, program.room, post.request.member)
        try ScheduledMessage.checkDue(due, now: attempt.now)
        let known = try post.key.flatMap {
            try ScheduledMessage.all(with: $0, in: room, by: author, limit: 1, transaction).first
        }
        if let known {
            let isRetried = post.request.idempotencyKey != nil
            return try replace(
                known, by: post.request.content, renotify: post.renotify, due: due, from: post.request, program,
                isRetried: isRetried, attempt)
        }
        let count = try transaction.row(
            """
            SELECT count(*) FROM (SELECT 1 FROM scheduled_messages WHERE secret_code = $1 AND author = $2 LIMIT $3) s
            """, [.text(room.text), .text(author.text), .int(ScheduledMessage.limit)])
        if try count?.int(0) ?? 0 >= ScheduledMessage.limit {
            throw ChatError(
                .conflict, "Invalid not_before: \(ScheduledMessage.limit) messages are scheduled already",
                field: "not_before")
        }
        let id = try transaction.nextMessageID()
        try RoomRow.make([room.text], now: attempt.now, transaction)
        try transaction.pipeline(
            """
            INSERT INTO scheduled_messages (scheduled_id, secret_code, author, nickname, message_key, ip_address, renotify,
                due, time_created, \(MessageContent.columns()))
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, at($9), \(MessageContent.parameters(from: 10)))
            """,
            [
                .int(id), .text(room.text), .text(author.text), .text(program.nickname.text), .optional(post.key?.text),
                .optional(post.request.client.address), .bool(post.renotify), .int(due.milliseconds),
                .time(attempt.now),
            ] + post.request.content.ofCaller.values)
        let receipt = ChangeReceipt(message: id, room: room, time: attempt.now, isNew: true, due: due)
        return Done(receipt: receipt, hasWork: true)
    }

    /// Changes a scheduled message, or cancels it.
    func change(_ known: ScheduledMessage, _ request: MessageChangeRequest, _ attempt: Attempt) throws -> Done {
        switch request.action {
        case .edit(let content, let revision, let renotify, let due):
            if let due { try ScheduledMessage.checkDue(due, now: attempt.now) }
            return try replace(
                known, by: content, renotify: renotify, due: due, revision: revision,
                isRetried: request.idempotencyKey != nil, attempt)
        case .clear:
            throw ChatError(.conflict, "The message is not posted yet; delete it, or change its content")
        case .resolve, .delete:
            try cancel(known.id, attempt.transaction)
            if let moderator = request.author.moderator, request.author.writer != known.author {
                try ScheduledMessage.recordDrop(
                    of: 1, in: known.room.text, by: moderator, at: attempt.now, attempt.transaction)
            }
            let receipt = ChangeReceipt(
                message: known.id, room: known.room, time: attempt.now, revision: known.revision)
            return Done(
                receipt: receipt,
                number: request.idempotencyKey == nil ? nil : try attempt.transaction.nextMessageID(),
                retried: MessageRetries.cancelled(known.id))
        }
    }

    /// - Parameters:
    ///   - due: The new time, which also releases a held message. `nil` to keep the time.
    ///   - post: The post that replaces the message. `nil` for another change.
    ///   - isRetried: Whether the request has an idempotency key. It then needs its own number.
    private func replace(
        _ known: ScheduledMessage, by content: MessageContent, renotify: Bool, due: Timestamp?, revision: Int? = nil,
        from post: PostRequest? = nil, _ program: PostRequest.Program? = nil, isRetried: Bool, _ attempt: Attempt
    ) throws -> Done {
        try requireRevision(revision, from: known.revision)
        let next = max(known.revision + 1, revision ?? 0)
        let count = try attempt.transaction.run(
            """
            UPDATE scheduled_messages SET nickname = $2, ip_address = coalesce($3, ip_address), renotify = $4,
                revision = $5, due = $6, is_held = $7, \(MessageContent.assignments(from: 8))
            WHERE scheduled_id = $1
            """,
            [
                .int(known.id), .text(program?.nickname.text ?? known.nickname), .optional(post?.client.address),
                .bool(renotify), .int(next), .int((due ?? known.due).milliseconds), .bool(due == nil && known.isHeld),
            ] + content.ofCaller.values)
        // The token was revoked since the read.
        guard count == 1 else { throw attempt.transaction.collision(with: "a scheduled message") }
        let receipt = ChangeReceipt(
            message: known.id, room: known.room, time: attempt.now, revision: next, due: due ?? known.due)
        return Done(
            receipt: receipt, hasWork: true, number: isRetried ? try attempt.transaction.nextMessageID() : nil)
    }

    /// Cancels the author's scheduled message with a key, because the message was posted now, resolved or deleted.
    func cancelScheduled(
        _ key: MessageKey?, in room: SecretCode, by author: MemberID, _ transaction: Database.Transaction
    ) throws {
        guard let key else { return }
        for known in try ScheduledMessage.all(with: key, in: room, by: author, limit: 1, transaction) {
            try cancel(known.id, transaction)
        }
    }

    private func cancel(_ scheduled: MessageID, _ transaction: Database.Transaction) throws {
        try transaction.pipeline("DELETE FROM scheduled_messages WHERE scheduled_id = $1", [.int(scheduled)])
        try MessageRetries.move(from: scheduled, to: MessageRetries.cancelled(scheduled), transaction)
    }

    package func scheduled(
        in room: SecretCode, author: MemberID?, after: MessageID?, limit: Int
    ) async throws(ChatError) -> Page<ScheduledMessage> {
        try await database.read { transaction in
            let page = try transaction.page(
                """
                SELECT \(ScheduledMessage.columns()) FROM scheduled_messages
                WHERE secret_code = $1 AND scheduled_id > $2 \(author == nil ? "" : "AND author = $4")
                ORDER BY scheduled_id LIMIT $3
                """,
                [.text(room.text), .int(after ?? 0), .int(limit + 1)] + (author.map { [.text($0.text)] } ?? []),
                limit: limit)
            return Page(items: try page.rows.map { try ScheduledMessage($0) }, next: page.next)
        }
    }

    // MARK: - Posting

    /// The time until the next attempt to post a message that the database has rejected.
    private static var postponement: Duration { .seconds(60) }

    /// Posts the message that has been due for the longest time.
    ///
    /// - Returns: False if none is due.
    func performScheduled() async throws(ChatError) -> Bool {
        let now = database.now()
        // The usual case needs no write transaction.
        let due = try await database.read { transaction in
            try transaction.row(Self.dueSQL, [.int(now.milliseconds)]).map { row in
                (id: try row.int(0), room: SecretCode(stored: try row.text(1)))
            }
        }
        guard let due else { return false }
        do throws(ChatError) {
            _ = try await write { [self] in try fire(due.id, in: due.room, $0) }
        } catch {
            guard error.code != .unavailable else { throw error }
            // It cannot be posted now, and must not keep those after it from being posted.
            try await database.write(as: .upkeep) { transaction in
                try transaction.pipeline(
                    "UPDATE scheduled_messages SET due = $2 WHERE scheduled_id = $1 AND due <= $3",
                    [
                        .int(due.id), .int((now + Self.postponement).milliseconds), .int(now.milliseconds),
                    ])
            }
            throw error
        }
        return true
    }

    static var dueSQL: String {
        """
        SELECT scheduled_id, secret_code FROM scheduled_messages WHERE NOT is_held AND due <= $1 ORDER BY due LIMIT 1
        """
    }

    /// Moves a scheduled message to the messages of its room. Of several relays, one deletes the row. Its content changes
    /// an open message with its key, or becomes a new one.
    private func fire(_ id: MessageID, in room: SecretCode, _ attempt: Attempt) throws -> Done {
        let transaction = attempt.transaction
        try transaction.lock(room: room)
        let row = try transaction.row(
            """
            DELETE FROM scheduled_messages WHERE scheduled_id = $1 AND secret_code = $2 AND due <= $3 AND NOT is_held
            RETURNING renotify, ip_address, \(ScheduledMessage.columns())
            """, [.int(id), .text(room.text), .int(attempt.now.milliseconds)])
        guard let row else {
            // It was posted or changed since the read.
            return Done(receipt: ChangeReceipt(message: id, room: room, time: attempt.now), hasWork: true)
        }
        let scheduled = try ScheduledMessage(row, from: 2)
        guard try mayPost(scheduled, attempt) else {
            try ScheduledMessage.recordDrop(of: 1, in: room.text, by: .schedule, at: attempt.now, transaction)
            return Done(receipt: ChangeReceipt(message: id, room: room, time: attempt.now))
        }
        let program = PostRequest.Program(nickname: Nickname(stored: scheduled.nickname), room: room)
        let request = PostRequest(
            member: scheduled.author, program: program, content: scheduled.content,
            client: ClientInfo(address: row.optionalText(1)))
        let done = try insert(KeyedPost(request, key: scheduled.key, renotify: row.bool(0)), program, attempt)
        try ScheduledMessage.remember(id, postedAs: done.receipt.message, transaction)
        try MessageRetries.move(from: id, to: done.receipt.message, transaction)
        return done
    }

    /// Whether the room is open, and the author may still post to it.
    private func mayPost(_ scheduled: ScheduledMessage, _ attempt: Attempt) throws -> Bool {
        do {
            try SQLBans.requireOpen(scheduled.room, now: attempt.now, attempt.transaction)
        } catch is ChatError {
            return false
        }
        guard let id = scheduled.author.token else { return scheduled.author == .administrator }
        let row = try attempt.transaction.row(
            "SELECT \(SQLTokenStore<Database>.columns) FROM api_tokens t WHERE t.token_id = $1", [.int(id)])
        let token = try row.flatMap { try SQLTokenStore<Database>.token($0) }
        return token.map { $0.isValid(at: attempt.now) && $0.grant.posts(to: scheduled.room) } ?? false
    }
}
