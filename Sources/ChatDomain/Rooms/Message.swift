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

/// The values that a program may add to a message's text.
package struct MessageExtras: Sendable, Hashable {
    /// The maximum number of bytes of a title.
    package static let longestTitle = 255
    /// The maximum number of bytes of a sound's name.
    package static let longestSound = 64

    /// Addresses that a message may open beside a page: a call, a letter, a place.
    private static let otherLinks = ["tel:", "mailto:", "geo:"]

    /// Whether a click on a message can open the text.
    package static func isLink(_ text: String) -> Bool {
        NotificationContent.isLink(text)
            || NotificationContent.isLinkText(text)
                && otherLinks.contains { text.hasPrefix($0) && text.utf8.count > $0.utf8.count }
    }

    /// The heading above the text.
    package let title: String?
    /// The target of a click.
    package let link: String?
    /// The priority of the pushes, as in ``NotificationContent``. `nil` for the usual one.
    package let priority: UInt8?
    /// The name of the pushes' sound. Empty for no sound. `nil` for the relay's usual one.
    package let sound: String?
    /// Whether devices show the message at once, even while the user wants few interruptions. Its priority is then 10.
    package let isUrgent: Bool

    package init(
        title: String? = nil, link: String? = nil, priority: UInt8? = nil, sound: String? = nil, isUrgent: Bool = false
    ) throws(ChatError) {
        self.title = try title.map { text throws(ChatError) in
            try FieldText.checked(text, field: "title", limit: Self.longestTitle)
        }
        if let link, !Self.isLink(link) { throw NotificationContent.invalidLink("link", or: Self.otherLinks) }
        self.link = link
        self.priority = try NotificationContent.priority(priority, isUrgent: isUrgent)
        self.isUrgent = isUrgent
        self.sound = try sound.map { text throws(ChatError) in
            text.isEmpty ? text : try FieldText.checked(text, field: "sound", limit: Self.longestSound)
        }
    }

    /// Wraps values that were checked before they were stored.
    package init(storedTitle title: String?, link: String?, priority: UInt8?, sound: String?, isUrgent: Bool) {
        self.title = title
        self.link = link
        self.priority = priority
        self.sound = sound
        self.isUrgent = isUrgent
    }

    package static let none = MessageExtras(storedTitle: nil, link: nil, priority: nil, sound: nil, isUrgent: false)
}

/// A message in the history.
package struct Message: Sendable, Hashable {
    package let id: MessageID
    /// The writer. Never show it to members: the udid is a member's proof of identity. A reader learns only whether a
    /// message is its own.
    package let sender: MemberID
    package let nickname: String
    package let text: String
    package let title: String?
    package let link: String?
    /// The priority of the pushes, as in ``MessageExtras``.
    package let priority: UInt8?
    /// Whether the message is urgent, as in ``MessageExtras``.
    package let isUrgent: Bool
    package let sentAt: Timestamp

    package init(
        id: MessageID, sender: MemberID, nickname: String, text: String, title: String? = nil, link: String? = nil,
        priority: UInt8? = nil, isUrgent: Bool = false, sentAt: Timestamp
    ) {
        self.id = id
        self.sender = sender
        self.nickname = FieldText.withoutDirections(nickname)
        self.text = text
        self.title = title
        self.link = link
        self.priority = priority
        self.isUrgent = isUrgent
        self.sentAt = sentAt
    }
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
