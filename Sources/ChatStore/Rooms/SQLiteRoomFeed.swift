package import ChatDomain
import ChatSQL
import GRDB

/// The events in rooms: messages from the SQLite file, and changes for one listener. The other stores note the changes
/// here. That costs nothing while there is no listener.
package final class SQLiteRoomFeed: RoomFeed {
    private let database: SQLiteDatabase
    private let activity: MemberActivity<SQLiteDatabase>
    private let changes: PendingRoomChanges

    /// - Parameter last: The last message in the file.
    init(database: SQLiteDatabase, activity: MemberActivity<SQLiteDatabase>, last: MessageID) {
        self.database = database
        self.activity = activity
        changes = PendingRoomChanges(last: last)
    }

    // MARK: - Reading

    /// Returns the last id that a message has got. 0 if there was none.
    static func lastMessage(_ db: Database) throws -> MessageID {
        try db.value("SELECT seq FROM sqlite_sequence WHERE name = 'messages'") ?? 0
    }

    package func position(of member: MemberID) async throws(ChatError) -> RoomPosition {
        try await database.read { db in
            let row = try db.row(
                """
                SELECT u.secret_code, u.history_from,
                    (SELECT s.seq FROM sqlite_sequence s WHERE s.name = 'messages')
                FROM active_users u WHERE u.udid = ?
                """, [member.text])
            guard let row else { throw ChatError.notJoined() }
            return RoomPosition(code: SecretCode(stored: row[0]), historyFrom: row[1], last: row[2] as Int64? ?? 0)
        }
    }

    package func messages(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [Message] {
        try await database.read { (transaction: SQLiteTransaction) in
            try Message.messages(in: room, after: after, limit: limit, transaction)
        }
    }

    package func entries(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [RoomEntry] {
        try await database.read { (transaction: SQLiteTransaction) in
            try RoomEntry.entries(in: room, after: after, limit: limit, transaction)
        }
    }

    package func lastEntry(in room: SecretCode) async throws(ChatError) -> MessageID {
        try await database.read { (transaction: SQLiteTransaction) in try RoomEntry.last(in: room, transaction) }
    }

    package func receipts(
        in room: SecretCode, for members: Set<MemberID>
    ) async throws(ChatError) -> [MemberID: Receipt] {
        try await database.read { (transaction: SQLiteTransaction) in
            try ReadState.receipts(in: room, for: members, transaction)
        }
    }

    package func hasMoved(_ room: SecretCode, to code: SecretCode) async throws(ChatError) -> Bool {
        try await database.read { db in
            try db.row(
                "SELECT 1 FROM moderation WHERE action = 'recode' AND subject = ? AND secret_code = ? LIMIT 1",
                [room.text, code.text]) != nil
        }
    }

    package func summary(of room: SecretCode) async throws(ChatError) -> RoomSummary {
        try await database.read { (transaction: SQLiteTransaction) in try RoomSummary(of: room, transaction) }
    }

    package func handedOut(_ message: MessageID, to member: MemberID) {
        activity.fetched(message, by: member)
    }

    // MARK: - Changes

    package func roomChanges() -> AsyncStream<Void> { changes.listen().signals }

    package func takeRoomChanges() -> RoomChanges { changes.take() }

    /// Adds a new message. Must be called in the order of the commits, on the writer's thread.
    func note(_ message: MessageID, in room: SecretCode) { changes.note(message, in: room) }

    /// Adds the unknown changes of another process, among them messages up to this one.
    func noteOthers(upTo message: MessageID) { changes.noteOthers(upTo: message) }

    /// Adds the changes of a commit. Must be called in the order of the commits.
    func note(_ announcement: Announcement) {
        guard announcement.concernsRooms else { return }
        changes.note(upTo: announcement.last) { $0.add(announcement) }
    }

    /// Adds a change to those that the listener takes next.
    func note(_ change: (inout RoomChanges) -> Void) { changes.note(change) }
}
