import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import Synchronization

/// Where a gateway is and how it is trusted; makes TLS connections to it.
package struct GatewayEndpoint: Sendable {
    /// Time for the name look-up and TCP, and again for the TLS handshake.
    static let timeout = TimeAmount.seconds(10)

    package let host: String
    package let port: Int
    let tls: NIOSSLContext

    /// What is agreed on within TLS (ALPN); empty for a gateway with a protocol of its own.
    let applicationProtocols: [String]

    /// HTTP/2's name in TLS.
    package static let http2 = "h2"

    /// - Parameters:
    ///   - credentials: nil where the connection proves itself with provider tokens.
    ///   - trust: PEM file of a further authority, for a sandbox; the system's are always trusted.
    ///   - applicationProtocols: `[http2]` for the provider API; a peer that does not agree is an error.
    package init(
        host: String, port: Int, credentials: ClientCredentials?, trust: String?, applicationProtocols: [String] = []
    ) throws(CredentialsError) {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.minimumTLSVersion = .tlsv12
        // A peer that does not agree to the end must not hold up what comes after it.
        configuration.shutdownTimeout = .milliseconds(500)
        configuration.applicationProtocols = applicationProtocols
        if let credentials {
            configuration.certificateChain = credentials.chain.map { .certificate($0) }
            configuration.privateKey = .privateKey(credentials.key)
        }
        do {
            if let trust {
                configuration.additionalTrustRoots = [.certificates(try NIOSSLCertificate.fromPEMFile(trust))]
            }
        } catch {
            throw CredentialsError(
                "\(trust ?? "") cannot be read as PEM certificates (trust): \(ConnectionFailure.reasons(in: error))")
        }
        do {
            self.tls = try NIOSSLContext(configuration: configuration)
        } catch {
            throw CredentialsError(
                "certificate and key do not belong together or cannot be used: \(ConnectionFailure.reasons(in: error))")
        }
        self.host = host
        self.port = port
        self.applicationProtocols = applicationProtocols
    }

    /// Connects and completes the handshake; gives up when the task is cancelled.
    ///
    /// With TLS 1.3 a certificate that the gateway refuses shows only afterwards, as a close.
    /// - Parameter prepare: adds the handlers above TLS and returns what the caller wants of them. Called once for each
    ///   address that is tried; what is returned is that of the channel that won.
    func connect<Handle: Sendable>(
        on group: any EventLoopGroup, prepare: @escaping @Sendable (any Channel) throws -> Handle
    ) async throws -> (any Channel, Handle) {
        let eventLoop = group.next()
        let attempts = Mutex<[ObjectIdentifier: Attempt<Handle>]>([:])
        let connecting = ClientBootstrap(group: eventLoop)
            .connectTimeout(Self.timeout)
            .channelOption(.socketOption(.so_keepalive), value: 1)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.writeBufferWaterMark, value: .init(low: 64 << 10, high: 256 << 10))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let tls = try NIOSSLClientHandler(context: self.tls, serverHostname: self.serverName)
                    try channel.pipeline.syncOperations.addHandler(tls)
                    let handshake = HandshakeHandler(
                        done: channel.eventLoop.makePromise(), limit: Self.timeout, protocols: applicationProtocols)
                    try channel.pipeline.syncOperations.addHandler(handshake)
                    let attempt = Attempt(handshake: handshake.done.futureResult, handle: try prepare(channel))
                    attempts.withLock { $0[ObjectIdentifier(channel)] = attempt }
                }
            }
            .connect(host: host, port: port)
        let ready = eventLoop.makePromise(of: (any Channel).self)
        connecting.flatMap { channel in
            let attempt = attempts.withLock { $0[ObjectIdentifier(channel)] }
            return attempt?.handshake.map { channel } ?? channel.eventLoop.makeFailedFuture(ChannelError.eof)
        }.cascade(to: ready)
        // Also a connection that comes after the cancellation is closed.
        ready.futureResult.whenFailure { _ in connecting.whenSuccess { $0.close(promise: nil) } }
        let channel = try await withTaskCancellationHandler {
            try await ready.futureResult.get()
        } onCancel: {
            ready.fail(CancellationError())
        }
        guard let attempt = attempts.withLock({ $0[ObjectIdentifier(channel)] }) else { throw ChannelError.eof }
        return (channel, attempt.handle)
    }

    private struct Attempt<Handle: Sendable>: Sendable {
        let handshake: EventLoopFuture<Void>
        let handle: Handle
    }

    /// The name for SNI and verification; an address is verified as an address, and sends none.
    private var serverName: String? {
        (try? SocketAddress(ipAddress: host, port: 0)) == nil ? host : nil
    }
}

/// TLS came up, and the peer does not speak what is to be spoken over it.
struct ProtocolMismatch: Error, CustomStringConvertible {
    let wanted: [String]
    let agreed: String?

    var description: String {
        let other = agreed.map { "it speaks \($0)" } ?? "it agreed to no protocol"
        return wanted == [GatewayEndpoint.http2]
            ? "it does not speak HTTP/2 (\(other)); is it the legacy binary gateway, or another service?"
            : "it does not speak \(wanted.joined(separator: " or ")) (\(other))"
    }
}

/// Reports the end of the handshake, and ends a channel on which it does not come.
private final class HandshakeHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    let done: EventLoopPromise<Void>
    private let limit: TimeAmount
    private let protocols: [String]

    init(done: EventLoopPromise<Void>, limit: TimeAmount, protocols: [String]) {
        self.done = done
        self.limit = limit
        self.protocols = protocols
    }

    func channelActive(context: ChannelHandlerContext) {
        let deadline = context.eventLoop.assumeIsolated().scheduleTask(in: limit) { [done, limit] in
            done.fail(ChannelError.connectTimeout(limit))
            context.close(promise: nil)
        }
        done.futureResult.whenSuccess { deadline.cancel() }
        context.fireChannelActive()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted(let agreed) = event as? TLSUserEvent {
            guard protocols.isEmpty || protocols.contains(agreed ?? "") else {
                done.fail(ProtocolMismatch(wanted: protocols, agreed: agreed))
                return context.close(promise: nil)
            }
            done.succeed()
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        done.fail(error)
        context.fireErrorCaught(error)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        done.fail(ChannelError.eof)
    }
}
