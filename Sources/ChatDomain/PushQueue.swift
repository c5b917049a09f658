/// Room on a connection, for which entries may be leased.
package struct ConnectionSlot: Sendable, Hashable {
    package let connection: ConnectionEpoch
    /// The identifier that the first leased entry gets; the others follow without a gap.
    package let firstIdentifier: UInt32
    /// How many entries at the most.
    package let room: Int
    /// Nothing on the connection is in doubt, so that what happens to it next can be laid to a probe.
    package let isFresh: Bool
    /// Bytes of a payload that the gateway takes.
    package let payloadLimit: Int
    /// The same for types of pushes that may have more.
    package let largerLimits: [String: Int]
    /// The gateway tells pushes apart by an id of their own: each needs one before it is first written.
    package let namesPushes: Bool

    package init(
        connection: ConnectionEpoch, firstIdentifier: UInt32, room: Int, isFresh: Bool, payloadLimit: Int,
        largerLimits: [String: Int] = [:], namesPushes: Bool = false
    ) {
        self.connection = connection
        self.firstIdentifier = firstIdentifier
        self.room = room
        self.isFresh = isFresh
        self.payloadLimit = payloadLimit
        self.largerLimits = largerLimits
        self.namesPushes = namesPushes
    }
}

/// Entries that were marked `written` and now belong to a connection.
package struct Lease: Sendable, Hashable {
    package let slot: ConnectionSlot
    package let pushes: [Push]
    /// Entries among which one is suspected of making the gateway close: to be written alone on their connection, and
    /// proved before anything else is written on it, so that the others of the queue are not drawn in.
    package let isProbe: Bool
    /// Entries that were looked at and settled without being written: poisoned, expired, device inactive.
    package let refused: [Refusal]
    /// A probe is due and the slot is not fresh: ask again with a fresh one.
    package let needsFreshConnection: Bool

    package struct Refusal: Sendable, Hashable {
        package let entry: Int64
        package let state: PushState
        package let reason: String

        package init(entry: Int64, state: PushState, reason: String) {
            self.entry = entry
            self.state = state
            self.reason = reason
        }
    }

    package init(
        slot: ConnectionSlot, pushes: [Push], isProbe: Bool = false, refused: [Refusal] = [],
        needsFreshConnection: Bool = false
    ) {
        self.slot = slot
        self.pushes = pushes
        self.isProbe = isProbe
        self.refused = refused
        self.needsFreshConnection = needsFreshConnection
    }
}

/// The durable queue, as the dispatcher uses it.
package protocol PushQueue: Sendable {
    /// Takes due entries of an app in order and marks them `written` on the slot's connection, before a byte of
    /// them is written: after a crash exactly these are in doubt.
    func lease(app: AppName, for slot: ConnectionSlot) async throws(ChatError) -> Lease
    /// Records verdicts, many in one transaction; says what each entry was and became, for the log.
    @discardableResult
    func settle(_ verdicts: [Verdict]) async throws(ChatError) -> [Settlement]
    /// At start: entries that an earlier process left `written` become `pending` again.
    func recover() async throws(ChatError) -> Recovery
    /// When the next entry of the app that waits for its `not_before` is due; nil if none waits.
    func nextDue(app: AppName) async throws(ChatError) -> Timestamp?
    /// Rings a bell, as long as it is there, whenever a commit, ours or another process's, may have added due entries.
    func announceArrivals(to bell: AsyncStream<Void>.Continuation)
}

extension PushQueue {
    /// An endless sequence that yields whenever there may be due entries. Yields are merged while nobody looks.
    package func arrivals() -> AsyncStream<Void> {
        let (rings, bell) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        announceArrivals(to: bell)
        return rings
    }
}

/// What an earlier process left behind.
package struct Recovery: Sendable, Hashable {
    /// Entries that were written and not settled.
    package let count: Int
    /// Above the number of every connection of earlier processes; new ones go on from here.
    package let lastEpoch: ConnectionEpoch

    package init(count: Int, lastEpoch: ConnectionEpoch) {
        self.count = count
        self.lastEpoch = lastEpoch
    }
}

/// What a verdict did to some entries.
package struct Settlement: Sendable, Hashable {
    package let verdict: Verdict
    /// Entries that it changed.
    package let count: Int
    /// The only entry, where the verdict named one and it was changed.
    package let entry: Int64?
    package let token: DeviceToken?
    /// Where the entries are now.
    package let state: PushState

    package init(verdict: Verdict, count: Int, entry: Int64?, token: DeviceToken?, state: PushState) {
        self.verdict = verdict
        self.count = count
        self.entry = entry
        self.token = token
        self.state = state
    }
}
