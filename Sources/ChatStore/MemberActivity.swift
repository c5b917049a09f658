import ChatDomain
import GRDB
import Synchronization

/// What members have fetched, and when they last wrote. Kept in memory at first and written down a little later, many members
/// at a time: neither reading nor writing is to wait for it. A crash loses some seconds of it, and nothing else.
final class MemberActivity: Sendable {
    /// Members of whom something may wait to be written down; about 20 MB. More do not come together within the interval; when
    /// the disk is full, they might. Of a further member nothing is noted until there is room: it is only for the operator to
    /// read, and what the member does next makes up for it.
    static let mostWaiting = 100_000
    /// Members that one transaction writes down.
    private static let step = 500

    /// What is to be written down of a member.
    private struct Note: Sendable {
        var fetch: (message: MessageID, time: Timestamp)?
        var writing: (time: Timestamp, address: String?)?

        /// The newest message and the last time stand, in whatever order they come.
        mutating func add(_ other: Note) {
            if let fetch = other.fetch, fetch.message > self.fetch?.message ?? .min { self.fetch = fetch }
            guard let new = other.writing else { return }
            let old = writing ?? new
            let (earlier, later) = new.time < old.time ? (new, old) : (old, new)
            writing = (later.time, later.address ?? earlier.address)
        }
    }

    private let database: SQLiteDatabase
    private let mostWaiting: Int
    private let notes = Mutex<[MemberID: Note]>([:])

    init(database: SQLiteDatabase, mostWaiting: Int = MemberActivity.mostWaiting) {
        self.database = database
        self.mostWaiting = mostWaiting
    }

    /// A message, and what came before it, was handed out to a member.
    func fetched(_ message: MessageID, by member: MemberID) {
        add(Note(fetch: (message, database.clock())), of: member)
    }

    /// - Parameter address: where the request came from, if that is known.
    func wrote(_ member: MemberID, at time: Timestamp, from address: String?) {
        add(Note(writing: (time, address)), of: member)
    }

    private func add(_ note: Note, of member: MemberID) {
        notes.withLock { notes in
            guard notes.count < mostWaiting || notes[member] != nil else { return }
            notes[member, default: Note()].add(note)
        }
    }

    // MARK: - Writing it down

    /// Writes down what waits. What cannot be written stays for the next time.
    func flush() async throws(ChatError) {
        let all = notes.withLock { notes in
            defer { notes = [:] }
            return Array(notes)
        }
        for start in stride(from: 0, to: all.count, by: Self.step) {
            let part = all[start..<min(start + Self.step, all.count)]
            do throws(ChatError) {
                try await database.writer.perform(durably: false, .upkeep) { db in
                    for (member, note) in part { try Self.write(note, of: member, db) }
                }
            } catch {
                for (member, note) in all[start...] { add(note, of: member) }
                throw error
            }
        }
    }

    /// Changes the member's row where there is one, and nothing that is newer: the member may have left meanwhile, or may have
    /// come back, which is another row and another room.
    private static func write(_ note: Note, of member: MemberID, _ db: Database) throws {
        if let fetch = note.fetch {
            try db.run(
                """
                UPDATE active_users SET fetched_to = ?1, time_fetched = ?2
                WHERE udid = ?3 AND fetched_to < ?1 AND history_from < ?1
                """, [fetch.message, fetch.time.sqlText, member.text])
        }
        if let writing = note.writing {
            try db.run(
                """
                UPDATE active_users SET time_last_message = ?1,
                    ip_address = CASE WHEN time_updated <= ?1 THEN coalesce(?2, ip_address) ELSE ip_address END
                WHERE udid = ?3 AND time_joined <= ?1 AND (time_last_message IS NULL OR time_last_message < ?1)
                """, [writing.time.sqlText, writing.address, member.text])
        }
    }
}
