/// An app's pushes in the queue: how many there are of each kind, and the time of the oldest due one.
package struct QueueDepth: Sendable, Hashable {
    package let app: AppName
    /// Pushes that can be sent now.
    package var due: Int
    /// Pushes that wait for their time.
    package var delayed: Int
    /// Pushes that were written to a connection and have no outcome yet. Counted in memory.
    package var written: Int
    /// The time at which the oldest due push was queued.
    package var oldest: Timestamp?
    /// The pause that an operator has made. `nil` if the app is not paused.
    package var pause: QueuePause?

    package init(
        app: AppName, due: Int = 0, delayed: Int = 0, written: Int = 0, oldest: Timestamp? = nil,
        pause: QueuePause? = nil
    ) {
        self.app = app
        self.due = due
        self.delayed = delayed
        self.written = written
        self.oldest = oldest
        self.pause = pause
    }

    /// All pushes of the app in the queue.
    package var total: Int { due + delayed + written }

    /// Returns the depths of apps that have pushes or a pause, in the order of their names.
    ///
    /// - Parameter pauses: The pauses of all apps.
    package static func list(_ depths: some Sequence<QueueDepth>, _ pauses: [QueuePause]) -> [QueueDepth] {
        var all = Dictionary(depths.map { ($0.app, $0) }) { first, _ in first }
        for pause in pauses { all[pause.app, default: QueueDepth(app: pause.app)].pause = pause }
        return all.values.filter { $0.total > 0 || $0.pause != nil }
            .sorted { $0.app < $1.app }
    }
}

/// The numbers of stored devices, members, rooms, messages and notifications.
package struct StoreTotals: Sendable, Hashable {
    package var devices = 0
    package var activeDevices = 0
    package var members = 0
    package var rooms = 0
    package var messages = 0
    package var notifications = 0

    package init() {}
}

/// A count of an app's devices that were seen on one day and reported the same value.
package struct DeviceDay: Sendable, Hashable {
    /// The values by which devices are counted. The raw values are the names of the fields.
    package enum Kind: String, Sendable, CaseIterable {
        case appVersion = "app_version"
        case osVersion = "os_version"
        case deviceModel = "device_model"
    }

    /// The value that devices reported.
    package enum Value: Sendable, Hashable {
        case text(String)
        case nothing
        /// Any value after the first ``mostValues`` values of the day.
        case others
    }

    /// The number of days to keep.
    package static let kept = 90
    /// The maximum number of values to count separately per day, app and kind.
    package static let mostValues = 64

    /// The day in UTC: `2026-05-07`.
    package let day: String
    package let app: AppName
    /// The kind of value. `nil` for all devices of the app.
    package let kind: Kind?
    package let value: Value
    package let devices: Int

    package init(day: String, app: AppName, kind: Kind?, value: Value, devices: Int) {
        self.day = day
        self.app = app
        self.kind = kind
        self.value = value
        self.devices = devices
    }
}

/// A count of an app's pushes with the same final state and reason.
package struct OutcomeCount: Sendable, Hashable {
    package let app: AppName
    package let state: PushState
    /// The reason in the gateway's terms. `nil` for `sent`.
    package let reason: String?
    /// The number since the process started.
    package let total: Int
    package let lastMinute: Int

    package init(app: AppName, state: PushState, reason: String?, total: Int, lastMinute: Int) {
        self.app = app
        self.state = state
        self.reason = reason
        self.total = total
        self.lastMinute = lastMinute
    }
}

/// The cost of the store's writes since the process started, and its size on the disk.
package struct StoreWork: Sendable {
    /// The transactions of one kind, with the number of operations in each.
    package struct Batches: Sendable, Hashable {
        /// The kind of caller that waits for the transactions: `answer`, `upkeep` or `background`.
        package let kind: String
        package let seconds: Histogram.Snapshot
        package let sizes: Histogram.Snapshot

        package init(kind: String, seconds: Histogram.Snapshot, sizes: Histogram.Snapshot) {
            self.kind = kind
            self.seconds = seconds
            self.sizes = sizes
        }
    }

    package var batches: [Batches] = []
    /// Transactions that failed, for example because the disk is full, another process holds the database, or its
    /// server is away.
    package var failedBatches = 0
    /// Operations that were rejected because too many were waiting.
    package var refusedOperations = 0
    /// The seconds that it took to copy the log into the database, by thread: `checkpointer`, or `writer`, which writes
    /// nothing in that time.
    package var checkpoints: [(by: String, seconds: Histogram.Snapshot)] = []
    /// The bytes of the files, by name: `database`, `log`.
    package var files: [(name: String, bytes: Int64)] = []
    /// The free bytes on the database's file system. `nil` if they are not known.
    package var freeBytes: Int64?
    /// The connections to the database server by state: `busy` with a call, or `idle`. Empty for a database file.
    package var connections: [(state: String, count: Int)] = []
    /// The calls that wait for a connection, by kind: `answer`, `read`, `upkeep`, `background`.
    package var waitingCalls: [(kind: String, count: Int)] = []
    /// The problems with the server by kind, even if the store then repeated the transaction: `lost` connections,
    /// `in_doubt` if the response to a commit was lost, `collision` of two transactions, and statements that were
    /// `refused` for another reason.
    package var errors: [(kind: String, count: Int)] = []

    package init() {}
}

