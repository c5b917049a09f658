package import ChatDomain
import HTTP2Wire
package import Logging
import NIOCore

/// The options of an ``HTTP2Gateway``.
package struct HTTP2Options: Sendable {
    /// The maximum number of connections, without the spare one.
    package var connections: Int
    /// The time in which a stream must get its response.
    package var answerLimit: Duration
    /// The time without a push after which an additional connection is closed.
    package var idleLimit: Duration
    var limits = HTTP2Limits()
    var growthInterval = TimeAmount.seconds(1)
    var clock = MonotonicClock()
    var connector: any Connector = .sockets

    package init(
        connections: Int = 4, answerLimit: Duration = .seconds(30),
        idleLimit: Duration = .seconds(300)
    ) {
        self.connections = connections
        self.answerLimit = answerLimit
        self.idleLimit = idleLimit
    }
}

/// An app's connections to the HTTP/2 API of a push service.
///
/// One connection is always kept. Others are opened while the peer's limit of streams delays pushes, and are closed
/// when they have been idle.
package final class HTTP2Gateway<Service: HTTP2Service>: PushGateway {
    package let format: any PushFormat
    private let options: HTTP2Options
    private let now: TimeSource
    private let breaker = CircuitBreaker()
    private let pool: ConnectionPool<Service, HTTP2Connection<Service.Client>>

    /// Creates a gateway without connections. ``run()`` opens them.
    /// - Parameter service: `nil` while the app has no credentials. Its pushes then wait in the queue.
    package init(
        service: Service?, format: any PushFormat, options: HTTP2Options, connectionIDs: ConnectionIDs,
        now: @escaping TimeSource = Timestamp.now, logger: Logger
    ) {
        self.format = format
        self.options = options
        self.now = now
        self.pool = ConnectionPool(
            target: service,
            size: PoolSize(
                permanent: 1, additional: max(0, options.connections - 1), spare: 1,
                growthInterval: options.growthInterval),
            breaker: breaker, connectionIDs: connectionIDs, now: now, clock: options.clock, logger: logger)
    }

    package func run() async { await pool.run(open: open) }

    /// Uses another service or other credentials for new connections. The open ones finish the pushes in flight and
    /// then close.
    package func reconfigure(service: Service?) { pool.reconfigure(target: service) }

    package var openConnections: Int { pool.openConnections }
    package func slot(fresh: Bool) async -> ConnectionSlot? { await pool.slot(fresh: fresh) }
    package func write(_ lease: Lease) { pool.write(lease) }
    package func reports() async -> [DeliveryReport]? { await pool.reports.take() }
    package func drain() async { await pool.drain() }
    package func finish() async { await pool.finish(options.connector.eventLoops) }

    private func open(
        _ attempt: ConnectionAttempt<Service>, _ connectionID: ConnectionID, _ logger: Logger
    ) async throws -> HTTP2Connection<Service.Client> {
        let client = try await attempt.target.client()
        var limits = options.limits
        limits.response = TimeAmount(options.answerLimit)
        let idleLimit = attempt.isPermanent ? nil : TimeAmount(options.idleLimit)
        let changed: @Sendable () -> Void = { [weak pool] in pool?.changed() }
        let (_, connection) = try await attempt.target.endpoint.connect(over: options.connector) {
            [limits, wallClock = now, breaker, clock = options.clock, reports = pool.reports] channel in
            let now = channel.eventLoop.now
            let state = HTTP2ConnectionState(
                limits: limits, tokenEnd: client.lifeLeft(at: wallClock()).map { now + TimeAmount($0) },
                idleLimit: idleLimit, now: now, interpret: client.answer)
            let pushes = HTTP2Pushes(
                connectionID: connectionID, client: client,
                retirement: channel.eventLoop.makePromise(), reports: reports, breaker: breaker, now: wallClock,
                clock: clock, changed: changed, logger: logger)
            let handler = HTTP2ClientHandler(state, owner: pushes)
            try channel.pipeline.syncOperations.addHandler(handler)
            return HTTP2Connection(
                id: connectionID, channel: channel, handler: handler, client: client, breaker: breaker)
        }
        return connection
    }
}
