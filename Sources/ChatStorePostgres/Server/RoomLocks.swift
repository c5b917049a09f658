import ChatDomain

/// Advisory locks, which are not tied to a row. A transaction holds them until its end.
///
/// To avoid deadlocks, a transaction takes them before it locks any row. It takes locks of members and devices before
/// those of rooms, and each kind in a fixed order. The exception is a background step, which locks its messages' rows
/// before ``fanout``. Transactions that hold that lock never wait for those rows.
enum RoomLock: Int64, Sendable {
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
    static func device(of token: String) -> (RoomLock, String) { (.device, DeviceToken.installation(of: token)) }
}

extension PostgresTransaction {
    /// Waits until no transaction is banning this client address. Joins from it do not wait for each other.
    func lockShared(address: String?) {
        guard let address = BannedAddress.text(of: address) else { return }
        pipeline(
            "SELECT pg_advisory_xact_lock_shared(hashtextextended($1::text, \(RoomLock.address.rawValue)))",
            [.text(address)])
    }

    /// Waits for these locks. Later statements read the commits of the transactions that held them before.
    func lock(_ locks: [(RoomLock, String)]) {
        guard !locks.isEmpty else { return }
        pipeline(
            """
            SELECT pg_advisory_xact_lock(key) FROM (
                SELECT DISTINCT hashtextextended(name, kind) AS key FROM unnest($1::text[], $2::bigint[]) AS l (name, kind)
                ORDER BY key) k
            """, [.texts(locks.map(\.1)), .ints(locks.map(\.0.rawValue))])
    }
}
