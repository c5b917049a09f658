package import ChatDomain
import GRDB

extension SQLiteStore: RoomFeed {
    package func place(of member: MemberID) async throws(ChatError) -> RoomPlace {
        try await read { db in
            let row = try Row.fetchOne(
                db.cachedStatement(
                    sql: """
                        SELECT u.secret_code, u.history_from,
                            (SELECT max(m.message_id) FROM messages m WHERE m.secret_code = u.secret_code)
                        FROM active_users u WHERE u.udid = ?
                        """), arguments: [member.text])
            guard let row else { throw ChatError.notJoined() }
            return RoomPlace(
                code: SecretCode(stored: row[0]), historyFrom: row[1], last: row[2] as Int64? ?? 0)
        }
    }

    package func messages(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [Message] {
        try await read { db in try Self.messages(in: room, after: after, limit: limit, db) }
    }

    package func memberCount(of room: SecretCode) async throws(ChatError) -> Int {
        try await read { db in
            try Int.fetchOne(
                db.cachedStatement(sql: "SELECT count(*) FROM active_users WHERE secret_code = ?"),
                arguments: [room.text]) ?? 0
        }
    }

    package func roomChanges() -> AsyncStream<Void> { changes.listen() }

    package func takeRoomChanges() -> RoomChanges { changes.take() }
}
