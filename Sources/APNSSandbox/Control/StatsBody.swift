/// What the sandbox counted, as `GET /stats` shows it.
struct StatsBody: Encodable {
    struct Connections: Encodable {
        var open: Int
        var seen: Int
        var refused: Int
        var handshakesFailed: Int

        enum CodingKeys: String, CodingKey {
            case open, seen, refused
            case handshakesFailed = "handshakes_failed"
        }

        init(_ stats: ListenerStats) {
            open = stats.open
            seen = stats.seen
            refused = stats.refused
            handshakesFailed = stats.handshakesFailed
        }
    }

    struct Binary: Encodable {
        var answers: [String: Int]
        var discarded: Int
        var discardedBytes: Int
        var connections: Connections

        enum CodingKeys: String, CodingKey {
            case answers, discarded, connections
            case discardedBytes = "discarded_bytes"
        }
    }

    struct HTTP2: Encodable {
        var answers: [String: Int]
        var connections: Connections
        var mostStreams: Int
        var streamsOverLimit: Int

        enum CodingKeys: String, CodingKey {
            case answers, connections
            case mostStreams = "most_streams"
            case streamsOverLimit = "streams_over_limit"
        }
    }

    struct Feedback: Encodable {
        var waiting: Int
        var sent: Int
        var cleared: Int
        var connections: Connections
    }

    struct Inbox: Encodable {
        var count: Int
        var dropped: Int
        var last: Int
    }

    struct Devices: Encodable {
        var installed: Int
        var removed: Int
    }

    var binary: Binary
    var http2: HTTP2
    var feedback: Feedback
    var inbox: Inbox
    var devices: Devices

    init(_ state: SandboxState) {
        let stats = state.stats
        var answers = stats.otherAnswers
        answers[InboxEntry.Answer.accepted.name] = stats.accepted
        binary = Binary(
            answers: answers, discarded: stats.discarded, discardedBytes: stats.discardedBytes,
            connections: Connections(stats.binary))
        var providerAnswers = stats.provider.otherAnswers
        providerAnswers[InboxEntry.Answer.accepted.name] = stats.provider.accepted
        http2 = HTTP2(
            answers: providerAnswers, connections: Connections(stats.http2),
            mostStreams: stats.provider.mostStreams, streamsOverLimit: stats.provider.streamsOverLimit)
        feedback = Feedback(
            waiting: state.feedback.count, sent: stats.tuplesSent, cleared: stats.tuplesCleared,
            connections: Connections(stats.feedback))
        inbox = Inbox(count: state.inbox.count, dropped: state.inbox.dropped, last: state.inbox.lastID)
        devices = Devices(
            installed: state.devices.installedCount,
            removed: state.devices.count - state.devices.installedCount)
    }
}
