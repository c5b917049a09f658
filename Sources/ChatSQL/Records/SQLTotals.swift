package import ChatDomain

extension SQLTransaction {
    /// Counts the rows of the store.
    package func totals() throws -> StoreTotals {
        var totals = StoreTotals()
        guard let row = try row(Self.totalsSQL) else { return totals }
        totals.devices = Int(try row.int(0))
        totals.activeDevices = totals.devices - Int(try row.int(1))
        totals.members = Int(try row.int(2))
        totals.rooms = Int(try row.int(3))
        totals.messages = Int(try row.int(4))
        totals.notifications = Int(try row.int(5))
        return totals
    }

    /// Jumps from one room to the next through the index of the members.
    private static var totalsSQL: String {
        """
        SELECT (SELECT count(*) FROM devices), (SELECT count(*) FROM devices WHERE time_deactivated IS NOT NULL),
            (SELECT count(*) FROM active_users),
            (WITH RECURSIVE rooms (code) AS (
                SELECT min(secret_code) FROM active_users
                UNION ALL
                SELECT (SELECT min(secret_code) FROM active_users WHERE secret_code > r.code)
                FROM rooms r WHERE r.code IS NOT NULL)
             SELECT count(code) FROM rooms),
            (SELECT count(*) FROM messages), (SELECT count(*) FROM notifications)
        """
    }

    /// The counts of devices since a day.
    package func usage(since day: String) throws -> [DeviceDay] {
        try rows(
            """
            SELECT day, app, kind, value, devices FROM device_days WHERE day >= $1 AND devices > 0
            ORDER BY day, app, kind, value
            """, [.text(day)]
        ).map { row in
            DeviceDay(
                day: try row.text(0), app: try row.text(1), kind: try row.text(2), stored: try row.text(3),
                devices: Int(try row.int(4)))
        }
    }
}
