import NIOCore
import NIOPosix

extension GatewayEndpoint {
    /// How long a connection is watched: a gateway that refuses the certificate closes just after the handshake.
    private static let watch = Duration.milliseconds(300)

    /// Connects, says nothing, and closes; for `check`.
    /// - Throws: why it cannot be reached or does not want us.
    package func probe() async throws(GatewayUnreachable) {
        do {
            let (channel, _) = try await connect(on: MultiThreadedEventLoopGroup.singleton) { channel in
                try channel.pipeline.syncOperations.addHandler(FailureHolder())
            }
            try? await Task.sleep(for: Self.watch)
            guard channel.isActive else {
                throw GatewayUnreachable(
                    "\(host):\(port) closed just after the handshake; it may not accept the certificate")
            }
            try? await channel.close()
        } catch let error as GatewayUnreachable {
            throw error
        } catch {
            throw GatewayUnreachable("\(host):\(port) cannot be reached: \(ConnectionFailure.text(error))")
        }
    }

    /// Connects without TLS, and closes; for a service that must not be told that we are there.
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
    package let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// Closes on the errors that TLS reports after the handshake.
private final class FailureHolder: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
