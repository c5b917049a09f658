/// Everything that a store has to bring, a port for each noun; docs/stores.md says what each must guarantee.
package struct Stores: Sendable {
    package var rooms: any RoomStore
    package var feed: any RoomFeed
    package var records: any RoomRecords
    package var devices: any DeviceStore
    package var notifications: any NotificationStore
    package var queue: any PushQueue
    package var feedback: any FeedbackStore
    package var providerTokens: any ProviderTokenStore
    package var subscriptions: any SubscriptionStore
    package var tokens: any TokenStore
    package var moderation: any Moderation
    package var metrics: any RelayMetrics
    package var upkeep: any StoreUpkeep

    package init(
        rooms: any RoomStore, feed: any RoomFeed, records: any RoomRecords, devices: any DeviceStore,
        notifications: any NotificationStore, queue: any PushQueue, feedback: any FeedbackStore,
        providerTokens: any ProviderTokenStore, subscriptions: any SubscriptionStore,
        tokens: any TokenStore, moderation: any Moderation, metrics: any RelayMetrics, upkeep: any StoreUpkeep
    ) {
        self.rooms = rooms
        self.feed = feed
        self.records = records
        self.devices = devices
        self.notifications = notifications
        self.queue = queue
        self.feedback = feedback
        self.providerTokens = providerTokens
        self.subscriptions = subscriptions
        self.tokens = tokens
        self.moderation = moderation
        self.metrics = metrics
        self.upkeep = upkeep
    }
}

/// What a store does by itself, beside requests.
package protocol StoreUpkeep: Sendable {
    /// Looks for what an earlier process left, and gives what is the app `default`'s to the default app. To be called once,
    /// before anything else.
    func prepare() async throws(ChatError) -> StoreBacklog
    /// Notices what other processes write, takes up work that was interrupted, and writes down what was only kept in
    /// memory, until the task is cancelled.
    func watch() async
    /// Whether what is written reaches the disk; for readiness. Tries it, once a second at the most, whoever asks, and takes
    /// some seconds at the most. Throws ``ChatError/Code/unavailable``.
    func tryWriting() async throws(ChatError)
    /// Deletes what is older than asked for, in steps: messages, and the addresses that they came from; what those had read who
    /// left a room; settled pushes and feedback, and notifications without pushes; bans that have ended and records of order in
    /// rooms, but those that still take back pushes. Also counts of days before ``DeviceDay/kept``, and subscriptions that
    /// nobody uses. What is not settled stays, however old.
    func applyRetention(_ ages: RetentionAges) async throws(ChatError) -> RetentionResult
    /// What the database says of the time.
    /// - Parameter limit: for ``ClockEvidence/newest``.
    func clockEvidence(upTo limit: Timestamp) async throws(ChatError) -> ClockEvidence
}

extension StoreUpkeep {
    package func applyRetention(messages: Duration, queue: Duration) async throws(ChatError) -> RetentionResult {
        try await applyRetention(RetentionAges(messages: messages, queue: queue))
    }
}

/// How long rows are kept.
package struct RetentionAges: Sendable, Hashable {
    /// Since a message was posted, and since a member left.
    package var messages: Duration
    /// Since a push was settled.
    package var queue: Duration
    /// Since a ban ended, and since something was done to keep order.
    package var moderation: Duration

    /// How long a message keeps the address that it was posted from: for as long as somebody may ask where abuse came from.
    package static let addresses = Duration.seconds(30 * 86_400)

    package init(messages: Duration, queue: Duration, moderation: Duration = .seconds(365 * 86_400)) {
        self.messages = messages
        self.queue = queue
        self.moderation = moderation
    }
}

/// What an earlier process left to do.
package struct StoreBacklog: Sendable, Hashable {
    /// Apps with pushes that are not settled. Some of them may have been sent: the process may have died before it knew.
    package let apps: Set<AppName>

    package init(apps: Set<AppName>) {
        self.apps = apps
    }
}

/// What retention took away.
package struct RetentionResult: Sendable, Hashable {
    package var messages = 0
    package var pushes = 0
    package var feedback = 0
    package var notifications = 0
    /// Ended bans, and records.
    package var moderation = 0

    package init() {}
}

/// What a store must know of the configuration; asked at each use, so that a reload takes effect at once.
package struct StoreSettings: Sendable {
    /// In which form an app's gateway takes a chat message.
    package var format: @Sendable (AppName) -> any PushFormat
    /// How long a chat push is worth sending; nil for ever.
    package var expiration: Duration?
    /// The history of rooms for which the operator has chosen none.
    package var history: RoomHistory
    /// Whose pushes another program's are, which says nothing of apps.
    package var defaultApp: AppName
    /// Whether it is kept what apps say of themselves, and when devices were seen.
    package var keepsUsage: Bool
    /// The apps that there are; nil for any.
    package var apps: Set<AppName>?

    package init(
        format: @escaping @Sendable (AppName) -> any PushFormat, expiration: Duration? = nil,
        history: RoomHistory = .joined,
        defaultApp: AppName = .default, keepsUsage: Bool = true, apps: Set<AppName>? = nil
    ) {
        self.format = format
        self.expiration = expiration
        self.history = history
        self.defaultApp = defaultApp
        self.keepsUsage = keepsUsage
        self.apps = apps
    }

    /// The configured name of an app. Rows call it `default` if they were written before it had a name, or by another program.
    package func current(_ app: String) -> AppName { app == AppName.default.text ? defaultApp : AppName(app) }
}
