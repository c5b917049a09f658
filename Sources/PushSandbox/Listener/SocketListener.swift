import Foundation
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import Synchronization
import WebAssets

/// The event that the sandbox stops. It is the last event of a connection before it is closed.
struct SandboxStopping: Sendable {}

/// A listening socket, and the connections that it has admitted.
final class SocketListener: Sendable {
    let kind: ListenerKind
    let address: SandboxAddress
    private let server: any Channel
    private let connections: Connections

    private init(kind: ListenerKind, address: SandboxAddress, server: any Channel, connections: Connections) {
        self.kind = kind
        self.address = address
        self.server = server
        self.connections = connections
    }

    /// Starts to listen.
    /// - Parameters:
    ///   - tls: The settings of TLS. `nil` to listen without TLS.
    ///   - makeHandler: Creates the protocol's handler for the connection with the given number.
    /// - Throws: ``SandboxError``.
    static func bind(
        _ kind: ListenerKind, port: Int, tls: NIOSSLContext?, configuration: SandboxConfiguration, state: SharedState,
        group: any EventLoopGroup, logger: Logger,
        makeHandler: @escaping @Sendable (_ connection: Int, Logger) -> any ChannelHandler
    ) async throws -> SocketListener {
        let connections = Connections()
        let timeout = TimeAmount(configuration.handshakeTimeout)
        let host = configuration.host
        let bootstrap = ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 256)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            // A client that has only finished sending can still read the response.
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let admitted = state.withLock { $0.admit(kind, at: state.now()) }
                    guard let number = admitted else { throw TooManyConnections() }
                    channel.closeFuture.whenComplete { _ in state.withLock { $0.connectionClosed(kind) } }
                    guard connections.insert(channel) else { throw TooManyConnections() }
                    var logger = logger
                    logger[metadataKey: "connection"] = "\(number)"
                    let pipeline = channel.pipeline.syncOperations
                    try pipeline.addHandler(WriteGuard())
                    if let tls {
                        try pipeline.addHandler(NIOSSLServerHandler(context: tls))
                        try pipeline.addHandler(
                            ClientHandshake(kind, connection: number, timeout: timeout, state: state, logger: logger))
                    }
                    try pipeline.addHandler(makeHandler(number, logger))
                }
            }
        let server = try await bind(host: host, port: port, flag: "--\(kind)-port") {
            try await bootstrap.bind(host: host, port: port).get()
        }
        let address = SandboxAddress(host: host, port: server.localAddress?.port ?? port)
        return SocketListener(kind: kind, address: address, server: server, connections: connections)
    }

    /// Runs a closure that binds a port, and converts its error to one that says what to do.
    /// - Parameter flag: The option that chooses the port.
    static func bind<Bound: Sendable>(
        host: String, port: Int, flag: String, _ body: () async throws -> Bound
    ) async throws -> Bound {
        guard 0...Int(UInt16.max) ~= port else {
            throw SandboxError.cannotListen(host: host, port: port, flag: flag, reason: "there is no such port")
        }
        do {
            return try await body()
        } catch let error as IOError where error.errnoCode == EADDRINUSE {
            throw SandboxError.portTaken(host: host, port: port, flag: flag)
        } catch let error as IOError {
            throw SandboxError.cannotListen(
                host: host, port: port, flag: flag, reason: String(cString: strerror(error.errnoCode)))
        } catch let error as CancellationError {
            throw error
        } catch let error as SandboxError {
            throw error
        } catch {
            throw SandboxError.cannotListen(host: host, port: port, flag: flag, reason: "\(error)")
        }
    }

    func waitUntilEnded() async {
        try? await server.closeFuture.get()
    }

    /// Stops listening and closes all connections, within the TLS context's shutdown timeout.
    func close() async {
        try? await server.close().get()
        let channels = connections.end()
        for channel in channels {
            // The event and the close are queued on the channel's event loop, in this order.
            channel.pipeline.fireUserInboundEventTriggered(SandboxStopping())
            channel.close(promise: nil)
        }
        for channel in channels { try? await channel.closeFuture.get() }
    }

    /// The listener has too many connections, or is being closed.
    private struct TooManyConnections: Error {}

    /// The open connections of a listener. Accepts no more once the listener is being closed.
    private final class Connections: Sendable {
        /// `nil` once the listener is being closed.
        private let channels = Mutex<[ObjectIdentifier: any Channel]?>([:])

        func insert(_ channel: any Channel) -> Bool {
            let key = ObjectIdentifier(channel)
            let isOpen = channels.withLock { channels in
                channels?[key] = channel
                return channels != nil
            }
            if isOpen {
                channel.closeFuture.whenComplete { _ in
                    self.channels.withLock { channels in _ = channels?.removeValue(forKey: key) }
                }
            }
            return isOpen
        }

        func end() -> [any Channel] {
            channels.withLock { channels in
                defer { channels = nil }
                return channels.map { Array($0.values) } ?? []
            }
        }
    }
}
