package import ChatDomain
import ChatSQL
import Synchronization

/// The events in rooms: messages from the database, and for one listener the changes by any relay.
package final class PostgresRoomFeed: RoomFeed {
    private let database: PostgresDatabase
    private let activity: MemberActivity<PostgresDatabase>
    private let changes = PendingRoomChanges()
    /// Messages that were announced as deleted, while the database could not be read to check them.
    private let unchecked = Mutex<[SecretCode: [MessageID]]>([:])

    init(database: PostgresDatabase, activity: MemberActivity<PostgresDatabase>) {
        self.database = database
        self.activity = activity
    }

    // MARK: - Reading

    /// Reads the last message id while no member can post to the room. Later messages in the room have higher ids.
    package func position(of member: MemberID) async throws(ChatError) -> RoomPosition {
        try await database.read { transaction in
            let locked = try transaction.row(
                """
                SELECT secret_code, pg_advisory_xact_lock_shared(hashtextextended(secret_code, \(SQLLock.room.rawValue)))
                FROM active_users WHERE udid = $1::text
                """, [.text(member.text)])
            guard let locked else { throw ChatError.notJoined() }
            let row = try transaction.row(
                """
                SELECT u.secret_code, u.history_from, CASE WHEN s.is_called THEN s.last_value ELSE 0 END
                FROM active_users u CROSS JOIN messages_message_id_seq s WHERE u.udid = $1::text
                """, [.text(member.text)])
            guard let row else { throw ChatError.notJoined() }
            guard try row.text(0) == locked.text(0) else { throw PostgresError.collision("the room of a member") }
            return RoomPosition(
                code: SecretCode(stored: try row.text(0)), historyFrom: try row.int(1), last: try row.int(2))
        }
    }

    package func messages(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [Message] {
        try await database.read { try Message.messages(in: room, after: after, limit: limit, $0) }
    }

    package func entries(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [RoomEntry] {
        try await database.read { try RoomEntry.entries(in: room, after: after, limit: limit, $0) }
    }

    package func lastEntry(in room: SecretCode) async throws(ChatError) -> MessageID {
        try await database.read { try RoomEntry.last(in: room, $0) }
    }

    package func receipts(
        in room: SecretCode, for members: Set<MemberID>
    ) async throws(ChatError) -> [MemberID: Receipt] {
        try await database.read { try ReadState.receipts(in: room, for: members, $0) }
    }

    package func hasMoved(_ room: SecretCode, to code: SecretCode) async throws(ChatError) -> Bool {
        try await database.read { transaction in
            try transaction.row(
                """
                SELECT 1 FROM moderation WHERE action = 'recode' AND subject = $1::text AND secret_code = $2::text LIMIT 1
                """, [.text(room.text), .text(code.text)]) != nil
        }
    }

    package func summary(of room: SecretCode) async throws(ChatError) -> RoomSummary {
        try await database.read { try RoomSummary(of: room, $0) }
    }

    package func handedOut(_ message: MessageID, to member: MemberID) {
        activity.fetched(message, by: member)
    }

    // MARK: - Changes

    package func roomChanges() -> AsyncStream<Void> {
        let (signals, listener) = changes.listen()
        let announcements = database.announcements()
        let task = Task { [changes] in
            for await announcement in announcements where announcement.concernsRooms {
                changes.note { $0.add(announcement) }
            }
        }
        listener.onTermination = { _ in task.cancel() }
        return signals
    }

    /// An announcement only claims that messages were deleted. Messages that still exist were not deleted.
    package func takeRoomChanges() async -> RoomChanges {
        var taken = changes.take()
        let earlier = unchecked.withLock { unchecked in
            defer { unchecked = [:] }
            return unchecked
        }
        taken.deleted.merge(earlier) { $0 + $1 }
        guard !taken.deleted.isEmpty else { return taken }
        let ids = taken.deleted.values.flatMap { $0 }
        do throws(ChatError) {
            let existing = try await database.read { transaction in
                Set(
                    try transaction.rows(
                        "SELECT message_id FROM messages WHERE message_id = ANY ($1::bigint[])", [.ints(ids)]
                    ).map { try $0.int(0) })
            }
            taken.deleted = taken.deleted.compactMapValues { ids in
                let gone = ids.filter { !existing.contains($0) }
                return gone.isEmpty ? nil : gone
            }
        } catch {
            // Check again with the next change, at the latest when the server is back. If there are too many, drop
            // them.
            if ids.count <= Self.mostUnchecked { unchecked.withLock { $0 = taken.deleted } }
            taken.deleted = [:]
            taken.isUnknown = true
        }
        return taken
    }

    private static let mostUnchecked = 10_000
}
