import NIOCore
import NIOEmbedded
import NIOTLS
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("Connecting to a gateway", .timeLimit(.minutes(5)))
struct GatewayEndpointTests {
    /// Connects in memory. The test decides which channels there are, and which of them is connected.
    private final class MemoryConnector: Connector {
        private typealias Attempt = (prepare: @Sendable (any Channel) throws -> Void, EventLoopPromise<any Channel>)

        let loop = NIOAsyncTestingEventLoop()
        var eventLoops: any EventLoopGroup { loop }
        private let attempts = AsyncStream.makeStream(of: Attempt.self)

        func connect(
            to peer: ConnectorPeer, on eventLoop: any EventLoop, timeout: TimeAmount,
            prepare: @escaping @Sendable (any Channel) throws -> Void
        ) -> EventLoopFuture<any Channel> {
            let connected = eventLoop.makePromise(of: (any Channel).self)
            attempts.continuation.yield((prepare, connected))
            return connected.futureResult
        }

        /// Waits until the gateway is connected to. Opens one channel for each of its addresses.
        /// - Returns: The channels, and the promise of the one that is connected first.
        func attempt(addresses: Int = 1) async throws -> ([NIOAsyncTestingChannel], EventLoopPromise<any Channel>) {
            for await (prepare, connected) in attempts.stream {
                var channels: [NIOAsyncTestingChannel] = []
                for _ in 0..<addresses {
                    let channel = try await NIOAsyncTestingChannel(loop: loop) { try prepare($0) }
                    try await channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1))
                    channels.append(channel)
                }
                return (channels, connected)
            }
            throw CancellationError()
        }
    }

    private let connector = MemoryConnector()

    private func connect() throws -> Task<ObjectIdentifier, any Error> {
        let endpoint = try GatewayEndpoint(
            host: "host", port: 1, trust: nil, applicationProtocols: [GatewayEndpoint.http2])
        return Task { [connector] in
            let (channel, handle) = try await endpoint.connect(over: connector) { ObjectIdentifier($0) }
            #expect(ObjectIdentifier(channel) == handle)
            return handle
        }
    }

    @Test("The handle belongs to the address that connected first, in whatever order the addresses were tried")
    func addresses() async throws {
        let connecting = try connect()
        let (channels, connected) = try await connector.attempt(addresses: 2)
        connected.succeed(channels[1])
        channels[1].pipeline.fireUserInboundEventTriggered(
            TLSUserEvent.handshakeCompleted(negotiatedProtocol: GatewayEndpoint.http2))
        #expect(try await connecting.value == ObjectIdentifier(channels[1]))
        for channel in channels { try await channel.close() }
    }

    @Test("A connection that is established after the cancellation is closed")
    func cancelled() async throws {
        let connecting = try connect()
        let (channels, connected) = try await connector.attempt()
        connecting.cancel()
        await #expect(throws: CancellationError.self) { try await connecting.value }
        connected.succeed(channels[0])
        try await channels[0].closeFuture.get()
    }

    enum Failure: CaseIterable {
        case silence, otherProtocol, closed
    }

    @Test("A peer that fails in the handshake, or takes ten seconds for it, is left", arguments: Failure.allCases)
    func handshake(_ failure: Failure) async throws {
        let connecting = try connect()
        let (channels, connected) = try await connector.attempt()
        connected.succeed(channels[0])
        switch failure {
        case .silence:
            await connector.loop.advanceTime(by: .seconds(10))
            await #expect(throws: ChannelError.connectTimeout(.seconds(10))) { try await connecting.value }
        case .otherProtocol:
            channels[0].pipeline.fireUserInboundEventTriggered(
                TLSUserEvent.handshakeCompleted(negotiatedProtocol: "http/1.1"))
            await #expect(throws: ProtocolMismatch.self) { try await connecting.value }
        case .closed:
            channels[0].close(promise: nil)
            await #expect(throws: ChannelError.eof) { try await connecting.value }
        }
        try await channels[0].closeFuture.get()
    }
}
