/// An app's client of a push service. It keeps connections open and reports the outcomes of pushes.
package protocol PushGateway: Sendable {
    /// The gateway's requirements for pushes.
    var format: any PushFormat { get }
    /// The number of open connections.
    var openConnections: Int { get }
    /// Keeps connections open until the task is cancelled or ``drain()`` has ended. Never gives up.
    func run() async
    /// Waits until a connection has room for pushes. With `fresh`, waits for a connection on which nothing is in doubt.
    /// `nil` if the gateway is being stopped.
    func slot(fresh: Bool) async -> ConnectionSlot?
    /// Writes the pushes leased for a slot. Each push gets exactly one outcome, even if the connection is already
    /// closed.
    func write(_ lease: Lease)
    /// Returns the reports since the last call, and waits if there are none. `nil` once ``finish()`` was called and all
    /// reports were returned.
    func reports() async -> [DeliveryReport]?
    /// Stops giving out slots, asks the push service about pushes in doubt, and closes the connections. Takes a bounded
    /// time. Pushes that are written later for an earlier slot still get their outcome.
    func drain() async
    /// Declares that no more pushes will be written. After the reports that exist by then, ``reports()`` returns `nil`.
    func finish() async
}

/// Room on a connection for pushes that are to be leased.
package struct ConnectionSlot: Sendable, Hashable {
    package let connection: ConnectionID
    /// The identifier of the first leased push. The others follow without a gap.
    package let firstIdentifier: UInt32
    /// The maximum number of pushes.
    package let capacity: Int
    /// Whether no push on the connection is in doubt. The pushes that are written next then cause the next event on the
    /// connection.
    package let isFresh: Bool
    /// Whether the gateway responds to each push. If not, silence means acceptance, and a lost connection leaves
    /// everything written on it in doubt.
    package let answersEach: Bool
    /// Whether the gateway does not respond when it is asked to confirm pushes. Then only its silence proves that it
    /// accepted the pushes of a lease, which takes a while.
    package let isProvenBySilence: Bool
    /// The test for which the slot is. `nil` if any pushes may be leased for it.
    package let test: ServiceTest?

    package init(
        connection: ConnectionID, firstIdentifier: UInt32, capacity: Int, isFresh: Bool, answersEach: Bool = false,
        isProvenBySilence: Bool = false, test: ServiceTest? = nil
    ) {
        self.connection = connection
        self.firstIdentifier = firstIdentifier
        self.capacity = capacity
        self.isFresh = isFresh
        self.answersEach = answersEach
        self.isProvenBySilence = isProvenBySilence
        self.test = test
    }
}

/// A test of whether a push service accepts pushes again, after it has refused many devices.
///
/// Its pushes go to distinct devices, those with the fewest refusals first. The refusals may concern only the devices
/// that were refused, and must not stop the pushes to others.
package struct ServiceTest: Sendable, Hashable {
    /// The number of refusals of each device since the service last accepted a push. Other devices have none.
    package let refusals: [Address: Int]

    package init(_ refusals: [Address: Int]) {
        self.refusals = refusals
    }
}

/// Leased pushes that are bound to a connection.
package struct Lease: Sendable, Hashable {
    package let slot: ConnectionSlot
    /// The pushes. The first one has the slot's ``ConnectionSlot/firstIdentifier``.
    package let pushes: [Push]
    /// Whether the pushes must be written alone on their connection, and confirmed before anything else is written on
    /// it. One of the pushes may make the gateway close the connection, or the gateway may lose larger groups.
    package let isProbe: Bool

    package init(slot: ConnectionSlot, pushes: [Push], isProbe: Bool = false) {
        self.slot = slot
        self.pushes = pushes
        self.isProbe = isProbe
    }
}

/// Reads one app's feedback list. Reading deletes the list at the service, so store the yielded reports before you act
/// on them.
package protocol FeedbackSource: Sendable {
    /// Connects, yields the list in parts, and returns at its end.
    ///
    /// - Returns: The number of bytes of an incomplete tuple at the end.
    func read(_ store: @Sendable ([FeedbackReport]) async throws -> Void) async throws -> Int
}

/// The push service's report that a device has not wanted pushes since a time.
package struct FeedbackReport: Sendable, Hashable {
    package let token: DeviceToken
    package let since: Timestamp

    package init(token: DeviceToken, since: Timestamp) {
        self.token = token
        self.since = since
    }
}

/// Stores feedback reports, and acts on them.
package protocol FeedbackStore: Sendable {
    /// Stores the reports, without judging their content.
    func record(_ reports: [FeedbackReport], app: AppName) async throws(ChatError)
    /// Deactivates the device of each stored report that was not acted on yet, unless the device registered later.
    ///
    /// - Returns: The number of devices by result.
    func actOnFeedback() async throws(ChatError) -> FeedbackResult
}

package struct FeedbackResult: Sendable, Hashable {
    package var deactivated = 0
    /// Devices that registered again after the report's time.
    package var kept = 0
    package var unknown = 0

    package init(deactivated: Int = 0, kept: Int = 0, unknown: Int = 0) {
        self.deactivated = deactivated
        self.kept = kept
        self.unknown = unknown
    }
}
