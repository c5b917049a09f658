/// A change in a room.
///
/// Later versions may add cases: a `switch` needs a `default`.
public enum ChatEvent: Sendable, Hashable {
    /// A message of another member, of a program, or of this member. Each message comes once, in the order of the ids.
    case message(ChatMessage)
    /// A program has changed its message, which has this form now. It may come more than once, and for a message that was
    /// already in this form.
    case edited(ChatMessage)
    /// A program has removed the notification of its message from devices, for example because someone takes care.
    case cleared(ChatMessage)
    /// A program has ended its message, which may have a last text.
    case resolved(ChatMessage)
    /// A message was deleted.
    case deleted(Int64)
    /// The number of members that are now in the room.
    case members(Int)
    /// The reach of the member's own last message.
    case receipt(ChatReceipt)
    /// The room has this code now.
    case code(String)
    /// The connection is lost, for this reason; it is retried.
    case disconnected(PushChatError)
    /// The connection works again.
    case connected
    /// The relay's database was replaced: the messages of the room follow again.
    case databaseReplaced
    /// The relay has accepted a message of the outbox.
    case sent(OutboxMessage)
    /// The relay has rejected a message of the outbox for good.
    case rejected(OutboxMessage, RelayRejection)
}

extension ChatEvent {
    /// - Parameter message: The message in its newest form.
    init(_ change: ChatMessage.Change.Kind, of message: ChatMessage) {
        self =
            switch change {
            case .edited: .edited(message)
            case .cleared: .cleared(message)
            case .resolved: .resolved(message)
            }
    }
}

/// An event, and the position in the room that a member reaches with it.
package struct ReceivedEvent: Sendable, Hashable {
    package let event: ChatEvent
    /// The id of the message, or the number of the change. `nil` for events without a position.
    let position: Int64?

    init(_ event: ChatEvent, at position: Int64? = nil) {
        self.event = event
        self.position = position
    }
}
