package import ChatDomain
import GRDB
import Synchronization

/// How far members have fetched their rooms, as it goes: written down a little later, many at a time, because reading is not
/// to wait for the disk. A crash loses some seconds of it, and nothing else.
final class FetchLog: Sendable {
    private let fetched = Mutex<[MemberID: MessageID]>([:])

    func note(_ message: MessageID, by member: MemberID) {
        fetched.withLock { fetched in
            if fetched[member, default: 0] < message { fetched[member] = message }
        }
    }

    func take() -> [MemberID: MessageID] {
        fetched.withLock { fetched in
            defer { fetched = [:] }
            return fetched
        }
    }
}

extension SQLiteStore {
    package func handedOut(_ message: MessageID, to member: MemberID) { fetches.note(message, by: member) }

    /// Members that one transaction writes down.
    private static let fetchStep = 500

    /// What cannot be written stays for the next time.
    func writeFetches() async throws(ChatError) {
        let all = Array(fetches.take())
        for start in stride(from: 0, to: all.count, by: Self.fetchStep) {
            let some = all[start..<min(start + Self.fetchStep, all.count)]
            do throws(ChatError) {
                try await writer.perform { [clock] db in
                    let now = clock().sqlText
                    let update = try db.cachedStatement(
                        sql: """
                            UPDATE active_users SET fetched_to = ?1, time_fetched = ?2 WHERE udid = ?3 AND fetched_to < ?1
                            """)
                    for (member, message) in some { try update.execute(arguments: [message, now, member.text]) }
                }
            } catch {
                for (member, message) in all[start...] { fetches.note(message, by: member) }
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
