/// The id of a message. Later messages have higher ids, across all rooms.
package typealias MessageID = Int64

/// The text of a message.
package struct MessageText: Sendable, Hashable {
    /// The default limit, in UTF-8 bytes. The tutorial's clients let their users type this many. A text of this size
    /// fits the payloads of the binary protocol.
    package static let defaultLimit = 190
    /// The default limit, in UTF-8 bytes, if all gateways accept payloads of several kilobytes.
    package static let roomyLimit = 1000
    /// The highest limit that can be set. In a 4,096-byte payload, only the last few words of such a text are missing.
    package static let highestLimit = 4000

    package let text: String

    /// Tabs, line feeds and carriage returns are allowed: people paste code and tables. Other control characters are
    /// not.
    package init(parsing text: String, limit: Int = defaultLimit, field: String = "text") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: limit, allowing: [9, 10, 13])
    }

    /// Wraps a text that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }
}

/// A message in the history.
package struct Message: Sendable, Hashable {
    package let id: MessageID
    /// The writer. Never show it to members: the udid is a member's proof of identity. A reader learns only whether a
    /// message is its own.
    package let sender: MemberID
    package let nickname: String
    package let content: MessageContent
    package let sentAt: Timestamp

    package init(
        id: MessageID, sender: MemberID, nickname: String, content: MessageContent, sentAt: Timestamp
    ) {
        self.id = id
        self.sender = sender
        self.nickname = FieldText.withoutDirections(nickname)
        self.content = content
        self.sentAt = sentAt
    }

    package var text: String { content.text.text }
}

/// A page of a room's history, oldest first.
package struct MessagePage: Sendable, Hashable {
    package let messages: [Message]
    /// The id to continue after. If the page is empty, this is the requested id.
    package let next: MessageID
    /// The room's current code. The room may have got a new code since the member joined.
    package let room: SecretCode
    /// `nil` if the room has no title.
    package let title: RoomTitle?

    package init(messages: [Message], next: MessageID, room: SecretCode, title: RoomTitle? = nil) {
        self.messages = messages
        self.next = next
        self.room = room
        self.title = title
    }
}
