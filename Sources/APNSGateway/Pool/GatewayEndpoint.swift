import HTTP2Wire
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import Synchronization

/// Where a gateway is and how it is trusted; makes TLS connections to it.
package struct GatewayEndpoint: Sendable {
    /// Time for the name look-up and TCP, again for the TLS handshake, and in ``probe()`` for SETTINGS.
    fileprivate static let timeout = TimeAmount.seconds(10)
    /// How long ``probe()`` waits: a gateway that refuses the certificate closes just after the handshake.
    private static let probeTime = Duration.milliseconds(300)

    package let host: String
    package let port: Int
    private let tls: NIOSSLContext
    /// What is negotiated in TLS (ALPN); empty for the binary gateway.
    private let applicationProtocols: [String]

    /// HTTP/2's name in TLS.
    package static let http2 = "h2"

    /// - Parameters:
    ///   - credentials: nil where provider tokens are the credential.
    ///   - trust: PEM file of a further authority, for a sandbox; the system's are always trusted.
    ///   - applicationProtocols: `[http2]` for Apple's HTTP/2 API; a peer that does not agree is an error.
    package init(
        host: String, port: Int, credentials: ClientCredentials?, trust: String?, applicationProtocols: [String] = []
    ) throws(CredentialsError) {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.minimumTLSVersion = .tlsv12
        // A peer that does not answer the close must not delay what comes after it.
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

    /// Connects and completes the handshake; stops when the task is cancelled.
    ///
    /// With TLS 1.3 the gateway refuses a certificate only afterwards, by a close.
    /// - Parameter prepare: adds the handlers above TLS and returns what the caller needs of them. Called once for each
    ///   address that is tried; what is returned belongs to the channel that was connected first.
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
                        done: channel.eventLoop.makePromise(), protocols: applicationProtocols)
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

    // MARK: - For `check`

    /// Connects, sends no push, and closes. Of HTTP/2 it waits for the peer's SETTINGS.
    /// - Throws: why it cannot be reached or does not accept us.
    package func probe() async throws(GatewayUnreachable) {
        let isHTTP2 = applicationProtocols.contains(Self.http2)
        do {
            let (channel, isReady) = try await connect(on: MultiThreadedEventLoopGroup.singleton) { channel in
                let probe = ProbeHandler(
                    session: isHTTP2 ? HTTP2Session() : nil, ready: channel.eventLoop.makePromise())
                try channel.pipeline.syncOperations.addHandler(probe)
                return probe.ready.futureResult
            }
            do {
                try await isReady.get()
            } catch {
                try? await channel.close()
                throw GatewayUnreachable("\(host):\(port): \(ConnectionFailure.text(error))")
            }
            // SETTINGS may come before a certificate was checked.
            try? await Task.sleep(for: Self.probeTime)
            guard channel.isActive else {
                throw GatewayUnreachable("\(host):\(port) \(GatewayUnreachable.closedEarly)")
            }
            var writer = FrameWriter()
            writer.goAway(.noError)
            if isHTTP2, let bytes = writer.take() { try? await channel.writeAndFlush(bytes) }
            try? await channel.close()
        } catch let error as GatewayUnreachable {
            throw error
        } catch {
            throw GatewayUnreachable("\(host):\(port) cannot be reached: \(ConnectionFailure.text(error))")
        }
    }

    /// Connects without TLS, and closes; for the feedback service, which would hand out its list and forget it.
    package func reach() async throws(GatewayUnreachable) {
        do {
            let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .connectTimeout(Self.timeout).connect(host: host, port: port).get()
            try await channel.close()
        } catch {
            throw GatewayUnreachable("\(host):\(port) cannot be reached: \(ConnectionFailure.text(error))")
        }
    }
}

/// Why a gateway cannot be used just now.
package struct GatewayUnreachable: Error, Sendable, CustomStringConvertible {
    static let closedEarly = "closed just after the handshake; it may not accept the certificate"

    package let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// TLS is up, and the peer does not speak the protocol that is needed.
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

extension EventLoopPromise {
    /// Fails it with an error if it is not completed in time.
    fileprivate func failLater(_ error: any Error) {
        let deadline = futureResult.eventLoop.scheduleTask(in: GatewayEndpoint.timeout) { fail(error) }
        futureResult.whenComplete { _ in deadline.cancel() }
    }
}

/// Reports the end of the handshake, or why it does not come.
private final class HandshakeHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    let done: EventLoopPromise<Void>
    private let protocols: [String]

    init(done: EventLoopPromise<Void>, protocols: [String]) {
        self.done = done
        self.protocols = protocols
    }

    func channelActive(context: ChannelHandlerContext) {
        done.failLater(ChannelError.connectTimeout(GatewayEndpoint.timeout))
        context.fireChannelActive()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted(let agreed) = event as? TLSUserEvent {
            guard protocols.isEmpty || protocols.contains(agreed ?? "") else {
                return done.fail(ProtocolMismatch(wanted: protocols, agreed: agreed))
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

/// Waits for the frame with which a peer that speaks HTTP/2 begins, and closes on the errors that TLS reports after the
/// handshake.
private final class ProbeHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let ready: EventLoopPromise<Void>
    /// Nil for the binary protocol, in which the peer does not begin.
    private var session: HTTP2Session?

    init(session: HTTP2Session?, ready: EventLoopPromise<Void>) {
        self.session = session
        self.ready = ready
        if session == nil { ready.succeed() }
    }

    func channelActive(context: ChannelHandlerContext) {
        ready.failLater(GatewayUnreachable("no HTTP/2 SETTINGS in time"))
        flush(context)
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        session?.feed(unwrapInboundIn(data), now: context.eventLoop.now)
        do {
            while let event = try session?.next() {
                if case .settings = event { ready.succeed() }
            }
            flush(context)
        } catch {
            ready.fail(GatewayUnreachable("it violates the HTTP/2 protocol: \(error)"))
            session?.goAway(error.code)
            flush(context)
            context.close(promise: nil)
        }
    }

    private func flush(_ context: ChannelHandlerContext) {
        guard let bytes = session?.takeOutput() else { return }
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        session?.noteSent(bytes, peerIsReading: context.channel.isWritable)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        ready.fail(error)
        context.close(promise: nil)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        ready.fail(GatewayUnreachable("it \(GatewayUnreachable.closedEarly)"))
    }
}
