import Logging
import NIOCore
import NIOPosix
import WebAssets

/// Reads a request to the proxy, opens the tunnel to one of the sandbox's listeners, and then leaves the connection to
/// ``TunnelEnd``. ``ConnectHead`` and ``ProxyRoutes`` decide.
final class ConnectHandler: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private enum Phase {
        case reading(ConnectHead)
        /// The tunnel is being opened. The buffer has the bytes that followed the head: what one read of the socket
        /// returns, because the handler asks for no more.
        case connecting(ByteBuffer)
        /// The request was refused. Further bytes are discarded, so that the client can read the response.
        case refused
    }

    private static let established = "HTTP/1.1 200 Connection established\r\n\r\n"

    private let connection: Int
    private let routes: ProxyRoutes
    private let configuration: SandboxConfiguration
    private let state: SharedState
    private let logger: Logger
    private var phase = Phase.reading(ConnectHead())
    private var timer: Scheduled<Void>?
    private var isReadHeldBack = false
    /// Whether the client ended its direction while the tunnel was being opened.
    private var isInputEnded = false

    init(
        connection: Int, routes: ProxyRoutes, configuration: SandboxConfiguration, state: SharedState, logger: Logger
    ) {
        self.connection = connection
        self.routes = routes
        self.configuration = configuration
        self.state = state
        self.logger = logger
    }

    func channelActive(context: ChannelHandlerContext) {
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: .init(configuration.handshakeTimeout)) {
            self.refuse(.timeout, context)
        }
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var buffer = unwrapInboundIn(data)
        if case .connecting(var rest) = phase {
            rest.writeBuffer(&buffer)
            phase = .connecting(rest)
        }
        guard case .reading(var head) = phase else { return }
        do throws(ProxyRefusal) {
            let target = try head.read(&buffer)
            phase = .reading(head)
            guard let target else { return }
            let address = try routes.address(of: target)
            logger.debug("Tunnel requested", metadata: ["target": "\(target)", "listener": "\(address)"])
            connect(to: address, rest: buffer, context)
        } catch {
            refuse(error, context)
        }
    }

    func read(context: ChannelHandlerContext) {
        if case .connecting = phase { isReadHeldBack = true } else { context.read() }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case ChannelEvent.inputClosed = event else { return context.fireUserInboundEventTriggered(event) }
        if case .connecting = phase {
            isInputEnded = true
        } else {
            // The client ended before its head was complete, or after a refusal.
            context.close(promise: nil)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    // MARK: Actions

    private func refuse(_ refusal: ProxyRefusal, _ context: ChannelHandlerContext) {
        if case .refused = phase { return }
        phase = .refused
        logger.debug("Tunnel refused", metadata: ["status": "\(refusal.status)"])
        state.withLock { state in
            state.refuse(connection, of: .proxy, .noTunnel, refusal.message, at: self.state.now())
        }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: refusal.response)), promise: nil)
        context.close(mode: .output, promise: nil)
        timer?.cancel()
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: .init(configuration.linger)) {
            context.close(promise: nil)
        }
        if isReadHeldBack {
            isReadHeldBack = false
            context.read()
        }
    }

    private func connect(to address: SandboxAddress, rest: ByteBuffer, _ context: ChannelHandlerContext) {
        phase = .connecting(rest)
        timer?.cancel()
        timer = nil
        let opening = ClientBootstrap(group: context.eventLoop)
            .connectTimeout(.init(configuration.handshakeTimeout))
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            // Nothing is read before the tunnel is complete.
            .channelOption(.autoRead, value: false)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(WriteGuard())
                }
            }
            .connect(host: address.host, port: address.port)
        opening.assumeIsolated().whenComplete { result in
            switch result {
            case .success(let listener): self.join(listener, context)
            case .failure: self.refuse(.unreachable, context)
            }
        }
    }

    /// Completes the tunnel.
    private func join(_ listener: any Channel, _ context: ChannelHandlerContext) {
        guard context.channel.isActive, case .connecting(let rest) = phase else {
            listener.close(promise: nil)
            return
        }
        let (near, far) = TunnelEnd.pair()
        do {
            try context.pipeline.syncOperations.addHandler(near, position: .after(self))
            try listener.pipeline.syncOperations.addHandler(far)
        } catch {
            listener.close(promise: nil)
            context.close(promise: nil)
            return
        }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: Self.established)), promise: nil)
        if rest.readableBytes > 0 { listener.writeAndFlush(rest, promise: nil) }
        if isInputEnded { near.endInput() }
        listener.setOption(.autoRead, value: true).whenFailure { _ in listener.close(promise: nil) }
        let (channel, isReadHeldBack) = (context.channel, isReadHeldBack)
        context.pipeline.syncOperations.removeHandler(self).assumeIsolated().whenComplete { _ in
            if isReadHeldBack { channel.read() }
        }
    }
}
