package import APNSWire
package import ChatDomain
package import Logging
import NIOCore
import NIOPosix

/// An app's connections to the legacy binary gateway (apns-binary.md).
///
/// The first that can take pushes gets them, so that order is kept while all is well; the others stand by for when it
/// is full, stalled or closed by an answer. While silence has to prove what was written, spare ones are opened.
package final class BinaryGateway: PushGateway {
    package struct Options: Sendable {
        /// How many connections are kept open.
        package var connections: Int
        package var command: BinaryCommand
        /// Silence after which a push counts as accepted.
        package var settleTime: Duration
        var clock = MonotonicClock()

        package init(
            connections: Int = 2, command: BinaryCommand = .framed, settleTime: Duration = .seconds(5)
        ) {
            self.connections = connections
            self.command = command
            self.settleTime = settleTime
        }
    }

    /// Pushes in one lease: one transaction, one buffer, one flush.
    static let leaseLimit = 1000
    /// How long the gateway may read nothing before its connection is closed.
    private static let stallLimit = TimeAmount.seconds(15)
    /// How long a connection with unproved credentials must stay open before it gets pushes: a gateway that does not accept
    /// the certificate closes without an answer just after the handshake (apns-binary.md §1).
    private static let postHandshakeDelay = TimeAmount.milliseconds(100)
    /// The number of connections on which silence proves pushes at the same time. Each proof takes at least the settle time. With
    /// more connections, a close loses a smaller part of the pushes in flight.
    private static let silentConnections = 8
    /// The shortest time between two spare connections.
    private static let growthInterval = TimeAmount.milliseconds(50)
    /// The time after which a spare connection ends.
    private static let spareLifetime = TimeAmount.seconds(10)

    private struct Target: PoolTarget {
        let endpoint: GatewayEndpoint
        /// The knowledge about this endpoint's gateway. A reload begins without any.
        let sentinels = SharedSentinelKnowledge()
    }

    package let format: any PushFormat
    private let options: Options
    private let pool: ConnectionPool<Target, BinaryConnection>

    /// - Parameter endpoint: nil while the app has no credentials; everything waits in the queue then.
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

    /// Connections from now on use another endpoint or other credentials; the open ones are drained and replaced.
    package func reconfigure(endpoint: GatewayEndpoint?) {
        pool.reconfigure(target: endpoint.map(Target.init))
    }

    // As in ``HTTP2Gateway``: an extension for both would have to make the pool `package`.
    package var openConnections: Int { pool.openConnections }
    package func slot(fresh: Bool) async -> ConnectionSlot? { await pool.slot(fresh: fresh) }
    package func write(_ lease: Lease) { pool.write(lease) }
    package func reports() async -> [DeliveryReport]? { await pool.reports.take() }
    package func drain() async { await pool.drain() }
    package func finish() async { await pool.finish() }

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
        return try await attempt.target.endpoint.connect(
            on: MultiThreadedEventLoopGroup.singleton
        ) { [options, reports = pool.reports] channel in
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
