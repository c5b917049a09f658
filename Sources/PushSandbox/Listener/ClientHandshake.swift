import Foundation
import Logging
import NIOCore
import NIOSSL
import NIOTLS

/// The event that TLS is up, with the client's identity.
struct ClientIdentified: Sendable {
    /// The client's certificate. `nil` if the client sent none.
    var certificate: ClientCertificate?
    /// The protocol that both sides chose by ALPN. `nil` if they chose none.
    var applicationProtocol: String?

    /// The certificate's topic. `nil` if the client sent no certificate, or if the certificate names no topic.
    var topic: String? { certificate?.topic }
}

/// Waits for TLS with a time limit, then passes on the client's identity.
final class ClientHandshake: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    /// The maximum number of characters to show of a TLS error. BoringSSL's list of errors can be long.
    private static let errorLimit = 400

    private let listener: ListenerKind
    private let connection: Int
    private let timeout: TimeAmount
    private let state: SharedState
    private let logger: Logger
    private var timer: Scheduled<Void>?
    private var isDone = false
    /// The reason to report if TLS does not come up.
    private var failure = "The client closed the connection before the TLS handshake was complete."

    init(_ listener: ListenerKind, connection: Int, timeout: TimeAmount, state: SharedState, logger: Logger) {
        self.listener = listener
        self.connection = connection
        self.timeout = timeout
        self.state = state
        self.logger = logger
    }

    func handlerAdded(context: ChannelHandlerContext) {
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: timeout) {
            self.logger.debug("TLS handshake not completed in time")
            self.failure = "The TLS handshake was not complete in time."
            context.closeWithoutTLS()
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted(let applicationProtocol) = event as? TLSUserEvent {
            isDone = true
            timer?.cancel()
            timer = nil
            let peer = try? context.pipeline.syncOperations.nioSSL_peerCertificate()
            let certificate = peer.flatMap { ClientCertificate($0) }
            context.fireUserInboundEventTriggered(
                ClientIdentified(certificate: certificate, applicationProtocol: applicationProtocol))
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if !isDone {
            failure = "The TLS handshake failed: " + "\(error)".prefix(Self.errorLimit)
            logger.warning(
                "TLS handshake failed; does the client trust ca.pem, and send a certificate of this sandbox?",
                metadata: ["error": "\(error)"])
        }
        context.fireErrorCaught(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        if !isDone {
            isDone = true
            state.withLock { $0.refuse(connection, of: listener, .handshakeFailed, failure, at: state.now()) }
        }
        context.fireChannelInactive()
    }
}

extension ChannelHandlerContext {
    /// Closes the socket at once, without TLS's close_notify, to which a peer that is gone would never respond.
    func closeWithoutTLS() {
        guard let tls = try? pipeline.syncOperations.context(handlerType: NIOSSLServerHandler.self) else {
            return close(promise: nil)
        }
        tls.close(promise: nil)
    }

    /// Closes the socket with a linger time of zero, which makes the kernel send RST.
    func resetConnection() {
        if let socket = channel as? any SocketOptionProvider {
            _ = socket.setSoLinger(linger(l_onoff: 1, l_linger: 0))
        }
        closeWithoutTLS()
    }
}
