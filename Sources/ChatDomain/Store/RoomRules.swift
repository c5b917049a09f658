/// Sizes of rooms by which every store goes.
package enum RoomSize {
    /// Members of one room: each message costs as many pushes, and anyone can invent members.
    package static let largest = 100_000
    /// Members beside the writer that are served before the answer. Above that the rows would cost more than the message.
    package static let small = 8
    /// Members that one step looks at behind the answer: some milliseconds of writing.
    package static let step = 500
}

/// Rules for the table `rooms`.
package enum RoomRules {
    /// Rows of `rooms` that one step of retention looks at.
    package static let step = 500
    /// Stored messages with which a room can still get a new code. They move in one transaction, in about two seconds.
    package static let mostMoved = 100_000
    /// The tables whose rows move to a new code, with the column that has it.
    package static let moved = [
        ("active_users", "secret_code"), ("past_members", "secret_code"), ("messages", "secret_code"),
        ("api_tokens", "room"), ("bans", "secret_code"), ("moderation", "secret_code"), ("rooms", "secret_code"),
    ]

    /// Whether anything of a room is stored, in SQL of both databases. Bans and tokens alone make no room.
    package static func exists(_ room: String) -> String {
        let tables = ["active_users", "past_members", "messages", "rooms"]
        return "("
            + tables.map { "EXISTS (SELECT 1 FROM \($0) WHERE secret_code = \(room))" }.joined(separator: " OR ") + ")"
    }

    /// A condition on `active_users`, in SQL of both databases: a ban in force keeps the member out of the room.
    /// - Parameters: expressions for the room, the time, and the list of the members' addresses that are banned.
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

    /// A condition on `rooms`, in SQL of both databases: nothing of the room is left.
    package static let isUnused = """
        history IS NULL
            AND NOT EXISTS (SELECT 1 FROM active_users u WHERE u.secret_code = rooms.secret_code)
            AND NOT EXISTS (SELECT 1 FROM past_members p WHERE p.secret_code = rooms.secret_code)
            AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.secret_code = rooms.secret_code)
            AND secret_code NOT IN (SELECT b.secret_code FROM bans b WHERE b.secret_code IS NOT NULL)
            AND secret_code NOT IN (SELECT t.room FROM api_tokens t WHERE t.room IS NOT NULL)
        """
}

extension StoreSettings {
    /// Until when a chat push of now is worth sending: UNIX seconds; nil for ever.
    package func expiration(at now: Timestamp) -> Int64? { expiration.map { (now + $0).seconds } }
}

extension ChatError {
    /// The room takes nobody more.
    package static var roomIsFull: ChatError {
        .invalid("code", "this room has \(RoomSize.largest) members and takes no more")
    }

    /// Somebody may not come into a room.
    /// - Parameter reason: of a room that is closed.
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

    /// Why a room cannot get another code, by what is found in the store; `nil` where it can.
    /// - Parameters:
    ///   - exists: whether anything of the room is stored.
    ///   - isClosed: whether the room is closed.
    ///   - messages: the room's messages and past members, up to one more than ``RoomRules/mostMoved``.
    ///   - isUsed: whether anything of the new code is stored.
    ///   - isCodeClosed: whether the new code is closed.
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

    /// A member asks for the receipt of what it has not written, or not in this room.
    package static var notOwnMessage: ChatError {
        ChatError(.notFound, "You have written no such message in this room", field: "id")
    }
}

/// A message that was posted with a key.
package struct EarlierPost: Sendable, Hashable {
    private let message: MessageID
    private let text: String
    private let code: String
    private let title: String?
    private let link: String?

    /// As the table `messages` has it.
    package init(message: MessageID, text: String, code: String, title: String?, link: String?) {
        self.message = message
        self.text = text
        self.code = code
        self.title = title
        self.link = link
    }

    /// What a request with the same key is answered.
    /// - Parameter room: that it is for.
    package func receipt(for request: PostRequest, to room: String) throws(ChatError) -> PostReceipt {
        let extras = request.program?.extras ?? .none
        guard text == request.text.text, code == room, title == extras.title, link == extras.link else {
            throw ChatError(
                .idempotencyConflict, "Idempotency-Key was used before, for another text or room",
                field: "Idempotency-Key")
        }
        return PostReceipt(message: message, isRepeat: true, queued: 0)
    }
}
