import ChatDomain
import HTTP2Wire
import Logging
import NIOCore
import NIOTLS
import PushWire
import Synchronization

/// One open connection to Apple's HTTP/2 API, as the pool sees it. The handler does the work on the event loop.
final class HTTP2Connection: ChannelConnection {
    let id: ConnectionID
    let channel: any Channel
    let handler: NIOLoopBound<HTTP2ConnectionHandler>
    private let capacity: HTTP2Capacity
    private let retirement: EventLoopFuture<Void>
    private let template: HTTP2RequestTemplate
    private let breaker: CircuitBreaker

    /// Must be called on the channel's event loop.
    init(
        id: ConnectionID, channel: any Channel, handler: HTTP2ConnectionHandler,
        template: HTTP2RequestTemplate, breaker: CircuitBreaker
    ) {
        self.id = id
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        self.capacity = handler.capacity
        self.retirement = handler.retirement.futureResult
        self.template = template
        self.breaker = breaker
    }

    var slot: ConnectionSlot? { channel.isActive ? capacity.slot(on: id) : nil }

    /// Always `false`: the connection is fresh again as soon as all pushes have their responses.
    var isReplaceable: Bool { false }

    var isSaturated: Bool { capacity.isSaturated }
    var isBlocked: Bool { capacity.isBlocked }

    /// Builds the requests and submits them to the event loop. Building them here saves work on the event loop.
    func write(_ lease: Lease, now: Timestamp) {
        guard let last = lease.pushes.last else { return }
        breaker.noteWritten()
        capacity.noteLeased(through: last.identifier, isProbe: lease.isProbe)
        let requests = lease.pushes.map(template.request)
        channel.eventLoop.execute { [handler] in handler.value.write(requests) }
    }

    func retired() async {
        try? await retirement.get()
    }
}

/// The capacity of a connection for pushes. The connection's handler publishes it on the event loop, and callers that
/// lease pushes read it.
final class HTTP2Capacity: Sendable {
    /// The maximum number of pushes in a lease.
    static let leaseLimit = 1000

    private struct State {
        /// The number of pushes that were leased for the connection.
        var leased: UInt32 = 0
        /// The number of leased pushes that have their outcome.
        var settled: UInt32 = 0
        var limit = 0
        var canBeSaturated = false
        /// Whether the response to the first push is late.
        var isFirstResponseLate = false
        /// Whether the last lease was a probe, which still waits for its outcome.
        var isProbing = false

        var outstanding: Int { Int(leased) - Int(settled) }

        /// The number of pushes that may be leased now. `nil` if it is too small for a separate transaction, or
        /// during a probe.
        var free: Int? {
            guard !isProbing else { return nil }
            let free = min(limit - outstanding, leaseLimit)
            return free >= max(1, min(limit, leaseLimit) / 4) ? free : nil
        }
    }

    private let state = Mutex(State())

    func slot(on connectionID: ConnectionID) -> ConnectionSlot? {
        let (leased, outstanding, free) = state.withLock { ($0.leased, $0.outstanding, $0.free) }
        guard let free else { return nil }
        return ConnectionSlot(
            connection: connectionID, firstIdentifier: leased + 1, capacity: free, isFresh: outstanding <= 0,
            answersEach: true)
    }

    var isSaturated: Bool { state.withLock { $0.canBeSaturated && !$0.isProbing && $0.free == nil } }
    var isBlocked: Bool { state.withLock { $0.isProbing || $0.isFirstResponseLate } }

    func noteLeased(through identifier: UInt32, isProbe: Bool) {
        state.withLock { state in
            state.leased = identifier
            state.isProbing = isProbe
        }
    }

