package import ChatDomain
package import Logging
package import NIOCore
import Synchronization

/// An app's connections to a gateway. Performs the actions of ``ConnectionPoolState`` and collects the reports.
package final class ConnectionPool<Target: PoolTarget, Connection: PooledConnection>: Sendable {
    package typealias Open = @Sendable (ConnectionAttempt<Target>, ConnectionID, Logger) async throws -> Connection
    private typealias State = ConnectionPoolState<Target, Connection, CheckedContinuation<ConnectionSlot?, Never>>

    package let reports = ReportBuffer()
    private let connectionIDs: ConnectionIDs
    private let now: TimeSource
    private let clock: MonotonicClock
    private let logger: Logger
    private let state: Mutex<State>
    private let lastWaiter = Atomic<UInt64>(0)
    /// The actions that ``run(open:)`` performs. At any time, it contains at most one connection per connector and a
    /// few wake-ups.
    private let work = AsyncStream.makeStream(of: State.Action.self)

    /// Creates a pool without connections. ``run(open:)`` opens them.
    ///
    /// - Parameters:
    ///   - target: `nil` while there are no credentials.
    ///   - now: The wall clock, which is read when a lease is written.
    ///   - clock: The monotonic clock, for delays.
    package convenience init(
        target: Target?, size: PoolSize, connectionIDs: ConnectionIDs, now: @escaping TimeSource, clock: MonotonicClock,
        logger: Logger
    ) {
        self.init(
            target: target, size: size, breaker: nil, connectionIDs: connectionIDs, now: now, clock: clock,
            logger: logger)
    }

    /// - Parameter breaker: `nil` if the gateway's responses do not distinguish its own failures from others.
    init(
        target: Target?, size: PoolSize, breaker: CircuitBreaker?, connectionIDs: ConnectionIDs,
        now: @escaping TimeSource, clock: MonotonicClock, logger: Logger
    ) {
        self.connectionIDs = connectionIDs
        self.now = now
        self.clock = clock
        self.logger = logger
        self.state = Mutex(State(target: target, size: size, breaker: breaker))
    }

    /// The number of open connections, including those that only wait for their last outcomes.
    package var openConnections: Int { state.withLock { $0.openConnections } }

    /// Keeps connections open until the task is cancelled or the pool has been drained.
    package func run(open: @escaping Open) async {
        update { $0.start(now: $1) }
        await withDiscardingTaskGroup { group in
            for await action in work.stream {
                switch action {
                case .connect(let attempt): group.addTask { await self.serve(attempt, open: open) }
                case .wakeUp(let time): group.addTask { await self.wakeUp(at: time) }
                case .drain, .handOut: break
                }
            }
            group.cancelAll()
        }
    }

    /// Serves one connection, from the attempt to open it until it is closed.
    private func serve(_ attempt: ConnectionAttempt<Target>, open: Open) async {
        let connectionID = connectionIDs.next()
        var logger = logger
        logger[metadataKey: "connection"] = "\(connectionID)"
        logger[metadataKey: "gateway"] = "\(attempt.target.endpoint.host):\(attempt.target.endpoint.port)"
        logger.info("connecting")
        let connection: Connection
        do {
            connection = try await open(attempt, connectionID, logger)
        } catch {
            if !(error is CancellationError), !Task.isCancelled {
                logger.warning("could not connect", metadata: ["error": "\(ConnectionFailure.text(error))"])
            }
            return update { $0.failed(attempt, random: .random(in: 0...1), now: $1) }
        }
        logger.info("connected")
        update { $0.opened(connection, attempt, now: $1) }
        await connection.retired()
        if state.withLock({ $0.mustBeClosed(connection) }) { await connection.closed() }
        let result = await connection.result()
        update { $0.retired(attempt, result: result, random: .random(in: 0...1), now: $1) }
        await connection.closed()
        update { $0.closed(connection, now: $1) }
        logger.info("disconnected")
    }

    private func wakeUp(at time: NIODeadline) async {
        guard (try? await clock.sleep(time)) != nil else { return }
        // `sleep` and `now` may read different clocks.
        update { $0.timePassed(now: max($1, time)) }
    }

    /// Reports an event to the state and performs the resulting actions.
    private func update(_ event: (inout State, NIODeadline) -> [State.Action]) {
        let now = clock.now()
        perform(state.withLock { event(&$0, now) })
    }

    private func perform(_ actions: [State.Action]) {
        for action in actions {
            switch action {
            case .connect, .wakeUp: work.continuation.yield(action)
            case .drain(let connection): connection.drain()
            case .handOut(let slot, let waiter): waiter.resume(returning: slot)
            }
        }
    }

    /// Serves waiters again, because more slots may be available. May be called on any thread.
    package func changed() {
        update { $0.changed(now: $1) }
    }

    package func slot(fresh: Bool) async -> ConnectionSlot? {
        let id = lastWaiter.add(1, ordering: .relaxed).newValue
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                update { state, now in
                    // If the task was cancelled before, `onCancel` has already run and found no waiter.
                    guard !Task.isCancelled else { return [.handOut(nil, to: continuation)] }
                    return state.request(continuation, id: id, fresh: fresh, now: now)
                }
            }
        } onCancel: {
            update { state, _ in state.cancel(id) }
        }
    }

    package func write(_ lease: Lease) {
        guard let first = lease.pushes.first, let last = lease.pushes.last else { return }
        let connectionID = lease.slot.connection
        if let connection = state.withLock({ $0.connection(connectionID) }) {
            connection.write(lease, now: now())
        } else {
            reports.put([
                DeliveryReport(
                    connection: connectionID, identifiers: first.identifier...last.identifier, outcome: .notProcessed)
            ])
        }
    }

    /// Uses another target for new connections. The open ones are drained and replaced after this function has
    /// returned.
    package func reconfigure(target: Target?) {
        update { $0.reconfigure(target: target, now: $1) }
    }

    /// Stops handing out slots and drains all connections. Returns when they are closed.
    package func drain() async {
        let now = clock.now()
        let (open, actions) = state.withLock { $0.stop(now: now) }
        perform(actions)
        work.continuation.finish()
        await withTaskCancellationHandler {
            for connection in open { await connection.closed() }
        } onCancel: {
            for connection in open { connection.close() }
        }
    }

    /// Closes the reports. First waits until the event loops of the connections have run all writes that were submitted
    /// to them, because a write to a closed connection still reports its outcomes.
    package func finish(_ eventLoops: any EventLoopGroup) async {
        for loop in eventLoops.makeIterator() { try? await loop.submit {}.get() }
        reports.close()
    }
}
