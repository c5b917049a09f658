import APNSWire
import ChatDomain
import Logging
import NIOCore
import NIOTLS

/// Writes pushes as HTTP/2 requests, and performs what ``ProviderConnectionState`` concludes from what comes back.
///
/// ``HTTP2Session`` knows frames, the state knows pushes; this one has the socket and the clock.
final class ProviderConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Bytes that are handed down between two looks at whether the peer still takes them: a TLS record, so that the peer
    /// has something to do while the next is made.
    private static let flushSize = 16 << 10

    let desk = ProviderDesk()
    /// Kept when no more pushes are taken.
    let retirement: EventLoopPromise<Void>
    let epoch: ConnectionEpoch
    var state: ProviderConnectionState
    let mailbox: VerdictMailbox
    let temper: ServiceTemper
    private let clock: TimeSource
    let listeners: Listeners
    let logger: Logger
    var context: ChannelHandlerContext?
    var isOver = false
    var isRetired = false
    /// TLS is up.
    private var isSecure = false
    private var isActing = false
    private var session = HTTP2Session()
    private var endOfPause: Scheduled<Void>?

    init(
        epoch: ConnectionEpoch, state: ProviderConnectionState, retirement: EventLoopPromise<Void>,
        mailbox: VerdictMailbox, temper: ServiceTemper, clock: @escaping TimeSource, listeners: Listeners,
        logger: Logger
    ) {
        self.epoch = epoch
        self.state = state
        self.retirement = retirement
        self.mailbox = mailbox
        self.temper = temper
        self.clock = clock
        self.listeners = listeners
        self.logger = logger
    }

    var merit: ReconnectPacing.Merit { state.merit }

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

    func write(_ requests: [ProviderRequest]) {
        guard let context, !isOver else {
            state.enqueue(requests, now: .now())
            state.retire(.drained)
            return deliver(now: .now())
        }
        state.enqueue(requests, now: context.eventLoop.now)
        act(context)
    }

    /// Takes no more, waits for the answers, and closes.
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
            logger.warning("gateway breaks the rules of HTTP/2", metadata: ["error": "\(error)"])
            end(context, reason: "ConnectionLost", code: error.code)
        }
    }

    private func received(_ event: PeerEvent, now: NIODeadline) {
        switch event {
        case .headers(let id, let status, let isLast):
            state.received(status: status, endsStream: isLast, on: id, now: now)
            if isLast { noteEnd(of: id, now: now) }
        case .data(let id, let bytes, let isLast, _):
            state.received(body: bytes.readableBytesView, endsStream: isLast, on: id, now: now)
            if isLast { noteEnd(of: id, now: now) }
        case .reset(let id, let code):
            logger.debug("stream reset", metadata: ["code": "\(HTTP2Code.name(code))"])
            state.received(reset: code == HTTP2Code.refusedStream.rawValue, on: id, now: now)
            state.closed(id, now: now)
        case .goAway(let last, let code, let debug):
            let told = ProviderRefusal(status: 0, body: Array(debug.readableBytesView))
            let name = HTTP2Code.name(code)
            let reason = told.reason == ProviderRefusal(status: 0, body: []).reason ? name : told.reason
            logger.info("gateway says goodbye", metadata: ["reason": "\(reason)", "code": "\(name)"])
            state.received(goAwayAfter: last, reason: reason)
        case .settings(let settings):
            let limit = settings.maxStreams
            state.received(maxStreams: limit, now: now)
            if let limit { logger.debug("gateway sets the limit of streams", metadata: ["streams": "\(limit)"]) }
        case .ping, .windowUpdate, .nothing:
            break
        }
    }

    /// An answer is whole. Unless the request is, too, the stream is still to be reset.
    private func noteEnd(of id: Int, now: NIODeadline) {
        if !session.isUnfinished(id) { state.closed(id, now: now) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        state.heard(now: context.eventLoop.now)
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

    /// Does all that can be done now, and tells those who wait.
    private func act(_ context: ChannelHandlerContext) {
        // A flush may call back, because the peer takes bytes again; the one that flushes goes on by itself.
        guard !isOver, !isActing else { return }
        isActing = true
        defer { isActing = false }
        let now = context.eventLoop.now
        if temper.isPausing(now: now) { state.handBack() }
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

    /// Opens streams while the peer allows that and takes the bytes.
    private func open(_ context: ChannelHandlerContext, now: NIODeadline) {
        guard !state.waiting.isEmpty else { return }
        let wall = clock()
        while !isOver, context.channel.isWritable {
            while session.outputSize < Self.flushSize {
                guard session.canOpen, let (id, request) = state.open(now: now, wall: wall) else { return }
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

    private func flush(_ context: ChannelHandlerContext) {
        guard let bytes = session.takeOutput() else { return }
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        session.noteSent(bytes, isTaken: context.channel.isWritable)
    }

    private func schedulePauseEnd(_ context: ChannelHandlerContext, now: NIODeadline) {
        guard state.pausedUntil > now, endOfPause == nil else { return }
        endOfPause = context.eventLoop.assumeIsolated().scheduleTask(in: state.pausedUntil - now) {
            self.endOfPause = nil
            self.act(context)
        }
    }

    private func tick() {
        guard let context, !isOver else { return }
        switch state.tick(now: context.eventLoop.now) {
        case .ping:
            session.ping()
        case .giveUp(let reason):
            if reason == "ConnectionLost" { logger.warning("gateway gives no sign of life, giving the connection up") }
            return end(context, reason: reason)
        case nil:
            break
        }
        act(context)
        guard !isOver else { return }
        context.eventLoop.assumeIsolated().scheduleTask(in: state.limits.tick) { self.tick() }
    }

    /// Closes; what has no verdict yet gets it now and not when the peer agrees to the end.
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
}
