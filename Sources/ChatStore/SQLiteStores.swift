package import ChatDomain
package import ChatSQL
package import Logging

/// All stores of one SQLite file. They are created and connected only here.
package struct SQLiteStores: Sendable {
    package let database: SQLiteDatabase
    package let rooms: SQLiteRoomStore
    package let feed: SQLiteRoomFeed
    package let records: any RoomRecords
    package let devices: SQLiteDeviceStore
    package let notifications: SQLiteNotificationStore
    package let queue: SQLitePushQueue
    package let queueAdministration: SQLQueueAdministration<RelayQueueTable>
    package let feedback: SQLFeedbackStore<SQLiteDatabase>
    package let providerTokens: SQLProviderTokenStore<SQLiteDatabase>
    package let subscriptions: SQLSubscriptionStore<SQLiteDatabase>
    package let tokens: SQLTokenStore<SQLiteDatabase>
    package let hooks: SQLHookStore<SQLiteDatabase>
    package let clients: SQLClientStore<SQLiteDatabase>
    package let pollRequests: SQLPollRequestStore<SQLiteDatabase>
    package let unifiedPush: SQLUnifiedPushStore<SQLiteDatabase>
    package let activities: SQLActivityStore<SQLiteDatabase>
    package let changes: SQLMessageChanges<SQLiteDatabase>
    package let webhooks: SQLWebhookStore<SQLiteDatabase>
    package let moderation: SQLModeration<SQLiteDatabase>
    package let metrics: SQLiteMetrics
    package let upkeep: SQLiteUpkeep
    package let imports: SQLiteImport
    let repair: QueueRepair
    let activity: MemberActivity<SQLiteDatabase>
    let jobs: BackgroundJobs

    /// Opens or creates the file.
    /// - Throws: ``DatabaseFile/Unusable``, or ``ChatError`` if the disk is full or another process has locked the
    ///   file.
    package init(
        file: DatabaseFile, settings: @escaping @Sendable () -> StoreSettings,
        now: @escaping TimeSource = Timestamp.now, logger: Logger
    ) throws {
        database = try SQLiteDatabase(file: file, now: now, logger: logger)
        let outcomes = OutcomeCounter(now: now)
        let (memory, ids, last) = try database.pool.read { db in
            (try QueueMemory(db), try APNSIDs.load(db), try SQLiteRoomFeed.lastMessage(db))
        }
        queue = SQLitePushQueue(
            database: database, outcomes: outcomes, memory: memory, ids: ids, settings: settings)
        queueAdministration = SQLQueueAdministration(
            table: RelayQueueTable(database: database, queue: queue, outcomes: outcomes), ids: ids)
        repair = QueueRepair(database: database, memory: memory, settings: settings)
        activity = MemberActivity(database: database, keepsUsage: { settings().keepsUsage })
        jobs = BackgroundJobs(database: database, queue: queue, outcomes: outcomes, settings: settings)
        feed = SQLiteRoomFeed(database: database, activity: activity, last: last)
        database.listeners.add { [queue, feed] announcement in
            if announcement.withdrawal { queue.forgetContent() }
            feed.note(announcement)
        }
        rooms = SQLiteRoomStore(
            database: database, queue: queue, feed: feed, activity: activity, jobs: jobs, settings: settings)
        records = SQLRoomRecords(database: database, ids: ids)
        devices = SQLiteDeviceStore(database: database, outcomes: outcomes, ids: ids, settings: settings)
        notifications = SQLiteNotificationStore(database: database, queue: queue, jobs: jobs, settings: settings)
        feedback = SQLFeedbackStore(database: database)
        providerTokens = SQLProviderTokenStore(database: database)
        subscriptions = SQLSubscriptionStore(database: database)
        tokens = SQLTokenStore(database: database)
        hooks = SQLHookStore(database: database)
        clients = SQLClientStore(database: database, settings: settings)
        pollRequests = SQLPollRequestStore(database: database)
        unifiedPush = SQLUnifiedPushStore(database: database)
        activities = SQLActivityStore(database: database)
        let messageQueue = MessageQueue(
            startFanout: { [jobs] in jobs.start(.message($0)) },
            isInFlight: { [queue] in !queue.inFlight(in: $0...$0).isEmpty },
            isInDoubt: { [memory] in $0 <= memory.highestAtStart },
            queued: { [queue] in queue.inserted($0) })
        changes = SQLMessageChanges(
            database: database, outcomes: outcomes, ids: ids, queue: messageQueue, settings: settings)
        webhooks = SQLWebhookStore(database: database)
        moderation = SQLModeration(
            database: database, outcomes: outcomes, activity: activity, queue: messageQueue, settings: settings)
        metrics = SQLiteMetrics(database: database, memory: memory, outcomeCounter: outcomes, settings: settings)
        upkeep = SQLiteUpkeep(
            database: database, queue: queue, repair: repair, metrics: metrics, feed: feed, jobs: jobs,
            probe: .writing(database.writer),
            shared: SQLUpkeep(
                database: database, activity: activity, tokens: tokens, hooks: hooks, clients: clients,
                pollRequests: pollRequests, unifiedPush: unifiedPush, activities: activities, webhooks: webhooks,
                settings: settings, logger: logger))
        imports = SQLiteImport(database: database, settings: settings)
    }

    /// Closes the connections, after moving everything into the main file. Calls after this one fail.
    package func close() throws { try database.close() }

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
