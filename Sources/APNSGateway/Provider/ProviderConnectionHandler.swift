import APNSWire
import ChatDomain
import Logging
import NIOCore
import NIOHPACK
import NIOHTTP2
import NIOTLS

/// Writes pushes as HTTP/2 frames on the connection's own channel, and performs what ``ProviderConnectionState`` concludes.
///
/// No channel per stream: that costs three quarters of the speed.
final class ProviderConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = HTTP2Frame
    typealias OutboundOut = HTTP2Frame

    /// Bytes that are handed down between two looks at whether the peer still takes them: a TLS record, so that the peer
    /// has something to do while the next is made.
    private static let flushSize = 16 << 10
    /// About what a push's headers take up of them.
    private static let headerSize = 200

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
    /// Bytes of bodies that we, and the peer, may still send on all streams together.
    private var outboundWindow = ProviderLimits.inboundWindow
    private var inboundWindow = ProviderLimits.inboundWindow
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
        let frame = unwrapInboundIn(data)
        let now = context.eventLoop.now
        let id = Int(frame.streamID)
        guard !isOver else { return }
        switch frame.payload {
        case .headers(let headers):
            let status = headers.headers.first(name: ":status").flatMap { Int($0) }
            state.received(status: status, endsStream: headers.endStream, on: id, now: now)
        case .data(let data):
            guard case .byteBuffer(let bytes) = data.data else { return }
            state.received(body: bytes.readableBytesView, endsStream: data.endStream, on: id, now: now)
        case .rstStream(let code):
            logger.debug("stream reset", metadata: ["code": "\(code)"])
            state.received(reset: code == .refusedStream, on: id, now: now)
        case .goAway(let last, let code, let opaque):
            let told = ProviderRefusal(status: 0, body: opaque.map { Array($0.readableBytesView) } ?? [])
            let reason = told.reason == ProviderRefusal(status: 0, body: []).reason ? "\(code)" : told.reason
            logger.info("gateway says goodbye", metadata: ["reason": "\(reason)", "code": "\(code)"])
            state.received(goAwayAfter: Int(last), reason: reason)
        case .settings(.settings(let settings)):
            let limit = settings.last { $0.parameter == .maxConcurrentStreams }?.value
            state.received(maxStreams: limit, now: now)
            if let limit { logger.debug("gateway sets the limit of streams", metadata: ["streams": "\(limit)"]) }
        default:
            break
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        state.heard(now: context.eventLoop.now)
        act(context)
        context.fireChannelReadComplete()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case let event as StreamClosedEvent:
            state.closed(Int(event.streamID), now: context.eventLoop.now)
        case let event as NIOHTTP2WindowUpdatedEvent where event.streamID == .rootStream:
            if let window = event.outboundWindowSize { outboundWindow = window }
            if let window = event.inboundWindowSize { inboundWindow = window }
        default:
            if case .handshakeCompleted = event as? TLSUserEvent { isSecure = true }
            context.fireUserInboundEventTriggered(event)
        }
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
        var hasWritten = open(context, now: now)
        for id in state.takeUnclosed() {
            write(.rstStream(.cancel), on: id, context)
            hasWritten = true
        }
        if inboundWindow < ProviderLimits.inboundWindow / 2 {
            write(.windowUpdate(windowSizeIncrement: ProviderLimits.inboundWindow - inboundWindow), on: 0, context)
            hasWritten = true
        }
        if hasWritten { context.flush() }
        guard !isOver else { return }
        deliver(now: now)
        schedulePauseEnd(context, now: now)
        if state.retirement != nil, state.isEmpty { end(context, reason: "ConnectionLost") }
    }

    /// Opens streams while the peer allows that and takes the bytes.
    private func open(_ context: ChannelHandlerContext, now: NIODeadline) -> Bool {
        guard !state.waiting.isEmpty else { return false }
        let wall = clock()
        var unflushed = 0
        // NIOHTTP2 sends the bodies of one flush in any order. Two pushes for a device do not share one.
        var devices: Set<DeviceToken> = []
        // An exhausted window holds the last body back inside NIOHTTP2; nothing is added to that.
        while !isOver, outboundWindow > 0, context.channel.isWritable,
            let (id, request) = state.open(now: now, wall: wall)
        {
            if unflushed > Self.flushSize || !devices.insert(request.token).inserted {
                context.flush()
                unflushed = 0
                devices = [request.token]
            }
            write(.headers(.init(headers: request.headers)), on: id, context)
            write(.data(.init(data: .byteBuffer(request.body), endStream: true)), on: id, context)
            unflushed += request.body.readableBytes + Self.headerSize
        }
        return unflushed > 0
    }

    private func write(_ payload: HTTP2Frame.FramePayload, on id: Int, _ context: ChannelHandlerContext) {
        context.write(wrapOutboundOut(HTTP2Frame(streamID: HTTP2StreamID(id), payload: payload)), promise: nil)
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
            write(.ping(HTTP2PingData(), ack: false), on: 0, context)
            context.flush()
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
    private func end(_ context: ChannelHandlerContext, reason: String) {
        guard !isOver else { return }
        isOver = true
        endOfPause?.cancel()
        if isSecure, !state.hasSettings, !isRetired {
            logger.warning("gateway closed just after the handshake; does it accept the certificate?")
        }
        state.end(reason: reason)
        deliver(now: context.eventLoop.now)
        if context.channel.isActive {
            write(.goAway(lastStreamID: .rootStream, errorCode: .noError, opaqueData: nil), on: 0, context)
            context.flush()
        }
        context.close(promise: nil)
    }
}
