package import ChatDomain

extension SQLDatabase {
    /// Deletes all usage data in steps. Must be called after the setting has changed, so that no new data is written.
    package func forgetUsage() async throws(ChatError) {
        /// The number of devices or members whose data one transaction deletes.
        let window: Int64 = 2000
        for (table, id, columns) in [
            ("devices", "device_id", ["app_version", "os_version", "device_model", "time_seen"]),
            ("active_users", "member_id", ["app_version", "os_version", "device_model"]),
        ] {
            let changes = columns.map { "\($0) = NULL" }.joined(separator: ", ")
            let isKept = columns.map { "\($0) IS NOT NULL" }.joined(separator: " OR ")
            var after: Int64? = 0
            while let start = after {
                after = try await write(as: .notes) { transaction in
                    let end = try transaction.row(
                        "SELECT max(\(id)) FROM (SELECT \(id) FROM \(table) WHERE \(id) > $1 ORDER BY \(id) LIMIT $2) w",
                        [.int(start), .int(window)])?.optionalInt(0)
                    guard let end else { return nil }
                    try transaction.pipeline(
                        "UPDATE \(table) SET \(changes) WHERE \(id) > $1 AND \(id) <= $2 AND (\(isKept))",
                        [.int(start), .int(end)])
                    return end
                }
            }
        }
        try await write(as: .upkeep) { try $0.pipeline("DELETE FROM device_days", []) }
    }
}
