/// A message's place in the history; grows with time, over all rooms.
package typealias MessageID = Int64

/// What a member says.
package struct MessageText: Sendable, Hashable {
    /// Bytes of UTF-8 that a tutorial client lets its user type, and that fit the payloads of the binary protocol.
    package static let defaultLimit = 190
    /// The default where all gateways take payloads of some kilobytes.
    package static let roomyLimit = 1000
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

/// What a program may say beside a message's text.
package struct MessageExtras: Sendable, Hashable {
    /// Bytes of a title.
    package static let longestTitle = 255
    /// Bytes of a sound's name.
    package static let longestSound = 64

    /// Stands above the text.
    package let title: String?
    /// Where a click leads.
    package let link: String?
    /// Of the pushes, as in ``NotificationContent``; nil for the usual one.
    package let priority: UInt8?
    /// Of the pushes: the name of a sound; empty for none, nil for the relay's own.
    package let sound: String?

    package init(
        title: String? = nil, link: String? = nil, priority: UInt8? = nil, sound: String? = nil
    ) throws(ChatError) {
        self.title = try title.map { text throws(ChatError) in
            try FieldText.checked(text, field: "title", limit: Self.longestTitle)
        }
        if let link { try NotificationContent.requireLink(link) }
        self.link = link
        if let priority { try NotificationContent.requirePriority(priority) }
        self.priority = priority
        self.sound = try sound.map { text throws(ChatError) in
            text.isEmpty ? text : try FieldText.checked(text, field: "sound", limit: Self.longestSound)
        }
    }

    /// What was checked before it was stored.
    package init(storedTitle title: String?, link: String?, priority: UInt8?, sound: String?) {
        self.title = title
        self.link = link
        self.priority = priority
        self.sound = sound
    }

    package static let none = MessageExtras(storedTitle: nil, link: nil, priority: nil, sound: nil)
}

/// A message as the history keeps it.
package struct Message: Sendable, Hashable {
    package let id: MessageID
    /// Never shown: it is what a member proves itself with. A reader is told whether a message is its own.
    package let sender: MemberID
    package let nickname: String
    package let text: String
    package let title: String?
    package let link: String?
    package let sentAt: Timestamp

    package init(
        id: MessageID, sender: MemberID, nickname: String, text: String, title: String? = nil, link: String? = nil,
        sentAt: Timestamp
    ) {
        self.id = id
        self.sender = sender
        self.nickname = nickname
        self.text = text
        self.title = title
        self.link = link
        self.sentAt = sentAt
    }
}

/// A piece of a room's history, oldest first.
package struct MessagePage: Sendable, Hashable {
    package let messages: [Message]
    /// What to ask from next; the same as asked for when nothing came.
    package let next: MessageID
    /// The room's code now. A room may have got a new one since the member joined.
    package let room: SecretCode

    package init(messages: [Message], next: MessageID, room: SecretCode) {
        self.messages = messages
        self.next = next
        self.room = room
    }
}
