import PushWire

/// The next action of a binary connection after a notification.
enum BinaryDecision: Sendable, Hashable {
    /// Continue with the next notification. Success writes no bytes.
    case next
    /// Continue with the next notification after this time, and read nothing until then. If the time is `nil`, the
    /// connection stops for good.
    case pause(milliseconds: Int?)
    /// Decide on this notification again after this time, without faults. Read nothing until then.
    case postpone(milliseconds: Int)
    /// End the connection: write the packet after this time, and discard everything that follows. Without a packet,
    /// only close.
    case end(BinaryErrorResponse?, afterMilliseconds: Int)
    /// End the connection with a reset.
    case reset
}

/// The sender of a notification.
struct BinaryPeer: Sendable, Hashable {
    /// The connection's number, from 1.
    var connection: Int
    /// The topic that the client certificate names. `nil` if it names none.
    var topic: String?
}
