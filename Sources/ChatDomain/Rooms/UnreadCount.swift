/// The number of messages that a browser has not fetched, in all rooms of which it is a member. Its icon shows this
/// number.
package enum UnreadCount {
    /// Larger numbers are shown as this one.
    package static let most: Int64 = 99
    /// The maximum number of a device's memberships to count.
    package static let rooms = 50
    /// The maximum number of a room's messages to look at, including the member's own messages, which do not count as
    /// unread.
    package static let window = 500

    /// A query for the number of one device, which may exceed ``most``. Both databases run it.
    ///
    /// It returns `NULL` for a device that has fetched nothing since it joined, because such a device may never fetch.
    /// It reads at most ``rooms`` times ``window`` rows, usually one row per unread message.
    ///
    /// - Parameter token: The placeholder or expression for the device's token.
    package static func sql(ofDevice token: String) -> String {
        """
        SELECT CASE WHEN max(has_fetched) = 1 THEN CAST(sum(unread) AS bigint) END FROM (
            SELECT CASE WHEN u.fetched_to > u.history_from THEN 1 ELSE 0 END AS has_fetched, (
                SELECT count(*) FROM (
                    SELECT 1 FROM (
                        SELECT m.udid FROM messages m
                        WHERE m.secret_code = u.secret_code AND m.message_id >
                            CASE WHEN u.fetched_to > u.history_from THEN u.fetched_to ELSE u.history_from END
                        ORDER BY m.message_id DESC LIMIT \(window)) r
                    WHERE r.udid <> u.udid LIMIT \(most)) c) AS unread
            FROM (
                SELECT udid, secret_code, history_from, fetched_to FROM active_users
                WHERE device_token = \(token) AND device_token <> '0' AND app = '\(AppName.web)'
                LIMIT \(rooms)) u) s
        """
    }

    /// The number to show for a result of ``sql(ofDevice:)``.
    package static func shown(_ number: Int64?) -> Int64? {
        number.map { min($0, most) }
    }
}
