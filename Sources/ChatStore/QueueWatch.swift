import ChatDomain
import GRDB

extension SQLiteStore {
    /// How often another process's commits are looked for: a row that a script inserts is noticed well within a second.
    private static let watchInterval = Duration.milliseconds(400)
    /// How many rounds pass between the safety net's announcements, which need no reason.
    private static let safetyNet = 25

    /// Announces entries that other processes insert, and takes up interrupted fan-outs, until the task is cancelled.
    ///
    /// `PRAGMA data_version` on the writing connection changes with every commit but our own, and costs microseconds.
    package func watch() async {
        var seen: Int64 = 0
        var round = 0
        while !Task.isCancelled {
            let version = try? await pool.writeWithoutTransaction { db in
                try Int64.fetchOne(db, sql: "PRAGMA data_version")
            }
            if let version, version != seen {
                seen = version
                announceArrivals()
            }
            if round.isMultiple(of: Self.safetyNet) {
                announceArrivals()
                do throws(ChatError) {
                    try await resumeFanouts()
                } catch  where !Task.isCancelled {
                    logger.warning("unfinished fan-outs could not be read", metadata: ["error": "\(error)"])
                } catch {}
            }
            round += 1
            try? await Task.sleep(for: Self.watchInterval)
        }
    }
}
