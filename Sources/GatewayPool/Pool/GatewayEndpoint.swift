import HTTP2Wire
package import NIOCore
package import NIOSSL
import NIOTLS
import Synchronization

/// The address of a gateway, with the credentials and authorities for TLS. Opens connections to it.
package struct GatewayEndpoint: Sendable {
    /// The time limit of each step: name lookup together with TCP, the TLS handshake, and SETTINGS in ``probe()``.
    fileprivate static let timeout = TimeAmount.seconds(10)
    /// The time that ``probe()`` keeps the connection open. A gateway that rejects the certificate closes just after
    /// the handshake.
    private static let probeTime = Duration.milliseconds(300)

    package let host: String
    package let port: Int
    private let tls: NIOSSLContext
    /// The protocols to negotiate in TLS (ALPN). Empty for the binary gateway.
    private let applicationProtocols: [String]

    /// The name of HTTP/2 in TLS.
    package static let http2 = HTTP2Session.tlsName

    /// Creates an endpoint and its TLS configuration. Opens no connection.
    ///
    /// - Parameters:
    ///   - chain: The client certificate with its chain. Empty if requests contain the credentials.
    ///   - key: The certificate's key.
    ///   - trust: A PEM file with further authorities, for a sandbox. The system's authorities are always trusted.
    ///   - applicationProtocols: `[http2]` for an HTTP/2 API. A connection fails if the peer agrees to none of
    ///     them.
    package init(
        host: String, port: Int, chain: [NIOSSLCertificate] = [], key: NIOSSLPrivateKey? = nil, trust: String?,
        applicationProtocols: [String] = []
    ) throws(CredentialsError) {
        var configuration = try TLSConfiguration.client(trust: trust)
        // A peer that does not respond to the TLS close must not delay the next steps.
        configuration.shutdownTimeout = .milliseconds(500)
        configuration.applicationProtocols = applicationProtocols
        if let key {
            configuration.certificateChain = chain.map { .certificate($0) }
            configuration.privateKey = .privateKey(key)
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

    /// Connects and completes the handshake. Stops if the task is cancelled.
    ///
    /// With TLS 1.3 the gateway rejects a certificate only after the handshake, by closing the connection.
    /// - Parameter prepare: Adds the handlers above TLS and returns a handle for the caller. It is called once for each
    ///   address that is tried. The returned handle belongs to the channel that connected first.
    package func connect<Handle: Sendable>(
        over connector: any Connector, prepare: @escaping @Sendable (any Channel) throws -> Handle
    ) async throws -> (any Channel, Handle) {
        let eventLoop = connector.eventLoops.next()
        let attempts = Mutex<[ObjectIdentifier: Attempt<Handle>]>([:])
        let connecting = connector.connect(to: peer(tls), on: eventLoop, timeout: Self.timeout) { channel in
            let handshake = HandshakeHandler(done: channel.eventLoop.makePromise(), protocols: applicationProtocols)
            try channel.pipeline.syncOperations.addHandler(handshake)
            let attempt = Attempt(handshake: handshake.done.futureResult, handle: try prepare(channel))
            attempts.withLock { $0[ObjectIdentifier(channel)] = attempt }
        }
        let ready = eventLoop.makePromise(of: (any Channel).self)
        connecting.flatMap { channel in
            let attempt = attempts.withLock { $0[ObjectIdentifier(channel)] }
            return attempt?.handshake.map { channel } ?? channel.eventLoop.makeFailedFuture(ChannelError.eof)
        }.cascade(to: ready)
        // Closes the connection even if it is established after the cancellation.
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

    private func peer(_ tls: NIOSSLContext?) -> ConnectorPeer {
        let isAddress = (try? SocketAddress(ipAddress: host, port: 0)) != nil
        return ConnectorPeer(.host(host, port: port), tls: tls, serverName: isAddress ? nil : host)
    }

    // MARK: - For `check`

    /// Connects, sends no push, and closes. Over HTTP/2, it waits for the peer's SETTINGS.
    /// - Throws: The reason why the gateway cannot be reached or does not accept the credentials.
    package func probe() async throws(GatewayUnreachable) {
        let isHTTP2 = applicationProtocols.contains(Self.http2)
        do {
            let (channel, isReady) = try await connect(over: .sockets) { channel in
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
            // SETTINGS may arrive before the gateway has checked the certificate.
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

    /// Connects without TLS, and closes. Used for the feedback service, which would send its list over TLS and then
    /// clear it.
    package func reach() async throws(GatewayUnreachable) {
        do {
            let connector = SocketConnector()
            let channel = try await connector.connect(
                to: peer(nil), on: connector.eventLoops.next(), timeout: Self.timeout, prepare: { _ in }
            ).get()
            try await channel.close()
        } catch {
            throw GatewayUnreachable("\(host):\(port) cannot be reached: \(ConnectionFailure.text(error))")
        }
    }
}

/// The reason why a gateway cannot be used now.
package struct GatewayUnreachable: Error, Sendable, CustomStringConvertible {
    package static let closedEarly = "closed just after the handshake; it may not accept the certificate"

    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}

/// The peer completed the TLS handshake but does not speak the required protocol.
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
    /// Fails the promise with an error if it is not completed within ``GatewayEndpoint/timeout``.
    fileprivate func failLater(_ error: any Error) {
        let deadline = futureResult.eventLoop.scheduleTask(in: GatewayEndpoint.timeout) { fail(error) }
        futureResult.whenComplete { _ in deadline.cancel() }
    }
}

/// Reports the end of the handshake or the reason for its failure.
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

/// Waits for SETTINGS, the first frame of an HTTP/2 peer. Closes the connection on errors that TLS reports after the
/// handshake.
private final class ProbeHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let ready: EventLoopPromise<Void>
    /// `nil` for the binary protocol, in which the gateway does not send first.
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
