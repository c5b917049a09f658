import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import PushWire
import Testing

@testable import PushSandbox

/// A TLS client of the gateway or the feedback service that collects all bytes until the server closes.
struct TestTLSClient: Sendable {
    /// The end of a connection as the client saw it.
    struct Ending: Sendable {
        var bytes: [UInt8]
        /// Whether the server closed with TLS's close_notify. Otherwise the connection broke.
        var isClean: Bool
    }

    let channel: any Channel
    private let ending: EventLoopFuture<Ending>
    private let isUp: EventLoopFuture<Void>

    /// - Parameter stopsReading: Whether the client stops reading as soon as TLS is up, which a later call could not
    ///   ensure.
    static func connect(
        to address: SandboxAddress, _ credentials: SandboxCredentials, _ identity: ClientIdentity,
        stopsReading: Bool = false
    ) async throws -> TestTLSClient {
        let context = try identity.context(credentials)
        let group = MultiThreadedEventLoopGroup.singleton
        let loop = group.next()
        let ending = loop.makePromise(of: Ending.self)
        let handshake = loop.makePromise(of: Void.self)
        let connecting = ClientBootstrap(group: loop)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    try pipeline.addHandler(NIOSSLClientHandler(context: context, serverHostname: "localhost"))
                    try pipeline.addHandler(Collector(ending, handshake, stopsReading: stopsReading))
                }
            }
            .connect(host: address.host, port: address.port)
        connecting.whenFailure { error in
            ending.fail(error)
            handshake.fail(error)
        }
        let channel = try await connecting.get()
        return TestTLSClient(
            channel: channel, ending: ending.futureResult, isUp: handshake.futureResult)
    }

    func send(_ notifications: BinaryNotification...) async throws {
        var buffer = ByteBuffer()
        for notification in notifications { notification.write(to: &buffer) }
        try await channel.writeAndFlush(buffer)
    }

    func send(bytes: [UInt8]) async throws {
        try await channel.writeAndFlush(ByteBuffer(bytes: bytes))
    }

    /// Waits until TLS is up.
    func handshake() async throws {
        try await isUp.get()
    }

    /// Waits until TLS is up, then stops reading.
    func stopReading() async throws {
        try await handshake()
        try await channel.setOption(.autoRead, value: false).get()
    }

    /// Waits until the server has closed, and returns the bytes that it sent.
    func end() async throws -> Ending {
        let ending = try await self.ending.get()
        channel.close(promise: nil)
        return ending
    }

    /// Closes the sending direction. The server closes once it has processed everything.
    func finish() async throws -> Ending {
        channel.close(mode: .output, promise: nil)
        return try await end()
    }

    /// Closes with unread data, so that the server gets a reset.
    func abort() async throws {
        if let socket = channel as? any SocketOptionProvider {
            try await socket.setSoLinger(.init(l_onoff: 1, l_linger: 0)).get()
        }
        try await channel.pipeline.context(handlerType: NIOSSLClientHandler.self).flatMap { context in
            context.close()
        }.get()
    }

    private final class Collector: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let ending: EventLoopPromise<Ending>
        private let handshake: EventLoopPromise<Void>
        private let stopsReading: Bool
        private var bytes: [UInt8] = []
        private var isClean = true
        private var timeout: Scheduled<Void>?

        init(_ ending: EventLoopPromise<Ending>, _ handshake: EventLoopPromise<Void>, stopsReading: Bool) {
            self.stopsReading = stopsReading
            self.ending = ending
            self.handshake = handshake
        }

        func handlerAdded(context: ChannelHandlerContext) {
            timeout = context.eventLoop.assumeIsolated().scheduleTask(in: .seconds(TestLimit.seconds)) {
                self.ending.fail(ServerNeverClosed())
                context.close(promise: nil)
            }
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            bytes += unwrapInboundIn(data).readableBytesView
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            guard case .handshakeCompleted = event as? TLSUserEvent else { return }
            if stopsReading { try? context.channel.syncOptions?.setOption(.autoRead, value: false) }
            handshake.succeed()
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            isClean = false
        }

        func channelInactive(context: ChannelHandlerContext) {
            timeout?.cancel()
            handshake.fail(ServerNeverClosed())
            ending.succeed(Ending(bytes: bytes, isClean: isClean))
        }
    }

    struct ServerNeverClosed: Error {}
}

extension BinaryNotification {
    /// Returns a valid notification whose token has 32 equal bytes.
    static func good(
        _ identifier: UInt32, token: UInt8 = 0xAB, command: BinaryCommand = .framed, payload: String = #"{"aps":{}}"#
    ) -> BinaryNotification {
        BinaryNotification(
            command: command, token: [UInt8](repeating: token, count: 32), payload: ByteBuffer(string: payload),
            identifier: command == .simple ? nil : identifier)
    }
}
