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

    private struct State {
        var notes: [MemberID: Note] = [:]
        /// Those that are being written down.
        var underWay: [MemberID: Note] = [:]
    }

    private let database: SQLiteDatabase
    private let keepsUsage: @Sendable () -> Bool
    private let mostWaiting: Int
    private let state = Mutex(State())

    /// - Parameter keepsUsage: whether devices are noted as seen.
    init(
        database: SQLiteDatabase, keepsUsage: @escaping @Sendable () -> Bool = { true },
        mostWaiting: Int = MemberActivity.mostWaiting
    ) {
        self.database = database
        self.keepsUsage = keepsUsage
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
        state.withLock { state in
            guard state.notes.count < mostWaiting || state.notes[member] != nil else { return }
            state.notes[member, default: Note()].add(note)
        }
    }

    /// What a member has fetched last, as far as it is not written down; for a transaction that takes the member's row away.
    func pendingFetch(of member: MemberID) -> (message: MessageID, time: Timestamp)? {
        state.withLock { state in
            var note = state.underWay[member] ?? Note()
            if let newer = state.notes[member] { note.add(newer) }
            return note.fetch
        }
    }

    // MARK: - Writing it down

    /// Writes down what waits. What cannot be written stays for the next time.
    /// - Returns: the rooms in which somebody has fetched something.
    @discardableResult
    func flush() async throws(ChatError) -> Set<SecretCode> {
        let all = state.withLock { state in
            state.underWay = state.notes
            state.notes = [:]
            return Array(state.underWay)
        }
        defer { state.withLock { $0.underWay = [:] } }
        var rooms: Set<SecretCode> = []
        for start in stride(from: 0, to: all.count, by: Self.step) {
            let part = all[start..<min(start + Self.step, all.count)]
            do throws(ChatError) {
                let keepsUsage = keepsUsage
                rooms.formUnion(
                    try await database.writer.perform(durably: false, .upkeep) { db in
                        let keepsUsage = keepsUsage()
                        return try part.compactMap { try Self.write($1, of: $0, keepsUsage: keepsUsage, db) }
                    })
            } catch {
                for (member, note) in all[start...] { add(note, of: member) }
                // Those that were written are told first; the error comes again the next time, if it lasts.
                guard rooms.isEmpty else { return rooms }
                throw error
            }
        }
        return rooms
    }

    /// Changes the member's row where there is one, and nothing that is newer: the member may have left meanwhile, or may have
    /// come back, which is another row and another room.
    /// - Returns: the room, where the member has fetched more than was written down.
    private static func write(
        _ note: Note, of member: MemberID, keepsUsage: Bool, _ db: Database
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
        if keepsUsage, token != "0", let time = [note.fetch?.time, note.writing?.time].compactMap(\.self).max() {
            try DeviceUsage.saw(token, app: row[1], ClientInfo(), now: time, db)
        }
        return hasFetched ? SecretCode(stored: row[0]) : nil
    }
}
