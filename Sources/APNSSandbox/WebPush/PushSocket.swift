import APNSWire
import Crypto
import Foundation
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import NIOWebSocket
import Synchronization
import WebAssets
import WebPushWire

/// The connections of the control port: HTTP, and WebSockets of browsers that speak Mozilla's push protocol.
struct PushSocket: ServerChildChannel {
    /// Of the request that becomes a WebSocket.
    static let path = "/push"
    /// Bytes of a message of a browser, and of each of its frames.
    fileprivate static let largestMessage = 64 << 10
    /// Frames of a message of a browser.
    fileprivate static let mostFrames = 100
    private static let subprotocol = "push-notification"

    typealias HTTP = NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>

    struct Value: ServerChildChannelValue {
        let channel: any Channel
        /// Nil: a WebSocket, which needs nothing more.
        fileprivate let http: EventLoopFuture<HTTP?>
    }

    /// Answers requests.
    let http: HTTP1Channel
    let hosts: ControlGuard
    let state: SharedState
    let sockets: PushSockets
    /// Of the push service: scheme, host and port.
    let origin: String
    /// After it a connection is closed over which no browser has said who it is.
    let helloTimeout: TimeAmount
    let logger: Logger

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
        channel.eventLoop.makeCompletedFuture {
            let upgrader = NIOTypedWebSocketServerUpgrader<HTTP?>(
                maxFrameSize: Self.largestMessage, shouldUpgrade: answer
            ) { channel, _ in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    try pipeline.addHandler(BackPressureHandler())
                    try pipeline.addHandler(
                        NIOWebSocketFrameAggregator(
                            minNonFinalFragmentSize: 1, maxAccumulatedFrameCount: Self.mostFrames,
                            maxAccumulatedFrameSize: Self.largestMessage))
                    try pipeline.addHandler(PushSocketHandler(self))
                    return nil
                }
            }
            let upgrade = NIOTypedHTTPServerUpgradeConfiguration<HTTP?>(upgraders: [upgrader]) { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    try pipeline.addHandler(HTTP1ToHTTPServerCodec(secure: false))
                    try pipeline.addHandler(UpgradeRefusal())
                    try pipeline.addHandler(HTTPConnectionStateHandler(logger: logger))
                    return try HTTP(
                        wrappingChannelSynchronously: channel,
                        configuration: .init(isOutboundHalfClosureEnabled: true))
                }
            }
            // Requests behind each other are Hummingbird's business.
            var configuration = NIOUpgradableHTTPServerPipelineConfiguration(upgradeConfiguration: upgrade)
            configuration.enablePipelining = false
            configuration.enableResponseHeaderValidation = false
            let pipeline = channel.pipeline.syncOperations
            let negotiated = try pipeline.configureUpgradableHTTPServerPipeline(configuration: configuration)
            try pipeline.addHandler(CloseWhenStopping())
            return Value(channel: channel, http: negotiated)
        }
    }

    func handle(value: Value, logger: Logger) async {
        do {
            let http = try await withTaskCancellationHandler {
                try await value.http.get()
            } onCancel: {
                value.channel.close(promise: nil)
            }
            if let http { return await self.http.handle(value: http, logger: logger) }
            try await withTaskCancellationHandler {
                try await value.channel.closeFuture.get()
            } onCancel: {
                value.channel.close(promise: nil)
            }
        } catch {
            logger.trace("Connection failed", metadata: ["error": "\(error)"])
            value.channel.close(promise: nil)
        }
    }

    /// - Returns: more headers of the answer; nil where the request is none that becomes a WebSocket.
    private func answer(_ channel: any Channel, to request: HTTPRequestHead) -> EventLoopFuture<HTTPHeaders?> {
        let names = request.headers["Host"]
        // Firefox gives the whole address as the origin.
        let origins = request.headers["Origin"].map { origin in
            origin.split(separator: "/", omittingEmptySubsequences: false).prefix(3).joined(separator: "/")
        }
        let isAllowed =
            request.uri == Self.path && names.count == 1
            && (try? hosts.check(
                host: names[0], origins: origins, schemes: ["http://", "https://", "ws://"],
                port: channel.localAddress?.port)) != nil
        let offered = request.headers[canonicalForm: "Sec-WebSocket-Protocol"]
        var headers = HTTPHeaders()
        if offered.contains(where: { $0 == Self.subprotocol }) {
            headers.add(name: "Sec-WebSocket-Protocol", value: Self.subprotocol)
        }
        return channel.eventLoop.makeSucceededFuture(isAllowed ? headers : nil)
    }
}

/// Closes a connection on which no request has come, or which has become a WebSocket, when the server stops.
private final class CloseWhenStopping: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart

    private var hasRequest = false

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // From here on another handler closes it, after the answer.
        hasRequest = true
        context.fireChannelRead(data)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is ChannelShouldQuiesceEvent, !hasRequest { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }
}

/// The WebSockets of real browsers.
final class PushSockets: Sendable {
    /// By the connection's number.
    private let channels = Mutex<[Int: any Channel]>([:])

    /// Messages wait for the connection.
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

/// A browser's WebSocket: hands its messages to ``SandboxState``, and writes what that says.
private final class PushSocketHandler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    private let socket: PushSocket
    private let encoder = JSONEncoder()
    /// Nil: not admitted.
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
            handler.value.close(bound.value, .policyViolation, "messageType: hello must come first, and at once")
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
                secret: Base64URL.text(SymmetricKey.randomBytes(BrowserRegistry.secretSize)))
            let now = socket.state.now()
            let answer = try socket.state.withLock { (state) throws(PushProtocolError) in
                try state.answer(message, over: connection, origin: socket.origin, fresh: fresh, at: now)
            }
            if case .hello = message { helloTimer?.cancel() }
            if answer?.status == 500 {
                socket.logger.warning("A browser cannot subscribe: there are too many subscriptions already")
            }
            if let answer { write(answer, context) }
            writeMessages(context)
        } catch {
            socket.logger.warning("A browser's message is refused", metadata: ["error": "\(error.text)"])
            close(context, .policyViolation, error.text)
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case is PushSockets.MessagesWait: writeMessages(context)
        case ChannelEvent.inputClosed: context.close(promise: nil)
        default: context.fireUserInboundEventTriggered(event)
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        writeMessages(context)
        context.fireChannelWritabilityChanged()
    }

    /// Writes what waits, unless the browser reads too slowly.
    private func writeMessages(_ context: ChannelHandlerContext) {
        guard let connection, !isClosing, context.channel.isWritable else { return }
        for message in socket.state.withLock({ $0.takeMessages(over: connection) }) { write(message, context) }
    }

    private func write(_ message: ServiceMessage, _ context: ChannelHandlerContext) {
        guard let json = try? encoder.encode(message) else { return }
        let frame = WebSocketFrame(fin: true, opcode: .text, data: ByteBuffer(bytes: json))
        context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
    }

    /// - Parameter reason: at most 123 bytes.
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
        // What breaks WebSocket itself has been answered before; what the aggregator refuses has not.
        close(context, .protocolError, "")
    }
}
