package import NIOCore
import NIOPosix
package import NIOSSL

/// Opens connections to push services, on its own event loops. Tests replace it to run a gateway without sockets.
package protocol Connector: Sendable {
    var eventLoops: any EventLoopGroup { get }

    /// Connects to a peer.
    ///
    /// - Parameters:
    ///   - timeout: The time limit of the name lookup together with TCP. It does not include TLS.
    ///   - prepare: Adds the handlers above TLS. It is called once for each address that is tried.
    func connect(
        to peer: ConnectorPeer, on eventLoop: any EventLoop, timeout: TimeAmount,
        prepare: @escaping @Sendable (any Channel) throws -> Void
    ) -> EventLoopFuture<any Channel>
}

/// The peer of a connection.
package struct ConnectorPeer: Sendable {
    package enum Location: Sendable {
        case host(String, port: Int)
        case address(SocketAddress)
    }

    package let location: Location
    /// `nil` for a connection without TLS.
    package let tls: NIOSSLContext?
    /// The name for SNI and verification. `nil` if the certificate must be for the address.
    package let serverName: String?

    package init(_ location: Location, tls: NIOSSLContext?, serverName: String? = nil) {
        self.location = location
        self.tls = tls
        self.serverName = serverName
    }
}

/// Connects over TCP.
package struct SocketConnector: Connector {
    package var eventLoops: any EventLoopGroup { MultiThreadedEventLoopGroup.singleton }

    package func connect(
        to peer: ConnectorPeer, on eventLoop: any EventLoop, timeout: TimeAmount,
        prepare: @escaping @Sendable (any Channel) throws -> Void
    ) -> EventLoopFuture<any Channel> {
        let bootstrap = ClientBootstrap(group: eventLoop)
            .connectTimeout(timeout)
            .channelOption(.socketOption(.so_keepalive), value: 1)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.writeBufferWaterMark, value: .init(low: 64 << 10, high: 256 << 10))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let tls = peer.tls {
                        let handler = try NIOSSLClientHandler(context: tls, serverHostname: peer.serverName)
                        try channel.pipeline.syncOperations.addHandler(handler)
                    }
                    try prepare(channel)
                }
            }
        return switch peer.location {
        case .host(let host, let port): bootstrap.connect(host: host, port: port)
        case .address(let address): bootstrap.connect(to: address)
        }
    }
}

extension Connector where Self == SocketConnector {
    package static var sockets: SocketConnector { SocketConnector() }
}
