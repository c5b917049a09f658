import Crypto
import Foundation
import Logging
import NIOCore
import NIOWebSocket
import PushWire
import Synchronization

/// The WebSockets of real browsers.
final class PushSockets: Sendable {
    /// The channels by the connection's number.
    private let channels = Mutex<[Int: any Channel]>([:])

    /// Notifies the connection that messages are waiting for it.
    func wake(_ connection: Int) {
        let channel = channels.withLock { $0[connection] }
        channel?.pipeline.fireUserInboundEventTriggered(MessagesWait())
    }

    fileprivate func insert(_ channel: any Channel, as connection: Int) {
        channels.withLock { $0[connection] = channel }
    }

    fileprivate func remove(_ connection: Int) {
        _ = channels.withLock { $0.removeValue(forKey: connection) }
    }

    fileprivate struct MessagesWait: Sendable {}
}

/// The push service on WebSockets, in Mozilla's push protocol ("Push Service HTTP/WebSocket API", autopush
/// documentation).
struct PushSocket: Sendable {
    /// The maximum size of a browser's message, and of each of its frames, in bytes.
    static let maxMessageSize = 64 << 10
    /// The maximum number of frames of a browser's message.
    private static let maxFrames = 100

    fileprivate let state: SharedState
    fileprivate let sockets: PushSockets
    fileprivate let origin: String
    fileprivate let helloTimeout: TimeAmount
    fileprivate let logger: Logger

    /// Creates the service.
    /// - Parameters:
    ///   - origin: The origin of the push service: scheme, host and port.
    ///   - helloTimeout: The time after which a connection is closed if no browser has identified itself.
    init(state: SharedState, sockets: PushSockets, origin: String, helloTimeout: Duration, logger: Logger) {
        self.state = state
        self.sockets = sockets
        self.origin = origin
        self.helloTimeout = TimeAmount(helloTimeout)
        self.logger = logger
    }

    /// Adds the handlers to a connection that has become a WebSocket, behind the decoder of its frames.
    func addHandlers(to pipeline: ChannelPipeline.SynchronousOperations) throws {
        try pipeline.addHandler(BackPressureHandler())
        try pipeline.addHandler(
            NIOWebSocketFrameAggregator(
                minNonFinalFragmentSize: 1, maxAccumulatedFrameCount: Self.maxFrames,
                maxAccumulatedFrameSize: Self.maxMessageSize))
        try pipeline.addHandler(PushSocketHandler(self))
    }
}

/// A browser's WebSocket. It passes the browser's messages to ``SandboxState``, and writes the responses.
private final class PushSocketHandler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    private let socket: PushSocket
    private let encoder = JSONEncoder()
    /// The connection's number. `nil` if the connection was not admitted, or has ended.
    private var connection: Int?
    private var isClosing = false
    private var helloTimer: Scheduled<Void>?

    init(_ socket: PushSocket) {
        self.socket = socket
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    }

    func handlerAdded(context: ChannelHandlerContext) {
        guard let connection = socket.state.withLock({ $0.userAgents.open() }) else {
            // 1013: try again later (IANA's registry of close codes).
            return close(context, .unknown(1013), "there are \(UserAgents.connectionLimit) connections already")
        }
        self.connection = connection
        socket.sockets.insert(context.channel, as: connection)
        let (handler, bound) = (NIOLoopBound(self, eventLoop: context.eventLoop), context.loopBound)
        helloTimer = context.eventLoop.scheduleTask(in: socket.helloTimeout) {
            handler.value.close(bound.value, .policyViolation, "messageType: hello did not arrive in time")
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    private func end() {
        helloTimer?.cancel()
        guard let connection else { return }
        self.connection = nil
        socket.sockets.remove(connection)
        socket.state.withLock { $0.userAgents.close(connection) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isClosing else { return }
        let frame = unwrapInboundIn(data)
        switch frame.opcode {
        case .text: receive(frame.unmaskedData, context)
        case .binary: close(context, .unacceptableData, "a message must be text")
        case .ping:
            let pong = WebSocketFrame(fin: true, opcode: .pong, data: frame.unmaskedData)
            context.writeAndFlush(wrapOutboundOut(pong), promise: nil)
        case .connectionClose: close(context, .normalClosure, "")
        default: break
        }
    }

    private func receive(_ json: ByteBuffer, _ context: ChannelHandlerContext) {
        guard let connection else { return }
        do throws(PushProtocolError) {
            let message = try BrowserMessage(json: Data(json.readableBytesView))
            let fresh = SandboxState.Fresh(
                userAgent: SymmetricKey.randomBytes(16).hex,
                secret: Base64URL.text(SymmetricKey.randomBytes(SandboxBrowser.secretSize)))
            let now = socket.state.now()
            let response = try socket.state.withLock { (state) throws(PushProtocolError) in
                try state.respond(to: message, over: connection, origin: socket.origin, fresh: fresh, at: now)
            }
            if case .hello = message { helloTimer?.cancel() }
            if response?.status == 500 {
                socket.logger.warning("browser subscription rejected: too many subscriptions")
            }
            if let response { write(response, context) }
            writeMessages(context)
        } catch {
            socket.logger.warning("browser message rejected", metadata: ["error": "\(error.text)"])
            close(context, .policyViolation, error.text)
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case is PushSockets.MessagesWait: writeMessages(context)
        case ChannelEvent.inputClosed: context.close(promise: nil)
        case is ChannelShouldQuiesceEvent: close(context, .goingAway, "")
        default: context.fireUserInboundEventTriggered(event)
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        writeMessages(context)
        context.fireChannelWritabilityChanged()
    }

    /// Writes the waiting messages, unless the browser reads too slowly.
    private func writeMessages(_ context: ChannelHandlerContext) {
        guard let connection, !isClosing, context.channel.isWritable else { return }
        for message in socket.state.withLock({ $0.takeMessages(over: connection) }) { write(message, context) }
    }

    private func write(_ message: ServiceMessage, _ context: ChannelHandlerContext) {
        guard let json = try? encoder.encode(message) else { return }
        let frame = WebSocketFrame(fin: true, opcode: .text, data: ByteBuffer(bytes: json))
        context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
    }

    /// Sends a close frame, then closes the connection.
    /// - Parameter reason: The text of the close frame, at most 123 bytes.
    private func close(_ context: ChannelHandlerContext, _ code: WebSocketErrorCode, _ reason: String) {
        guard !isClosing else { return }
        isClosing = true
        var data = ByteBuffer()
        data.write(webSocketErrorCode: code)
        data.writeString(reason)
        let bound = context.loopBound
        context.writeAndFlush(wrapOutboundOut(WebSocketFrame(fin: true, opcode: .connectionClose, data: data)))
            .whenComplete { _ in bound.value.close(promise: nil) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // The library has already responded to a malformed frame.
        if error is NIOWebSocketError { isClosing = true } else { close(context, .protocolError, "") }
    }
}
