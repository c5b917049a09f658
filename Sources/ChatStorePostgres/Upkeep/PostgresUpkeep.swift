package import ChatDomain
import ChatSQL
import Logging

/// Background work of the store: heartbeats, changes by others, work after responses, deletion by age. Every relay does
/// all of it, and skips the parts that another relay is doing at the moment.
package struct PostgresUpkeep: StoreUpkeep {
    /// The interval of checks of settings that require work.
    private static let settingsInterval = Duration.seconds(5)
    /// The interval of writing the activity of members and tokens. It is only in memory until then.
    private static let recordInterval = Duration.seconds(2)

    let database: PostgresDatabase
    let queue: QueueUpkeep
    let adoption: SQLAppAdoption<PostgresDatabase>
    let activity: MemberActivity<PostgresDatabase>
    let tokens: SQLTokenStore<PostgresDatabase>
    let clients: SQLClientStore<PostgresDatabase>
    let pollRequests: SQLPollRequestStore<PostgresDatabase>
    let unifiedPush: SQLUnifiedPushStore<PostgresDatabase>
    let activities: SQLActivityStore<PostgresDatabase>
    let jobs: BackgroundJobs
    let settings: @Sendable () -> StoreSettings
    let retention: PostgresRetention
    private let probe: WriteProbe

    init(
        database: PostgresDatabase, queue: QueueUpkeep, adoption: SQLAppAdoption<PostgresDatabase>,
        activity: MemberActivity<PostgresDatabase>,
        tokens: SQLTokenStore<PostgresDatabase>, clients: SQLClientStore<PostgresDatabase>,
        pollRequests: SQLPollRequestStore<PostgresDatabase>, unifiedPush: SQLUnifiedPushStore<PostgresDatabase>,
        activities: SQLActivityStore<PostgresDatabase>,
        jobs: BackgroundJobs,
        settings: @escaping @Sendable () -> StoreSettings
    ) {
        self.database = database
        self.queue = queue
        self.adoption = adoption
        self.activity = activity
        self.tokens = tokens
        self.clients = clients
        self.pollRequests = pollRequests
        self.unifiedPush = unifiedPush
        self.activities = activities
        self.jobs = jobs
        self.settings = settings
        retention = PostgresRetention(database: database)
        // Longer than the time limit of a statement.
        probe = WriteProbe(limit: PostgresDatabase.answerLimit + .seconds(1)) { end in
            Task {
                do throws(ChatError) {
                    try await database.tryWriting()
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
        // Takes over the pushes of relays that have ended.
        return StoreBacklog(apps: try await queue.look())
    }

    package func watch() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.record() }
            group.addTask { await self.queue.run() }
            group.addTask { await self.jobs.run() }
            group.addTask { await self.watchSettings() }
            await group.next()
            group.cancelAll()
        }
    }

    package func tryWriting() async throws(ChatError) { try await probe.run() }

    /// Records the activity of members and tokens every few seconds until the task is cancelled, and then once more.
    private func record() async {
        repeat {
            try? await Task.sleep(for: Self.recordInterval)
            do throws(ChatError) {
                try await activity.flush()
                try await tokens.flush()
                try await clients.flush()
            } catch {
                database.logger.debug(
                    "recent activity could not be recorded and will be retried", metadata: ["error": "\(error)"])
            }
        } while !Task.isCancelled
    }

    /// Applies changed settings to data that is already stored.
    private func watchSettings() async {
        var (isUsageForgotten, unconfigured) = (false, UnconfiguredApps())
        while !Task.isCancelled {
            do throws(ChatError) {
                // Once is enough, because no new data is stored.
                let isKept = settings().keepsUsage
                if !isKept, !isUsageForgotten { try await database.forgetUsage() }
                isUsageForgotten = !isKept
                try await warnOfUnconfiguredApps(&unconfigured)
            } catch {
                database.logger.debug(
                    "changed settings could not be applied and will be retried", metadata: ["error": "\(error)"])
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

    package func applyRetention(_ ages: RetentionAges) async throws(ChatError) -> RetentionResult {
        var (result, failure) = (RetentionResult(), FirstError())
        await failure.collect { () throws(ChatError) in result = try await retention.apply(ages, queue) }
        await failure.collect(clients.applyRetention)
        await failure.collect(pollRequests.applyRetention)
        await failure.collect(unifiedPush.applyRetention)
        await failure.collect { () throws(ChatError) in try await activities.applyRetention(ages) }
        try failure.rethrow()
        return result
    }

    package func clockEvidence(upTo limit: Timestamp) async throws(ChatError) -> ClockEvidence {
        try await retention.clockEvidence(upTo: limit)
    }
}
