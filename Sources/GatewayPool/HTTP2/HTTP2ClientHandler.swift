package import ChatDomain
package import HTTP2Wire
package import NIOCore
import NIOTLS

/// The relay's side of one connection: takes the results, and logs events.
///
/// ``HTTP2ClientHandler`` calls it on the connection's event loop.
package protocol HTTP2Owner: AnyObject {
    /// Prepares for the opening of streams, if requests wait for them.
    /// - Returns: The time at which the pushes are written.
    func willOpen(_ state: inout HTTP2ConnectionState) -> Timestamp
    func noteOpened(_ request: HTTP2Request)
    func noteSettings(_ settings: PeerSettings)
    func noteReset(code: UInt32)
    /// - Returns: The reason of a GOAWAY.
    func noteGoAway(code: UInt32, debugData: ByteBuffer) -> String
    /// Notes that the connection is over. Called exactly once.
    /// - Parameters:
    ///   - hasBegun: Whether TLS was up.
    ///   - hasSettings: Whether the peer has sent SETTINGS.
    func ended(_ end: HTTP2End, hasBegun: Bool, hasSettings: Bool)
    /// Delivers the results that are known. Called after all other calls.
    func deliver(_ state: inout HTTP2ConnectionState, now: NIODeadline)
}

/// The reason why a connection has ended.
package enum HTTP2End {
    /// The peer does not speak HTTP/2.
    case otherProtocol
    /// The peer or the network closed the connection.
    case lost
    case failed(any Error)
    /// The peer violated the protocol.
    case violated(HTTP2Failure)
    /// A request cannot be written.
    case unwritable(HTTP2Failure)
    /// The relay closed the connection.
    case closed(reason: String)

    /// The reason for the outcome of requests without a response.
    package var reason: String { if case .closed(let reason) = self { reason } else { "ConnectionLost" } }

    /// The code of the GOAWAY frame that the peer gets.
    package var code: HTTP2Code {
        switch self {
        case .violated(let failure), .unwritable(let failure): failure.code
        default: .noError
        }
    }
}

