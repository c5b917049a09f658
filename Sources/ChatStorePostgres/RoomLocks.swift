#if PostgreSQL
import ChatDomain

/// Locks of the server that no row stands for; each transaction keeps its own to its end. They are taken before any row is
/// locked, those of members and devices before those of rooms, and each kind of them in one order: so nobody waits in a circle.
/// A step behind an answer locks its messages' rows before ``fanout``; who has that lock waits for none of these rows.
enum RoomLock: Int64, Sendable {
    /// Who posts to a room, enters it, leaves it or is taken out of it. Ids of messages are taken under it, so that in a room
    /// they grow in the order of the commits.
    case room = 0
    /// Shared by those who queue pushes behind the answer; alone for who takes members away.
    case fanout = 1
    /// Who makes a udid a member, or bans it.
    case member = 2
    /// Who gives a device token to a member, or bans it.
    case device = 3
    /// Shared by those who come from an address; alone for who bans it. Taken after those of members and devices.
    case address = 4
}

extension PostgresTransaction {
    /// Waits until nobody bans this address of a client; joins from it do not wait for each other.
    func lockShared(address: String?) {
        guard let address = BannedAddress.text(of: address) else { return }
        pipeline(
            "SELECT pg_advisory_xact_lock_shared(hashtextextended($1::text, \(RoomLock.address.rawValue)))",
            [.text(address)])
    }

    /// Waits for these locks; what is read afterwards is what those have committed who had them.
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
#endif
