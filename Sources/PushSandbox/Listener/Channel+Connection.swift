import NIOCore
import NIOHTTP2
import NIOSSL

extension Channel {
    /// Waits until the client closes the connection or the stream, or the sandbox stops.
    func untilClosed() async {
        let (open, closed) = AsyncStream<Never>.makeStream()
        closeFuture.whenComplete { _ in closed.finish() }
        for await _ in open {}
    }

    /// Ends the connection to which this channel belongs: the channel itself, or a stream's parent.
    func endConnection(_ end: Disconnection) async throws {
        // A connection's parent is the listener.
        guard let stream = parent?.parent == nil ? nil : self, let connection = stream.parent else {
            return try await close(with: end)
        }
        guard end == .goAway else { return try await connection.close(with: end) }
        let id = Int(try await stream.getOption(HTTP2StreamChannelOptions.streamID).get())
        let frame = HTTP2Frame(
            streamID: .rootStream,
            payload: .goAway(lastStreamID: HTTP2StreamID(max(0, id - 2)), errorCode: .noError, opaqueData: nil))
        connection.writeAndFlush(frame, promise: nil)
        connection.eventLoop.scheduleTask(in: .seconds(2)) { connection.close(promise: nil) }
    }

    private func close(with end: Disconnection) async throws {
        guard end == .reset else { return try await close().get() }
        try await eventLoop.submit {
            try self.pipeline.syncOperations.context(handlerType: NIOSSLServerHandler.self).resetConnection()
        }.get()
    }
}
