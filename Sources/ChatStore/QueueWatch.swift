package import ChatDomain
import GRDB

extension SQLiteStore {
    /// How often another process's commits are looked for: a row that a script inserts is noticed well within a second.
    private static let watchInterval = Duration.milliseconds(400)
    /// How many rounds pass between the safety net's announcements, which need no reason.
    private static let safetyNet = 25

    /// Entries that one transaction adopts.
    private static let adoptionStep = 1000

    /// Gives entries of the app named `default`, which is what an insert that names no app gets, to the default app of a
    /// configuration that calls it otherwise.
    ///
    /// - Returns: whether that worked.
    private func adopt() async -> Bool {
        let app = settings().defaultApp
        guard app != .default else { return true }
        do throws(ChatError) {
            for condition in ["not_before IS NULL", "not_before IS NOT NULL"] {
                var count = Self.adoptionStep
                while count == Self.adoptionStep {
                    count = try await writer.perform(.upkeep) { db in
                        try db.cachedStatement(
                            sql: """
                                UPDATE push_queue SET app = ? WHERE message_id IN (
                                    SELECT message_id FROM push_queue
                                    WHERE app = 'default' AND state = 'pending' AND \(condition) LIMIT ?)
                                """
                        ).execute(arguments: [app.text, Self.adoptionStep])
                        return db.changesCount
                    }
                }
            }
            return true
        } catch {
            logger.warning("entries without an app could not be adopted", metadata: ["error": "\(error)"])
            return false
        }
    }

    /// Apps that have entries to send.
    package func appsWithEntries() async throws(ChatError) -> [AppName] {
        try await read { db in
            try Self.apps(where: "state = 'pending' AND not_before IS NULL", db).map(AppName.init)
        }
    }

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
                if await adopt() { seen = version }
                announceArrivals()
                changes.anything()
            }
            if round.isMultiple(of: Self.safetyNet) {
                announceArrivals()
                do throws(ChatError) {
                    try await resumeWork()
                } catch  where !Task.isCancelled {
                    logger.warning("unfinished work could not be read", metadata: ["error": "\(error)"])
                } catch {}
            }
            round += 1
            try? await Task.sleep(for: Self.watchInterval)
        }
    }
}