/// Metrics of the store and its queue.
package protocol RelayMetrics: Sendable {
    /// Returns the depth of each app that has pushes in the queue.
    func queueDepths() async throws(ChatError) -> [QueueDepth]
    func totals() async throws(ChatError) -> StoreTotals
    /// Returns the counts of a day and of all later days. `nil` if the relay does not store them.
    func usage(since day: String) async throws(ChatError) -> [DeviceDay]?
    /// Returns the outcomes, counted in memory as reports arrive.
    func outcomes() -> [OutcomeCount]
    /// Returns the cost of the store's writes.
    func work() -> StoreWork
}

extension RelayMetrics {
    /// Returns no measurements, for a store that makes none.
    package func work() -> StoreWork { StoreWork() }
}

/// A dispatcher's measurements since the process started.
package struct DispatchMetrics: Sendable, Hashable {
    /// A count of outcomes of one kind with one reason. Each attempt counts.
    package struct Responses: Sendable, Hashable {
        /// The name from ``Outcome/kind``.
        package let kind: String
        /// The reason in the gateway's terms. `nil` if the gateway gave none.
        package let reason: String?
        package let count: Int

        package init(kind: String, reason: String?, count: Int) {
            self.kind = kind
            self.reason = reason
            self.count = count
        }
    }

    /// The outcomes, sorted by kind and reason.
    package let answers: [Responses]
    /// The seconds from writing a push to a connection until the gateway's response. Empty for a gateway whose silence
    /// counts as acceptance.
    package let roundTrips: Histogram.Snapshot
    /// The seconds for which a due push waited to be written to a connection. Only first attempts count.
    package let waits: Histogram.Snapshot
    /// The seconds from the time at which a push was due until its gateway accepted it, including retries.
    package let acceptances: Histogram.Snapshot
    /// Whether the gateway rejected the credentials in its last response about them. For browsers: whether any push
    /// service did so recently.
    package var areCredentialsRefused: Bool

    package init(
        answers: [Responses], roundTrips: Histogram.Snapshot, waits: Histogram.Snapshot,
        acceptances: Histogram.Snapshot, areCredentialsRefused: Bool
    ) {
        self.answers = answers
        self.roundTrips = roundTrips
        self.waits = waits
        self.acceptances = acceptances
        self.areCredentialsRefused = areCredentialsRefused
    }
}

/// The reason why a browsers' push service does not get all pushes at once.
package enum PushServiceCondition: Sendable, Hashable {
    /// The service accepts nothing, so that only a few pushes are sent as tests.
    case paused(until: Timestamp)
    /// The service limits the rate.
    case slowed(perMinute: Int)
}

/// A browsers' push service that does not get all pushes at once.
package struct PushServiceStatus: Sendable, Hashable {
    /// Scheme, host and port.
    package let origin: String
    package let condition: PushServiceCondition

    package init(origin: String, condition: PushServiceCondition) {
        self.origin = origin
        self.condition = condition
    }
}

/// The configuration of an app, and the state of its connections.
package struct AppStatus: Sendable, Hashable {
    package let app: AppName
    /// The gateway's kind: `http2`, `binary` or `webpush`.
    package let gateway: String
    /// The gateway's address as `host:port`. `nil` if the app has no credentials yet.
    package let address: String?
    /// The bundle id, if it is known.
    package let topic: String?
    /// Whether nothing is configured for the app, as on a relay that serves only browsers.
    package let isForBrowsersOnly: Bool
    /// The number of connections that are open and confirmed.
    package let connections: Int
    package let certificateExpiresAt: Timestamp?
    package let dispatch: DispatchMetrics?
    /// The browsers' push services that do not get all pushes at once. Empty for other apps.
    package let restrictedServices: [PushServiceStatus]

    package init(
        app: AppName, gateway: String, address: String?, topic: String?, isForBrowsersOnly: Bool = false,
        connections: Int = 0, certificateExpiresAt: Timestamp? = nil, dispatch: DispatchMetrics? = nil,
        restrictedServices: [PushServiceStatus] = []
    ) {
        self.restrictedServices = restrictedServices
        self.app = app
        self.gateway = gateway
        self.address = address
        self.topic = topic
        self.isForBrowsersOnly = isForBrowsersOnly
        self.connections = connections
        self.certificateExpiresAt = certificateExpiresAt
        self.dispatch = dispatch
    }
}
