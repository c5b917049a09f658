/// A change in a room.
///
/// Later versions may add cases: a `switch` needs a `default`.
public enum ChatEvent: Sendable, Hashable {
    /// A message of another member, of a program, or of this member. Each message comes once, in the order of the ids.
    case message(ChatMessage)
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
