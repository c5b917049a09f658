package import ChatDomain
package import GatewayPool
package import Logging
import NIOCore
package import PushWire

/// An app's connections to the legacy binary gateway. See `docs/binary-gateway.md`, and Apple, "Binary Provider API".
///
/// Pushes go to the first connection that accepts them, so that they stay in order as long as nothing fails. The other
/// connections are used when the first one is full, stalled, or closed by a response. While only silence can prove that
/// pushes were accepted, spare connections are opened.
package final class BinaryGateway: PushGateway {
    package struct Options: Sendable {
        /// The number of connections that are kept open.
        package var connections: Int
        package var command: BinaryCommand
        /// The duration of silence after which a push counts as accepted.
        package var settleTime: Duration
        var clock = MonotonicClock()
        var connector: any Connector = .sockets

        package init(
            connections: Int = 2, command: BinaryCommand = .framed, settleTime: Duration = .seconds(5)
        ) {
            self.connections = connections
            self.command = command
            self.settleTime = settleTime
        }
    }

    /// The maximum number of pushes in a lease, which is one transaction, one buffer and one flush.
    static let leaseLimit = 1000
    /// The time without a read by the gateway after which its connection is closed.
    private static let stallLimit = TimeAmount.seconds(15)
    /// The time that a connection must stay open before it gets pushes, as long as its credentials are unproven. A
    /// gateway that rejects the certificate closes without a response just after the handshake. Apple does not document
    /// this: node-apn 1.7.8 observed it and waits 100 ms, too (`lib/connection.js`).
    private static let postHandshakeDelay = TimeAmount.milliseconds(100)
    /// The maximum number of connections that wait for proof by silence at the same time. Each proof takes at least the
    /// settle time. With more connections, a close loses a smaller part of the pushes in flight.
    private static let silentConnections = 8
    /// The minimum time between two spare connections.
    private static let growthInterval = TimeAmount.milliseconds(50)
    /// The time after which a spare connection is drained.
    private static let spareLifetime = TimeAmount.seconds(10)

    private struct Target: PoolTarget {
        let endpoint: GatewayEndpoint
        /// Shows whether this endpoint's gateway responds to sentinels. A reload starts without this knowledge.
        let sentinels = SharedSentinelKnowledge()
    }

    package let format: any PushFormat
    private let options: Options
    private let pool: ConnectionPool<Target, BinaryConnection>

    /// Creates a gateway without connections. ``run()`` opens them.
    /// - Parameter endpoint: `nil` while the app has no credentials. Its pushes then wait in the queue.
    package init(
        endpoint: GatewayEndpoint?, format: APNSFormat = APNSFormat(.binary, payloadLimit: 2048), options: Options,
        connectionIDs: ConnectionIDs, now: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.format = format
        self.options = options
        self.pool = ConnectionPool(
            target: endpoint.map(Target.init),
            size: PoolSize(
                permanent: options.connections, spare: max(0, Self.silentConnections - options.connections),
                growthInterval: Self.growthInterval, growsForFresh: false),
            connectionIDs: connectionIDs, now: now, clock: options.clock, logger: logger)
    }

    package func run() async { await pool.run(open: open) }

    /// Uses another endpoint or other credentials for new connections. The open ones are drained and replaced.
    package func reconfigure(endpoint: GatewayEndpoint?) {
        pool.reconfigure(target: endpoint.map(Target.init))
    }

    // ``HTTP2Gateway`` has the same members. A shared extension would have to make ``BinaryConnection`` `package`.
    package var openConnections: Int { pool.openConnections }
    package func slot(fresh: Bool) async -> ConnectionSlot? { await pool.slot(fresh: fresh) }
    package func write(_ lease: Lease) { pool.write(lease) }
    package func reports() async -> [DeliveryReport]? { await pool.reports.take() }
    package func drain() async { await pool.drain() }
    package func finish() async { await pool.finish(options.connector.eventLoops) }

    private func open(
        _ attempt: ConnectionAttempt<Target>, _ connectionID: ConnectionID, _ logger: Logger
    ) async throws -> BinaryConnection {
        if attempt.target.sentinels.takeTrial(now: options.clock.now()) {
            let (channel, trial) = try await connect(attempt, connectionID, logger)
            let done = channel.eventLoop.makePromise(of: Void.self)
            channel.eventLoop.execute { trial.handler.value.tryOut(done) }
            try await done.futureResult.get()
        }
        let (channel, connection) = try await connect(attempt, connectionID, logger)
        if !attempt.isConfirmed { try? await options.clock.sleep(options.clock.now() + Self.postHandshakeDelay) }
        guard channel.isActive else {
            throw GatewayUnreachable("gateway \(GatewayUnreachable.closedEarly)")
        }
        return connection
    }

    private func connect(
        _ attempt: ConnectionAttempt<Target>, _ connectionID: ConnectionID, _ logger: Logger
    ) async throws -> (any Channel, BinaryConnection) {
        let changed: @Sendable () -> Void = { [weak pool] in pool?.changed() }
        return try await attempt.target.endpoint.connect(over: options.connector) {
            [options, reports = pool.reports] channel in
            let state = BinaryConnectionState(
                connectionID: connectionID, settleTime: TimeAmount(options.settleTime), stallLimit: Self.stallLimit,
                now: channel.eventLoop.now)
            let handler = BinaryConnectionHandler(
                state: state, sentinels: attempt.target.sentinels, reports: reports, logger: logger,
                changed: changed)
            try channel.pipeline.syncOperations.addHandler(handler)
            if !attempt.isPermanent {
                channel.eventLoop.assumeIsolated().scheduleTask(in: Self.spareLifetime) { handler.drain() }
            }
            return BinaryConnection(id: connectionID, channel: channel, handler: handler, command: options.command)
        }
    }
}
