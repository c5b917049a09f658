import ChatDomain
import Logging

/// Where a pool's connections go, and as whom.
protocol PoolTarget: Sendable {
    var endpoint: GatewayEndpoint { get }
}

/// One open connection, as its pool sees it.
protocol PooledConnection: AnyObject, Sendable {
    var epoch: ConnectionEpoch { get }
    /// The slot that it offers, if it can take anything now.
    var slot: ConnectionSlot? { get }
    /// Whether it may be given up for one on which nothing was written.
    var canBeSpared: Bool { get }
    /// It works, and its peer sets the pace: another beside it would help.
    var isSaturated: Bool { get }
    /// It is being asked about a suspected push, or hesitates over its first: others need not wait for that.
    var isHeld: Bool { get }

    func write(_ lease: Lease, now: Timestamp)
    /// Takes no more pushes, waits for the answers, and closes; returns when it is closed. Bounded in time.
    func drain() async
    /// Returns when it takes no more pushes for good, so that its successor may be opened.
    func retired() async
    /// Returns when it is closed.
    func closed() async
    /// What it was good for. For when it has retired.
    func merit() async -> ReconnectPacing.Merit
}

/// A connection that is to be opened.
struct Opening<Target: PoolTarget>: Sendable {
    let target: Target
    let epoch: ConnectionEpoch
    /// Names the connection and the gateway.
    let logger: Logger
    /// It is kept even while nobody needs it.
    let isPermanent: Bool
    /// A connection with the same target has done some good before.
    let isProved: Bool
}
