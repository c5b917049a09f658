import NIOCore
import NIOPosix

extension GatewayEndpoint {
    /// How long a connection is watched: a gateway that refuses the certificate closes just after the handshake.
    private static let watch = Duration.milliseconds(300)

    /// Connects, sends no push, and closes; for `check`. Of HTTP/2 it waits for the peer's SETTINGS.
    /// - Throws: why it cannot be reached or does not want us.
    package func probe() async throws(GatewayUnreachable) {
        do {
            if applicationProtocols.contains(Self.http2) { return try await probeHTTP2() }
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

    private func probeHTTP2() async throws {
        let (channel, settings) = try await connect(on: MultiThreadedEventLoopGroup.singleton) { channel in
            let probe = SettingsProbe(settings: channel.eventLoop.makePromise(), limit: Self.timeout)
            try channel.pipeline.syncOperations.addHandler(probe)
            return probe.settings.futureResult
        }
        do {
            try await settings.get()
        } catch {
            try? await channel.close()
            throw GatewayUnreachable("\(host):\(port): \(ConnectionFailure.text(error))")
        }
        // SETTINGS may come before a certificate was looked at.
        try? await Task.sleep(for: Self.watch)
        guard channel.isActive else {
            throw GatewayUnreachable(
                "\(host):\(port) closed just after the handshake; it may not accept the certificate")
        }
        var goodbye = FrameWriter()
        goodbye.goAway(.noError)
        if let bytes = goodbye.take() { try? await channel.writeAndFlush(bytes) }
        try? await channel.close()
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

/// Waits for the frame with which a peer that speaks HTTP/2 begins.
private final class SettingsProbe: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let settings: EventLoopPromise<Void>
    private let limit: TimeAmount
    private var session = HTTP2Session()

    init(settings: EventLoopPromise<Void>, limit: TimeAmount) {
        self.settings = settings
        self.limit = limit
    }

    func channelActive(context: ChannelHandlerContext) {
        let deadline = context.eventLoop.assumeIsolated().scheduleTask(in: limit) { [settings] in
            settings.fail(GatewayUnreachable("no HTTP/2 SETTINGS in time"))
        }
        settings.futureResult.whenComplete { _ in deadline.cancel() }
        flush(context)
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        session.feed(unwrapInboundIn(data), now: context.eventLoop.now)
        do {
            while let event = try session.next() {
                if case .settings = event { settings.succeed() }
            }
            flush(context)
        } catch {
            settings.fail(GatewayUnreachable("it does not keep to the rules of HTTP/2: \(error)"))
            session.goAway(error.code)
            flush(context)
            context.close(promise: nil)
        }
    }

    private func flush(_ context: ChannelHandlerContext) {
        guard let bytes = session.takeOutput() else { return }
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        session.noteSent(bytes, isTaken: context.channel.isWritable)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        settings.fail(error)
        context.close(promise: nil)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        settings.fail(GatewayUnreachable("it closed just after the handshake; it may not accept the certificate"))
    }
}
