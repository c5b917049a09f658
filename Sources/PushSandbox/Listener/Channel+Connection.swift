import NIOCore

extension Channel {
    /// Waits until the client closes the connection or the stream, or the sandbox stops.
    func untilClosed() async {
        let (open, closed) = AsyncStream<Never>.makeStream()
        closeFuture.whenComplete { _ in closed.finish() }
        for await _ in open {}
    }

    /// Closes the connection to which this channel belongs: the channel itself, or a stream's parent.
    func closeConnection() async throws {
        // A connection's parent is the listener.
        try await (parent?.parent == nil ? self : parent)?.close().get()
    }
}
