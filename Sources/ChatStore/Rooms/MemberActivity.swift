import ChatDomain
import GRDB

/// Records the messages that members have fetched and their phones have shown, and the times at which they last wrote.
final class MemberActivity: Sendable {
    /// The number of members that one transaction records.
    private static let step = 500

    private let database: SQLiteDatabase
    private let keepsUsage: @Sendable () -> Bool
    private let notes: PendingMemberUpdates

    /// - Parameter keepsUsage: Returns whether to record devices as seen.
    init(
        database: SQLiteDatabase, keepsUsage: @escaping @Sendable () -> Bool = { true },
        mostWaiting: Int = PendingMemberUpdates.most
    ) {
        self.database = database
        self.keepsUsage = keepsUsage
        self.notes = PendingMemberUpdates(most: mostWaiting)
    }

    /// Notes that a member has fetched a message and all earlier ones.
    func fetched(_ message: MessageID, by member: MemberID) {
        notes.fetched(message, by: member, at: database.now())
    }

    /// Notes that a member's phone has shown a message.
    func shown(_ message: MessageID, to member: MemberID) {
        notes.shown(message, to: member, at: database.now())
    }

    /// - Parameter address: The address that the request came from. `nil` if unknown.
    func wrote(_ member: MemberID, at time: Timestamp, from address: String?) {
        notes.wrote(member, at: time, from: address)
    }

    /// The latest fetch of a member that is not recorded yet. Needed by a transaction that deletes the member's row.
    func pendingFetch(of member: MemberID) -> (message: MessageID, time: Timestamp)? {
        notes.pendingFetch(of: member)
    }

    /// Writes the pending updates. If that fails, they stay for the next call.
    /// - Returns: The rooms in which members have fetched messages.
    @discardableResult
    func flush() async throws(ChatError) -> Set<SecretCode> {
        try await notes.flush(step: Self.step) { [database, keepsUsage] notes throws(ChatError) in
            let rooms = try await database.writer.perform(durably: false, .upkeep) { db in
                let keepsUsage = keepsUsage()
                return try notes.compactMap { try Self.write($0.note, of: $0.member, keepsUsage: keepsUsage, db) }
            }
            return Set(rooms)
        }
    }

    /// Updates the member's row if it exists, and never overwrites newer values. The member may have left in the
    /// meantime, or may have rejoined, with another row in another room.
    /// - Returns: The room, if the member has fetched more than was recorded.
    private static func write(
        _ note: PendingMemberUpdates.Note, of member: MemberID, keepsUsage: Bool, _ db: Database
    ) throws -> SecretCode? {
        let row = try db.row(
            "SELECT secret_code, app, device_token, max(fetched_to, history_from) FROM active_users WHERE udid = ?",
            [member.text])
        guard let row else { return nil }
        var hasFetched = false
        if let fetch = note.fetch, fetch.message > row[3] as Int64 {
            try db.run(
                "UPDATE active_users SET fetched_to = ?, time_fetched = ? WHERE udid = ?",
                [fetch.message, fetch.time.sqlText, member.text])
            hasFetched = true
        }
        if let shown = note.shown {
            try db.run(
                "UPDATE active_users SET shown_to = ?1 WHERE udid = ?2 AND max(shown_to, history_from) < ?1",
                [shown.message, member.text])
        }
        if let writing = note.writing {
            try db.run(
                """
                UPDATE active_users SET time_last_message = ?1,
                    ip_address = CASE WHEN time_updated <= ?1 THEN coalesce(?2, ip_address) ELSE ip_address END
                WHERE udid = ?3 AND time_joined <= ?1 AND (time_last_message IS NULL OR time_last_message < ?1)
                """, [writing.time.sqlText, writing.address, member.text])
        }
        let token: String = row[2]
        if keepsUsage, token != "0", let time = note.seenAt {
            try DeviceUsage.saw(token, app: row[1], ClientInfo(), now: time, db)
        }
        return hasFetched ? SecretCode(stored: row[0]) : nil
    }
}
