import Foundation

/// The complete state of the sandbox as a value.
///
/// The handlers of all protocols call it to decide on each notification. Each service's folder has its decisions as an
/// extension. Faults take precedence over the sandbox's own rules.
struct SandboxState: Sendable {
    let configuration: SandboxConfiguration
    var inbox: Inbox
    var devices = DeviceRegistry()
    var browsers = BrowserRegistry()
    var userAgents = UserAgents()
    var installations = InstallationRegistry()
    /// The token endpoint. `nil` until the sandbox listens.
    var accessTokens: AccessTokens?
    var activities = ActivityRegistry()
    var channels = ChannelRegistry()
    var feedback = FeedbackList()
    var faults = FaultTable()
    var counts = SandboxStats()
    /// Counts the notifications that each device gets in the current second.
    var deviceRate = DeviceRate()
    private var lastConnection = 0

    init(configuration: SandboxConfiguration) {
        self.configuration = configuration
        inbox = Inbox(limit: configuration.inboxLimit, byteLimit: configuration.inboxByteLimit)
    }

    // MARK: Connections and counts

    var stats: SandboxStats {
        var stats = counts
        stats.feedback.waiting = feedback.count
        stats.inbox = .init(count: inbox.count, dropped: inbox.dropped, last: inbox.lastID)
        stats.registered = [
            "devices": .init(installed: devices.presentCount, removed: devices.removedCount),
            "installations": .init(installed: installations.presentCount, removed: installations.removedCount),
        ]
        stats.channels.count = channels.count
        stats.activities = .init(
            active: activities.activeCount, ended: activities.count - activities.activeCount)
        stats.browsers = .init(
            subscribed: browsers.presentCount, removed: browsers.removedCount,
            connected: userAgents.connectedCount, waiting: userAgents.waitingCount)
        return stats
    }

    /// Admits a connection.
    /// - Returns: The connection's number, from 1. `nil` if too many connections are open.
    mutating func admit(_ listener: ListenerKind, at now: Date) -> Int? {
        guard counts[listener].open < configuration.connectionLimit else {
            let message = "\(configuration.connectionLimit) connections are open, which is the limit."
            refuse(nil, of: listener, .tooMany, message, at: now)
            return nil
        }
        counts[listener].open += 1
        counts[listener].seen += 1
        lastConnection += 1
        return lastConnection
    }

    mutating func connectionClosed(_ listener: ListenerKind) {
        counts[listener].open -= 1
    }

    /// Counts a refused connection and records its cause.
    /// - Parameter connection: The connection's number. `nil` if the connection was not even admitted.
    mutating func refuse(
        _ connection: Int?, of listener: ListenerKind, _ reason: RefusedConnection.Reason, _ message: String,
        at now: Date
    ) {
        counts.refuse(
            RefusedConnection(
                listener: listener, connection: connection, reason: reason, message: message, refusedAt: now))
    }

    /// Counts and records a notification.
    mutating func record(
        _ answer: InboxEntry.Response, _ details: some InboxDetails, connection: Int? = nil, topic: String? = nil,
        token: [UInt8] = [], payload: [UInt8] = [], at now: Date
    ) {
        counts.count(answer, over: details.gateway)
        inbox.append { id in
            InboxEntry(
                id: id, connection: connection, topic: topic, token: token, payload: payload, receivedAt: now,
                answer: answer, details: details)
        }
    }
}

extension GatewayProtocol {
    /// The actions of the protocol's faults.
    var faults: [FaultForm] {
        switch self {
        case .binary: BinaryFault.forms
        case .http2: ProviderFault.forms
        case .broadcast: ProviderFault.broadcastForms
        case .channels: ProviderFault.channelForms
        case .webpush: BrowserFault.forms
        case .fcm: FirebaseFault.forms
        case .fcmToken: GrantFault.forms
        }
    }
}
