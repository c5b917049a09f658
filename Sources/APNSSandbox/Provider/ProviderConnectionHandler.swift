import Logging
import NIOCore
import NIOHTTP2

/// Plays the HTTP/2 provider API on one connection: gathers requests, asks the world, and writes the answers.
///
/// All streams share this one handler: a channel for each would cost several times the rest. Answers are written as the
/// requests are read, and flushed once for all that was read together.
final class ProviderConnectionHandler: ChannelDuplexHandler {
    typealias InboundIn = HTTP2Frame
    typealias OutboundIn = HTTP2Frame
    typealias OutboundOut = HTTP2Frame

    /// Bytes that a client may send ahead on all streams together.
    static let window = 4 << 20
    static let standardWindow = 65_535

    enum Phase {
        case open
        /// A fault plays dead: nothing is read or written, frames that had been read already wait.
        case paused
        /// GOAWAY was sent; the connection closes when the streams that are left have their answers.
        case draining
        case ended
    }

    /// An open stream.
    struct Stream {
        /// What has come of the request; nil once it was judged.
        var request: ProviderRequest?
        /// A fault has swallowed it: it will never be answered.
        var isSilent = false
    }

    var connection: ProviderConnection
    var limit: StreamLimit
    let valve: WireValve
    let world: SandboxWorld
    let logger: Logger
    var phase = Phase.open
    var streams: [HTTP2StreamID: Stream] = [:]
    var silentStreams = 0
    var mostStreams = 0
    var highestStream: HTTP2StreamID = 0
    var lastStream: HTTP2StreamID?
    var isLingerOver = false
    /// Frames that were read together with the one that paused the connection; nothing is read from the socket meanwhile.
    var held: [HTTP2Frame] = []
    var windowToOpen = 0
    var isReadHeldBack = false
    var hasWarned = false
    var lastRead = NIODeadline.now()
    var idleTimer: Scheduled<Void>?
    /// A pause has an end of its own.
    var resumes = false

    init(
        connection: ProviderConnection, limit: StreamLimit, valve: WireValve, world: SandboxWorld, logger: Logger
    ) {
        self.connection = connection
        self.limit = limit
        self.valve = valve
        self.world = world
        self.logger = logger
    }

    // MARK: Events

    func handlerAdded(context: ChannelHandlerContext) {
        write(.windowUpdate(windowSizeIncrement: Self.window - Self.standardWindow), on: .rootStream, context)
        context.flush()
        if let timeout = connection.policy.idleTimeout { watchIdleness(TimeAmount(timeout), context) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        switch phase {
        case .open, .draining: receive(frame, context)
        case .paused: held.append(frame)
        case .ended: break
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        lastRead = .now()
        finishWriting(context)
        context.fireChannelReadComplete()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case let event as NIOHTTP2WindowUpdatedEvent:
            if event.streamID == .rootStream, let size = event.inboundWindowSize, size <= Self.window / 2 {
                windowToOpen = Self.window - size
            }
        case let event as StreamClosedEvent:
            forget(event.streamID)
        case is SandboxStopping:
            stop(context)
        case ChannelEvent.inputClosed:
            if phase == .paused, resumes { break }
            // After our own farewell the client's is the last; NIOSSL would go on waiting for it.
            if phase == .ended { context.closeWithoutTLS() }
            end(context) { context.close(promise: nil) }
        default: break
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if error is any NIOHTTP2Error {
            logger.debug("HTTP/2 client in error", metadata: ["error": "\(error)"])
            // After an error of the connection the library has sent a GOAWAY; an error of one stream has ended only that.
            guard valve.isEndedByLibrary else { return }
            end(context) { context.close(promise: nil) }
            return
        }
        logger.debug("HTTP/2 connection failed", metadata: ["error": "\(error)"])
        end(context) { context.closeWithoutTLS() }
    }

    func channelInactive(context: ChannelHandlerContext) {
        phase = .ended
        streams = [:]
        held = []
        idleTimer?.cancel()
        idleTimer = nil
        logger.debug("HTTP/2 connection closed")
        context.fireChannelInactive()
    }

    func read(context: ChannelHandlerContext) {
        if phase == .paused || !context.channel.isWritable {
            isReadHeldBack = true
        } else {
            context.read()
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        readOn(context)
        context.fireChannelWritabilityChanged()
    }

    func readOn(_ context: ChannelHandlerContext) {
        guard isReadHeldBack, phase != .paused, context.channel.isWritable else { return }
        isReadHeldBack = false
        context.read()
    }
}
