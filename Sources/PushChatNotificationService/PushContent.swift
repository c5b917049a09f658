public import Foundation
public import PushChatCore

/// The visible parts of a notification: a copy of the system's content, which other systems do not have.
public struct PushContent: Sendable, Hashable {
    public var title: String
    public var subtitle: String
    public var body: String
    /// The number on the app's icon. `nil` leaves it unchanged.
    public var badge: Int?
    /// The group of the notification. Empty for none.
    public var threadID: String
    /// The file of a picture to attach. `nil` for none.
    public var picture: URL?
    /// The writer of the message and the conversation, for a communication notification. `nil` for other notifications.
    public var sender: PushSender?
    /// The messages that the app has not handled yet, oldest first, with the one of the notification. They are still
    /// unread. The app may store them, to show them at once at its next start.
    public var missed: [ChatMessage]

    public init(
        title: String = "", subtitle: String = "", body: String, badge: Int? = nil, threadID: String = "",
        picture: URL? = nil, sender: PushSender? = nil, missed: [ChatMessage] = []
    ) {
        self.title = title
        self.subtitle = subtitle
        self.body = body
        self.badge = badge
        self.threadID = threadID
        self.picture = picture
        self.sender = sender
        self.missed = missed
    }
}

/// The writer of a message and the conversation: the values of an `INSendMessageIntent`.
public struct PushSender: Sendable, Hashable {
    /// Identifies the writer within the conversation.
    public var handle: String
    public var name: String
    /// Identifies the conversation: constant for each room.
    public var conversationID: String
    /// The conversation's name. `nil` if the app has none for the room.
    public var conversationName: String?

    public init(handle: String, name: String, conversationID: String, conversationName: String? = nil) {
        self.handle = handle
        self.name = name
        self.conversationID = conversationID
        self.conversationName = conversationName
    }
}

/// The relay's own members of a payload, beside `aps`.
public struct PushDetails: Sendable, Hashable {
    /// The chat message. `nil` for other pushes.
    public var message: Int64?
    /// The public id of the room.
    public var room: String?
    /// The public id of the writer.
    public var sender: String?
    /// The address of a picture.
    public var image: URL?
    /// Whether the push shows nothing, and the app must remove the notifications of the message.
    public var isClear: Bool

    public init(
        message: Int64? = nil, room: String? = nil, sender: String? = nil, image: URL? = nil, isClear: Bool = false
    ) {
        self.message = message
        self.room = room
        self.sender = sender
        self.image = image
        self.isClear = isClear
    }

    /// Reads the members `message_id`, `room_id`, `sender`, `image` and `type`. Numbers and texts may stand for each other.
    public init(userInfo: [AnyHashable: Any]) {
        func text(_ key: String) -> String? {
            switch userInfo[key] {
            case let text as String: text.isEmpty ? nil : text
            case let number as NSNumber: number.stringValue
            case let number as any BinaryInteger: "\(number)"
            default: nil
            }
        }
        self.init(
            message: text("message_id").flatMap { Int64($0) }, room: text("room_id"), sender: text("sender"),
            image: text("image").flatMap { URL(string: $0) }, isClear: text("type") == "clear")
    }
}
