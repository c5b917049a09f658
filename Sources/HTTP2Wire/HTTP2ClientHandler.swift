package import NIOCore
package import NIOHPACK
import NIOTLS

/// The requests of one HTTP/2 connection. Decides which requests are sent, and interprets the peer's frames.
///
/// ``HTTP2ClientHandler`` calls it on the connection's event loop.
package protocol HTTP2Requests: AnyObject {
    /// The shortest of the time limits that ``tick(now:)`` checks.
    var shortestLimit: TimeAmount { get }
    /// Whether the connection has no requests and accepts none, so that it is closed.
    var isDone: Bool { get }
    /// The time until which no stream is opened. `nil` if no pause is in effect.
    var pausedUntil: NIODeadline? { get }

    // MARK: To the peer

    /// Prepares for calls of ``open(now:)``.
    func willOpen()
    /// Returns the next request and the stream that it opens. `nil` if no request waits or no stream may be opened now.
    func open(now: NIODeadline) -> (stream: Int, headers: HPACKHeaders, body: [UInt8])?
    /// Returns the streams that must be reset, because their results are known and the peer has not ended them.
    func takeUnclosed() -> [Int]
    /// Checks the time limits.
    func tick(now: NIODeadline) -> HTTP2TickAction?

    // MARK: From the peer

    /// Records that TLS is up. The connection begins.
    func began(now: NIODeadline)
    func received(_ event: PeerEvent, now: NIODeadline)
    /// Records that bytes of any kind have arrived.
    func receivedBytes(now: NIODeadline)
    /// Records that a stream is closed on both sides.
    func closed(_ stream: Int, now: NIODeadline)
    /// Records that the connection is over. Called exactly once.
    func ended(_ end: HTTP2End)

    // MARK: To the gateway

    /// Delivers the results that are known. Called after all other calls.
    func deliver(now: NIODeadline)
}

extension HTTP2Requests {
    package var pausedUntil: NIODeadline? { nil }
    package func willOpen() {}
    package func began(now: NIODeadline) {}
    package func receivedBytes(now: NIODeadline) {}
    package func closed(_ stream: Int, now: NIODeadline) {}
}

package enum HTTP2TickAction: Sendable, Hashable {
    case ping
    case close(reason: String)
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
/// ``HTTP2Session`` handles frames, and ``HTTP2Requests`` makes all decisions about requests.
package final class HTTP2ClientHandler<Requests: HTTP2Requests>: ChannelInboundHandler {
    package typealias InboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    package let requests: Requests
    private var session = HTTP2Session()
    private var context: ChannelHandlerContext?
    /// Whether TLS is up.
    private var hasBegun = false
    private var isOver = false
    private var isActing = false
    private var endOfPause: Scheduled<Void>?

    package init(_ requests: Requests) {
        self.requests = requests
    }

    // MARK: From the gateway

    /// Changes the requests, and sends and delivers what follows from it. The connection may be over.
    package func update(_ change: (Requests, NIODeadline) -> Void) {
        change(requests, context?.eventLoop.now ?? .now())
        act()
    }

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
                requests.began(now: context.eventLoop.now)
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
        requests.received(event, now: now)
        switch event {
        case .headers(let id, _, _, endsStream: true), .data(let id, _, endsStream: true, _):
            // The peer may respond before the request is complete.
            if session.hasUnsentBody(id) { session.reset(id, .cancel) }
            requests.closed(id, now: now)
        case .reset(let id, _):
            requests.closed(id, now: now)
        default:
            break
        }
    }

    package func channelReadComplete(context: ChannelHandlerContext) {
        requests.receivedBytes(now: context.eventLoop.now)
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
        guard let context, hasBegun, !isOver else { return requests.deliver(now: .now()) }
        // A flush may call this function again, because the channel has become writable. The outer call continues
        // anyway.
        guard !isActing else { return }
        isActing = true
        defer { isActing = false }
        let now = context.eventLoop.now
        // Reset streams first. The peer counts them until then, so that others must not take their places.
        for id in requests.takeUnclosed() {
            session.reset(id, .cancel)
            requests.closed(id, now: now)
        }
        requests.willOpen()
        open(context, now: now)
        flush(context)
        guard !isOver else { return }
        requests.deliver(now: now)
        schedulePauseEnd(context, now: now)
        if requests.isDone { end(.lost) }
    }

    /// Opens streams while the peer allows it and the channel is writable.
    private func open(_ context: ChannelHandlerContext, now: NIODeadline) {
        while !isOver, context.channel.isWritable {
            while session.outputSize < http2FlushSize {
                guard session.hasSendWindow, let (id, headers, body) = requests.open(now: now) else { return }
                do {
                    try session.open(id, headers: headers, body: body)
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
        guard let end = requests.pausedUntil, end > now, endOfPause == nil else { return }
        endOfPause = context.eventLoop.assumeIsolated().scheduleTask(in: end - now) {
            self.endOfPause = nil
            self.act()
        }
    }

    private func tick() {
        guard let context, !isOver else { return }
        switch requests.tick(now: context.eventLoop.now) {
        case .ping: session.ping()
        case .close(let reason): return end(.closed(reason: reason))
        case nil: break
        }
        act()
        guard !isOver else { return }
        let pause = TimeAmount.nanoseconds(requests.shortestLimit.nanoseconds / 4)
        context.eventLoop.assumeIsolated().scheduleTask(in: max(.milliseconds(10), min(.seconds(1), pause))) {
            self.tick()
        }
    }

    /// Closes the connection. Requests without a result get one now, before the peer has agreed to the close.
    private func end(_ end: HTTP2End) {
        guard !isOver else { return }
        isOver = true
        endOfPause?.cancel()
        requests.ended(end)
        guard let context else { return requests.deliver(now: .now()) }
        requests.deliver(now: context.eventLoop.now)
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
