/// The counts since the sandbox started, encoded as in the response to `GET /stats`.
///
/// They do not change when the inbox is cleared or drops notifications.
struct SandboxStats: Sendable, Hashable, JSONRecord {
    /// The connections of a TLS listener.
    struct Connections: Sendable, Hashable, JSONRecord {
        /// The number of connections that are open now.
        var open = 0
        /// The number of connections that were admitted.
        var seen = 0
        /// The number of connections that were refused because too many were open.
        var refused = 0
        /// The number of TLS handshakes that failed: no certificate, a certificate of another authority, no TLS, or a
        /// timeout.
        var handshakesFailed = 0
        /// The number of clients that a strict sandbox refused because they did not choose HTTP/2 by ALPN. `nil` for
        /// listeners that do not speak HTTP/2.
        var noALPN: Int?
        /// The number of clients that were refused because they did not begin with HTTP/2's preface. `nil` for
        /// listeners that do not speak HTTP/2.
        var noPreface: Int?
        /// The number of requests that the proxy refused. `nil` for other listeners.
        var noTunnel: Int?

        var json: JSONMembers {
            [
                "open": open, "seen": seen, "refused": refused, "handshakes_failed": handshakesFailed,
                "no_alpn": noALPN, "no_preface": noPreface, "no_tunnel": noTunnel,
            ]
        }

        fileprivate mutating func count(_ reason: RefusedConnection.Reason) {
            switch reason {
            case .tooMany: refused += 1
            case .handshakeFailed: handshakesFailed += 1
            case .noALPN: noALPN? += 1
            case .noPreface: noPreface? += 1
            case .noTunnel: noTunnel? += 1
            }
        }
    }

    /// Counts notifications by ``InboxEntry/Response/name``.
    struct Responses: Sendable, Hashable, Encodable {
        /// Separate from ``others``, because this saves a dictionary look-up per accepted notification.
        private(set) var accepted = 0
        private(set) var others: [String: Int] = [:]

        mutating func count(_ answer: InboxEntry.Response) {
            if answer == .accepted { accepted += 1 } else { others[answer.name, default: 0] += 1 }
        }

        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            try container.encode(others.merging([InboxEntry.Response.accepted.name: accepted]) { $1 })
        }
    }

    struct Binary: Sendable, Hashable, JSONRecord {
        var answers = Responses()
        /// The number of notifications that arrived after the end of their connection was decided.
        ///
        /// If the connection ends because bytes could not be read, the boundaries of later notifications are unknown.
        /// Then only ``discardedBytes`` counts.
        var discarded = 0
        var discardedBytes = 0
        var connections = Connections()

        var json: JSONMembers {
            [
                "answers": answers, "discarded": discarded, "discarded_bytes": discardedBytes,
                "connections": connections,
            ]
        }
    }

    struct HTTP2: Sendable, Hashable, JSONRecord {
        var answers = Responses()
        var connections = Connections(noALPN: 0, noPreface: 0)
        /// The most streams that one connection had open at the same time.
        var maxStreams = 0
        /// The number of streams that were refused because they exceeded the client's limit.
        var streamsOverLimit = 0

        var json: JSONMembers {
            [
                "answers": answers, "connections": connections, "most_streams": maxStreams,
                "streams_over_limit": streamsOverLimit,
            ]
        }
    }

    struct Channels: Sendable, Hashable, Encodable {
        /// The number of channels that exist.
        var count = 0
        /// Counts management requests by their outcome.
        var answers = Responses()
        var connections = Connections(noALPN: 0, noPreface: 0)
    }

    struct Activities: Sendable, Hashable, Encodable {
        var active = 0
        var ended = 0
    }

    struct Browsers: Sendable, Hashable, Encodable {
        var subscribed = 0
        var removed = 0
        /// The number of real browsers that are connected.
        var connected = 0
        /// The number of messages that real browsers have not acknowledged.
        var waiting = 0
    }

    struct Feedback: Sendable, Hashable, Encodable {
        /// The number of tuples that no reader has received yet.
        var waiting = 0
        /// The number of tuples written, including those that were written again for another reader.
        var sent = 0
        /// The number of tuples that were cleared because a reader had received them.
        var cleared = 0
        var connections = Connections()
    }

    struct Proxy: Sendable, Hashable, Encodable {
        var connections = Connections(noTunnel: 0)
    }

    struct Inbox: Sendable, Hashable, Encodable {
        var count = 0
        var dropped = 0
        var last = 0
    }

    struct Registered: Sendable, Hashable, Encodable {
        var installed = 0
        var removed = 0
    }

    var binary = Binary()
    var http2 = HTTP2()
    /// The counts of the protocols that have no others.
    private(set) var answers = Dictionary(
        uniqueKeysWithValues: GatewayProtocol.ofNotifications.filter { ![.binary, .http2].contains($0) }
            .map { ($0, Responses()) })
    var channels = Channels()
    var activities = Activities()
    var feedback = Feedback()
    var proxy = Proxy()
    /// `inbox`, `registered`, `browsers`, `activities` and the numbers of channels and of waiting feedback tuples are set
    /// when the counts are requested (``SandboxState/stats``).
    var inbox = Inbox()
    /// The counts of phones, by the name of the list in the control API.
    var registered: [String: Registered] = [:]
    var browsers = Browsers()
    /// The newest refused connections, oldest first.
    private(set) var refusals: [RefusedConnection] = []

    /// The maximum number of refused connections to keep: enough to show a mistake that a client keeps making.
    private static let refusalLimit = 20

    mutating func count(_ answer: InboxEntry.Response, over gateway: GatewayProtocol) {
        switch gateway {
        case .binary: binary.answers.count(answer)
        case .http2: http2.answers.count(answer)
        case .channels: channels.answers.count(answer)
        case let other: answers[other]?.count(answer)
        }
    }

    /// Counts a refused connection, and keeps it among the newest.
    mutating func refuse(_ connection: RefusedConnection) {
        self[connection.listener].count(connection.reason)
        if refusals.count == Self.refusalLimit { refusals.removeFirst() }
        refusals.append(connection)
    }

    var json: JSONMembers {
        [
            "binary": binary, "http2": http2, "channels": channels, "activities": activities, "feedback": feedback,
            "inbox": inbox, "browsers": browsers, "proxy": proxy, "refusals": refusals,
        ]
    }

    func encode(to encoder: any Encoder) throws {
        try json.encode(to: encoder)
        try JSONMembers(registered.map { (name: $0, value: $1) }).encode(to: encoder)
        try JSONMembers(
            answers.map { (name: $0 == .broadcast ? "broadcasts" : $0.rawValue, value: ["answers": $1]) }
        ).encode(to: encoder)
    }

    subscript(listener: ListenerKind) -> Connections {
        get { self[keyPath: Self.connections(of: listener)] }
        set { self[keyPath: Self.connections(of: listener)] = newValue }
    }

    private static func connections(of listener: ListenerKind) -> WritableKeyPath<SandboxStats, Connections> {
        switch listener {
        case .binary: \.binary.connections
        case .feedback: \.feedback.connections
        case .http2: \.http2.connections
        case .channels: \.channels.connections
        case .proxy: \.proxy.connections
        }
    }
}