    /// Updates the capacity after outcomes.
    /// - Parameters:
    ///   - settled: The number of further pushes that have their outcome.
    ///   - limit: The maximum number of pushes that the connection may hold.
    /// - Returns: Whether to serve the waiters, because there is capacity or another connection would help.
    func publish(settled: Int, limit: Int, canBeSaturated: Bool, isFirstResponseLate: Bool) -> Bool {
        state.withLock { state in
            state.settled += UInt32(settled)
            state.limit = limit
            let isNews = isFirstResponseLate && !state.isFirstResponseLate
            state.canBeSaturated = canBeSaturated
            state.isFirstResponseLate = isFirstResponseLate
            if state.outstanding <= 0 { state.isProbing = false }
            return state.free != nil || isNews
        }
    }
}

/// Writes pushes as HTTP/2 requests and performs the decisions of ``HTTP2ConnectionState``.
///
/// ``HTTP2Session`` handles frames and the state handles pushes. The handler has the socket and the clock.
final class HTTP2ConnectionHandler: ConnectionHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    struct Listeners: Sendable {
        /// Called when the connection or the circuit breaker may allow more pushes.
        var changed: @Sendable () -> Void
        /// Called when the gateway does not accept the certificate or provider token.
        var credentialsRefused: @Sendable (ProviderRefusal) -> Void
    }

    /// The number of bytes after which the output is flushed and writability is checked again. It is the size of a TLS
    /// record, so that the peer can process one record while the next is built.
    private static let flushSize = 16 << 10

    let capacity = HTTP2Capacity()
    /// Succeeds when the connection will accept no more pushes.
    let retirement: EventLoopPromise<Void>
    private let connectionID: ConnectionID
    private var state: HTTP2ConnectionState
    private let reports: ReportBuffer
    private let breaker: CircuitBreaker
    private let now: TimeSource
    /// The pool's clock, which paces the circuit breaker. The connection's deadlines use the clock of its event loop.
    private let clock: MonotonicClock
    private let listeners: Listeners
    private let logger: Logger
    private var context: ChannelHandlerContext?
    private var session = HTTP2Session()
    private var isOver = false
    private var isRetired = false
    /// Whether the TLS handshake is complete.
    private var isSecure = false
    private var isActing = false
    private var endOfPause: Scheduled<Void>?
    /// Push types for which a warning was logged.
    private var warnedTypes: Set<String> = []
    /// The maximum number of types that are warned about, because other programs can invent push types.
    private static let maxWarnedTypes = 16

    init(
        connectionID: ConnectionID, state: HTTP2ConnectionState, retirement: EventLoopPromise<Void>,
        reports: ReportBuffer, breaker: CircuitBreaker, now: @escaping TimeSource,
        clock: MonotonicClock, listeners: Listeners, logger: Logger
    ) {
        self.connectionID = connectionID
        self.state = state
        self.retirement = retirement
        self.reports = reports
        self.breaker = breaker
        self.now = now
        self.clock = clock
        self.listeners = listeners
        self.logger = logger
    }

    var result: ConnectionResult { state.result }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        if context.channel.isActive { tick() }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        end(context, reason: "ConnectionLost")
        self.context = nil
    }

    func channelActive(context: ChannelHandlerContext) {
        tick()
        context.fireChannelActive()
    }

    func write(_ requests: [HTTP2Request]) {
        guard let context, !isOver else {
            state.enqueue(requests, now: .now())
            state.retire(.drained)
            return deliver(now: .now())
        }
        state.enqueue(requests, now: context.eventLoop.now)
        act(context)
    }

    func drain() {
        guard let context, !isOver else { return }
        state.drain(now: context.eventLoop.now)
        act(context)
    }

    // MARK: From the peer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        let now = context.eventLoop.now
        session.feed(unwrapInboundIn(data), now: now)
        do {
            while !isOver, let event = try session.next() { received(event, now: now) }
        } catch {
            logger.warning("gateway violated the HTTP/2 protocol", metadata: ["error": "\(error)"])
            end(context, reason: "ConnectionLost", code: error.code)
        }
    }

    private func received(_ event: PeerEvent, now: NIODeadline) {
        switch event {
        case .headers(let id, let status, _, let isLast):
            state.received(status: status, endsStream: isLast, on: id, now: now)
            if isLast { receivedEnd(of: id, now: now) }
        case .data(let id, let bytes, let isLast, _):
            state.received(body: bytes.readableBytesView, endsStream: isLast, on: id, now: now)
            if isLast { receivedEnd(of: id, now: now) }
        case .reset(let id, let code):
            logger.debug("stream reset", metadata: ["code": "\(HTTP2Code.name(code))"])
            state.received(reset: code == HTTP2Code.refusedStream.rawValue, on: id, now: now)
            state.closed(id, now: now)
        case .goAway(let last, let code, let debug):
            let refusal = ProviderRefusal(status: 0, body: Array(debug.readableBytesView))
            let name = HTTP2Code.name(code)
            let reason = refusal.reason == ProviderRefusal(status: 0, body: []).reason ? name : refusal.reason
            logger.info("received GOAWAY", metadata: ["reason": "\(reason)", "code": "\(name)"])
            state.received(goAwayAfter: last, reason: reason)
        case .settings(let settings):
            let limit = settings.maxStreams
            state.received(maxStreams: limit, now: now)
            if let limit { logger.debug("gateway sets the limit of streams", metadata: ["streams": "\(limit)"]) }
        case .ping, .windowUpdate, .nothing:
            break
        }
    }

    /// Handles the end of a response. If the request was not sent completely, the stream stays open until it is reset.
    private func receivedEnd(of id: Int, now: NIODeadline) {
        if !session.hasUnsentBody(id) { state.closed(id, now: now) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        state.receivedBytes(now: context.eventLoop.now)
        act(context)
        context.fireChannelReadComplete()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted = event as? TLSUserEvent { isSecure = true }
        context.fireUserInboundEventTriggered(event)
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { act(context) }
        context.fireChannelWritabilityChanged()
    }

    func channelInactive(context: ChannelHandlerContext) {
        end(context, reason: "ConnectionLost")
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if !isOver { logger.info("connection failed", metadata: ["error": "\(ConnectionFailure.text(error))"]) }
        end(context, reason: "ConnectionLost")
    }

    // MARK: To the peer

    /// Opens and resets streams, flushes the output, and delivers the outcomes, as far as that is possible now.
    private func act(_ context: ChannelHandlerContext) {
        // A flush may call this function again, because the channel has become writable. The outer call continues
        // anyway.
        guard !isOver, !isActing else { return }
        isActing = true
        defer { isActing = false }
        let now = context.eventLoop.now
        if breaker.isOpen(now: clock.now()) { state.returnWaiting() }
        open(context, now: now)
        for id in state.takeUnclosed() {
            session.reset(id, .cancel)
            state.closed(id, now: now)
        }
        flush(context)
        guard !isOver else { return }
        deliver(now: now)
        schedulePauseEnd(context, now: now)
        if state.retirement != nil, state.isEmpty { end(context, reason: "ConnectionLost") }
    }

    /// Opens streams while the peer allows it and the channel is writable.
    private func open(_ context: ChannelHandlerContext, now: NIODeadline) {
        guard state.hasWaiting else { return }
        let wall = self.now()
        while !isOver, context.channel.isWritable {
            while session.outputSize < Self.flushSize {
                guard session.hasSendWindow, let (id, request) = state.open(now: now, wall: wall) else { return }
                warn(ofType: request.type)
                do {
                    try session.open(id, headers: request.headers, body: request.body)
                } catch {
                    logger.error("a push cannot be written", metadata: ["error": "\(error)"])
                    return end(context, reason: "ConnectionLost", code: error.code)
                }
            }
            flush(context)
        }
    }

    /// Warns once per connection about each push type that is not documented.
    private func warn(ofType type: String) {
        guard !PushType(rawValue: type).isDocumented, warnedTypes.count < Self.maxWarnedTypes,
            warnedTypes.insert(type).inserted
        else { return }
        logger.warning("sending a push type that the relay does not know", metadata: ["type": "\(type)"])
    }

    private func flush(_ context: ChannelHandlerContext) {
        guard let bytes = session.takeOutput() else { return }
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        session.noteSent(bytes, peerIsReading: context.channel.isWritable)
    }

    private func schedulePauseEnd(_ context: ChannelHandlerContext, now: NIODeadline) {
        guard let end = state.pausedUntil, end > now, endOfPause == nil else { return }
        endOfPause = context.eventLoop.assumeIsolated().scheduleTask(in: end - now) {
            self.endOfPause = nil
            self.act(context)
        }
    }

    private func tick() {
        guard let context, !isOver else { return }
        switch state.tick(now: context.eventLoop.now) {
        case .ping:
            session.ping()
        case .close(let reason):
            if reason == "ConnectionLost" { logger.warning("gateway does not respond, closing the connection") }
            return end(context, reason: reason)
        case nil:
            break
        }
        act(context)
        guard !isOver else { return }
        context.eventLoop.assumeIsolated().scheduleTask(in: state.limits.tick) { self.tick() }
    }

    /// Closes the connection. Pushes without an outcome get one now, before the peer has agreed to the close.
    private func end(_ context: ChannelHandlerContext, reason: String, code: HTTP2Code = .noError) {
        guard !isOver else { return }
        isOver = true
        endOfPause?.cancel()
        if isSecure, !state.hasSettings, !isRetired, code == .noError {
            logger.warning("gateway closed just after the handshake; does it accept the certificate?")
        }
        state.end(reason: reason)
        deliver(now: context.eventLoop.now)
        if context.channel.isActive {
            session.goAway(code)
            flush(context)
        }
        context.close(promise: nil)
    }

    // MARK: To the pool

    /// Delivers the outcomes and publishes the connection's remaining capacity.
    private func deliver(now: NIODeadline) {
        let hasBreakerChanged = state.hasOutcomes && recordHealth(state.takeHealth())
        let outcomes = state.takeOutcomes()
        // Publish the capacity before the reports, so that a caller that sees an outcome never gets a stale slot.
        let isOfInterest = capacity.publish(
            settled: outcomes.count, limit: isOver ? 0 : state.pushLimit(at: now),
            canBeSaturated: !isOver && state.canBeSaturated,
            isFirstResponseLate: !isOver && state.isFirstResponseLate(at: now))
        reports.put(DeliveryReport.combining(outcomes, on: connectionID))
        if isOfInterest || hasBreakerChanged { listeners.changed() }
        if let reason = state.retirement, !isRetired { retired(reason) }
    }

    /// Records the outcomes in the circuit breaker.
    /// - Returns: Whether the circuit breaker has opened or closed.
    private func recordHealth(_ health: HTTP2ConnectionState.Health) -> Bool {
        let change = breaker.record(
            successes: health.successes, failures: health.failures, now: clock.now(), random: .random(in: 0...1))
        guard case .opened(let delay) = change else { return change != nil }
        logger.warning(
            "push service fails, sending pauses", metadata: ["ms": "\(delay.nanoseconds / 1_000_000)"])
        state.returnWaiting()
        return true
    }

    private func retired(_ reason: HTTP2ConnectionState.Retirement) {
        isRetired = true
        if case .credentials(let refusal) = reason {
            logger.error(
                "gateway does not accept the credentials; pushes wait until it does",
                metadata: [
                    "reason": "\(refusal.reason)", "advice": "\(refusal.known?.advice ?? "check the credentials")",
                ])
            listeners.credentialsRefused(refusal)
        } else {
            logger.debug("connection accepts no more pushes", metadata: ["reason": "\(reason)"])
        }
        retirement.succeed()
    }
}
