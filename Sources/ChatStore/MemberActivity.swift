import ChatDomain
import GRDB

/// Writes down what members have fetched, and when they last wrote.
final class MemberActivity: Sendable {
    /// Members that one transaction writes down.
    private static let step = 500

    private let database: SQLiteDatabase
    private let keepsUsage: @Sendable () -> Bool
    private let notes: PendingMemberUpdates

    /// - Parameter keepsUsage: whether devices are noted as seen.
    init(
        database: SQLiteDatabase, keepsUsage: @escaping @Sendable () -> Bool = { true },
        mostWaiting: Int = PendingMemberUpdates.most
    ) {
        self.database = database
        self.keepsUsage = keepsUsage
        self.notes = PendingMemberUpdates(most: mostWaiting)
    }

    /// A message, and what came before it, was handed out to a member.
    func fetched(_ message: MessageID, by member: MemberID) {
        notes.fetched(message, by: member, at: database.now())
    }

    /// - Parameter address: where the request came from, if that is known.
    func wrote(_ member: MemberID, at time: Timestamp, from address: String?) {
        notes.wrote(member, at: time, from: address)
    }

    /// What a member has fetched last, as far as it is not written down; for a transaction that takes the member's row away.
    func pendingFetch(of member: MemberID) -> (message: MessageID, time: Timestamp)? {
        notes.pendingFetch(of: member)
    }

    /// Writes down what waits. What cannot be written stays for the next time.
    /// - Returns: the rooms in which somebody has fetched something.
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

    /// Changes the member's row where there is one, and nothing that is newer: the member may have left meanwhile, or may have
    /// come back, which is another row and another room.
    /// - Returns: the room, where the member has fetched more than was written down.
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
