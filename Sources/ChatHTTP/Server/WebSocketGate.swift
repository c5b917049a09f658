import HTTPTypes
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOWebSocket

/// Turns a connection into a WebSocket when the response to its request says so (status 101). Handles `CONNECT` and all
/// other requests with `Upgrade` like any request, and closes the connection after the response (RFC 9110 §7.8 lets a
/// server ignore `Upgrade`).
///
/// After such a request, the parser treats everything as the other protocol's data and buffers it without limit.
/// Therefore nothing more is read, unless the connection becomes a WebSocket.
final class WebSocketGate: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private var isLast = false
    /// Called for each frame from the client. `nil` until a stream follows the connection.
    fileprivate var onFrame: (@Sendable () -> Void)?

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(var head) where head.method == .connect || head.headerFields.contains(.upgrade):
            isLast = true
            head.headerFields[.upgrade] = head.mayBecomeWebSocket ? "websocket" : nil
            head.headerFields[.connection] = "close"
            context.fireChannelRead(wrapInboundOut(.head(head)))
        case .end where isLast:
            try? context.channel.syncOptions?.setOption(.autoRead, value: false)
            context.fireChannelRead(data)
        default:
            context.fireChannelRead(data)
        }
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        context.write(data, promise: promise)
        if case .head(let head) = unwrapOutboundIn(data), head.status == .switchingProtocols { begin(context) }
    }

    /// Replaces the parser of requests by one of frames. The response's body then consists of frames.
    private func begin(_ context: ChannelHandlerContext) {
        let pipeline = context.pipeline.syncOperations
        do {
            let parser = try pipeline.handler(type: ByteToMessageHandler<HTTPRequestDecoder>.self)
            try pipeline.addHandlers(
                ByteToMessageHandler(WebSocketFrameDecoder(maxFrameSize: HTTPLimits.webSocketInput)),
                WebSocketInput(gate: self), position: .before(parser))
            pipeline.removeHandler(parser, promise: nil)
            try context.channel.syncOptions?.setOption(.autoRead, value: true)
        } catch {
            context.close(promise: nil)
        }
    }
}

extension Channel {
    /// Calls `act` on the event loop for each frame that the client of a WebSocket sends.
    func whenFrameArrives(_ act: @escaping @Sendable () -> Void) {
        eventLoop.execute {
            try? self.pipeline.syncOperations.handler(type: WebSocketGate.self).onFrame = act
        }
    }
}

/// Reads the frames of a WebSocket's client. Answers pings, answers a Close frame and closes the connection, and
/// discards everything else. It closes the connection of a client that sends too much or breaks the protocol.
///
/// It sits before the encoder of responses, so its own frames come between those of the response's body.
private final class WebSocketInput: ChannelDuplexHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundIn = HTTPServerResponsePart
    typealias OutboundOut = HTTPServerResponsePart

    private let gate: WebSocketGate
    private var discarded = 0
    /// The data of the last ping that has no pong. While the client does not read, only the last is kept (RFC 6455
    /// §5.5.3).
    private var ping: ByteBuffer?
    private var isClosing = false

    init(gate: WebSocketGate) {
        self.gate = gate
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        guard !isClosing else { return }
        guard frame.maskKey != nil, !frame.rsv1, !frame.rsv2, !frame.rsv3 else { return drop(context) }
        gate.onFrame?()
        switch frame.opcode {
        case .ping:
            ping = frame.unmaskedData
            sendPong(context)
        case .connectionClose:
            // The answer repeats the client's status code, the first two bytes (RFC 6455 §5.5.1).
            let code = frame.unmaskedData
            send(.connectionClose, code.getSlice(at: code.readerIndex, length: 2) ?? ByteBuffer(), context)
                .assumeIsolated().whenComplete { _ in context.close(promise: nil) }
            isClosing = true
        case .text, .binary, .continuation, .pong:
            discarded += frame.length
            if discarded > HTTPLimits.webSocketInput { drop(context) }
        default: drop(context)
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        sendPong(context)
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        drop(context)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        // Nothing follows a Close frame.
        guard !isClosing else { return promise?.fail(ChannelError.ioOnClosedChannel) ?? () }
        context.write(data, promise: promise)
    }

    private func sendPong(_ context: ChannelHandlerContext) {
        guard let data = ping, !isClosing, context.channel.isWritable else { return }
        ping = nil
        _ = send(.pong, data, context)
    }

    private func send(
        _ opcode: WebSocketOpcode, _ data: ByteBuffer, _ context: ChannelHandlerContext
    ) -> EventLoopFuture<Void> {
        context.writeAndFlush(wrapOutboundOut(.body(.byteBuffer(WebSocket.frame(opcode, data)))))
    }

    /// Closes the connection without a Close frame.
    private func drop(_ context: ChannelHandlerContext) {
        isClosing = true
        context.close(promise: nil)
    }
}
