/// An app's part of the queue.
package struct QueueDepth: Sendable, Hashable {
    package let app: AppName
    /// Can go now.
    package var due: Int
    /// Wait for their time.
    package var delayed: Int
    /// Handed to a connection, and not answered. Counted in memory.
    package var written: Int
    /// When the oldest of those that can go was queued.
    package var oldest: Timestamp?

    package init(app: AppName, due: Int = 0, delayed: Int = 0, written: Int = 0, oldest: Timestamp? = nil) {
        self.app = app
        self.due = due
        self.delayed = delayed
        self.written = written
        self.oldest = oldest
    }
}

/// How much the store holds.
package struct StoreTotals: Sendable, Hashable {
    package var devices = 0
    package var activeDevices = 0
    package var members = 0
    package var rooms = 0
    package var messages = 0
    package var notifications = 0

    package init() {}
}

/// How many devices of an app were seen on a day, that said the same of themselves.
package struct DeviceDay: Sendable, Hashable {
    /// What devices are counted by; the fields' names.
    package enum Kind: String, Sendable, CaseIterable {
        case appVersion = "app_version"
        case osVersion = "os_version"
        case deviceModel = "device_model"
    }

    /// What devices said.
    package enum Value: Sendable, Hashable {
        case text(String)
        case nothing
        /// Any of the values that came after the first ``mostValues`` of the day.
        case others
    }

    /// Days that are kept.
    package static let kept = 90
    /// Values of an app and a kind that are told apart on one day.
    package static let mostValues = 64

    /// In UTC: `2026-05-07`.
    package let day: String
    package let app: AppName
    /// Nil: all devices of the app.
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

/// How often an app's pushes came to one end, for one reason.
package struct OutcomeCount: Sendable, Hashable {
    package let app: AppName
    package let state: PushState
    /// In the gateway's words; nil for `sent`.
    package let reason: String?
    /// Since the process began.
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

/// What the store's writing costs, since the process began, and how much room it takes.
package struct StoreWork: Sendable {
    /// The transactions of one kind, each with the operations that shared it.
    package struct Batches: Sendable, Hashable {
        /// Who waits for them: `answer`, `upkeep`, `background`.
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
    /// Transactions that failed: the disk is full, say, another process holds the database, or its server is away.
    package var failedBatches = 0
    /// Operations that were refused because too many were waiting.
    package var refusedOperations = 0
    /// Seconds that copying the log into the database took, by who did it: `checkpointer`, or `writer`, which writes nothing
    /// meanwhile.
    package var checkpoints: [(by: String, seconds: Histogram.Snapshot)] = []
    /// Bytes of the files, by name: `database`, `log`.
    package var files: [(name: String, bytes: Int64)] = []
    /// Bytes that are free where the database lies; nil where that is not known.
    package var freeBytes: Int64?
    /// Of a store over a server: its connections, by what they do: `busy` with a call, or `idle`.
    package var connections: [(state: String, count: Int)] = []
    /// Calls that wait for a connection, by kind: `answer`, `read`, `upkeep`, `background`.
    package var waitingCalls: [(kind: String, count: Int)] = []
    /// What went wrong with the server, also where the transaction was done again: `lost` connections, `in_doubt` where the
    /// answer to a commit was lost, `collision` of two transactions, statements that were `refused` for another reason.
    package var errors: [(kind: String, count: Int)] = []

    package init() {}
}

/// Says how the store and its queue are doing.
package protocol RelayMetrics: Sendable {
    /// One for each app that has something in the queue.
    func queueDepths() async throws(ChatError) -> [QueueDepth]
    func totals() async throws(ChatError) -> StoreTotals
    /// The counts of a day and of those after it. Nil where they are not kept.
    func usage(since day: String) async throws(ChatError) -> [DeviceDay]?
    /// Counted in memory as reports come in.
    func outcomes() -> [OutcomeCount]
    /// What its writing costs.
    func work() -> StoreWork
}

extension RelayMetrics {
    /// Of a store that measures nothing.
    package func work() -> StoreWork { StoreWork() }
}

/// What an app's dispatcher has seen since the process began.
package struct DispatchMetrics: Sendable, Hashable {
    /// How often the gateway gave one kind of answer, for one reason; each attempt counts.
    package struct Responses: Sendable, Hashable {
        /// ``Outcome/kind``.
        package let kind: String
        /// In the gateway's words; nil where it gave none.
        package let reason: String?
        package let count: Int

        package init(kind: String, reason: String?, count: Int) {
            self.kind = kind
            self.reason = reason
            self.count = count
        }
    }

    /// In the order of kind and reason.
    package let answers: [Responses]
    /// Seconds from handing a push to a connection until its answer. Where silence is the answer, none.
    package let roundTrips: Histogram.Snapshot
    /// Seconds that a push could go and was not handed to a connection, at its first attempt.
    package let waits: Histogram.Snapshot
    /// Seconds from when a push could go until its gateway accepted it, repeats included.
    package let acceptances: Histogram.Snapshot
    /// The last answer about the credentials was that they are not accepted; of browsers' push services, any one's lately.
    package var areCredentialsRefused: Bool

    package init(
        answers: [Responses], roundTrips: Histogram.Snapshot, waits: Histogram.Snapshot, acceptances: Histogram.Snapshot,
        areCredentialsRefused: Bool
    ) {
        self.answers = answers
        self.roundTrips = roundTrips
        self.waits = waits
        self.acceptances = acceptances
        self.areCredentialsRefused = areCredentialsRefused
    }
}

/// An app as it is configured, and its way to Apple as it is now.
package struct AppStatus: Sendable, Hashable {
    package let app: AppName
    /// `http2` or `binary`.
    package let gateway: String
    /// `host:port`; nil while there is nothing to log in with.
    package let address: String?
    /// The bundle id, as far as it is known.
    package let topic: String?
    /// Connections that are open and confirmed.
    package let connections: Int
    package let certificateExpiresAt: Timestamp?
    package let dispatch: DispatchMetrics?

    package init(
        app: AppName, gateway: String, address: String?, topic: String?, connections: Int = 0,
        certificateExpiresAt: Timestamp? = nil, dispatch: DispatchMetrics? = nil
    ) {
        self.app = app
        self.gateway = gateway
        self.address = address
        self.topic = topic
        self.connections = connections
        self.certificateExpiresAt = certificateExpiresAt
        self.dispatch = dispatch
    }
}
