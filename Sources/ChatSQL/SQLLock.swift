import ChatDomain

/// PostgreSQL's advisory locks, which are not tied to a row. A transaction holds them until its end.
///
/// To avoid deadlocks, a transaction takes them before it locks any row. It takes locks of members and devices before
/// those of rooms, and each kind in a fixed order. The exception is a background step, which locks its messages' rows
/// before ``fanout``. Transactions that hold that lock never wait for those rows.
package enum SQLLock: Int64, Sendable {
    /// Taken to post to a room, to join or leave it, or to remove a member. Message ids are assigned under it, so that
    /// in a room they grow in the order of the commits.
    case room = 0
    /// Shared by background steps that queue pushes; exclusive for the removal of members.
    case fanout = 1
    /// Taken to make a udid a member, or to ban it.
    case member = 2
    /// Taken to assign a device token to a member, or to ban it.
    case device = 3
    /// Shared by clients that join or update a member from an address; exclusive for banning it. Taken after the locks
    /// of members and devices.
    case address = 4
    /// Taken by work that is not about a room. Apart from ``room``, because a room's code can be any text.
    case named = 5

    /// The lock of a device. Both forms of an Android phone's address have the same.
    package static func device(of token: String) -> (SQLLock, String) { (.device, DeviceToken.installation(of: token)) }
}
