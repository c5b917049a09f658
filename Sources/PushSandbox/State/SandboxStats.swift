/// What the sandbox has counted since its start, as `GET /stats` shows it. Neither clearing the inbox nor dropping from it
/// changes the counts.
struct SandboxStats: Sendable, Hashable, Encodable {
    /// The connections of a TLS listener.
    struct Connections: Sendable, Hashable, Encodable {
        /// Open now.
        var open = 0
        /// Admitted so far.
        var seen = 0
        /// Refused because there were too many.
        var refused = 0
        /// Ended before TLS was up: no certificate, a foreign one, no TLS at all, too slow.
        var handshakesFailed = 0
        /// Refused by a strict sandbox because they did not negotiate HTTP/2. `nil` where HTTP/2 is not spoken.
        var noALPN: Int?
        /// Refused because they did not begin with HTTP/2's preface. `nil` where HTTP/2 is not spoken.
        var noPreface: Int?

        enum CodingKeys: String, CodingKey {
            case open, seen, refused
            case handshakesFailed = "handshakes_failed"
            case noALPN = "no_alpn"
            case noPreface = "no_preface"
        }

        fileprivate mutating func count(_ reason: RefusedConnection.Reason) {
            switch reason {
            case .tooMany: refused += 1
            case .handshakeFailed: handshakesFailed += 1
            case .noALPN: noALPN = (noALPN ?? 0) + 1
            case .noPreface: noPreface = (noPreface ?? 0) + 1
            }
        }
    }

    /// Notifications by ``InboxEntry/Response/name``.
    struct Responses: Sendable, Hashable, Encodable {
        /// Apart from the others, because it is counted without a look-up.
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

    struct Binary: Sendable, Hashable, Encodable {
        var answers = Responses()
        /// Notifications that came on a connection after its end had been decided.
        ///
        /// Where the end was a notification that could not be read, the borders of what follows are unknown:
        /// then only ``discardedBytes`` counts.
        var discarded = 0
        var discardedBytes = 0
        var connections = Connections()

        enum CodingKeys: String, CodingKey {
            case answers, discarded, connections
            case discardedBytes = "discarded_bytes"
        }
    }

    struct HTTP2: Sendable, Hashable, Encodable {
        var answers = Responses()
        var connections = Connections(noALPN: 0, noPreface: 0)
        /// The most streams that one connection had open at the same time.
        var mostStreams = 0
        /// Streams that were refused because more were open than the client had been allowed.
        var streamsOverLimit = 0

        enum CodingKeys: String, CodingKey {
            case answers, connections
            case mostStreams = "most_streams"
            case streamsOverLimit = "streams_over_limit"
        }
    }

    struct WebPush: Sendable, Hashable, Encodable {
        var answers = Responses()
    }

    struct Browsers: Sendable, Hashable, Encodable {
        var subscribed = 0
        var removed = 0
        /// Real browsers that are connected.
        var connected = 0
        /// Messages that real browsers have not acknowledged.
        var waiting = 0
    }

    struct Feedback: Sendable, Hashable, Encodable {
        /// Tuples that no reader has got yet.
        var waiting = 0
        /// Tuples written, repetitions too.
        var sent = 0
        /// Tuples forgotten because a reader had got them.
        var cleared = 0
        var connections = Connections()
    }

    struct Inbox: Sendable, Hashable, Encodable {
        var count = 0
        var dropped = 0
        var last = 0
    }

    struct Devices: Sendable, Hashable, Encodable {
        var installed = 0
        var removed = 0
    }

    var binary = Binary()
    var http2 = HTTP2()
    var webPush = WebPush()
    var feedback = Feedback()
    /// These three, and the feedback that waits, are read when they are asked for (``SandboxState/stats``).
    var inbox = Inbox()
    var devices = Devices()
    var browsers = Browsers()
    /// The newest connections that were refused, oldest first.
    private(set) var refusals: [RefusedConnection] = []

    /// The number of refused connections to keep. Enough to see what a client does wrong again and again.
    private static let refusalLimit = 20

    /// Counts a refused connection and keeps it among the newest.
    mutating func refuse(_ connection: RefusedConnection) {
        self[connection.listener].count(connection.reason)
        if refusals.count == Self.refusalLimit { refusals.removeFirst() }
        refusals.append(connection)
    }

    private enum CodingKeys: String, CodingKey {
        case binary, http2, feedback, inbox, devices, browsers, refusals
        case webPush = "webpush"
    }

    subscript(listener: ListenerKind) -> Connections {
        get {
            switch listener {
            case .binary: binary.connections
            case .feedback: feedback.connections
            case .http2: http2.connections
            }
        }
        set {
            switch listener {
            case .binary: binary.connections = newValue
            case .feedback: feedback.connections = newValue
            case .http2: http2.connections = newValue
            }
        }
    }
}
