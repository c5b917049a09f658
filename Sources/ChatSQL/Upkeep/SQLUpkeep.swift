package import ChatDomain
package import Logging

/// The part of the upkeep that is the same in both databases.
package struct SQLUpkeep<Database: SQLDatabase>: Sendable {
    /// The interval of writing the activity of members and tokens. It is only in memory until then.
    private static var recordInterval: Duration { .seconds(2) }

    private let database: Database
    private let activity: MemberActivity<Database>
    private let tokens: SQLTokenStore<Database>
    private let hooks: SQLHookStore<Database>
    private let clients: SQLClientStore<Database>
    private let pollRequests: SQLPollRequestStore<Database>
    private let unifiedPush: SQLUnifiedPushStore<Database>
    private let activities: SQLActivityStore<Database>
    private let webhooks: SQLWebhookStore<Database>
    private let settings: @Sendable () -> StoreSettings
    private let logger: Logger
    package let adoption: SQLAppAdoption<Database>
    package let retention: SQLRetention

    package init(
        database: Database, activity: MemberActivity<Database>, tokens: SQLTokenStore<Database>,
        hooks: SQLHookStore<Database>, clients: SQLClientStore<Database>, pollRequests: SQLPollRequestStore<Database>,
        unifiedPush: SQLUnifiedPushStore<Database>, activities: SQLActivityStore<Database>,
        webhooks: SQLWebhookStore<Database>, settings: @escaping @Sendable () -> StoreSettings, logger: Logger
    ) {
        self.database = database
        self.activity = activity
        self.tokens = tokens
        self.hooks = hooks
        self.clients = clients
        self.pollRequests = pollRequests
        self.unifiedPush = unifiedPush
        self.activities = activities
        self.webhooks = webhooks
        self.settings = settings
        self.logger = logger
        adoption = SQLAppAdoption(database: database, settings: settings, logger: logger)
        retention = SQLRetention(database.dialect)
    }

    /// Prepares webhooks. If another program holds a table for long, the relay starts without them: the upkeep repeats it.
    package func prepareWebhooks() async throws(ChatError) {
        do throws(ChatError) {
            try await webhooks.prepare()
        } catch  where error.code == .unavailable {
            logger.warning(
                "triggers of webhooks could not be changed and will be retried", metadata: ["error": "\(error)"])
        }
    }

    /// Records the activity of members and tokens every few seconds until the task is cancelled, and then once more.
    package func record() async {
        repeat {
            try? await Task.sleep(for: Self.recordInterval)
            var failure = FirstError()
            await failure.collect { () throws(ChatError) in try await activity.flush() }
            await failure.collect { () throws(ChatError) in try await tokens.flush() }
            await failure.collect { () throws(ChatError) in try await clients.flush() }
            do throws(ChatError) {
                try failure.rethrow()
            } catch {
                logger.debug(
                    "recent activity could not be recorded and will be retried", metadata: ["error": "\(error)"])
            }
        } while !Task.isCancelled
    }

    /// - Parameter pushes: Deletes the pushes that were settled before a time, and returns their number.
    package func applyRetention(
        _ ages: RetentionAges, pushes: (_ before: Timestamp) async throws(ChatError) -> Int
    ) async throws(ChatError) -> RetentionResult {
        var (result, failure) = (RetentionResult(), FirstError())
        await failure.collect { () throws(ChatError) in
            result = try await retention.apply(ages, database, pushes: pushes)
        }
        await failure.collect(hooks.applyRetention)
        await failure.collect(clients.applyRetention)
        await failure.collect(pollRequests.applyRetention)
        await failure.collect(unifiedPush.applyRetention)
        await failure.collect { () throws(ChatError) in try await activities.applyRetention(ages) }
        await failure.collect { () throws(ChatError) in try await webhooks.applyRetention(ages) }
        try failure.rethrow()
        return result
    }

    /// Settings that were applied to data that is already stored.
    package struct Applied: Sendable {
        fileprivate var isUsageForgotten = false
        package var unconfiguredApps = UnconfiguredApps()

        package init() {}
    }

    /// Deletes stored usage data of devices once the settings no longer allow it. Once is enough, because no new data
    /// is stored.
    package func forgetUsage(_ applied: inout Applied) async throws(ChatError) {
        let isKept = settings().keepsUsage
        if !isKept, !applied.isUsageForgotten { try await database.forgetUsage() }
        applied.isUsageForgotten = !isKept
    }

    /// - Parameter find: Returns the apps with waiting pushes that are not among the configured ones.
    package func warnOfUnconfiguredApps(
        _ applied: inout Applied, _ find: (_ configured: Set<AppName>) async throws(ChatError) -> Set<AppName>
    ) async throws(ChatError) {
        guard let configured = settings().apps else { return }
        let waiting = try await find(configured)
        guard let names = applied.unconfiguredApps.news(of: waiting) else { return }
        logger.warning(
            "pushes wait for apps that are not configured", metadata: ["apps": "\(names)", "count": "\(waiting.count)"])
    }
}
