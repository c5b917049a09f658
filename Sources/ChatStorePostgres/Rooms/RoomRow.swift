import ChatDomain
import ChatSQL

/// A room's row in the table `rooms`. SQLite needs no locks, and creates one row at a time.
enum RoomRow {
    /// Creates the rows of rooms that have none. The caller holds the rooms' locks (``RoomLock/room``).
    static func make(_ rooms: Set<String>, now: Timestamp, _ transaction: PostgresTransaction) {
        guard !rooms.isEmpty else { return }
        transaction.pipeline(makeSQL, [.texts(rooms.sorted()), .time(now)])
    }

    /// `ON CONFLICT` alone would use up an id each time. After all ids are used up, a new room has no row, and the
    /// default of every choice.
    static let makeSQL = """
        INSERT INTO rooms (secret_code, time_created)
        SELECT c.code, at($2::bigint) FROM unnest($1::text[]) AS c (code)
        WHERE NOT EXISTS (SELECT 1 FROM rooms r WHERE r.secret_code = c.code)
            AND \(SQLDialect.postgres.hasRoomID)
        ON CONFLICT (secret_code) DO NOTHING
        """

    /// Deletes the rows of rooms without any other data, in steps.
    static func deleteUnused(_ database: PostgresDatabase) async throws(ChatError) {
        var after: Int64 = 0
        while true {
            let last = try await database.write(.upkeep, isRepeatable: true) { [after] transaction in
                let rows = try transaction.rows(lookSQL, [.int(after), .int(RoomRules.step)])
                let unused = try rows.filter { try $0.bool(2) }.map { try $0.text(1) }
                if !unused.isEmpty {
                    // Check again under the lock: members may have joined or posted since the query.
                    transaction.lock(unused.map { (.room, $0) })
                    transaction.pipeline(
                        "DELETE FROM rooms WHERE secret_code = ANY ($1::text[]) AND \(RoomRules.isUnused)",
                        [.texts(unused)])
                }
                return try rows.last?.int(0)
            }
            guard let last else { return }
            after = last
        }
    }

    static let lookSQL = """
        SELECT room_id, secret_code, \(RoomRules.isUnused) FROM rooms WHERE room_id > $1::bigint
        ORDER BY room_id LIMIT $2::bigint
        """
}
