#if PostgreSQL
package import ChatDomain
import Logging

/// What the store does by itself: signs of life, what others left, work behind answers, deletion by age. Every relay does all
/// of it; what one does at a moment the others leave out.
package struct PostgresUpkeep: StoreUpkeep {
    /// How often settings are looked at that ask for work.
    private static let settingsInterval = Duration.seconds(5)
    /// How long what members and tokens did may be in memory only.
    private static let recordInterval = Duration.seconds(2)
    /// Rows that one transaction deletes: few, so that nobody waits long behind it.
    private static let retentionStep = 500
    /// How long ended starts are kept, for people.
    private static let startsKept = Duration.seconds(30 * 86_400)

    let database: PostgresDatabase
    let queue: QueueUpkeep
    let adoption: AppAdoption
    let feedback: PostgresFeedbackStore
    let activity: MemberActivity
    let tokens: PostgresTokenStore
    let jobs: BackgroundJobs
    let settings: @Sendable () -> StoreSettings
    private let probe: WriteProbe

    init(
        database: PostgresDatabase, queue: QueueUpkeep, adoption: AppAdoption, feedback: PostgresFeedbackStore,
        activity: MemberActivity, tokens: PostgresTokenStore, jobs: BackgroundJobs,
        settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.queue = queue
        self.adoption = adoption
        self.feedback = feedback
        self.activity = activity
        self.tokens = tokens
        self.jobs = jobs
        self.settings = settings
        // Longer than a statement takes before it is given up.
        probe = WriteProbe(limit: PostgresDatabase.answerLimit + .seconds(1)) { end in
            Task {
                do throws(ChatError) {
                    try await database.write(isRepeatable: true) { [start = database.start] transaction in
                        transaction.later(
                            "UPDATE relay_starts SET host = host WHERE start_id = $1::bigint", [.int(start)])
                    }
                    end(nil)
                } catch {
                    end(error)
                }
            }
        }
    }

    package func prepare() async throws(ChatError) -> StoreBacklog {
        try await database.beginStart()
        try await adoption.run()
        // Takes over from relays that have ended.
        return StoreBacklog(apps: try await queue.look())
    }

    package func watch() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.record() }
            group.addTask { await self.queue.run() }
            group.addTask { await self.jobs.run() }
            group.addTask { await self.watchSettings() }
        }
    }

    package func tryWriting() async throws(ChatError) { try await probe.run() }

    /// Writes down what members and tokens did, every few seconds until the task is cancelled, and then once more.
    private func record() async {
        repeat {
            try? await Task.sleep(for: Self.recordInterval)
            do throws(ChatError) {
                try await activity.flush()
                try await tokens.flush()
            } catch {
                database.logger.debug("what was done last is written down later", metadata: ["error": "\(error)"])
            }
        } while !Task.isCancelled
    }

    /// What the configuration asks of what is stored already.
    private func watchSettings() async {
        var (isUsageForgotten, unconfigured) = (false, UnconfiguredApps())
        while !Task.isCancelled {
            do throws(ChatError) {
                // Once, because nothing new comes.
                let isKept = settings().keepsUsage
                if !isKept, !isUsageForgotten { try await DeviceUsage.forget(database) }
                isUsageForgotten = !isKept
                try await warnOfUnconfiguredApps(&unconfigured)
            } catch {
                database.logger.debug("settings are followed later", metadata: ["error": "\(error)"])
            }
            try? await Task.sleep(for: Self.settingsInterval)
        }
    }

    private func warnOfUnconfiguredApps(_ unconfigured: inout UnconfiguredApps) async throws(ChatError) {
        guard let configured = settings().apps else { return }
        let waiting = try await queue.unconfiguredApps(configured)
        guard let names = unconfigured.news(of: waiting) else { return }
        database.logger.warning(
            "pushes wait for apps that are not configured", metadata: ["apps": "\(names)", "count": "\(waiting.count)"])
    }

    // MARK: - Retention

    package func applyRetention(messages: Duration, queue: Duration) async throws(ChatError) -> RetentionResult {
        let now = database.clock()
        let settled = now - queue
        var (result, failure) = (RetentionResult(), ChatError?.none)
        // What fails of one kind keeps no other.
        func apply(_ kind: WritableKeyPath<RetentionResult, Int>, _ work: () async throws(ChatError) -> Int) async {
            do throws(ChatError) {
                result[keyPath: kind] = try await work()
            } catch {
                failure = failure ?? error
            }
        }
        await apply(\.pushes) { () throws(ChatError) in try await self.queue.applyRetention(keeping: queue) }
        await apply(\.messages) { () throws(ChatError) in
            try await RoomRetention(database: database).apply(messages: messages)
        }
        await apply(\.feedback) { () throws(ChatError) in try await feedback.applyRetention(before: settled) }
        await apply(\.notifications) { () throws(ChatError) in
            try await NotificationRetention(database: database).apply(before: settled)
        }
        try await RoomRow.deleteUnused(database)
        // Of browsers that nobody knows any more. One that was just brought is registered in the next moment.
        _ = try await deleteInSteps(
            """
            DELETE FROM subscriptions WHERE device_token IN (
                SELECT s.device_token FROM subscriptions s WHERE s.time_kept < at($2::bigint) AND NOT EXISTS (
                    SELECT 1 FROM devices d WHERE d.device_token = s.device_token)
                LIMIT $1::bigint FOR UPDATE SKIP LOCKED)
            """, before: now - .seconds(86_400))
        try await database.write(.upkeep, isRepeatable: true) { transaction in
            try transaction.run(
                "DELETE FROM device_days WHERE day < $1::text",
                [.text((now - .seconds(DeviceDay.kept * 86_400)).day)])
            try transaction.run(
                "DELETE FROM relay_starts WHERE time_ended < now() - $1::bigint * interval '1 ms'",
                [.int(Self.startsKept.milliseconds)])
        }
        if let failure { throw failure }
        return result
    }

    private func deleteInSteps(_ sql: String, before time: Timestamp) async throws(ChatError) -> Int {
        var deleted = 0
        while true {
            let count = try await database.write(.upkeep, isRepeatable: true) { transaction in
                try transaction.run(sql, [.int(Self.retentionStep), .time(time)])
            }
            deleted += count
            if count < Self.retentionStep { return deleted }
        }
    }
}
#endif
