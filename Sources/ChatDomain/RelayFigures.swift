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

/// Says how the store and its queue are doing.
package protocol RelayFigures: Sendable {
    /// One for each app that has something in the queue.
    func queueDepths() async throws(ChatError) -> [QueueDepth]
    func totals() async throws(ChatError) -> StoreTotals
    /// The counts of a day and of those after it. Nil where they are not kept.
    func usage(since day: String) async throws(ChatError) -> [DeviceDay]?
    /// Counted in memory as reports come in.
    func outcomes() -> [OutcomeCount]
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

    package init(
        app: AppName, gateway: String, address: String?, topic: String?, connections: Int = 0,
        certificateExpiresAt: Timestamp? = nil
    ) {
        self.app = app
        self.gateway = gateway
        self.address = address
        self.topic = topic
        self.connections = connections
        self.certificateExpiresAt = certificateExpiresAt
    }
}
