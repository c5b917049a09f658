import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS

/// Where a gateway is and how it is trusted; makes TLS connections to it.
package struct GatewayEndpoint: Sendable {
    /// Time for the name look-up and TCP, and again for the TLS handshake.
    static let timeout = TimeAmount.seconds(10)

    package let host: String
    package let port: Int
    let tls: NIOSSLContext

    /// - Parameter trust: PEM file of a further authority, for a sandbox; the system's are always trusted.
    package init(host: String, port: Int, credentials: ClientCredentials, trust: String?) throws(CredentialsError) {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.minimumTLSVersion = .tlsv12
        configuration.certificateChain = credentials.chain.map { .certificate($0) }
        configuration.privateKey = .privateKey(credentials.key)
        do {
            if let trust {
                configuration.additionalTrustRoots = [.certificates(try NIOSSLCertificate.fromPEMFile(trust))]
            }
        } catch {
            throw CredentialsError("\(trust ?? "") cannot be read as PEM certificates (trust): \(error)")
        }
        do {
            self.tls = try NIOSSLContext(configuration: configuration)
        } catch {
            throw CredentialsError("certificate and key do not belong together or cannot be used: \(error)")
        }
        self.host = host
        self.port = port
    }

    /// Connects and completes the handshake. `prepare` adds the handlers above TLS.
    ///
    /// With TLS 1.3 a certificate that the gateway refuses shows only afterwards, as a close.
    func connect(
        on group: any EventLoopGroup, prepare: @escaping @Sendable (any Channel) throws -> Void
    ) async throws -> any Channel {
        let eventLoop = group.next()
        let handshake = eventLoop.makePromise(of: Void.self)
        let deadline = eventLoop.scheduleTask(in: Self.timeout * 2) {
            handshake.fail(ChannelError.connectTimeout(Self.timeout))
        }
        let bootstrap = ClientBootstrap(group: eventLoop)
            .connectTimeout(Self.timeout)
            .channelOption(.socketOption(.so_keepalive), value: 1)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.writeBufferWaterMark, value: .init(low: 64 << 10, high: 256 << 10))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let tls = try NIOSSLClientHandler(context: self.tls, serverHostname: self.serverName)
                    try channel.pipeline.syncOperations.addHandler(tls)
                    try channel.pipeline.syncOperations.addHandler(HandshakeHandler(done: handshake))
                    try prepare(channel)
                }
            }
        do {
            let channel = try await bootstrap.connect(host: host, port: port).get()
            channel.closeFuture.whenComplete { _ in handshake.fail(ChannelError.eof) }
            do {
                try await handshake.futureResult.get()
            } catch {
                try? await channel.close()
                throw error
            }
            deadline.cancel()
            return channel
        } catch {
            deadline.cancel()
            handshake.fail(error)
            throw error
        }
    }

    /// The name for SNI and verification; an address is verified as an address, and sends none.
    private var serverName: String? {
        (try? SocketAddress(ipAddress: host, port: 0)) == nil ? host : nil
    }
}

/// Reports the end of the handshake.
private final class HandshakeHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private let done: EventLoopPromise<Void>

    init(done: EventLoopPromise<Void>) {
        self.done = done
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted = event as? TLSUserEvent { done.succeed() }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        done.fail(error)
        context.fireErrorCaught(error)
    }
}