/// One HTTP/2 connection above TLS, for every gateway. Has the socket and the clock.
///
/// ``HTTP2Session`` handles frames, and ``HTTP2ConnectionState`` makes all decisions about requests.
package final class HTTP2ClientHandler<Owner: HTTP2Owner>: ConnectionHandler {
    package typealias InboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    package let owner: Owner
    private var state: HTTP2ConnectionState
    private var session = HTTP2Session()
    private var context: ChannelHandlerContext?
    /// Whether TLS is up.
    private var hasBegun = false
    private var isOver = false
    private var isActing = false
    private var endOfPause: Scheduled<Void>?

    package init(_ state: HTTP2ConnectionState, owner: Owner) {
        self.state = state
        self.owner = owner
    }

    // MARK: From the relay

    /// Submits requests. Each one gets its result, even if the connection is over.
    package func enqueue(_ requests: [HTTP2Request]) {
        state.enqueue(requests, now: now)
        act()
    }

    package func drain() {
        state.drain(now: now)
        act()
    }

    package var result: ConnectionResult { state.result }
    private var now: NIODeadline { context?.eventLoop.now ?? .now() }

    /// Closes the connection at once.
    package func close(reason: String) { end(.closed(reason: reason)) }

    // MARK: From the peer

    package func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    package func handlerRemoved(context: ChannelHandlerContext) {
        end(.lost)
        self.context = nil
    }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted(let agreed) = event as? TLSUserEvent {
            if agreed == HTTP2Session.tlsName {
                hasBegun = true
                state.began(now: context.eventLoop.now)
                tick()
            } else {
                end(.otherProtocol)
            }
        }
        context.fireUserInboundEventTriggered(event)
    }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard hasBegun, !isOver else { return }
        let now = context.eventLoop.now
        session.feed(unwrapInboundIn(data), now: now)
        do {
            while !isOver, let event = try session.next() { received(event, now: now) }
        } catch {
            end(.violated(error))
        }
    }

    private func received(_ event: PeerEvent, now: NIODeadline) {
        switch event {
        case .headers(let id, let status, let retryAfter, let isLast):
            state.received(status: status, retryAfter: retryAfter, endsStream: isLast, on: id, now: now)
            if isLast { closed(id, now: now) }
        case .data(let id, let bytes, let isLast, _):
            state.received(body: bytes.readableBytesView, endsStream: isLast, on: id, now: now)
            if isLast { closed(id, now: now) }
        case .reset(let id, let code):
            owner.noteReset(code: code)
            state.received(reset: code == HTTP2Code.refusedStream.rawValue, on: id, now: now)
            state.closed(id, now: now)
        case .goAway(let last, let code, let debugData):
            state.received(goAwayAfter: last, reason: owner.noteGoAway(code: code, debugData: debugData))
        case .settings(let settings):
            state.received(maxStreams: settings.maxStreams, now: now)
            owner.noteSettings(settings)
        case .ping, .windowUpdate, .nothing:
            break
        }
    }

    /// Closes a stream that the peer has ended. It may do so before the request is complete.
    private func closed(_ id: Int, now: NIODeadline) {
        if session.hasUnsentBody(id) { session.reset(id, .cancel) }
        state.closed(id, now: now)
    }

    package func channelReadComplete(context: ChannelHandlerContext) {
        state.receivedBytes(now: context.eventLoop.now)
        act()
        context.fireChannelReadComplete()
    }

    package func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { act() }
        context.fireChannelWritabilityChanged()
    }

    package func channelInactive(context: ChannelHandlerContext) {
        end(.lost)
        context.fireChannelInactive()
    }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        end(.failed(error))
    }

    // MARK: To the peer

    /// Resets and opens streams, flushes the output, and delivers the results, as far as that is possible now.
    private func act() {
        guard let context, hasBegun, !isOver else { return owner.deliver(&state, now: .now()) }
        // A flush may call this function again, because the channel has become writable. The outer call continues
        // anyway.
        guard !isActing else { return }
        isActing = true
        defer { isActing = false }
        let now = context.eventLoop.now
        // Reset streams first. The peer counts them until then, so that others must not take their places.
        for id in state.takeUnclosed() {
            session.reset(id, .cancel)
            state.closed(id, now: now)
        }
        if state.hasWaiting { open(context, wall: owner.willOpen(&state), now: now) }
        flush(context)
        guard !isOver else { return }
        owner.deliver(&state, now: now)
        schedulePauseEnd(context, now: now)
        if state.isDone { end(.lost) }
    }

    /// Opens streams while the peer allows it and the channel is writable.
    private func open(_ context: ChannelHandlerContext, wall: Timestamp, now: NIODeadline) {
        while !isOver, context.channel.isWritable {
            while session.outputSize < http2FlushSize {
                guard session.hasSendWindow, let (id, request) = state.open(now: now, wall: wall) else { return }
                owner.noteOpened(request)
                do {
                    try session.open(id, headers: request.headers, body: request.body)
                } catch {
                    return end(.unwritable(error))
                }
            }
            flush(context)
        }
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
            self.act()
        }
    }

    private func tick() {
        guard let context, !isOver else { return }
        switch state.tick(now: context.eventLoop.now) {
        case .ping: session.ping()
        case .close(let reason): return end(.closed(reason: reason))
        case nil: break
        }
        act()
        guard !isOver else { return }
        let pause = TimeAmount.nanoseconds(state.limits.shortest.nanoseconds / 4)
        context.eventLoop.assumeIsolated().scheduleTask(in: max(.milliseconds(10), min(.seconds(1), pause))) {
            self.tick()
        }
    }

    /// Closes the connection. Requests without a result get one now, before the peer has agreed to the close.
    private func end(_ end: HTTP2End) {
        guard !isOver else { return }
        isOver = true
        endOfPause?.cancel()
        owner.ended(end, hasBegun: hasBegun, hasSettings: state.hasSettings)
        state.end(reason: end.reason)
        guard let context else { return owner.deliver(&state, now: .now()) }
        owner.deliver(&state, now: context.eventLoop.now)
        if hasBegun, context.channel.isActive {
            session.goAway(end.code)
            flush(context)
        }
        context.close(promise: nil)
    }
}

/// The number of bytes after which the output is flushed and writability is checked again. It is the size of a TLS
/// record, so that the peer can process one record while the next is built.
private let http2FlushSize = 16 << 10
