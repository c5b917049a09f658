import Logging
import NIOCore
import NIOHTTP2

/// Waits until the client has shown that it speaks HTTP/2, then adds the HTTP/2 handlers behind itself.
///
/// A client shows this by ALPN. Unless the sandbox is strict, a client may instead begin with HTTP/2's preface. Apple
/// is reported to accept clients that do not use ALPN.
final class SandboxHTTP2Handshake: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        case waitingForTLS
        /// The client did not choose HTTP/2 by ALPN. The buffer holds its first bytes, which are fewer than the preface
        /// has.
        case waitingForPreface(ByteBuffer)
        case begun
        case refused
    }

    /// The number of frames of one kind in 30 seconds above which the library ends a connection. It is far more than a
    /// working client sends. The library stores a time for each such frame.
    private static let maxFrameRate = 20_000
    /// The maximum number of reset streams whose late frames are ignored. It is above the default limit of open
    /// streams.
    private static let maxResetStreams = 4096
    private static let maxEmptyFrames = 16
    /// The maximum size of a request's headers in bytes.
    private static let headerLimit = 16 << 10

    private static let refusal = """
        HTTP/1.1 505 HTTP Version Not Supported\r
        content-type: text/plain\r
        connection: close\r
        \r
        This port speaks HTTP/2 only (ALPN h2), like api.push.apple.com.

        """

    private let listener: ListenerKind
    private let number: Int
    private let authentication: SandboxAuthentication
    private let configuration: SandboxConfiguration
    private let state: SharedState
    private let logger: Logger
    private var phase = Phase.waitingForTLS
    private var client = ClientIdentified()
    private var prefaceTimer: Scheduled<Void>?

    init(
        _ listener: ListenerKind = .http2, connection number: Int, keys: SandboxKeyring,
        configuration: SandboxConfiguration, state: SharedState,
        logger: Logger
    ) {
        self.listener = listener
        self.number = number
        authentication = SandboxAuthentication(keys: keys, isStrict: configuration.strict)
        self.configuration = configuration
        self.state = state
        self.logger = logger
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case let client as ClientIdentified:
            self.client = client
            if client.applicationProtocol == ListenerKind.http2Protocol {
                begin(context: context)
            } else if configuration.strict {
                refuse(.noALPN, "The client does not offer h2 by ALPN, which --strict requires.", context: context)
            } else {
                awaitPreface(context: context)
            }
        case ChannelEvent.inputClosed:
            switch phase {
            case .waitingForPreface: refuseEnded(context: context)
            case .refused: context.closeWithoutTLS()
            default: break
            }
        default: break
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch phase {
        case .waitingForTLS, .begun: context.fireChannelRead(data)
        // Discard the bytes of a refused client.
        case .refused: break
        case .waitingForPreface(var received):
            var bytes = unwrapInboundIn(data)
            received.writeBuffer(&bytes)
            switch HTTP2Preface.verdict(on: received) {
            case .incomplete: phase = .waitingForPreface(received)
            case .http2:
                begin(context: context)
                context.fireChannelRead(wrapInboundOut(received))
            case .other:
                let shown = HTTP2Preface.shown(received)
                refuse(
                    .noPreface, "The client does not begin with the preface of HTTP/2, but with \"\(shown)\".",
                    context: context)
            }
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch phase {
        case .waitingForTLS, .begun: context.fireErrorCaught(error)
        case .waitingForPreface, .refused: context.closeWithoutTLS()
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if case .waitingForPreface = phase { refuseEnded(context: context) }
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        prefaceTimer?.cancel()
        prefaceTimer = nil
    }

    private func awaitPreface(context: ChannelHandlerContext) {
        phase = .waitingForPreface(ByteBuffer())
        let limit = TimeAmount(configuration.handshakeTimeout)
        prefaceTimer = context.eventLoop.assumeIsolated().scheduleTask(in: limit) { [self] in
            guard case .waitingForPreface = phase else { return }
            refuse(.noPreface, "The client did not send the preface of HTTP/2 in time.", context: context)
        }
    }

    private func refuseEnded(context: ChannelHandlerContext) {
        refuse(.noPreface, "The client closed the connection before the preface of HTTP/2.", context: context)
    }

    private func begin(context: ChannelHandlerContext) {
        phase = .begun
        prefaceTimer?.cancel()
        prefaceTimer = nil
        let connection = SandboxConnection(
            listener, number: number, certificate: client.certificate, authentication: authentication)
        let limit = StreamLimit(
            full: configuration.http2StreamLimit, lowers: configuration.lowersStreamLimit ?? configuration.strict,
            isAuthenticated: client.certificate != nil)
        let writes = WriteBuffer()
        let handler = SandboxHTTP2Handler(
            connection: connection, limit: limit, writes: writes, configuration: configuration, state: state,
            logger: logger)
        let http2 = NIOHTTP2Handler(
            mode: .server, connectionConfiguration: Self.connectionConfiguration(streams: limit.announced),
            streamConfiguration: Self.streamConfiguration)
        do {
            // Add the handlers one by one. Each handler writes when it is added, so the handler before it must already
            // be there.
            let pipeline = context.pipeline.syncOperations
            try pipeline.addHandler(writes, position: .after(self))
            try pipeline.addHandler(http2, position: .after(writes))
            try pipeline.addHandler(handler, position: .after(http2))
        } catch {
            context.closeWithoutTLS()
        }
        logger.info(
            "HTTP/2 connection opened",
            metadata: [
                "authentication": client.certificate == nil ? "token" : "certificate",
                "topic": "\(client.topic ?? "none")",
                "negotiated": "\(client.applicationProtocol ?? "nothing")",
            ])
    }

    private func refuse(
        _ reason: RefusedConnection.Reason, _ message: String, context: ChannelHandlerContext
    ) {
        phase = .refused
        prefaceTimer?.cancel()
        prefaceTimer = nil
        state.withLock { $0.refuse(number, of: listener, reason, message, at: state.now()) }
        logger.warning("client without HTTP/2 refused", metadata: ["why": "\(message)"])
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: Self.refusal)), promise: nil)
        context.close(promise: nil)
    }

    private static func connectionConfiguration(streams: Int) -> NIOHTTP2Handler.ConnectionConfiguration {
        var configuration = NIOHTTP2Handler.ConnectionConfiguration()
        configuration.initialSettings = [
            HTTP2Setting(parameter: .maxConcurrentStreams, value: streams | WriteBuffer.headroom),
            HTTP2Setting(parameter: .maxHeaderListSize, value: headerLimit),
        ]
        configuration.maximumSequentialEmptyDataFrames = maxEmptyFrames
        configuration.maximumRecentlyResetStreams = maxResetStreams
        configuration.maximumConnectionGlitches = maxFrameRate
        configuration.controlFrameRateLimit.maximumCount = maxFrameRate
        return configuration
    }

    private static var streamConfiguration: NIOHTTP2Handler.StreamConfiguration {
        var configuration = NIOHTTP2Handler.StreamConfiguration()
        configuration.streamResetFrameRateLimit.maximumCount = maxFrameRate
        configuration.streamErrorRateLimit.maximumCount = maxFrameRate
        return configuration
    }
}
