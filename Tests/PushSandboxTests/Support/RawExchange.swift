import NIOCore
import NIOPosix

@testable import PushSandbox

/// One exchange of bytes over a plain TCP connection.
enum RawExchange {
    /// Sends bytes, and returns the bytes that the sandbox sends.
    /// - Parameters:
    ///   - ends: Whether the client ends its direction after these bytes.
    ///   - toEnd: Whether to read until the sandbox closes the connection, rather than until the first bytes arrive.
    static func run(
        _ address: SandboxAddress, _ text: String, ends: Bool = false, toEnd: Bool = true
    ) async throws -> String {
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .connect(host: address.host, port: address.port) { channel in
                channel.eventLoop.makeCompletedFuture {
                    try NIOAsyncChannel<ByteBuffer, ByteBuffer>(
                        wrappingChannelSynchronously: channel, configuration: .init(isOutboundHalfClosureEnabled: true))
                }
            }
        return try await channel.executeThenClose { inbound, outbound in
            if !text.isEmpty { try await outbound.write(ByteBuffer(string: text)) }
            if ends { outbound.finish() }
            var received = ByteBuffer()
            for try await var part in inbound {
                received.writeBuffer(&part)
                if !toEnd { break }
            }
            return String(buffer: received)
        }
    }
}
