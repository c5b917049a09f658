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
        /// Close cleanly, without a packet.
        case close
        /// Reset the connection.
        case reset
        /// Accept it, then read nothing for so many milliseconds; nil: nothing any more.
        case stopReading(Int?)
        /// Process it, and all that follows it on its connection, so many milliseconds later.
        case delay(Int)
        /// Record it as dropped and go on: the client believes that it arrived.
        case drop
    }

    /// The longest delay, in milliseconds.
    package static let longestDelay = 60_000
    /// The most that `after` and `times` may be.
    package static let largestCount = 1_000_000

    /// From 1.
    package let id: Int
    /// Only notifications to this token are hit and counted; nil: all.
    package let token: [UInt8]?
    /// Matching notifications that pass first, counted from the making of the fault.
    package let after: Int
    /// Notifications that are hit.
    package let times: Int
    package let action: Action
    /// Of `after`, those that have passed.
    package internal(set) var passed = 0
    /// Of `times`, those that were hit.
    package internal(set) var hit = 0

    /// Whether there is nothing left for it to do.
    package var isSpent: Bool { hit >= times }
}
