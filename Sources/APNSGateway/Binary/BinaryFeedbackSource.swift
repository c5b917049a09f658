import APNSWire
package import ChatDomain
import NIOCore
import NIOPosix
import Synchronization

/// The feedback service of the legacy protocol, read over its own connection (apns-feedback.md).
package struct BinaryFeedbackSource: FeedbackSource {
    /// Silence that ends the list; some servers leave the connection open behind it.
    private static let silence = TimeAmount.seconds(5)
    /// Tuples that are handed over together.
    private static let step = 500

    private let endpoint: GatewayEndpoint

    package init(endpoint: GatewayEndpoint) {
        self.endpoint = endpoint
    }

    package func read(_ store: @Sendable ([FeedbackReport]) async throws -> Void) async throws -> Int {
        let made = Mutex<NIOAsyncChannel<ByteBuffer, Never>?>(nil)
        let channel = try await endpoint.connect(on: MultiThreadedEventLoopGroup.singleton) { channel in
            try channel.pipeline.syncOperations.addHandlers(
                IdleStateHandler(readTimeout: Self.silence), CloseWhenIdle())
            let stream = try NIOAsyncChannel<ByteBuffer, Never>(wrappingChannelSynchronously: channel)
            made.withLock { $0 = stream }
        }
        guard let stream = made.withLock({ $0 }) else {
            try? await channel.close()
            return 0
        }
        return try await stream.executeThenClose { inbound, _ in
            var buffer = ByteBuffer()
            do {
                for try await var bytes in inbound {
                    buffer.discardReadBytes()
                    buffer.writeBuffer(&bytes)
                    while let reports = Self.reports(&buffer) {
                        try await store(reports)
                    }
                }
            } catch let error as ChatError {
                throw error
            } catch is CancellationError {
                throw CancellationError()
            } catch {
                // The peer cut the connection instead of closing it: what came whole is stored, and the list has ended.
            }
            return buffer.readableBytes
        }
    }

    /// Some of the whole tuples that are there; nil when there is none. Tokens that no device can have are passed over.
    private static func reports(_ buffer: inout ByteBuffer) -> [FeedbackReport]? {
        var tuples: [FeedbackTuple] = []
        while tuples.count < step, let tuple = FeedbackTuple.read(from: &buffer) {
            tuples.append(tuple)
        }
        guard !tuples.isEmpty else { return nil }
        return tuples.compactMap { tuple in
            DeviceToken(bytes: tuple.token).map {
                FeedbackReport(token: $0, since: Timestamp(seconds: Int64(tuple.timestamp)))
            }
        }
    }
}

/// Ends the list when nothing more comes.
private final class CloseWhenIdle: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is IdleStateHandler.IdleStateEvent {
            context.close(promise: nil)
        } else {
            context.fireUserInboundEventTriggered(event)
        }
    }
}
