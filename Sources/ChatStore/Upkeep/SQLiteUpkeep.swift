package import ChatDomain
import ChatSQL
import Foundation
import GRDB
import Logging

/// Background work of the store: notices other processes' writes, resumes interrupted work, deletes by age.
package struct SQLiteUpkeep: StoreUpkeep {
    /// The interval of checks for other processes' commits. The relay notices a push that a script inserts well within
    /// a second.
    private static let watchInterval = Duration.milliseconds(400)
    /// The interval of checks for missing database files.
    private static let fileInterval = Duration.milliseconds(400)
    /// The number of rounds between unconditional scans: about ten seconds.
    private static let fullScanRounds = 25
    /// The number of rounds between checks of settings that require work: about two seconds.
    private static let settingRounds = 5
    /// The number of rounds between two sweeps of the whole queue, if other processes write: half a minute.
    private static let sweepRounds = 75
    /// The number of scan steps that ``prepare()`` makes for pushes of an earlier process. The others follow in the
    /// background.
    private static let firstLooks = 2

    let database: SQLiteDatabase
    let queue: SQLitePushQueue
    let repair: QueueRepair
    let metrics: SQLiteMetrics
    let feed: SQLiteRoomFeed
    let jobs: BackgroundJobs
    let probe: WriteProbe
    let shared: SQLUpkeep<SQLiteDatabase>

    package func prepare() async throws(ChatError) -> StoreBacklog {
        try await shared.adoption.run()
        try await shared.prepareWebhooks()
        try await repair.notice(looks: Self.firstLooks)
        return StoreBacklog(apps: repair.dueApps)
    }

    package func watch() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.shared.record() }
            group.addTask { await self.watchFiles() }
            group.addTask { await self.watchOthers() }
            await group.next()
            group.cancelAll()
        }
    }

    /// Logs when a file of the database disappears and when it is back. ``SQLiteDatabase`` rejects reads and writes in
    /// the meantime.
    private func watchFiles() async {
        var isMissing = false
        while !Task.isCancelled {
            let missing = database.files.missing
            if let missing, !isMissing {
                database.logger.critical(
                    """
                    a file of the database was deleted, moved or replaced: nothing is read or written until it is back; \
                    this process has its data until it ends (docs/database.md)
                    """, metadata: ["file": "\(missing)", "process": "\(getpid())"])
            } else if missing == nil, isMissing {
                database.logger.notice("the database's files are back")
                queue.signal()
            }
            isMissing = missing != nil
            try? await Task.sleep(for: Self.fileInterval)
        }
    }

    package func tryWriting() async throws(ChatError) { try await probe.run() }

    package func applyRetention(_ ages: RetentionAges) async throws(ChatError) -> RetentionResult {
        try await shared.applyRetention(ages) { time throws(ChatError) in
            try await pushes.apply(before: time, database)
        }
    }

    /// Continues past pushes that are unsettled or were settled late. Keeps pushes of a notification that is still
    /// being queued, because they prevent a second push for their device.
    let pushes = AgedRows(
        "push_queue", key: "message_id",
        where: """
            (r.time_settled < at($1) AND r.state <> 'pending' AND NOT EXISTS (
                SELECT 1 FROM notifications n WHERE n.notification_id = r.notification AND n.work = 'queue'))
            """, isPassed: "(r.time_queued < at($1))", window: 5000, terms: .notes)

    package func clockEvidence(upTo limit: Timestamp) async throws(ChatError) -> ClockEvidence {
        try await database.read { transaction in
            ClockEvidence(newest: try ClockEvidence.newest(upTo: limit, transaction))
        }
    }

    private func watchOthers() async {
        var watch = Watch()
        while !Task.isCancelled {
            do throws(ChatError) {
                if database.files.missing == nil { try await look(&watch) }
            } catch  where !Task.isCancelled {
                database.logger.warning("the queue could not be scanned", metadata: ["error": "\(error)"])
            } catch {}
            watch.endRound()
            try? await Task.sleep(for: Self.watchInterval)
        }
    }

    /// Performs one round. `PRAGMA data_version` on the writing connection changes with every commit except its own,
    /// and costs microseconds.
    func look(_ watch: inout Watch) async throws(ChatError) {
        let seen = try? await database.pool.writeWithoutTransaction { db in
            (
                version: try Int64.fetchOne(db, sql: "PRAGMA data_version"),
                last: try SQLiteRoomFeed.lastMessage(db)
            )
        }
        if let seen, let version = seen.version, version != watch.seen || repair.mustRepairNumbers {
            try await repair.notice()
            try await queue.readPauses()
            watch.saw(version)
            queue.signal()
            feed.noteOthers(upTo: seen.last)
        }
        if let position = watch.position {
            let (next, found) = try await repair.sweep(from: position)
            watch.swept(to: next)
            if found { queue.signal() }
        }
        if watch.round.isMultiple(of: Self.settingRounds) { try await shared.forgetUsage(&watch.applied) }
        if watch.round.isMultiple(of: Self.fullScanRounds) {
            try await repair.scan()
            queue.signal()
            try await jobs.resume()
            try await shared.warnOfUnconfiguredApps(&watch.applied, metrics.unconfiguredApps)
        } else if jobs.mustResume {
            try await jobs.resume()
        }
    }

    /// The progress of the checks.
    struct Watch {
        var applied = SQLUpkeep<SQLiteDatabase>.Applied()
        private(set) var round = 0
        private(set) var seen: Int64 = 0
        /// The push id at which the sweep continues. `nil` if no sweep is in progress.
        private(set) var position: Int64? = QueueIndex.ids.lowerBound
        private var isSweepWanted = false
        private var nextSweep = 0

        mutating func saw(_ version: Int64) {
            seen = version
            isSweepWanted = true
        }

        mutating func swept(to next: Int64?) {
            position = next
            if next == nil { nextSweep = round + SQLiteUpkeep.sweepRounds }
        }

        /// Begins a sweep if one is requested and due.
        mutating func endRound() {
            round += 1
            guard position == nil, isSweepWanted, round >= nextSweep else { return }
            isSweepWanted = false
            position = QueueIndex.ids.lowerBound
        }
    }
}

extension WriteProbe {
    static func writing(_ writer: BatchingWriter) -> WriteProbe {
        // Longer than a statement waits for another process's lock.
        WriteProbe(limit: .seconds(DatabaseFile.busyTimeout) + .seconds(1)) { end in
            let isAccepted = writer.enqueue { db in
                // Writes a page even if the value stays the same. An UPDATE without a change would not.
                let version = try Int.fetchOne(db, sql: "PRAGMA user_version") ?? 0
                try db.execute(sql: "PRAGMA user_version = \(version)")
                return { end(nil) }
            } onFailure: {
                end($0)
            }
            if !isAccepted { end(.unavailable(cause: "too many writes are waiting")) }
        }
    }
}
