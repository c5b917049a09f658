/// A message's place in the history; grows with time, over all rooms.
package typealias MessageID = Int64

/// What a member says.
package struct MessageText: Sendable, Hashable {
    /// Bytes of UTF-8: what a tutorial client lets its user type.
    package static let defaultLimit = 190
    /// The most that the limit can be set to: a text of this size still fits a 4,096-byte payload.
    package static let highestLimit = 4000

    package let text: String

    /// Line feeds and carriage returns may stand in a text, other control characters may not.
    package init(parsing text: String, limit: Int = defaultLimit, field: String = "text") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: limit, allowing: [10, 13])
    }

    /// A text that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }
}

/// A message as the history keeps it.
package struct Message: Sendable, Hashable {
    package let id: MessageID
    /// Never shown: it is what a member proves itself with. A reader is told whether a message is its own.
    package let sender: MemberID
    package let nickname: String
    package let text: String
    package let sentAt: Timestamp

    package init(id: MessageID, sender: MemberID, nickname: String, text: String, sentAt: Timestamp) {
        self.id = id
        self.sender = sender
        self.nickname = nickname
        self.text = text
        self.sentAt = sentAt
    }
}

/// A piece of a room's history, oldest first.
package struct MessagePage: Sendable, Hashable {
    package let messages: [Message]
    /// What to ask from next; the same as asked for when nothing came.
    package let next: MessageID

    package init(messages: [Message], next: MessageID) {
        self.messages = messages
        self.next = next
    }
}
