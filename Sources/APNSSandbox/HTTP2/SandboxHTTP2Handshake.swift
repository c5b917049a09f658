import Logging
import NIOCore
import NIOHTTP2

/// Waits until TLS is up, and puts the HTTP/2 handlers behind itself if that is what the client speaks.
final class SandboxHTTP2Handshake: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The only protocol offered (ALPN).
    static let protocolName = "h2"
    /// Frames of a kind, in half a minute, above which the library ends a connection: far more than a client at work
    /// sends, and it keeps a time for each.
    private static let frameRate = 20_000
    /// Streams whose late frames are ignored after they were reset: more than may be open at a time.
    private static let resetStreams = 4096
    private static let emptyFrames = 16
    /// Bytes of a request's headers.
    private static let headerLimit = 16 << 10

    private static let refusal = """
        HTTP/1.1 505 HTTP Version Not Supported\r
        content-type: text/plain\r
        connection: close\r
        \r
        This port speaks HTTP/2 only (ALPN h2), like api.push.apple.com.

        """

    private let number: Int
    private let authentication: SandboxAuthentication
    private let configuration: SandboxConfiguration
    private let state: SharedState
    private let logger: Logger
    private var isRefused = false

    init(
        connection number: Int, keys: SandboxKeyring, configuration: SandboxConfiguration, state: SharedState,
        logger: Logger
    ) {
        self.number = number
        authentication = SandboxAuthentication(keys: keys, isStrict: configuration.strict)
        self.configuration = configuration
        self.state = state
        self.logger = logger
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let client = event as? ClientIdentified {
            if client.applicationProtocol == Self.protocolName {
                begin(client, context: context)
            } else {
                refuse(context: context)
            }
        }
        if isRefused, case .inputClosed = event as? ChannelEvent { context.closeWithoutTLS() }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // What a refused client sends is discarded.
        if !isRefused { context.fireChannelRead(data) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if isRefused { context.closeWithoutTLS() } else { context.fireErrorCaught(error) }
    }

    private func begin(_ client: ClientIdentified, context: ChannelHandlerContext) {
        let connection = SandboxConnection(
            number: number, certificate: client.certificate, authentication: authentication)
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
            // One by one: each writes as soon as it is added, so the one before it must be there.
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
            ])
    }

    private func refuse(context: ChannelHandlerContext) {
        isRefused = true
        logger.warning("Client without HTTP/2 refused; it has to offer h2 by ALPN")
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: Self.refusal)), promise: nil)
        context.close(promise: nil)
    }

    private static func connectionConfiguration(streams: Int) -> NIOHTTP2Handler.ConnectionConfiguration {
        var configuration = NIOHTTP2Handler.ConnectionConfiguration()
        configuration.initialSettings = [
            HTTP2Setting(parameter: .maxConcurrentStreams, value: streams | WriteBuffer.headroom),
            HTTP2Setting(parameter: .maxHeaderListSize, value: headerLimit),
        ]
        configuration.maximumSequentialEmptyDataFrames = emptyFrames
        configuration.maximumRecentlyResetStreams = resetStreams
        configuration.maximumConnectionGlitches = frameRate
        configuration.controlFrameRateLimit.maximumCount = frameRate
        return configuration
    }

    private static var streamConfiguration: NIOHTTP2Handler.StreamConfiguration {
        var configuration = NIOHTTP2Handler.StreamConfiguration()
        configuration.streamResetFrameRateLimit.maximumCount = frameRate
        configuration.streamErrorRateLimit.maximumCount = frameRate
        return configuration
    }
}
