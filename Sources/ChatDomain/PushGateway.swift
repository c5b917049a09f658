/// One app's way to a push service: connections that are kept open, and what comes back over them.
package protocol PushGateway: Sendable {
    /// What the gateway requires of pushes.
    var format: any PushFormat { get }
    /// Connections that are open now.
    var openConnections: Int { get }
    /// Keeps connections up until the task is cancelled or ``drain()`` has ended. Never gives up.
    func run() async
    /// Waits until a connection can take pushes. With `fresh`, until one can on which nothing is in doubt.
    /// Nil when the gateway is being stopped.
    func slot(fresh: Bool) async -> ConnectionSlot?
    /// Writes what was leased for a slot. Each push gets exactly one outcome, even if the connection is gone by now.
    func write(_ lease: Lease)
    /// Reports that came since the last call; waits while there are none, nil once ``finish()`` was called.
    func reports() async -> [DeliveryReport]?
    /// Gives out no slots any more, asks the gateway about what is in doubt, and closes. Bounded in time. What is written
    /// after that for an earlier slot still gets its outcome.
    func drain() async
    /// Nothing will be written any more: the reports end with those that are there.
    func finish() async
}

/// Room on a connection, for which pushes may be leased.
package struct ConnectionSlot: Sendable, Hashable {
    package let connection: ConnectionID
    /// The identifier that the first leased push gets; the others follow without a gap.
    package let firstIdentifier: UInt32
    /// How many pushes at the most.
    package let capacity: Int
    /// Nothing on the connection is in doubt, so that what happens to it next is the doing of what is written next.
    package let isFresh: Bool
    /// Each push is answered for itself. Otherwise silence means acceptance, and a lost connection leaves in doubt
    /// whatever was written on it.
    package let answersEach: Bool
    /// The gateway does not answer when it is asked about what was written. Only its silence proves a lease, which takes a while.
    package let isProvenBySilence: Bool

    package init(
        connection: ConnectionID, firstIdentifier: UInt32, capacity: Int, isFresh: Bool, answersEach: Bool = false,
        isProvenBySilence: Bool = false
    ) {
        self.connection = connection
        self.firstIdentifier = firstIdentifier
        self.capacity = capacity
        self.isFresh = isFresh
        self.answersEach = answersEach
        self.isProvenBySilence = isProvenBySilence
    }
}

/// Pushes that belong to a connection now.
package struct Lease: Sendable, Hashable {
    package let slot: ConnectionSlot
    /// With identifiers from the slot's first on.
    package let pushes: [Push]
    /// To be written alone on their connection, and confirmed before anything else is written on it: one of them may make
    /// the gateway close, or so much may be what the gateway loses.
    package let isProbe: Bool

    package init(slot: ConnectionSlot, pushes: [Push], isProbe: Bool = false) {
        self.slot = slot
        self.pushes = pushes
        self.isProbe = isProbe
    }
}

/// Reads one app's feedback list. A destructive read: what is yielded must be stored before it is acted on.
package protocol FeedbackSource: Sendable {
    /// Connects, yields what comes in pieces, returns when the list has ended.
    /// - Returns: how many bytes of an incomplete tuple were left over.
    func read(_ store: @Sendable ([FeedbackReport]) async throws -> Void) async throws -> Int
}

/// The push service says that a device has not wanted pushes since a time.
package struct FeedbackReport: Sendable, Hashable {
    package let token: DeviceToken
    package let since: Timestamp

    package init(token: DeviceToken, since: Timestamp) {
        self.token = token
        self.since = since
    }
}

/// Keeps feedback, and acts on it.
package protocol FeedbackStore: Sendable {
    /// Writes the reports down, whatever they say.
    func record(_ reports: [FeedbackReport], app: AppName) async throws(ChatError)
    /// Deactivates the device of each recorded report that was not acted on yet, unless it registered later.
    /// Says what was done.
    func actOnFeedback() async throws(ChatError) -> FeedbackResult
}

package struct FeedbackResult: Sendable, Hashable {
    package var deactivated = 0
    /// The device registered again after the report's time.
    package var kept = 0
    package var unknown = 0

    package init(deactivated: Int = 0, kept: Int = 0, unknown: Int = 0) {
        self.deactivated = deactivated
        self.kept = kept
        self.unknown = unknown
    }
}
