/// The number of messages that a device has not fetched, in all rooms of which it is a member. The icon of its app shows
/// this number.
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
    /// It returns `NULL` for a device that has fetched nothing since it joined, because such a device may never fetch,
    /// and then reads no messages. Otherwise it reads at most ``rooms`` times ``window`` rows, usually one row per
    /// unread message.
    ///
    /// - Parameters:
    ///   - token: The placeholder or expression for the device's token.
    ///   - app: The placeholder or expression for the device's app.
    package static func sql(ofDevice token: String, app: String) -> String {
        func memberships(_ name: String) -> String {
            "\(name).device_token = \(token) AND \(name).device_token <> '0' AND \(name).app = \(app)"
        }
        return """
            SELECT CAST(sum(unread) AS bigint) FROM (
                SELECT (
                    SELECT count(*) FROM (
                        SELECT 1 FROM (
                            SELECT m.udid FROM messages m
                            WHERE m.secret_code = u.secret_code AND m.message_id >
                                CASE WHEN u.fetched_to > u.history_from THEN u.fetched_to ELSE u.history_from END
                            ORDER BY m.message_id DESC LIMIT \(window)) r
                        WHERE r.udid <> u.udid LIMIT \(most)) c) AS unread
                FROM (
                    SELECT a.udid, a.secret_code, a.history_from, a.fetched_to FROM active_users a
                    WHERE \(memberships("a")) AND EXISTS (
                        SELECT 1 FROM active_users f WHERE \(memberships("f")) AND f.fetched_to > f.history_from)
                    LIMIT \(rooms)) u) s
            """
    }

    /// The number to show for a result of ``sql(ofDevice:app:)``.
    package static func shown(_ number: Int64?) -> Int64? {
        number.map { min($0, most) }
    }
}
