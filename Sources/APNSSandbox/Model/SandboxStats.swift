/// What a listener counts, from its start.
package struct ListenerStats: Sendable, Hashable {
    /// Connections that are open now.
    package internal(set) var open = 0
    /// Connections that were let in.
    package internal(set) var seen = 0
    /// Connections that were turned away because there were too many.
    package internal(set) var refused = 0
    /// Connections that ended before TLS was up: no certificate, a foreign one, no TLS at all, too slow.
    package internal(set) var handshakesFailed = 0
}

/// What only the HTTP/2 listener counts, from its start.
package struct ProviderStats: Sendable, Hashable {
    package internal(set) var accepted = 0
    /// Notifications by ``InboxEntry/Answer/name``, apart from the accepted.
    package internal(set) var otherAnswers: [String: Int] = [:]
    /// The most streams that one connection had open at the same time.
    package internal(set) var mostStreams = 0
    /// Streams that were refused because more were open than the client had been allowed.
    package internal(set) var streamsOverLimit = 0
}

/// What the sandbox has counted since its start. Neither clearing the inbox nor dropping from it changes these.
package struct SandboxStats: Sendable, Hashable {
    package internal(set) var binary = ListenerStats()
    package internal(set) var feedback = ListenerStats()
    package internal(set) var http2 = ListenerStats()
    package internal(set) var provider = ProviderStats()
    /// Binary notifications by ``InboxEntry/Answer/name``, apart from the accepted.
    package internal(set) var otherAnswers: [String: Int] = [:]
    package internal(set) var accepted = 0
    /// Notifications that came on a connection after its end had been decided.
    ///
    /// Where the end was a notification that could not be read, the borders of what follows are unknown:
    /// then only ``discardedBytes`` counts.
    package internal(set) var discarded = 0
    package internal(set) var discardedBytes = 0
    /// Feedback tuples written, repetitions too.
    package internal(set) var tuplesSent = 0
    /// Feedback tuples forgotten because a reader had got them.
    package internal(set) var tuplesCleared = 0

    mutating func count(_ answer: InboxEntry.Answer, over gateway: GatewayProtocol = .binary) {
        switch (gateway, answer) {
        case (.binary, .accepted): accepted += 1
        case (.binary, _): otherAnswers[answer.name, default: 0] += 1
        case (.http2, .accepted): provider.accepted += 1
        case (.http2, _): provider.otherAnswers[answer.name, default: 0] += 1
        }
    }
}

/// The TLS listeners.
enum ListenerKind: String, Sendable {
    case binary
    case feedback
    case http2
}

extension SandboxStats {
    subscript(listener: ListenerKind) -> ListenerStats {
        get {
            switch listener {
            case .binary: binary
            case .feedback: feedback
            case .http2: http2
            }
        }
        set {
            switch listener {
            case .binary: binary = newValue
            case .feedback: feedback = newValue
            case .http2: http2 = newValue
            }
        }
    }
}
