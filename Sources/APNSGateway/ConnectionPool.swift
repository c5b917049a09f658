import ChatDomain
import Logging
import NIOCore
import NIOPosix
import Synchronization

/// An app's connections to a gateway: opens them, paces that, replaces them, and finds the one that can take pushes.
///
/// The first that can gets them, so that order is kept while all is well.
final class ConnectionPool<Target: PoolTarget, Connection: PooledConnection>: Sendable {
    /// How many connections there are.
    struct Size: Sendable {
        /// Always kept.
        var permanent: Int
        /// Opened beside them while somebody waits and all are saturated.
        var further = 0
        /// Opened beside all of these for what a suspected push must not hold up.
        var spare = 0
        /// Time between two of these.
        var growthInterval = TimeAmount.seconds(1)
    }

    /// A connection that lived so long was wanted, even if nothing was sent on it.
    private static var longLife: Duration { .seconds(10) }
    /// Retired connections that may still wait for answers while their successors are opened.
    private static var mostRetired: Int { 8 }

    typealias Open = @Sendable (Opening<Target>) async throws -> Connection

    let size: Size
    private let epochs: ConnectionEpochs
    private let clock: TimeSource
    private let logger: Logger
    private let mailbox: VerdictMailbox
    /// Whether pushes of the app were taken a moment ago.
    private let hasProgressed: @Sendable () -> Bool
    let state: Mutex<State>

    init(
        target: Target?, size: Size, epochs: ConnectionEpochs, mailbox: VerdictMailbox, clock: @escaping TimeSource,
        hasProgressed: @escaping @Sendable () -> Bool = { false }, logger: Logger
    ) {
        self.size = size
        self.epochs = epochs
        self.mailbox = mailbox
        self.hasProgressed = hasProgressed
        self.clock = clock
        self.logger = logger
        self.state = Mutex(State(target: target))
    }

    /// Connections from now on have another target; the open ones are drained and replaced.
    func reconfigure(target: Target?) async {
        let old = state.withLock { state in
            state.target = target
            state.generation += 1
            state.isProved = false
            state.wanted = 0
            return state.connections
        }
        ring()
        await Self.drain(old)
    }

    /// Keeps connections up until the task is cancelled or the pool was drained.
    func run(open: @escaping Open) async {
        await withTaskGroup(of: Void.self) { group in
            for number in 0..<(size.permanent + size.further + size.spare) {
                group.addTask { await self.keepUp(isPermanent: number < self.size.permanent, open: open) }
            }
        }
    }

