package import ChatDomain
import Foundation
import GRDB
import Logging

/// What the store does by itself: notices other processes' writes, takes up interrupted work, deletes by age.
package struct SQLiteUpkeep: StoreUpkeep {
    /// How often another process's commits are looked for: a row that a script inserts is noticed well within a second.
    private static let watchInterval = Duration.milliseconds(400)
    /// How often the database's files are looked for.
    private static let fileInterval = Duration.milliseconds(400)
    /// Rounds between unconditional scans: some ten seconds.
    private static let fullScanRounds = 25
    /// Rounds between looks at settings that ask for work: some two seconds.
    private static let settingRounds = 5
    /// Rounds between the end of one sweep of the whole queue and the next, where other processes write: half a minute.
    private static let sweepRounds = 75
    /// Looks at an earlier process's rows that ``prepare()`` takes; the others follow behind.
    private static let firstLooks = 2

    let database: SQLiteDatabase
    let queue: SQLitePushQueue
    let repair: QueueRepair
    let adoption: AppAdoption
    let figures: SQLiteFigures
    let feed: SQLiteRoomFeed
    let activity: MemberActivity
    let tokens: SQLiteTokenStore
    let jobs: BackgroundJobs
    let probe: WriteProbe

    package func prepare() async throws(ChatError) -> StoreBacklog {
        try await adoption.run()
        try await repair.notice(looks: Self.firstLooks)
        return StoreBacklog(apps: repair.dueApps)
    }

    package func watch() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.record() }
            group.addTask { await self.watchFiles() }
            group.addTask { await self.watchOthers() }
        }
    }

    /// How long what members and tokens did may be in memory only.
    private static let recordInterval = Duration.seconds(2)

    /// Writes down what members and tokens did, every few seconds until the task is cancelled, and then once more.
    private func record() async {
        repeat {
            try? await Task.sleep(for: Self.recordInterval)
            do throws(ChatError) {
                let rooms = try await activity.flush()
                if !rooms.isEmpty { feed.note { $0.reads.formUnion(rooms) } }
                try await tokens.flush()
            } catch {
                database.logger.debug("what was done last is written down later", metadata: ["error": "\(error)"])
            }
        } while !Task.isCancelled
    }

    /// Says when the database's files are gone, and when they are back. That nothing is written meanwhile, ``SQLiteDatabase``
    /// sees to.
    private func watchFiles() async {
        var isMissing = false
        while !Task.isCancelled {
            let missing = database.files.missing
            if let missing, !isMissing {
                database.logger.critical(
                    """
                    a file of the database was deleted, moved or replaced: nothing is read or written until it is back; \
                    what it held is in this process until it ends (docs/database.md)
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

    private func watchOthers() async {
        var watch = Watch()
        while !Task.isCancelled {
            do throws(ChatError) {
                if database.files.missing == nil { try await look(&watch) }
            } catch  where !Task.isCancelled {
                database.logger.warning("the queue could not be looked through", metadata: ["error": "\(error)"])
            } catch {}
            watch.endRound()
            try? await Task.sleep(for: Self.watchInterval)
        }
    }

    /// One round of the watch. `PRAGMA data_version` on the writing connection changes with every commit but our own, and costs
    /// microseconds.
    func look(_ watch: inout Watch) async throws(ChatError) {
        let version = try? await database.pool.writeWithoutTransaction { db in
            try Int64.fetchOne(db, sql: "PRAGMA data_version")
        }
        if let version, version != watch.seen || repair.mustRepairNumbers {
            try await repair.notice()
            watch.saw(version)
            queue.signal()
            feed.note { $0.isUnknown = true }
        }
        if let position = watch.position {
            let (next, found) = try await repair.sweep(from: position)
            watch.swept(to: next)
            if found { queue.signal() }
        }
        if watch.round.isMultiple(of: Self.settingRounds) { try await forgetUsage(&watch) }
        if watch.round.isMultiple(of: Self.fullScanRounds) {
            try await repair.scan()
            queue.signal()
            try await jobs.resume()
            try await warnOfUnconfiguredApps(&watch)
        } else if jobs.mustResume {
            try await jobs.resume()
        }
    }

    /// Takes away what was kept of devices when that is not to be kept any more; once, because nothing new comes.
    private func forgetUsage(_ watch: inout Watch) async throws(ChatError) {
        let isKept = repair.settings().keepsUsage
        if !isKept, !watch.isUsageForgotten { try await DeviceUsage.forget(database) }
        watch.isUsageForgotten = !isKept
    }

    private func warnOfUnconfiguredApps(_ watch: inout Watch) async throws(ChatError) {
        guard let configured = repair.settings().apps else { return }
        let waiting = try await figures.unconfiguredApps(configured)
        guard let names = watch.unconfiguredApps.news(of: waiting) else { return }
        database.logger.warning(
            "pushes wait for apps that are not configured", metadata: ["apps": "\(names)", "count": "\(waiting.count)"])
    }

    /// What has been looked at.
    struct Watch {
        var unconfiguredApps = UnconfiguredApps()
        var isUsageForgotten = false
        private(set) var round = 0
        private(set) var seen: Int64 = 0
        /// From where on the sweep goes on; nil while none is wanted.
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

        /// Begins a sweep where one is wanted and it is time.
        mutating func endRound() {
            round += 1
            guard position == nil, isSweepWanted, round >= nextSweep else { return }
            isSweepWanted = false
            position = QueueIndex.ids.lowerBound
        }
    }

    // MARK: - Retention

    /// Rows that one transaction deletes: few, so that a request never waits long behind it.
    private static let retentionStep = 500
    /// The oldest rows, of which those of a wrong clock or with work left may stay in the way.
    private static let retentionWindow = 2000
    /// Messages that one transaction deletes: each may have a large room's pushes, which then forget it.
    private static let messageStep = 10

    package func applyRetention(messages: Duration, queue: Duration) async throws(ChatError) -> RetentionResult {
        let now = database.clock()
        let settled = (now - queue).sqlText
        var result = RetentionResult()
        result.pushes = try await deletePushes(settledBefore: settled)
        // Ids grow with time, so the oldest stand first and no index on the time is needed.
        result.messages = try await deleteInSteps(
            of: Self.messageStep,
            """
            DELETE FROM messages WHERE message_id IN (
                SELECT message_id FROM (SELECT * FROM messages ORDER BY message_id LIMIT \(Self.retentionWindow))
                WHERE fanout_after IS NULL AND time_sent < ?2 LIMIT ?1)
            """, before: (now - messages).sqlText)
        result.feedback = try await deleteInSteps(
            of: Self.retentionStep,
            """
            DELETE FROM feedback WHERE feedback_id IN (
                SELECT feedback_id FROM (SELECT * FROM feedback ORDER BY feedback_id LIMIT \(Self.retentionWindow))
                WHERE result IS NOT NULL AND time_received < ?2 LIMIT ?1)
            """, before: settled)
        // Of those who left so long ago every message is deleted that they had read.
        _ = try await deleteInSteps(
            of: Self.retentionStep,
            "DELETE FROM past_members WHERE member_id IN (SELECT member_id FROM past_members WHERE time_left < ?2 LIMIT ?1)",
            before: (now - messages).sqlText)
        try await RoomRow.deleteUnused(database)
        _ = try await database.writer.perform(.upkeep) { db in
            try db.run("DELETE FROM device_days WHERE day < ?", [(now - .seconds(DeviceDay.kept * 86_400)).day])
        }
        result.notifications = try await deleteNotifications(before: settled)
        // Of browsers that nobody knows any more. One that was just brought is registered in the next moment.
        _ = try await deleteInSteps(
            of: Self.retentionStep,
            """
            DELETE FROM subscriptions WHERE device_token IN (
                SELECT s.device_token FROM subscriptions s WHERE s.time_kept < ?2 AND NOT EXISTS (
                    SELECT 1 FROM devices d WHERE d.device_token = s.device_token) LIMIT ?1)
            """, before: (now - .seconds(86_400)).sqlText)
        return result
    }

    /// Rows that one look goes through.
    private static let pushWindow = 5000

    static let windowSQL = """
        SELECT max(message_id), min(time_queued), count(*) FROM (
            SELECT message_id, time_queued FROM push_queue WHERE message_id > ? ORDER BY message_id LIMIT \(pushWindow))
        """

    /// What was settled before a time. Pushes of a notification that is still being queued stay: they keep it from going to a
    /// device twice.
    private static let isOld = """
        time_settled < ? AND state <> 'pending' AND NOT EXISTS (
            SELECT 1 FROM notifications n WHERE n.notification_id = q.notification AND n.work = 'queue')
        """

    /// Numbers grow with time: it ends where everything was queued too late to be old. What is not settled, or was settled
    /// late, stays in the way and is passed. Looks beside the writer, which deletes a window's rows in small steps.
    private func deletePushes(settledBefore time: String) async throws(ChatError) -> Int {
        var (deleted, after) = (0, Int64.min)
        while true {
            let window = try await database.read { [after] db -> (upTo: Int64, isLast: Bool, old: [Int64])? in
                let row = try db.row(Self.windowSQL, [after])
                guard let row, let upTo = row[0] as Int64? else { return nil }
                let old: [Int64] = try db.values(
                    """
                    SELECT message_id FROM push_queue q WHERE message_id > ? AND message_id <= ? AND \(Self.isOld)
                    ORDER BY message_id
                    """, [after, upTo, time])
                return (upTo, row[1] as String >= time || row[2] < Self.pushWindow, old)
            }
            guard let window else { return deleted }
            for start in stride(from: 0, to: window.old.count, by: Self.retentionStep) {
                let range = (window.old[start], window.old[min(start + Self.retentionStep, window.old.count) - 1])
                deleted += try await database.writer.perform(durably: false, .upkeep) { db in
                    try db.run(
                        "DELETE FROM push_queue AS q WHERE message_id BETWEEN ? AND ? AND \(Self.isOld)",
                        [range.0, range.1, time])
                }
            }
            if window.isLast { return deleted }
            after = window.upTo
        }
    }

    /// Ids grow with time, so it ends at the first that is not old; of the old, those with pushes stay in the way and are
    /// passed.
    static let oldNotificationsSQL = """
        SELECT notification_id, time_created < ?, work IS NULL AND NOT EXISTS (
            SELECT 1 FROM push_queue q
            WHERE q.message_id BETWEEN n.first_push AND n.last_push AND +q.notification = n.notification_id)
        FROM notifications n WHERE notification_id > ? ORDER BY notification_id LIMIT ?
        """

    private func deleteNotifications(before time: String) async throws(ChatError) -> Int {
        var (deleted, after): (Int, Int64) = (0, 0)
        while true {
            let (count, last) = try await database.writer.perform(.upkeep) { [after] db in
                let old = try db.rows(Self.oldNotificationsSQL, [time, after, Self.retentionStep]).prefix { $0[1] }
                let ended = old.filter { $0[2] }
                for row in ended {
                    try db.run("DELETE FROM notifications WHERE notification_id = ?", [row[0] as Int64])
                }
                return (ended.count, old.count < Self.retentionStep ? nil : old.last?[0] as Int64?)
            }
            deleted += count
            guard let last else { return deleted }
            after = last
        }
    }

    private func deleteInSteps(of step: Int, _ sql: String, before time: String) async throws(ChatError) -> Int {
        var deleted = 0
        while true {
            let count = try await database.writer.perform(.upkeep) { db in try db.run(sql, [step, time]) }
            deleted += count
            if count < step { return deleted }
        }
    }
}

extension WriteProbe {
    static func writing(_ writer: BatchingWriter) -> WriteProbe {
        // Longer than a statement waits for another process's lock.
        WriteProbe(limit: .seconds(DatabaseFile.busyTimeout) + .seconds(1)) { end in
            let isAccepted = writer.enqueue { db in
                // Writes a page though it is the same; an UPDATE that changes nothing would not.
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
