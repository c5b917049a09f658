/// A message, or a change of an earlier one, in the order in which clients continue.
package enum RoomEntry: Sendable, Hashable {
    case message(Message)
    /// The message in its newest form is `nil` if it was deleted, or if retention has removed it.
    case change(MessageChange, Message?)

    /// The position at which a client continues.
    package var id: MessageID {
        switch self {
        case .message(let message): message.id
        case .change(let change, _): change.id
        }
    }

    /// The message in its newest form.
    package var message: Message? {
        switch self {
        case .message(let message): message
        case .change(_, let message): message
        }
    }
}

/// A page of a room's messages and changes, in the order of their ids.
package struct RoomEntryPage: Sendable, Hashable {
    package let entries: [RoomEntry]
    /// The id to continue after: the last entry's. If the page is empty, this is the requested id.
    package let next: MessageID
    /// The room's current code.
    package let room: SecretCode
    /// `nil` if the room has no title.
    package let title: RoomTitle?

    package init(entries: [RoomEntry], next: MessageID, room: SecretCode, title: RoomTitle? = nil) {
        self.entries = entries
        self.next = next
        self.room = room
        self.title = title
    }
}
