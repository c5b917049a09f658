import ChatDomain
import GRDB

/// A room's row in the table `rooms`. PostgreSQL creates the rows of many posts at once, and locks the rooms.
enum RoomRow {
    /// Creates the row of a room that has none.
    ///
    /// A room works without a row, with the default of every choice. The operation succeeds even if all ids are used
    /// up.
    static func make(_ room: SecretCode, now: Timestamp, _ db: Database) throws {
        try db.run(makeSQL, [room.text, now.sqlText])
    }

    /// `OR IGNORE` alone would use up an id each time.
    static let makeSQL = """
        INSERT OR IGNORE INTO rooms (secret_code, time_created)
        SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM rooms WHERE secret_code = ?1)
        """

    /// Returns the operator's choice; `nil` if there is none.
    static func history(of room: SecretCode, _ db: Database) throws -> RoomHistory? {
        let text: String? = try db.value("SELECT history FROM rooms WHERE secret_code = ?", [room.text])
        return text.flatMap(RoomHistory.init(rawValue:))
    }

    /// Deletes the rows of rooms without any other data, in steps.
    static func deleteUnused(_ database: SQLiteDatabase) async throws(ChatError) {
        var after: Int64 = 0
        while true {
            let (last, unused) = try await database.read { [after] db -> (Int64?, [Int64]) in
                let rows = try db.rows(lookSQL, [after, RoomRules.step])
                return (rows.last?[0], rows.filter { $0[1] }.map { $0[0] })
            }
            guard let last else { return }
            if !unused.isEmpty {
                let ids = JSONValue.array(unused.map { .number($0) }).description
                _ = try await database.writer.perform(.upkeep) { db in
                    try db.run(
                        """
                        DELETE FROM rooms WHERE room_id IN (SELECT value FROM json_each(?)) AND \(RoomRules.isUnused)
                        """, [ids])
                }
            }
            after = last
        }
    }

    static let lookSQL = "SELECT room_id, \(RoomRules.isUnused) FROM rooms WHERE room_id > ? ORDER BY room_id LIMIT ?"
}
