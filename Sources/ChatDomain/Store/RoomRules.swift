/// Sizes of rooms that every store uses.
package enum RoomSize {
    /// The maximum number of members in a room. Each message costs one push per member, and anyone can invent members.
    package static let largest = 100_000
    /// The maximum number of members, without the writer, whose pushes are queued before the response. With more
    /// members, the rows would cost more than the message.
    package static let small = 8
    /// The maximum number of members that one step looks at when it queues pushes after the response. A step takes a
    /// few milliseconds of writing.
    package static let step = 500
}

/// Rules for the table `rooms`.
package enum RoomRules {
    /// The number of rows in `rooms` that one step of retention looks at.
    package static let step = 500
    /// The maximum number of stored messages with which a room can still get a new code. They move in one transaction,
    /// which takes about two seconds.
    package static let mostMoved = 100_000
    /// The tables whose rows move to a new code, with the column that contains the code.
    package static let moved = [
        ("active_users", "secret_code"), ("past_members", "secret_code"), ("messages", "secret_code"),
        ("message_states", "secret_code"), ("scheduled_messages", "secret_code"), ("webhooks", "secret_code"),
        ("api_tokens", "room"), ("bans", "secret_code"), ("moderation", "secret_code"), ("rooms", "secret_code"),
    ]

    /// Whether any data of a room are stored, in SQL for both databases. Bans and tokens alone do not make a room.
    package static func exists(_ room: String) -> String {
        let tables = ["active_users", "past_members", "messages", "scheduled_messages", "rooms"]
        return "("
            + tables.map { "EXISTS (SELECT 1 FROM \($0) WHERE secret_code = \(room))" }.joined(separator: " OR ") + ")"
    }

    /// A condition on `active_users`, in SQL for both databases: whether a ban in force keeps the member out of the
    /// room.
    ///
    /// - Parameters:
    ///   - room: An expression for the room.
    ///   - now: An expression for the time.
    ///   - addresses: An expression for the list of the members' banned addresses.
    package static func isBanned(room: String, now: String, addresses: String) -> String {
        let isInForce =
            "(b.secret_code IS NULL OR b.secret_code = \(room)) AND (b.time_ends IS NULL OR b.time_ends > \(now))"
        return """
            secret_code = \(room) AND (
                EXISTS (SELECT 1 FROM bans b WHERE b.udid = active_users.udid AND \(isInForce))
                OR device_token <> '0' AND EXISTS (
                    SELECT 1 FROM bans b WHERE b.device_token = active_users.device_token AND \(isInForce))
                OR ip_address IN \(addresses))
            """
    }

    /// A condition on `rooms`, in SQL for both databases: whether no data of the room remain.
    package static let isUnused = """
        history IS NULL AND title IS NULL
            AND NOT EXISTS (SELECT 1 FROM active_users u WHERE u.secret_code = rooms.secret_code)
            AND NOT EXISTS (SELECT 1 FROM past_members p WHERE p.secret_code = rooms.secret_code)
            AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.secret_code = rooms.secret_code)
            AND NOT EXISTS (SELECT 1 FROM scheduled_messages s WHERE s.secret_code = rooms.secret_code)
            AND secret_code NOT IN (SELECT b.secret_code FROM bans b WHERE b.secret_code IS NOT NULL)
            AND secret_code NOT IN (SELECT t.room FROM api_tokens t WHERE t.room IS NOT NULL)
            AND secret_code NOT IN (SELECT w.secret_code FROM webhooks w WHERE w.secret_code IS NOT NULL)
        """
}

extension StoreSettings {
    /// The UNIX time in seconds at which a chat push of `now` expires. `nil` if it never expires.
    package func expiration(at now: Timestamp) -> Int64? { expiration.map { (now + $0).seconds } }
}

extension ChatError {
    /// An `Idempotency-Key` was used before, with another request.
    package static var idempotencyConflict: ChatError {
        ChatError(
            .idempotencyConflict, "Idempotency-Key was used before, for another message", field: "Idempotency-Key")
    }

    /// The room accepts no further members.
    package static var roomIsFull: ChatError {
        .invalid("code", "this room has \(RoomSize.largest) members and accepts no more")
    }

    /// The member may not enter a room.
    ///
    /// - Parameter reason: The reason of the ban, for a closed room.
    package static func banned(
        isClosed: Bool, reason: String? = nil, isEverywhere: Bool = false, until end: Timestamp?
    ) -> ChatError {
        if isClosed, reason == hasNewCode {
            return ChatError(.forbidden, "This room has a new code: ask its members or the operator for it")
        }
        let what =
            isClosed ? "This room is closed" : "You are banned from " + (isEverywhere ? "every room" : "this room")
        return ChatError(.forbidden, what + (end.map { " until \($0.rfc3339)" } ?? ""))
    }

    /// The reason of the ban that closes a room's old code.
    package static let hasNewCode = "the room has a new code"

    /// The reason why a room cannot get another code. `nil` if it can.
    ///
    /// - Parameters:
    ///   - exists: Whether any data of the room are stored.
    ///   - isClosed: Whether the room is closed.
    ///   - messages: The number of the room's messages and past members, counted up to one more than
    ///     ``RoomRules/mostMoved``.
    ///   - isUsed: Whether any data of the new code are stored.
    ///   - isCodeClosed: Whether the new code is closed.
    package static func cannotMove(
        exists: Bool, isClosed: Bool, messages: Int, isUsed: Bool, isCodeClosed: Bool
    ) -> ChatError? {
        if isClosed { return ChatError(.conflict, "Invalid room: it is closed; open it first", field: "room") }
        if !exists { return .notFound("room") }
        if messages > RoomRules.mostMoved {
            return ChatError(
                .conflict,
                "Invalid room: more than \(RoomRules.mostMoved) messages are stored; shorten messages.retention",
                field: "room")
        }
        if isCodeClosed { return ChatError(.conflict, "Invalid code: it is closed; choose another", field: "code") }
        if isUsed { return ChatError(.conflict, "Invalid code: another room has it; choose another", field: "code") }
        return nil
    }

    /// A member requests the receipt or the deletion of a message that it did not write, or did not write in this room.
    package static var notOwnMessage: ChatError {
        ChatError(.notFound, "You have written no such message in this room", field: "id")
    }
}

/// A message that was posted with an idempotency key.
package struct EarlierPost: Sendable, Hashable {
    package let message: MessageID
    private let time: Timestamp
    private let room: String
    private let content: MessageContent

    package init(message: MessageID, time: Timestamp, room: String, content: MessageContent) {
        self.message = message
        self.time = time
        self.room = room
        self.content = content
    }

    /// The response to a request with the same key.
    ///
    /// - Parameter room: The room that the request is for.
    package func receipt(for request: PostRequest, to room: String) throws(ChatError) -> PostReceipt {
        guard room == self.room, request.content == content.ofCaller else { throw .idempotencyConflict }
        return receipt
    }

    /// The response to a repeated request.
    package var receipt: PostReceipt { PostReceipt(message: message, time: time, isRepeat: true, queued: 0) }

    /// Whether the request is for this message, but does not have the content that the message has now. If the message
    /// was changed since, the request may have the first content.
    package func mayHaveFirstContent(_ request: PostRequest, to room: String) -> Bool {
        room == self.room && content.extras.revision != nil && request.content != content.ofCaller
    }
}
