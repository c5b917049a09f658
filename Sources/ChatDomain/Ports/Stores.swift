/// All ports of a store, one for each subject. `docs/stores.md` lists the guarantees of each.
package struct Stores: Sendable {
    package var rooms: any RoomStore
    package var feed: any RoomFeed
    package var records: any RoomRecords
    package var devices: any DeviceStore
    package var notifications: any NotificationStore
    package var queue: any PushQueue
    package var queueAdministration: any QueueAdministration
    package var feedback: any FeedbackStore
    package var providerTokens: any ProviderTokenStore
    package var subscriptions: any SubscriptionStore
    package var tokens: any TokenStore
    package var hooks: any HookStore
    package var clients: any ClientStore
    package var pollRequests: any PollRequestStore
    package var unifiedPush: any UnifiedPushStore
    package var activities: any ActivityStore
    package var changes: any MessageChanges
    package var webhooks: any WebhookStore
    package var moderation: any Moderation
    package var metrics: any RelayMetrics
    package var upkeep: any StoreUpkeep

    package init(
        rooms: any RoomStore, feed: any RoomFeed, records: any RoomRecords, devices: any DeviceStore,
        notifications: any NotificationStore, queue: any PushQueue,
        queueAdministration: any QueueAdministration, feedback: any FeedbackStore,
        providerTokens: any ProviderTokenStore, subscriptions: any SubscriptionStore,
        tokens: any TokenStore, hooks: any HookStore, clients: any ClientStore, pollRequests: any PollRequestStore,
        unifiedPush: any UnifiedPushStore, activities: any ActivityStore, changes: any MessageChanges,
        webhooks: any WebhookStore, moderation: any Moderation,
        metrics: any RelayMetrics, upkeep: any StoreUpkeep
    ) {
        self.rooms = rooms
        self.feed = feed
        self.records = records
        self.devices = devices
        self.notifications = notifications
        self.queue = queue
        self.queueAdministration = queueAdministration
        self.feedback = feedback
        self.providerTokens = providerTokens
        self.subscriptions = subscriptions
        self.tokens = tokens
        self.hooks = hooks
        self.clients = clients
        self.pollRequests = pollRequests
        self.unifiedPush = unifiedPush
        self.activities = activities
        self.changes = changes
        self.webhooks = webhooks
        self.moderation = moderation
        self.metrics = metrics
        self.upkeep = upkeep
    }
}

/// The work of a store that no request causes.
package protocol StoreUpkeep: Sendable {
    /// Finds work that an earlier process left, and moves the rows of the app `default` to the default app. Called
    /// once, before any other call.
    func prepare() async throws(ChatError) -> StoreBacklog
    /// Notices writes of other processes, resumes interrupted work, and stores data that is only in memory, until the
    /// task is cancelled.
    func watch() async
    /// Checks whether writes reach the disk, for the relay's readiness. Writes at most once a second, however many
    /// callers there are, and takes a few seconds at most.
    ///
    /// - Throws: ``ChatError/Code/unavailable`` if writes do not reach the disk.
    func tryWriting() async throws(ChatError)
    /// Deletes data that is older than `ages`, in steps:
    ///
    /// - messages without an open key, and after ``RetentionAges/addresses`` the addresses from which they were posted
    /// - the read positions of members who left a room
    /// - settled pushes, feedback, and notifications without pushes
    /// - bans that have ended, and moderation records, except records that still cancel queued pushes
    /// - credentials whose member has had no session for ``StoreSettings/credentialLifetime``
    /// - messages that are hidden from clients that no longer exist
    /// - Live Activities without a call for that time, and push-to-start tokens that no app reports any more
    /// - rooms that ntfy's app no longer polls, old pushes of UnifiedPush, and its unused topics
    /// - the memory of webhooks that were not used for ``HookMemory/lifetime``
    /// - delivered and failed events of webhooks
    /// - device counts of days before ``DeviceDay/kept``, and unused subscriptions
    ///
    /// Unsettled pushes stay, however old they are.
    func applyRetention(_ ages: RetentionAges) async throws(ChatError) -> RetentionResult
    /// Returns the database's evidence of the time.
    ///
    /// - Parameter limit: The limit for ``ClockEvidence/newest``.
    func clockEvidence(upTo limit: Timestamp) async throws(ChatError) -> ClockEvidence
}

