package import ChatDomain
package import GatewayPool
import NIOCore
import PushWire

/// The feedback service of the legacy protocol, which is read over a separate connection. Source: Apple, "Binary
/// Provider API", section "The Feedback Service".
package struct BinaryFeedbackSource: FeedbackSource {
    /// The maximum number of tuples that are stored together.
    private static let step = 500
    /// The time limit of a reading. A service that is slow, or whose list never ends, is read again later.
    private static let timeLimit = TimeAmount.minutes(10)

    private let endpoint: GatewayEndpoint
    var connector: any Connector = .sockets

    package init(endpoint: GatewayEndpoint) {
        self.endpoint = endpoint
    }

    package func read(_ store: @Sendable ([FeedbackReport]) async throws -> Void) async throws -> Int {
        let (channel, collector) = try await endpoint.connect(over: connector) { channel in
            let collector = FeedbackCollector(channel.eventLoop)
            try channel.pipeline.syncOperations.addHandler(collector)
            return NIOLoopBound(collector, eventLoop: channel.eventLoop)
        }
        // The end of the connection ends the list.
        let end = channel.eventLoop.scheduleTask(in: Self.timeLimit) { channel.close(promise: nil) }
        defer { end.cancel() }
        return try await withTaskCancellationHandler {
            do {
                var buffer = ByteBuffer()
                while var bytes = try await channel.eventLoop.flatSubmit({ collector.value.next() }).get() {
                    buffer.discardReadBytes()
                    buffer.writeBuffer(&bytes)
                    while let reports = Self.reports(&buffer) {
                        try await store(reports)
                    }
                }
                try? await channel.close()
                return buffer.readableBytes
            } catch {
                try? await channel.close()
                throw error
            }
        } onCancel: {
            channel.close(promise: nil)
        }
    }

    /// Removes complete tuples from the buffer and returns their reports. `nil` if there is none. Skips tokens that no
    /// device can have.
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

/// Buffers the bytes of the service until they are taken. Above a limit, it stops reading from the socket.
private final class FeedbackCollector: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer

    /// The number of buffered bytes at which reading pauses. The sender then waits until the store has caught up.
    private static let limit = 256 << 10
    /// The duration of silence that ends the list while the reader waits. Some servers do not close the connection at
    /// the end.
    private static let silence = TimeAmount.seconds(5)

    private var held = ByteBuffer()
    private var waiting: EventLoopPromise<ByteBuffer?>?
    private var timeout: Scheduled<Void>?
    private var isOver = false
    private var isReadPending = false
    private let eventLoop: any EventLoop
    private var context: ChannelHandlerContext?

    init(_ eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        end()
    }

    /// Returns the bytes that arrived since the last call. `nil` after the end. Must be called on the event loop.
    func next() -> EventLoopFuture<ByteBuffer?> {
        guard let context, !isOver || held.readableBytes > 0 else {
            return eventLoop.makeSucceededFuture(take())
        }
        let promise = context.eventLoop.makePromise(of: ByteBuffer?.self)
        if held.readableBytes > 0 {
            promise.succeed(take())
        } else {
            waiting = promise
            timeout = context.eventLoop.assumeIsolated().scheduleTask(in: Self.silence) { self.end() }
        }
        if isReadPending {
            isReadPending = false
            context.read()
        }
        return promise.futureResult
    }

    private func take() -> ByteBuffer? {
        guard held.readableBytes > 0 else { return nil }
        defer { held = ByteBuffer() }
        return held
    }

    private func resumeReader() {
        guard let promise = waiting else { return }
        waiting = nil
        timeout?.cancel()
        promise.succeed(take())
    }

    private func end() {
        isOver = true
        resumeReader()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        held.writeBuffer(&bytes)
        resumeReader()
    }

    func read(context: ChannelHandlerContext) {
        if held.readableBytes < Self.limit {
            context.read()
        } else {
            isReadPending = true
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // The peer broke the connection instead of closing it. The complete tuples are used, and the list ends here.
        context.close(promise: nil)
    }
}
