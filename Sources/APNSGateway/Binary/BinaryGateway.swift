package import APNSWire
package import ChatDomain
package import Logging
import NIOCore
import NIOPosix
import Synchronization

/// Numbers the connections of a process, over all apps.
package final class ConnectionEpochs: Sendable {
    private let last: Atomic<Int64>

    package init(after last: ConnectionEpoch = ConnectionEpoch(0)) {
        self.last = Atomic(last.number)
    }

    func next() -> ConnectionEpoch {
        ConnectionEpoch(last.add(1, ordering: .relaxed).newValue)
    }
}

/// An app's connections to the legacy binary gateway (apns-binary.md).
///
/// The first that can take pushes gets them, so that order is kept while all is well; the others stand by for when it
/// is full, stalled or closed by an answer.
package final class BinaryGateway: PushGateway {
    package struct Options: Sendable {
        /// How many connections are kept open.
        package var connections: Int
        package var command: BinaryCommand
        /// Bytes of a payload.
        package var payloadLimit: Int
        /// Silence after which a push counts as accepted.
        package var settleTime: Duration

        package init(
            connections: Int = 2, command: BinaryCommand = .framed, payloadLimit: Int = 2048,
            settleTime: Duration = .seconds(5)
        ) {
            self.connections = connections
            self.command = command
            self.payloadLimit = payloadLimit
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
    /// A connection that lived so long was wanted, even if nothing was sent on it.
    private static let longLife = Duration.seconds(10)

    private struct Pool {
        var endpoint: GatewayEndpoint?
        /// With this endpoint's gateway.
        var sentinels = SentinelExperience()
        /// Grows with each change of the endpoint.
        var generation = 0
        var connections: [BinaryConnection] = []
        /// Counts what may have changed for those who wait, so that no change is missed between look and wait.
        var changes = 0
        var waiting: [CheckedContinuation<Void, Never>] = []
        var isStopping = false
        /// A connection with the present credentials has done some good.
        var isProved = false
    }

    private let options: Options
    private let epochs: ConnectionEpochs
    private let clock: TimeSource
    private let logger: Logger
    private let mailbox = VerdictMailbox()
    private let pool: Mutex<Pool>

    /// - Parameter endpoint: nil while the app has no credentials; everything waits in the queue then.
    package init(
        endpoint: GatewayEndpoint?, options: Options, epochs: ConnectionEpochs,
        clock: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.options = options
        self.epochs = epochs
        self.clock = clock
        self.logger = logger
        self.pool = Mutex(Pool(endpoint: endpoint))
    }

    /// Connections from now on use another endpoint or other credentials; the open ones are drained and replaced.
    package func reconfigure(endpoint: GatewayEndpoint?) async {
        let old = pool.withLock { pool in
            pool.endpoint = endpoint
            pool.generation += 1
            pool.sentinels = SentinelExperience()
            pool.isProved = false
            return pool.connections
        }
        wake()
        await Self.drain(old)
    }

    package func run() async {
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<options.connections {
                group.addTask { await self.keepUp() }
            }
        }
    }

    package func slot(fresh: Bool) async -> ConnectionSlot? {
        var hasAsked = false
        while true {
            let (slot, spare, isStopping, changes) = pool.withLock { pool in
                let changes = pool.changes
                let slots = pool.connections.lazy.compactMap {
                    $0.slot(room: Self.leaseLimit, payloadLimit: self.options.payloadLimit)
                }
                let slot = slots.first { !fresh || $0.isFresh }
                return (slot, pool.connections.last(where: \.canBeSpared), pool.isStopping || Task.isCancelled, changes)
            }
            if isStopping { return nil }
            if let slot { return slot }
            if fresh, !hasAsked, let spare {
                // Its successor will be fresh. What is in flight on it gets its verdict first.
                hasAsked = true
                Task { await spare.drain() }
            }
            await change(since: changes)
        }
    }

    package func write(_ lease: Lease) {
        guard let first = lease.pushes.first, let last = lease.pushes.last else { return }
        let connection = pool.withLock { pool in
            pool.connections.first { $0.epoch == lease.slot.connection }
        }
        if let connection {
            connection.write(lease, now: clock())
        } else {
            mailbox.put([
                Verdict(
                    connection: lease.slot.connection, identifiers: first.identifier...last.identifier,
                    outcome: .notProcessed)
            ])
        }
    }

    package func verdicts() async -> [Verdict]? {
        await mailbox.take()
    }

    package func drain() async {
        let open = pool.withLock { pool in
            pool.isStopping = true
            return pool.connections
        }
        wake()
        await Self.drain(open)
        mailbox.close()
    }

    private static func drain(_ connections: [BinaryConnection]) async {
        await withTaskGroup(of: Void.self) { group in
            for connection in connections {
                group.addTask { await connection.drain() }
            }
        }
    }

    /// Keeps one connection of the pool open for ever.
    private func keepUp() async {
        var pacing = ReconnectPacing()
        while !Task.isCancelled {
            let (endpoint, generation, isStopping, changes) = pool.withLock {
                ($0.endpoint, $0.generation, $0.isStopping, $0.changes)
            }
            if isStopping { return }
            guard let endpoint else {
                await change(since: changes)
                continue
            }
            let merit = await serve(endpoint, generation: generation)
            let delay = pacing.delay(after: merit, random: .random(in: 0...1))
            if delay > .zero { try? await Task.sleep(for: delay) }
        }
    }

    /// One connection from its opening to its end.
    /// - Returns: what it was good for.
    private func serve(_ endpoint: GatewayEndpoint, generation: Int) async -> ReconnectPacing.Merit {
        let epoch = epochs.next()
        var logger = logger
        logger[metadataKey: "connection"] = "\(epoch)"
        logger[metadataKey: "gateway"] = "\(endpoint.host):\(endpoint.port)"
        logger.info("connecting")
        let started = ContinuousClock.now
        do {
            let sentinels = pool.withLock { $0.sentinels }
            let (channel, connection) = try await endpoint.connect(on: MultiThreadedEventLoopGroup.singleton) {
                [options, mailbox, logger] channel in
                let state = BinaryConnectionState(
                    epoch: epoch, settleTime: TimeAmount(options.settleTime), stallLimit: Self.stallLimit,
                    now: channel.eventLoop.now)
                let handler = BinaryConnectionHandler(
                    state: state, sentinels: sentinels, mailbox: mailbox, logger: logger,
                    changed: { [weak self] in self?.wake() })
                try channel.pipeline.syncOperations.addHandler(handler)
                return BinaryConnection(epoch: epoch, channel: channel, handler: handler, command: options.command)
            }
            if !pool.withLock({ $0.isProved }) { try? await Task.sleep(for: Self.probation) }
            guard channel.isActive else {
                logger.warning("gateway closed just after the handshake; it may not accept the certificate")
                return .nothing
            }
            logger.info("connected")
            let isCurrent = pool.withLock { pool in
                guard !pool.isStopping, pool.generation == generation else { return false }
                pool.connections.append(connection)
                return true
            }
            if isCurrent { wake() } else { await connection.drain() }
            await connection.closed()
            let merit = await connection.merit()
            pool.withLock { pool in
                pool.connections.removeAll { $0 === connection }
                if merit != .nothing, pool.generation == generation { pool.isProved = true }
            }
            logger.info("disconnected")
            let hasLived = ContinuousClock.now - started > Self.longLife
            return merit == .nothing && hasLived ? .progress : merit
        } catch is CancellationError {
            return .nothing
        } catch {
            logger.warning("could not connect", metadata: ["error": "\(ConnectionFailure.text(error))"])
            return .nothing
        }
    }

    /// Waits until the pool has changed since `changes` was read.
    private func change(since changes: Int) async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isReady = pool.withLock { pool in
                    guard pool.changes == changes, !Task.isCancelled else { return true }
                    pool.waiting.append(continuation)
                    return false
                }
                if isReady { continuation.resume() }
            }
        } onCancel: {
            wake()
        }
    }

    private func wake() {
        let waiting = pool.withLock { pool in
            pool.changes += 1
            defer { pool.waiting = [] }
            return pool.waiting
        }
        for continuation in waiting { continuation.resume() }
    }
}
