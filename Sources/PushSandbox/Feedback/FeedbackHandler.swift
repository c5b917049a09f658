import APNSWire
import Logging
import NIOCore
import NIOSSL

/// Plays the feedback service on one connection: writes the topic's list as soon as TLS is up, then closes.
///
/// The list counts as read only when the client closed its side after all of it was written (apns-feedback.md §3).
/// A reset, a client that closed before, or one that never closes leaves it as it was, for the next reader.
final class FeedbackHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Bytes that are written before the next wait for the socket.
    static let pieceSize = 64 << 10
    /// How long the client may take for one piece, and after the last for closing.
    static let timeout = TimeAmount.seconds(10)

    private let state: SharedState
    private let logger: Logger
    private var reading: FeedbackList.Reading?
    private var written = 0
    private var isWhole = false
    private var timer: Scheduled<Void>?

    init(state: SharedState, logger: Logger) {
        self.state = state
        self.logger = logger
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case let client as ClientIdentified:
            reading = state.withLock { $0.readFeedback(topic: client.topic) }
            logger.debug(
                "Feedback connection opened",
                metadata: [
                    "topic": "\(client.topic ?? "none")", "tuples": "\(reading?.tuples.count ?? 0)",
                ])
            writePiece(context: context)
        case ChannelEvent.inputClosed:
            if isWhole {
                finish()
                context.closeWithoutTLS()
            } else {
                // The client closes before it has all, and will not confirm it.
                reading = nil
                context.close(promise: nil)
            }
        default:
            break
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // What the client sends is discarded.
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // Without TLS's close_notify the client has closed all the same.
        if case .uncleanShutdown = error as? NIOSSLError { return }
        logger.debug("Feedback connection failed", metadata: ["error": "\(error)"])
        reading = nil
        context.closeWithoutTLS()
    }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        // A client that closes after us, and without TLS's close_notify, shows only here: with both directions shut there is
        // no event of its own for its end. A reset was an error before, and has cleared the reading.
        if isWhole { finish() }
        context.fireChannelInactive()
    }

    /// Writes the next piece and, when the socket has accepted it, the next.
    private func writePiece(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: Self.timeout) {
            self.logger.info("Feedback reader too slow; its list is kept")
            self.reading = nil
            context.closeWithoutTLS()
        }
        guard let tuples = reading?.tuples, written < tuples.count else {
            isWhole = true
            context.close(mode: .output, promise: nil)
            return
        }
        var piece = context.channel.allocator.buffer(capacity: Self.pieceSize + 128)
        let start = written
        while written < tuples.count, piece.readableBytes < Self.pieceSize {
            tuples[written].write(to: &piece)
            written += 1
        }
        let count = written - start
        state.withLock { $0.feedbackSent(tuples: count) }
        context.writeAndFlush(wrapOutboundOut(piece)).assumeIsolated().whenSuccess {
            self.writePiece(context: context)
        }
    }

    /// The client has the whole list.
    private func finish() {
        guard let reading else { return }
        self.reading = nil
        state.withLock { $0.clearFeedback(reading) }
        if !reading.tuples.isEmpty {
            logger.info("Feedback read", metadata: ["tuples": "\(reading.tuples.count)"])
        }
    }
}
