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

/// What the sandbox has counted since its start. Neither clearing the inbox nor dropping from it changes these.
package struct SandboxStats: Sendable, Hashable {
    package internal(set) var binary = ListenerStats()
    package internal(set) var feedback = ListenerStats()
    /// Notifications by ``InboxEntry/Answer/name``, apart from the accepted.
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

    mutating func count(_ answer: InboxEntry.Answer) {
        if answer == .accepted {
            accepted += 1
        } else {
            otherAnswers[answer.name, default: 0] += 1
        }
    }
}

/// The two TLS listeners of the legacy protocol.
enum ListenerKind: String, Sendable {
    case binary
    case feedback
}

extension SandboxStats {
    subscript(listener: ListenerKind) -> ListenerStats {
        get { listener == .binary ? binary : feedback }
        set {
            switch listener {
            case .binary: binary = newValue
            case .feedback: feedback = newValue
            }
        }
    }
}
