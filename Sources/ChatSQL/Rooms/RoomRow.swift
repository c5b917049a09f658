package import ChatDomain

/// A room's row in the table `rooms`.
package enum RoomRow {
    /// Creates the rows of rooms that have none. The caller holds the rooms' locks (``SQLLock/room``).
    ///
    /// A room works without a row, with the default of every choice. So it does after all ids are used up.
    package static func make(_ rooms: Set<String>, now: Timestamp, _ transaction: some SQLTransaction) throws {
        guard !rooms.isEmpty else { return }
        try transaction.pipeline(makeSQL(transaction.dialect), [.texts(rooms.sorted()), .time(now)])
    }

    /// `ON CONFLICT` alone would use up an id each time.
    package static func makeSQL(_ dialect: SQLDialect) -> String {
        """
        INSERT INTO rooms (secret_code, time_created)
        SELECT c.value, at($2) FROM (\(dialect.each("$1", "text"))) AS c
        WHERE NOT EXISTS (SELECT 1 FROM rooms r WHERE r.secret_code = c.value) AND \(dialect.hasRoomID)
        ON CONFLICT (secret_code) DO NOTHING
        """
    }

    /// Deletes the rows of rooms without any other data, in steps.
    package static func deleteUnused(_ database: some SQLDatabase) async throws(ChatError) {
        var after: Int64 = 0
        while true {
            let (last, unused) = try await database.read { [after] transaction -> (Int64?, [String]) in
                let rows = try transaction.rows(lookSQL, [.int(after), .int(RoomRules.step)])
                return (try rows.last?.int(0), try rows.filter { try $0.bool(2) }.map { try $0.text(1) })
            }
            guard let last else { return }
            if !unused.isEmpty {
                try await database.write(as: .upkeep) { transaction in
                    // Check again under the lock: members may have joined or posted since the query.
                    try transaction.lock(unused.map { (.room, $0) })
                    let isUnused = transaction.dialect.isAny("secret_code", of: "$1", "text")
                    try transaction.pipeline(
                        "DELETE FROM rooms WHERE \(isUnused) AND \(RoomRules.isUnused)", [.texts(unused)])
                }
            }
            after = last
        }
    }

    package static let lookSQL = """
        SELECT room_id, secret_code, \(RoomRules.isUnused) FROM rooms WHERE room_id > $1 ORDER BY room_id LIMIT $2
        """
}
