package import APNSWire
package import ChatDomain
package import Logging
import NIOCore
import NIOPosix

/// An app's connections to the legacy binary gateway (apns-binary.md).
///
/// The first that can take pushes gets them, so that order is kept while all is well; the others stand by for when it
/// is full, stalled or closed by an answer.
package final class BinaryGateway: PushGateway {
    package struct Options: Sendable {
        /// How many connections are kept open.
        package var connections: Int
        package var command: BinaryCommand
        /// Silence after which a push counts as accepted.
        package var settleTime: Duration

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
    /// How long the gateway may take nothing before its connection is given up.
    private static let stallLimit = TimeAmount.seconds(15)
    /// How long a connection with unproved credentials is watched before it gets pushes: a gateway that does not
    /// like the certificate closes without a word just after the handshake (apns-binary.md §1).
    private static let probation = Duration.milliseconds(100)

    private struct Target: PoolTarget {
        let endpoint: GatewayEndpoint
        /// With this endpoint's gateway.
        let sentinels = SentinelExperience()
    }

    package let format: any PushFormat
    private let options: Options
    private let mailbox = VerdictMailbox()
    private let pool: ConnectionPool<Target, BinaryConnection>

    /// - Parameter endpoint: nil while the app has no credentials; everything waits in the queue then.
    package init(
        endpoint: GatewayEndpoint?, format: APNSFormat = APNSFormat(.binary, payloadLimit: 2048), options: Options,
        epochs: ConnectionEpochs, clock: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.format = format
        self.options = options
        self.pool = ConnectionPool(
            target: endpoint.map(Target.init), size: .init(permanent: options.connections), epochs: epochs,
            mailbox: mailbox, clock: clock, logger: logger)
    }

    /// Connections that are open now.
    package var openConnections: Int { pool.openConnections }

    /// Connections from now on use another endpoint or other credentials; the open ones are drained and replaced.
    package func reconfigure(endpoint: GatewayEndpoint?) async {
        await pool.reconfigure(target: endpoint.map(Target.init))
    }

    package func run() async {
        let changed: @Sendable () -> Void = { [weak pool] in pool?.wake() }
        await pool.run { [options, mailbox] opening in
            try await Self.open(opening, options: options, mailbox: mailbox, changed: changed)
        }
    }

    package func slot(fresh: Bool) async -> ConnectionSlot? {
        await pool.slot(fresh: fresh)
    }

    package func write(_ lease: Lease) {
        pool.write(lease)
    }

    package func verdicts() async -> [Verdict]? {
        await mailbox.take()
    }

    package func drain() async {
        await pool.drain()
    }

    package func finish() async {
        await pool.flush()
        mailbox.close()
    }

    private static func open(
        _ opening: Opening<Target>, options: Options, mailbox: VerdictMailbox, changed: @escaping @Sendable () -> Void
    ) async throws -> BinaryConnection {
        let (channel, connection) = try await opening.target.endpoint.connect(
            on: MultiThreadedEventLoopGroup.singleton
        ) { channel in
            let state = BinaryConnectionState(
                epoch: opening.epoch, settleTime: TimeAmount(options.settleTime), stallLimit: stallLimit,
                now: channel.eventLoop.now)
            let handler = BinaryConnectionHandler(
                state: state, sentinels: opening.target.sentinels, mailbox: mailbox, logger: opening.logger,
                changed: changed)
            try channel.pipeline.syncOperations.addHandler(handler)
            return BinaryConnection(epoch: opening.epoch, channel: channel, handler: handler, options: options)
        }
        if !opening.isProved { try? await Task.sleep(for: probation) }
        guard channel.isActive else {
            throw GatewayUnreachable("gateway closed just after the handshake; it may not accept the certificate")
        }
        return connection
    }
}
