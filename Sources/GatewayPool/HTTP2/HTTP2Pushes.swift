import ChatDomain
package import HTTP2Wire
import Logging
package import NIOCore
import NIOHPACK

/// The pushes on one connection to a push service's HTTP/2 API. Performs the decisions of ``HTTP2ConnectionState``.
final class HTTP2Pushes<Client: HTTP2PushClient>: GatewayRequests {
    let capacity = HTTP2Capacity()
    /// Succeeds when the connection will accept no more pushes.
    let retirement: EventLoopPromise<Void>
    private let connectionID: ConnectionID
    private var state: HTTP2ConnectionState
    private let client: Client
    private let reports: ReportBuffer
    private let breaker: CircuitBreaker
    private let now: TimeSource
    /// The pool's clock, which paces the circuit breaker. The connection's deadlines use the clock of its event loop.
    private let clock: MonotonicClock
    /// Called when the connection or the circuit breaker may allow more pushes.
    private let changed: @Sendable () -> Void
    private let logger: Logger
    /// The time at which the pushes that are opened now are written.
    private var writtenAt = Timestamp(milliseconds: 0)
    private var isRetired = false
    /// Whether the TLS handshake is complete.
    private var isSecure = false
    /// Whether the peer has sent GOAWAY. A connection usually gets at most two, but a peer may send thousands.
    private var hasGoneAway = false
    /// Push types for which a warning was logged.
    private var warnedTypes: Set<String> = []
    /// The maximum number of types that are warned about, because other programs can invent push types.
    private static var maxWarnedTypes: Int { 16 }

    init(
        connectionID: ConnectionID, state: HTTP2ConnectionState, client: Client, retirement: EventLoopPromise<Void>,
        reports: ReportBuffer, breaker: CircuitBreaker, now: @escaping TimeSource, clock: MonotonicClock,
        changed: @escaping @Sendable () -> Void, logger: Logger
    ) {
        self.connectionID = connectionID
        self.state = state
        self.client = client
        self.retirement = retirement
        self.reports = reports
        self.breaker = breaker
        self.now = now
        self.clock = clock
        self.changed = changed
        self.logger = logger
    }

    var result: ConnectionResult { state.result }

    func enqueue(_ requests: [HTTP2Request], now: NIODeadline) { state.enqueue(requests, now: now) }
    func drain(now: NIODeadline) { state.drain(now: now) }

    // MARK: To the gateway

    var shortestLimit: TimeAmount { state.limits.shortest }
    var isDone: Bool { state.retirement != nil && state.isEmpty }
    var pausedUntil: NIODeadline? { state.pausedUntil }

    func willOpen() {
        if breaker.isOpen(now: clock.now()) { state.returnWaiting() }
        if state.hasWaiting { writtenAt = now() }
    }

    func open(now: NIODeadline) -> (stream: Int, headers: HPACKHeaders, body: [UInt8])? {
        guard let (id, request) = state.open(now: now, wall: writtenAt) else { return nil }
        warn(ofType: request.type)
        return (id, request.headers, request.body)
    }

    /// Warns once per connection about each push type that is not documented.
    private func warn(ofType type: String) {
        guard !client.knows(type: type), warnedTypes.count < Self.maxWarnedTypes,
            warnedTypes.insert(type).inserted
        else { return }
        logger.warning("sending a push type that the relay does not know", metadata: ["type": "\(type)"])
    }

    func takeUnclosed() -> [Int] { state.takeUnclosed() }

    func tick(now: NIODeadline) -> HTTP2TickAction? {
        let action = state.tick(now: now)
        if case .close(reason: "ConnectionLost") = action {
            logger.warning("gateway does not respond, closing the connection")
        }
        return action
    }

    // MARK: From the gateway

    func began(now: NIODeadline) {
        isSecure = true
        state.began(now: now)
    }

