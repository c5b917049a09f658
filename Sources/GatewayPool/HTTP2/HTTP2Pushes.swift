import ChatDomain
import HTTP2Wire
import Logging
import NIOCore

/// Reports the outcomes and events of one connection to a push service's HTTP/2 API: to its pool, its client, and the
/// log.
final class HTTP2Pushes<Client: HTTP2PushClient>: HTTP2Owner {
    let capacity = HTTP2Capacity()
    /// Succeeds when the connection will accept no more pushes.
    let retirement: EventLoopPromise<Void>
    private let connectionID: ConnectionID
    private let client: Client
    private let reports: ReportBuffer
    private let breaker: CircuitBreaker
    private let now: TimeSource
    /// The pool's clock, which paces the circuit breaker. The connection's deadlines use the clock of its event loop.
    private let clock: MonotonicClock
    /// Called when the connection or the circuit breaker may allow more pushes.
    private let changed: @Sendable () -> Void
    private let logger: Logger
    private var isRetired = false
    /// Whether the peer has sent GOAWAY. A connection usually gets at most two, but a peer may send thousands.
    private var hasGoneAway = false
    /// Push types for which a warning was logged.
    private var warnedTypes: Set<String> = []
    /// The maximum number of types that are warned about, because other programs can invent push types.
    private static var maxWarnedTypes: Int { 16 }

    init(
        connectionID: ConnectionID, client: Client, retirement: EventLoopPromise<Void>, reports: ReportBuffer,
        breaker: CircuitBreaker, now: @escaping TimeSource, clock: MonotonicClock,
        changed: @escaping @Sendable () -> Void, logger: Logger
    ) {
        self.connectionID = connectionID
        self.client = client
        self.retirement = retirement
        self.reports = reports
        self.breaker = breaker
        self.now = now
        self.clock = clock
        self.changed = changed
        self.logger = logger
    }

    // MARK: To the gateway

    func willOpen(_ state: inout HTTP2ConnectionState) -> Timestamp {
        if breaker.isOpen(now: clock.now()) { state.returnWaiting() }
        return now()
    }

    /// Warns once per connection about each push type that is not documented.
    func noteOpened(_ request: HTTP2Request) {
        guard !client.knows(type: request.type), warnedTypes.count < Self.maxWarnedTypes,
            warnedTypes.insert(request.type).inserted
        else { return }
        logger.warning("sending a push type that the relay does not know", metadata: ["type": "\(request.type)"])
    }

    // MARK: From the push service

    func noteSettings(_ settings: PeerSettings) {
        guard let limit = settings.maxStreams else { return }
        logger.debug("gateway sets the limit of streams", metadata: ["streams": "\(limit)"])
    }

    func noteReset(code: UInt32) {
        logger.debug("stream reset", metadata: ["code": "\(HTTP2Code.name(code))"])
    }

    func noteGoAway(code: UInt32, debugData: ByteBuffer) -> String {
        let name = HTTP2Code.name(code)
        let reason = client.goAwayReason(Array(debugData.readableBytesView)) ?? name
        logger.log(
            level: hasGoneAway ? .debug : .info, "received GOAWAY",
            metadata: ["reason": "\(reason)", "code": "\(name)"])
        hasGoneAway = true
        return reason
    }

    func ended(_ end: HTTP2End, hasBegun: Bool, hasSettings: Bool) {
        switch end {
        case .violated(let failure):
            logger.warning("gateway violated the HTTP/2 protocol", metadata: ["error": "\(failure)"])
        case .unwritable(let failure):
            logger.error("a push cannot be written", metadata: ["error": "\(failure)"])
        case .failed(let error):
            let text = ConnectionFailure.text(error, wasUp: hasSettings)
            logger.info("connection failed", metadata: ["error": "\(text)"])
        case .closed(reason: "ConnectionLost"):
            logger.warning("gateway does not respond, closing the connection")
        case .otherProtocol, .lost, .closed:
            break
        }
        if hasBegun, !hasSettings, !isRetired, end.code == .noError {
            logger.warning("gateway closed just after the handshake; does it accept the certificate?")
        }
    }

    // MARK: To the pool

    /// Delivers the outcomes and publishes the connection's remaining capacity.
    func deliver(_ state: inout HTTP2ConnectionState, now: NIODeadline) {
        let hasBreakerChanged = state.hasOutcomes && recordHealth(&state)
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
    private func recordHealth(_ state: inout HTTP2ConnectionState) -> Bool {
        let health = state.takeHealth()
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
