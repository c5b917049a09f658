package import ChatDomain
package import ChatSQL
package import Logging

/// All stores of one PostgreSQL database. They are created and connected only here.
package struct PostgresStores: Sendable {
    package let database: PostgresDatabase
    package let rooms: PostgresRoomStore
    package let feed: PostgresRoomFeed
    package let records: any RoomRecords
    package let devices: PostgresDeviceStore
    package let notifications: PostgresNotificationStore
    package let queue: PostgresPushQueue
    package let queueAdministration: PostgresQueueAdministration
    package let feedback: SQLFeedbackStore<PostgresDatabase>
    package let providerTokens: SQLProviderTokenStore<PostgresDatabase>
    package let subscriptions: SQLSubscriptionStore<PostgresDatabase>
    package let tokens: SQLTokenStore<PostgresDatabase>
    package let hooks: SQLHookStore<PostgresDatabase>
    package let clients: SQLClientStore<PostgresDatabase>
    package let pollRequests: SQLPollRequestStore<PostgresDatabase>
    package let unifiedPush: SQLUnifiedPushStore<PostgresDatabase>
    package let activities: SQLActivityStore<PostgresDatabase>
    package let changes: SQLMessageChanges<PostgresDatabase>
    package let webhooks: SQLWebhookStore<PostgresDatabase>
    package let moderation: SQLModeration<PostgresDatabase>
    package let metrics: PostgresMetrics
    package let upkeep: PostgresUpkeep
    package let imports: PostgresImport
    let activity: MemberActivity<PostgresDatabase>
    let jobs: BackgroundJobs

    /// Connects, and creates or upgrades the tables. Blocks until that is done.
    /// - Throws: ``PostgresConfiguration/Unusable``, or ``ChatError`` if the server is unavailable at the moment.
    package init(
        configuration: PostgresConfiguration, settings: @escaping @Sendable () -> StoreSettings,
        now: @escaping TimeSource = Timestamp.now, logger: Logger
    ) throws {
        database = try PostgresDatabase(configuration: configuration, now: now, logger: logger)
        let outcomes = OutcomeCounter(now: now)
        queue = PostgresPushQueue(database: database, outcomes: outcomes, settings: settings)
        queueAdministration = PostgresQueueAdministration(database: database, outcomes: outcomes)
        activity = MemberActivity(database: database, keepsUsage: { settings().keepsUsage })
        jobs = BackgroundJobs(database: database, outcomes: outcomes, settings: settings)
        feed = PostgresRoomFeed(database: database, activity: activity)
        rooms = PostgresRoomStore(database: database, activity: activity, settings: settings)
        records = SQLRoomRecords(database: database, ids: APNSIDs(key: database.idKey))
        devices = PostgresDeviceStore(database: database, outcomes: outcomes, settings: settings)
        notifications = PostgresNotificationStore(database: database, jobs: jobs, settings: settings)
        feedback = SQLFeedbackStore(database: database)
        providerTokens = SQLProviderTokenStore(database: database)
        subscriptions = SQLSubscriptionStore(database: database)
        tokens = SQLTokenStore(database: database)
        hooks = SQLHookStore(database: database)
        clients = SQLClientStore(database: database, settings: settings)
        pollRequests = SQLPollRequestStore(database: database)
        unifiedPush = SQLUnifiedPushStore(database: database)
        activities = SQLActivityStore(database: database)
        changes = SQLMessageChanges(
            database: database, outcomes: outcomes, ids: APNSIDs(key: database.idKey), queue: .inDatabase,
            settings: settings)
        webhooks = SQLWebhookStore(database: database)
        moderation = SQLModeration(
            database: database, outcomes: outcomes, activity: activity, queue: .inDatabase, settings: settings)
        metrics = PostgresMetrics(database: database, outcomeCounter: outcomes, settings: settings)
        upkeep = PostgresUpkeep(
            database: database, queue: QueueUpkeep(database: database, queue: queue, settings: settings),
            jobs: jobs,
            shared: SQLUpkeep(
                database: database, activity: activity, tokens: tokens, hooks: hooks, clients: clients,
                pollRequests: pollRequests, unifiedPush: unifiedPush, activities: activities, webhooks: webhooks,
                settings: settings, logger: logger))
        imports = PostgresImport(database: database, settings: settings)
    }

    /// Ends this relay's start, which frees its leases immediately, and closes the connections. Calls after this one
    /// fail.
    package func close() { database.close() }

    /// The stores as the protocols that the other targets use.
    package var ports: Stores {
        Stores(
            rooms: rooms, feed: feed, records: records, devices: devices, notifications: notifications, queue: queue,
            queueAdministration: queueAdministration, feedback: feedback, providerTokens: providerTokens,
            subscriptions: subscriptions, tokens: tokens, hooks: hooks,
            clients: clients, pollRequests: pollRequests, unifiedPush: unifiedPush, activities: activities,
            changes: changes, webhooks: webhooks, moderation: moderation, metrics: metrics, upkeep: upkeep)
    }
}
