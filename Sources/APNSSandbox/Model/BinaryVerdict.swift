import APNSWire

/// What a connection has to do after a notification.
enum BinaryVerdict: Sendable, Hashable {
    /// Go on with the next. Success has no bytes.
    case next
    /// Go on with the next, but only after so many milliseconds; nil: never. Nothing is read until then.
    case pause(milliseconds: Int?)
    /// Judge this notification again after so many milliseconds, this time without faults. Nothing is read until then.
    case postpone(milliseconds: Int)
    /// The end: write the packet after so many milliseconds (nil: none, just close), discard all that follows.
    case end(BinaryErrorResponse?, afterMilliseconds: Int)
    /// The end: reset the connection.
    case reset
}

/// Whose notification is judged.
struct BinaryPeer: Sendable, Hashable {
    /// The connection's number, from 1.
    var connection: Int
    /// What the client certificate names.
    var topic: String?
}
