/// How many messages a browser has not fetched, over all rooms in which it is a member: the number at its icon.
package enum UnreadCount {
    /// Larger numbers are shown as this one.
    package static let most: Int64 = 99
    /// Memberships of a device that are counted.
    package static let rooms = 50
    /// Messages of a room that are looked at. A member's own are among them, and are not unread.
    package static let window = 500

    /// A query for the number of one device; it may exceed ``most``. Both databases run it.
    ///
    /// `NULL` for a device that has fetched nothing since it joined: it may be one that never fetches. Costs at most
    /// ``rooms`` times ``window`` rows, mostly as many as there are unread messages.
    /// - Parameter token: what the statement has in place of the device's token.
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

    /// What is shown for a number of ``sql(ofDevice:)``.
    package static func shown(_ number: Int64?) -> Int64? {
        number.map { min($0, most) }
    }
}