    func write(_ lease: Lease) {
        guard let first = lease.pushes.first, let last = lease.pushes.last else { return }
        let connection = state.withLock { state in
            state.connections.first { $0.epoch == lease.slot.connection }
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

    /// Gives out no more slots, and drains all connections.
    func drain() async {
        let open = state.withLock { state in
            state.isStopping = true
            return state.connections
        }
        ring()
        await Self.drain(open)
    }

    /// Returns when whatever was handed to a connection has arrived there: one that is closed has put its verdict then.
    func flush() async {
        for loop in MultiThreadedEventLoopGroup.singleton.makeIterator() { try? await loop.submit {}.get() }
    }

    private static func drain(_ connections: [Connection]) async {
        await withTaskGroup(of: Void.self) { group in
            for connection in connections {
                group.addTask { await connection.drain() }
            }
        }
    }

    /// Something may have changed for those who wait for a slot.
    func wake() {
        for waiting in state.withLock({ $0.slots.ring() }) { waiting.resume() }
    }

    private func ring() {
        for waiting in state.withLock({ $0.slots.ring() + $0.seats.ring() }) { waiting.resume() }
    }

    /// Keeps one connection open for ever, or while it is wanted.
    private func keepUp(isPermanent: Bool, open: @escaping Open) async {
        await withDiscardingTaskGroup { group in
            var pacing = ReconnectPacing()
            var lastGeneration = 0
            while !Task.isCancelled {
                let (target, generation, isStopping, rings) = state.withLock { state in
                    var target = state.target
                    if !isPermanent, target != nil, state.wanted > 0 {
                        state.wanted -= 1
                    } else if !isPermanent {
                        target = nil
                    }
                    return (target, state.generation, state.isStopping, state.seats.rings)
                }
                if isStopping { return }
                guard let target else {
                    await change(since: rings, of: \.seats)
                    continue
                }
                if generation != lastGeneration { pacing = ReconnectPacing() }
                lastGeneration = generation
                let (merit, left) = await serve(target, generation: generation, isPermanent: isPermanent, open: open)
                if let left { group.addTask { await self.seeOff(left) } }
                let delay = pacing.delay(
                    after: merit, isAmidProgress: left != nil && hasProgressed(), random: .random(in: 0...1))
                if delay > .zero { await pause(delay, generation: generation) }
            }
        }
    }

    /// One connection from its opening until it takes no more.
    /// - Returns: what it was good for, and itself if it is not closed yet.
    private func serve(
        _ target: Target, generation: Int, isPermanent: Bool, open: Open
    ) async -> (ReconnectPacing.Merit, Connection?) {
        let epoch = epochs.next()
        var logger = logger
        logger[metadataKey: "connection"] = "\(epoch)"
        logger[metadataKey: "gateway"] = "\(target.endpoint.host):\(target.endpoint.port)"
        logger.info("connecting")
        let started = ContinuousClock.now
        let connection: Connection
        do {
            connection = try await open(
                Opening(
                    target: target, epoch: epoch, logger: logger, isPermanent: isPermanent,
                    isProved: state.withLock { $0.isProved }))
        } catch is CancellationError {
            return (.nothing, nil)
        } catch {
            logger.warning("could not connect", metadata: ["error": "\(ConnectionFailure.text(error))"])
            return (.nothing, nil)
        }
        logger.info("connected")
        let (isCurrent, count) = state.withLock { state in
            state.add(connection, isPermanent: isPermanent)
            return (!state.isStopping && state.generation == generation, state.members.count)
        }
        if isCurrent { wake() } else { await connection.drain() }
        await connection.retired()
        if count > size.permanent + size.further + size.spare + Self.mostRetired { await connection.closed() }
        let merit = await connection.merit()
        state.withLock { state in
            if merit != .nothing, state.generation == generation { state.isProved = true }
        }
        let hasLived = ContinuousClock.now - started > Self.longLife
        return (merit == .nothing && hasLived ? .progress : merit, connection)
    }

    /// Waits for the end of a connection that takes no more.
    private func seeOff(_ connection: Connection) async {
        await connection.closed()
        state.withLock { $0.remove(connection) }
        logger.info("disconnected", metadata: ["connection": "\(connection.epoch)"])
        // What is written for it from now on has its verdict at once.
        wake()
    }

    /// Until the delay has passed, or there is another target, or the pool stops.
    private func pause(_ delay: Duration, generation: Int) async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { try? await Task.sleep(for: delay) }
            group.addTask {
                while !Task.isCancelled {
                    let (isOver, rings) = self.state.withLock {
                        ($0.isStopping || $0.generation != generation, $0.seats.rings)
                    }
                    if isOver { return }
                    await self.change(since: rings, of: \.seats)
                }
            }
            await group.next()
            group.cancelAll()
        }
    }

    /// Waits until a bell has rung since `rings` was read.
    func change(since rings: Int, of bell: any WritableKeyPath<State, Bell> & Sendable) async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isReady = state.withLock { state in
                    guard state[keyPath: bell].rings == rings, !Task.isCancelled else { return true }
                    state[keyPath: bell].waiting.append(continuation)
                    return false
                }
                if isReady { continuation.resume() }
            }
        } onCancel: {
            ring()
        }
    }
}
