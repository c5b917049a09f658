import Logging
import NIOCore
import NIOSSL
import PushWire

/// Simulates the feedback service on one connection: writes the topic's list as soon as TLS is up, then closes.
///
/// Apple only says that the list is cleared after it is read ("Binary Provider API", "The Feedback Service"), not when.
/// The sandbox clears it when all of it is written and the client has then closed its side. If the client closes
/// earlier, resets or never closes, the list stays for the next reader.
final class FeedbackHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The number of bytes to write before the handler waits for the socket.
    static let pieceSize = 64 << 10
    /// The time limit for one piece, and after the last piece for the client's close.
    static let timeout = TimeAmount.seconds(10)

    private let state: SharedState
    private let logger: Logger
    private var reading: FeedbackList.Reading?
    private var written = 0
    private var isComplete = false
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
            if isComplete {
                finish()
                context.closeWithoutTLS()
            } else {
                // The client closes before it has the whole list, so it will not confirm the list.
                reading = nil
                context.close(promise: nil)
            }
        default:
            break
        }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // Discard data from the client.
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A client that ends without TLS's close_notify has closed nevertheless.
        if case .uncleanShutdown = error as? NIOSSLError { return }
        logger.debug("Feedback connection failed", metadata: ["error": "\(error)"])
        reading = nil
        context.closeWithoutTLS()
    }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        // If the client closes after us and without TLS's close_notify, only this event shows it: once both directions
        // are shut, no other event reports the client's end. A reset was reported as an error before, and has cleared
        // `reading`.
        if isComplete { finish() }
        context.fireChannelInactive()
    }

    /// Writes the next piece, and continues when the socket has accepted it.
    private func writePiece(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: Self.timeout) {
            self.logger.info("Feedback reader too slow; its list is kept")
            self.reading = nil
            context.closeWithoutTLS()
        }
        guard let tuples = reading?.tuples, written < tuples.count else {
            isComplete = true
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

    /// Clears the list, because the client has received all of it.
    private func finish() {
        guard let reading else { return }
        self.reading = nil
        state.withLock { $0.clearFeedback(reading) }
        if !reading.tuples.isEmpty {
            logger.info("Feedback read", metadata: ["tuples": "\(reading.tuples.count)"])
        }
    }
}
