package import APNSWire

/// Something that is to go wrong, once or a number of times (interface.md, "The sandbox").
package struct Fault: Sendable, Hashable {
    /// What goes wrong at the notification that the fault hits.
    package enum Action: Sendable, Hashable {
        /// Answer the status, `delay` milliseconds late; what arrives meanwhile is read and discarded.
        ///
        /// With ``BinaryStatus/shutdown`` the notification is accepted, and named as the last good one.
        /// `identifier` replaces the notification's own in the packet.
        case status(BinaryStatus, delay: Int, identifier: UInt32?)
        /// Close cleanly, without an answer; the notification is not processed.
        case close
        /// Reset the connection; the notification is not processed.
        case reset
        /// Accept it, then read nothing for so many milliseconds; nil: nothing any more.
        ///
        /// Over HTTP/2 nothing is written meanwhile, either: no answer, no PING's acknowledgement.
        case stopReading(Int?)
        /// Process it so many milliseconds later; on the binary protocol also all that follows it on its connection.
        case delay(Int)
        /// Record it as dropped and go on. A binary client believes that it arrived; over HTTP/2 the stream stays open.
        case drop
        /// One of HTTP/2's own.
        case provider(ProviderFault)
    }

    /// The longest delay, in milliseconds.
    package static let longestDelay = 60_000
    /// The most that `after` and `times` may be.
    package static let largestCount = 1_000_000

    /// From 1.
    package let id: Int
    /// Only notifications that come by it are hit and counted.
    package let gateway: GatewayProtocol
    /// Only notifications to this token are hit and counted; nil: all.
    package let token: [UInt8]?
    /// Matching notifications that pass first, counted from the making of the fault.
    package let after: Int
    /// Notifications that are hit.
    package let times: Int
    /// Of those after ``after`` only the last of so many is hit; 1: each.
    package let every: Int
    package let action: Action
    /// Of `after`, those that have passed.
    package internal(set) var passed = 0
    /// Of `times`, those that were hit.
    package internal(set) var hit = 0
    /// Since the last hit, those that ``every`` let pass.
    var spared = 0

    /// Whether there is nothing left for it to do.
    package var isSpent: Bool { hit >= times }
}

/// What can go wrong only over HTTP/2.
package enum ProviderFault: Sendable, Hashable {
    /// Answer this, so many milliseconds late. Where ``ProviderRefusal/reason`` is ``ProviderFault/noReason``, without a body.
    case answer(ProviderRefusal, delay: Int)
    /// Process it, and close the connection instead of writing the answer.
    case closeAccepted
    /// Send GOAWAY. `lastStream` nil: the one before the notification's, which is then not processed.
    case goAway(reason: String?, lastStream: Int?, code: Int)
    /// Allow only so many streams, for so many milliseconds; nil: for the rest of the connection.
    case limitStreams(Int, milliseconds: Int?)
    /// Reset the notification's stream with the code; it is not processed.
    case resetStream(code: Int)
    /// From now on the connection's provider token has expired, until another is used.
    case expireToken

    /// Error codes of HTTP/2 (RFC 9113 §7).
    package static let internalErrorCode = 2
    package static let refusedStreamCode = 7
    /// Stands for a body that is not there.
    package static let noReason = ""
}