    func received(_ event: PeerEvent, now: NIODeadline) {
        switch event {
        case .headers(let id, let status, let retryAfter, let isLast):
            state.received(status: status, retryAfter: retryAfter, endsStream: isLast, on: id, now: now)
        case .data(let id, let bytes, let isLast, _):
            state.received(body: bytes.readableBytesView, endsStream: isLast, on: id, now: now)
        case .reset(let id, let code):
            logger.debug("stream reset", metadata: ["code": "\(HTTP2Code.name(code))"])
            state.received(reset: code == HTTP2Code.refusedStream.rawValue, on: id, now: now)
        case .goAway(let last, let code, let debug):
            let name = HTTP2Code.name(code)
            let reason = client.goAwayReason(Array(debug.readableBytesView)) ?? name
            logger.log(
                level: hasGoneAway ? .debug : .info, "received GOAWAY",
                metadata: ["reason": "\(reason)", "code": "\(name)"])
            hasGoneAway = true
            state.received(goAwayAfter: last, reason: reason)
        case .settings(let settings):
            let limit = settings.maxStreams
            state.received(maxStreams: limit, now: now)
            if let limit { logger.debug("gateway sets the limit of streams", metadata: ["streams": "\(limit)"]) }
        case .ping, .windowUpdate, .nothing:
            break
        }
    }

    func receivedBytes(now: NIODeadline) { state.receivedBytes(now: now) }
    func closed(_ stream: Int, now: NIODeadline) { state.closed(stream, now: now) }

    func ended(_ end: HTTP2End) {
        switch end {
        case .violated(let failure):
            logger.warning("gateway violated the HTTP/2 protocol", metadata: ["error": "\(failure)"])
        case .unwritable(let failure):
            logger.error("a push cannot be written", metadata: ["error": "\(failure)"])
        case .failed(let error):
            let text = ConnectionFailure.text(error, wasUp: state.hasSettings)
            logger.info("connection failed", metadata: ["error": "\(text)"])
        case .otherProtocol, .lost, .closed:
            break
        }
        if isSecure, !state.hasSettings, !isRetired, end.code == .noError {
            logger.warning("gateway closed just after the handshake; does it accept the certificate?")
        }
        state.end(reason: end.reason)
    }

    // MARK: To the pool

    /// Delivers the outcomes and publishes the connection's remaining capacity.
    func deliver(now: NIODeadline) {
        let hasBreakerChanged = state.hasOutcomes && recordHealth(state.takeHealth())
        let outcomes = state.takeOutcomes()
        // Publish the capacity before the reports, so that a caller that sees an outcome never gets a stale slot.
        let isOfInterest = capacity.publish(
            settled: outcomes.count, limit: state.pushLimit(at: now), canBeSaturated: state.canBeSaturated,
            isFirstResponseLate: state.isFirstResponseLate(at: now))
        reports.put(DeliveryReport.combining(outcomes, on: connectionID))
        if isOfInterest || hasBreakerChanged { changed() }
        if let reason = state.retirement, !isRetired { retired(reason) }
    }

    /// Records the outcomes in the circuit breaker.
    /// - Returns: Whether the circuit breaker has opened or closed.
    private func recordHealth(_ health: HTTP2ConnectionState.Health) -> Bool {
        if health.hasAccepted { client.accepted() }
        let change = breaker.record(
            successes: health.successes, refused: health.refused, asked: health.pause, now: clock.now(),
            random: .random(in: 0...1))
        guard case .opened(let delay) = change else { return change != nil }
        logger.warning(
            "push service fails, sending pauses", metadata: ["ms": "\(delay.nanoseconds / 1_000_000)"])
        state.returnWaiting()
        return true
    }

    private func retired(_ reason: HTTP2ConnectionState.Retirement) {
        isRetired = true
        if case .credentials(let problem) = reason {
            logger.error(
                "gateway does not accept the credentials; pushes wait until it does",
                metadata: ["reason": "\(problem.reason)", "advice": "\(problem.advice ?? "check the credentials")"])
            client.refused(problem)
        } else {
            logger.debug("connection accepts no more pushes", metadata: ["reason": "\(reason)"])
        }
        retirement.succeed()
    }
}

/// Requests whose connection is in a pool.
package protocol GatewayRequests: HTTP2Requests {
    var result: ConnectionResult { get }
    func drain(now: NIODeadline)
}

extension HTTP2ClientHandler: ConnectionHandler where Requests: GatewayRequests {
    package var result: ConnectionResult { requests.result }
    package func drain() { update { $0.drain(now: $1) } }
}