extension StoreUpkeep {
    package func applyRetention(messages: Duration, queue: Duration) async throws(ChatError) -> RetentionResult {
        try await applyRetention(RetentionAges(messages: messages, queue: queue))
    }
}

/// The ages at which rows are deleted.
package struct RetentionAges: Sendable, Hashable {
    /// The age of a message since it was posted, and of a member's stay since the member left.
    package var messages: Duration
    /// The age of a push since it was settled.
    package var queue: Duration
    /// The age of a ban since it ended, and of a moderation record since it was written.
    package var moderation: Duration
    /// The age of a webhook's event since its last attempt.
    package var webhooks: Duration

    /// The time for which a message keeps the address from which it was posted: the operator may need it to trace
    /// abuse.
    package static let addresses = Duration.seconds(30 * 86_400)

    package init(
        messages: Duration, queue: Duration, moderation: Duration = .seconds(365 * 86_400),
        webhooks: Duration = .seconds(7 * 86_400)
    ) {
        self.messages = messages
        self.queue = queue
        self.moderation = moderation
        self.webhooks = webhooks
    }
}

/// The work that an earlier process left.
package struct StoreBacklog: Sendable, Hashable {
    /// Apps with unsettled pushes. Some of these pushes may have been sent: the process may have died before it
    /// recorded that.
    package let apps: Set<AppName>

    package init(apps: Set<AppName>) {
        self.apps = apps
    }
}

/// The result of retention: the number of deleted rows by kind.
package struct RetentionResult: Sendable, Hashable {
    package var messages = 0
    package var pushes = 0
    package var feedback = 0
    package var notifications = 0
    /// Ended bans and moderation records.
    package var moderation = 0

    package init() {}
}

/// The parts of the configuration that a store uses. The store reads them at each use, so a reload takes effect at
/// once.
package struct StoreSettings: Sendable {
    /// Returns the format of an app's gateway, for chat messages.
    package var format: @Sendable (AppName) -> any PushFormat
    /// The time for which a chat push is worth sending. `nil` if there is no limit.
    package var expiration: Duration?
    /// The history of rooms for which the operator has not chosen one.
    package var history: RoomHistory
    /// The app of another program's pushes that name no app.
    package var defaultApp: AppName
    /// The apps of tokens of other kinds than the default app's, if their phones name no app.
    package var tokenApps: [TokenKind: AppName]
    /// Whether to store the versions and models that apps report, and the times at which devices were seen.
    package var keepsUsage: Bool
    /// The configured apps. `nil` allows any app.
    package var apps: Set<AppName>?
    /// The time for which a member's credential is valid after the member's last call with a session. `nil` if the relay
    /// needs no sessions.
    package var credentialLifetime: Duration?

    package init(
        format: @escaping @Sendable (AppName) -> any PushFormat, expiration: Duration? = nil,
        history: RoomHistory = .joined,
        defaultApp: AppName = .default, tokenApps: [TokenKind: AppName] = [:], keepsUsage: Bool = true,
        apps: Set<AppName>? = nil, credentialLifetime: Duration? = nil
    ) {
        self.format = format
        self.expiration = expiration
        self.history = history
        self.defaultApp = defaultApp
        self.tokenApps = tokenApps
        self.keepsUsage = keepsUsage
        self.apps = apps
        self.credentialLifetime = credentialLifetime
    }

    /// Returns the configured name of an app. Rows have the name `default` if they were written before the app had a
    /// name, or by another program.
    package func current(_ app: String) -> AppName { app == AppName.default.text ? defaultApp : AppName(app) }

    /// Returns the app of a token that no device has, if the caller names no app.
    package func app(ofToken token: String) -> AppName {
        TokenKind(ofText: token).flatMap { tokenApps[$0] } ?? defaultApp
    }
}
