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
    package static func banned(isClosed: Bool, isEverywhere: Bool = false, until end: Timestamp?) -> ChatError {
        let what =
            isClosed ? "This room is closed" : "You are banned from " + (isEverywhere ? "every room" : "this room")
        return ChatError(.forbidden, what + (end.map { " until \($0.rfc3339)" } ?? ""))
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
