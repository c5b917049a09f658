package import ChatDomain
import GRDB
import Synchronization

/// How far members have fetched their rooms, as it goes: written down a little later, many at a time, because reading is not
/// to wait for the disk. A crash loses some seconds of it, and nothing else.
final class FetchLog: Sendable {
    struct Note: Sendable {
        let message: MessageID
        let time: Timestamp
    }

    private let notes = Mutex<[MemberID: Note]>([:])

    func add(_ note: Note, by member: MemberID) {
        notes.withLock { notes in
            if let earlier = notes[member], earlier.message >= note.message { return }
            notes[member] = note
        }
    }

    func take() -> [MemberID: Note] {
        notes.withLock { notes in
            defer { notes = [:] }
            return notes
        }
    }
}

extension SQLiteStore {
    package func handedOut(_ message: MessageID, to member: MemberID) {
        fetches.add(FetchLog.Note(message: message, time: clock()), by: member)
    }

    /// Members that one transaction writes down.
    private static let fetchStep = 500

    /// What cannot be written stays for the next time.
    func writeFetches() async throws(ChatError) {
        let all = Array(fetches.take())
        for start in stride(from: 0, to: all.count, by: Self.fetchStep) {
            let some = all[start..<min(start + Self.fetchStep, all.count)]
            do throws(ChatError) {
                try await writer.perform(durably: false, .upkeep) { db in
                    // Not what was fetched in the room before this one.
                    let update = try db.cachedStatement(
                        sql: """
                            UPDATE active_users SET fetched_to = ?1, time_fetched = ?2
                            WHERE udid = ?3 AND fetched_to < ?1 AND history_from < ?1
                            """)
                    for (member, note) in some {
                        try update.execute(arguments: [note.message, note.time.sqlText, member.text])
                    }
                }
            } catch {
                for (member, note) in all[start...] { fetches.add(note, by: member) }
                throw error
            }
        }
    }

    private static let fetchInterval = Duration.seconds(2)

    /// Writes down how far members have fetched, every few seconds until the task is cancelled, and then once more.
    package func recordFetches() async {
        repeat {
            try? await Task.sleep(for: Self.fetchInterval)
            do throws(ChatError) {
                try await writeFetches()
            } catch {
                logger.debug("what was fetched is written down later", metadata: ["error": "\(error)"])
            }
        } while !Task.isCancelled
    }
}
