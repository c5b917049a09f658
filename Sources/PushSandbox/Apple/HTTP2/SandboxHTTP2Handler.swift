import Logging
import NIOCore
import NIOHPACK
import NIOHTTP2
import PushWire

/// Simulates the HTTP/2 provider API on one connection. It collects requests, gets decisions from the shared state, and
/// writes the responses.
///
/// All streams share this one handler, because a channel for each would cost several times as much as everything else.
/// It writes responses while it reads requests, and flushes them once per read.
final class SandboxHTTP2Handler: ChannelDuplexHandler {
    typealias InboundIn = HTTP2Frame
    typealias OutboundIn = HTTP2Frame
    typealias OutboundOut = HTTP2Frame

    /// The size in bytes of the receive window that all streams share.
    static let window = 4 << 20
    private static let standardWindow = 65_535

    private enum Phase {
        case open
        /// A fault has paused reading and writing. Frames that had been read already are held.
        case paused
        /// GOAWAY was sent. The connection closes when the remaining streams have their responses.
        case draining
        case ended
    }

    private struct Stream {
        /// The request as far as it has arrived. `nil` once the stream was decided or refused.
        var request: SandboxRequest?
        /// Whether a fault has dropped the notification. The stream never gets a response.
        var isSilent = false
    }

    private let writes: WriteBuffer
    private let idleTimeout: TimeAmount?
    private let linger: TimeAmount
    private let state: SharedState
    private let logger: Logger
    private var connection: SandboxConnection
    private var limit: StreamLimit
    private var phase = Phase.open
    /// The phase to return to when a pause ends.
    private var phaseAfterPause = Phase.open
    private var streams: [HTTP2StreamID: Stream] = [:]
    private var silentStreams = 0
    private var maxStreams = 0
    private var highestStream: HTTP2StreamID = 0
    /// The last stream that GOAWAY promised to process. `nil` before the first GOAWAY.
    private var lastStream: HTTP2StreamID?
    private var isLingerOver = false
    /// Frames that were read together with the one that paused the connection. Nothing is read from the socket during
    /// the pause.
    private var heldFrames: [HTTP2Frame] = []
    private var windowToOpen = 0
    private var isReadHeldBack = false
    private var hasWarned = false
    private var lastRead = NIODeadline.uptimeNanoseconds(0)
    private var idleTimer: Scheduled<Void>?
    /// Whether the pause ends after some time.
    private var pauseEnds = false

    init(
        connection: SandboxConnection, limit: StreamLimit, writes: WriteBuffer, configuration: SandboxConfiguration,
        state: SharedState, logger: Logger
    ) {
        self.connection = connection
        self.limit = limit
        self.writes = writes
        idleTimeout = configuration.http2IdleTimeout.map { TimeAmount($0) }
        linger = TimeAmount(configuration.linger)
        self.state = state
        self.logger = logger
    }

    // MARK: Events

    func handlerAdded(context: ChannelHandlerContext) {
        write(.windowUpdate(windowSizeIncrement: Self.window - Self.standardWindow), on: .rootStream, context)
        context.flush()
        lastRead = context.eventLoop.now
        watchIdleness(context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        switch phase {
        case .open, .draining: receive(frame, context)
        case .paused: heldFrames.append(frame)
        case .ended: break
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        lastRead = context.eventLoop.now
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
            if phase == .paused, pauseEnds { break }
            // After our own close_notify, the end of the client's data is the last event. NIOSSL would keep waiting for
            // its close_notify.
            if phase == .ended { context.closeWithoutTLS() }
            end(context) { context.close(promise: nil) }
        default: break
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if error is any NIOHTTP2Error {
            logger.debug("HTTP/2 protocol error by the client", metadata: ["error": "\(error)"])
            // After a connection error, the library has sent GOAWAY. A stream error ends only that stream.
            guard writes.isEndedByLibrary else { return }
            end(context) { context.close(promise: nil) }
            return
        }
        logger.debug("HTTP/2 connection failed", metadata: ["error": "\(error)"])
        end(context) { context.closeWithoutTLS() }
    }

    func channelInactive(context: ChannelHandlerContext) {
        phase = .ended
        streams = [:]
        heldFrames = []
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
        resumeReading(context)
        context.fireChannelWritabilityChanged()
    }

    private func resumeReading(_ context: ChannelHandlerContext) {
        guard isReadHeldBack, phase != .paused, context.channel.isWritable else { return }
        isReadHeldBack = false
        context.read()
    }

    // MARK: Requests

    private func receive(_ frame: HTTP2Frame, _ context: ChannelHandlerContext) {
        let stream = frame.streamID
        switch frame.payload {
        case .headers(let headers):
            if streams[stream] == nil { open(stream, headers.headers, context) }
            if headers.endStream { complete(stream, context) }
        case .data(let data):
            if case .byteBuffer(let piece) = data.data { streams[stream]?.request?.append(piece) }
            if data.endStream {
                complete(stream, context)
            } else if let size = streams[stream]?.request?.bodySize, size > SandboxRequest.discardLimit {
                complete(stream, context)
                // The response comes before the end of the request, so the client need not send the rest (RFC 9113
                // §8.1).
                context.flush()
                if streams[stream]?.isSilent == false { write(.rstStream(.noError), on: stream, context) }
            }
        case .settings(.ack):
            announce(limit.acknowledge(), context)
        default: break
        }
    }

    private func open(_ stream: HTTP2StreamID, _ headers: HPACKHeaders, _ context: ChannelHandlerContext) {
        if let lastStream, stream > lastStream { return }
        highestStream = max(highestStream, stream)
        guard streams.count < limit.enforced else {
            streams[stream] = Stream()
            state.withLock { $0.streamRefused() }
            write(.rstStream(.refusedStream), on: stream, context)
            return
        }
        streams[stream] = Stream(request: SandboxRequest(headers))
        maxStreams = max(maxStreams, streams.count)
    }

    private func forget(_ stream: HTTP2StreamID) {
        if streams.removeValue(forKey: stream)?.isSilent == true { silentStreams -= 1 }
    }

    private func complete(_ stream: HTTP2StreamID, _ context: ChannelHandlerContext) {
        guard let request = streams[stream]?.request else { return }
        streams[stream]?.request = nil
        decide(request, on: stream, context)
    }

    private func decide(
        _ request: SandboxRequest, on stream: HTTP2StreamID, faults: Bool = true, _ context: ChannelHandlerContext
    ) {
        let decision = state.decide(logger) { state, now in
            state.decide(
                request, stream: Int(stream), maxStreams: maxStreams, on: &connection, at: now, faults: faults)
        }
        warn(decision)
        announce(limit.decided(isAuthenticated: decision.isAuthenticated, outcome: decision.outcome), context)
        perform(decision, request, on: stream, context)
    }

    private func perform(
        _ decision: SandboxDecision, _ request: SandboxRequest, on stream: HTTP2StreamID,
        _ context: ChannelHandlerContext
    ) {
        switch decision.effect {
        case nil:
            if decision.response == nil, streams[stream] != nil {
                streams[stream]?.isSilent = true
                silentStreams += 1
            }
            respond(decision, on: stream, context)
        case .late(let milliseconds):
            after(milliseconds, context) { [self] in respond(decision, on: stream, context) }
        case .postpone(let milliseconds):
            after(milliseconds, context) { [self] in
                if streams[stream] != nil { decide(request, on: stream, faults: false, context) }
            }
        case .pause(let milliseconds):
            pause(milliseconds: milliseconds, context)
            respond(decision, on: stream, context)
        case .limitStreams(let count, let milliseconds):
            announce(limit.set(byFault: count), context)
            respond(decision, on: stream, context)
            if let milliseconds {
                after(milliseconds, context) { [self] in announce(limit.set(byFault: nil), context) }
            }
        case .resetStream(let code):
            write(.rstStream(HTTP2ErrorCode(networkCode: code)), on: stream, context)
        case .goAway(let reason, let last, let code):
            let before = max(0, Int(stream) - 2)
            goAway(reason: reason, last: HTTP2StreamID(last ?? before), code: code, context)
            respond(decision, on: stream, context)
        case .close:
            end(context) { context.close(promise: nil) }
        case .reset:
            end(context) { context.resetConnection() }
        }
    }

    // MARK: Responses

    private func write(
        _ payload: HTTP2Frame.FramePayload, on stream: HTTP2StreamID, _ context: ChannelHandlerContext
    ) {
        context.write(wrapOutboundOut(HTTP2Frame(streamID: stream, payload: payload)), promise: nil)
    }

    private func respond(_ decision: SandboxDecision, on stream: HTTP2StreamID, _ context: ChannelHandlerContext) {
        // The client may have reset the stream since.
        guard let response = decision.response, streams[stream] != nil else { return }
        var headers = HPACKHeaders()
        headers.reserveCapacity(4)
        headers.add(name: ":status", value: String(response.status))
        headers.add(name: response.idHeader, value: response.id, indexing: .nonIndexable)
        if let channel = response.channel {
            headers.add(name: ProviderHeader.channelID, value: channel, indexing: .nonIndexable)
        }
        if response.hasUniqueID {
            headers.add(name: ProviderHeader.uniqueID, value: connection.newID(), indexing: .nonIndexable)
        }
        if response.body != nil { headers.add(name: "content-type", value: "application/json") }
        write(.headers(.init(headers: headers, endStream: response.body == nil)), on: stream, context)
        if let body = response.body {
            write(.data(.init(data: .byteBuffer(ByteBuffer(string: body)), endStream: true)), on: stream, context)
        }
    }

    private func announce(_ streams: Int?, _ context: ChannelHandlerContext) {
        guard let streams else { return }
        let setting = HTTP2Setting(parameter: .maxConcurrentStreams, value: streams | WriteBuffer.headroom)
        write(.settings(.settings([setting])), on: .rootStream, context)
    }

    private func goAway(reason: String?, last: HTTP2StreamID, code: Int, _ context: ChannelHandlerContext) {
        // A later GOAWAY cannot promise more streams than an earlier one.
        let last = min(last, lastStream ?? last)
        lastStream = last
        writes.writeGoAway(
            lastStream: Int(last), code: code, text: reason.map { ProviderRefusal.body(reason: $0) } ?? "")
        // Streams above `last` get neither a decision nor a response.
        for stream in streams.keys where stream > last { forget(stream) }
        guard phase == .open else { return }
        phase = .draining
        context.eventLoop.assumeIsolated().scheduleTask(in: linger) { [self] in
            isLingerOver = true
            closeIfDrained(context)
        }
    }

    private func flush(_ context: ChannelHandlerContext) {
        context.flush()
        writes.flush()
    }

    /// Flushes all writes, opens the window for received data, and closes the connection if it is drained.
    private func finishWriting(_ context: ChannelHandlerContext) {
        if windowToOpen > 0, phase != .paused {
            let increment = windowToOpen
            windowToOpen = 0
            write(.windowUpdate(windowSizeIncrement: increment), on: .rootStream, context)
        }
        flush(context)
        closeIfDrained(context)
    }

    // MARK: Pauses and the end

    /// Closes the connection after GOAWAY, when no stream is left for which the client may expect a response.
    ///
    /// Within the linger time, a promised stream may still arrive, and the client may reset a silent stream. After it,
    /// the connection waits only for delayed responses.
    private func closeIfDrained(_ context: ChannelHandlerContext) {
        guard phase == .draining, streams.count == silentStreams else { return }
        if isLingerOver || silentStreams == 0 && highestStream >= lastStream ?? 0 {
            end(context) { context.close(promise: nil) }
        }
    }

    /// Ends the connection. Earlier writes are flushed first.
    private func end(_ context: ChannelHandlerContext, _ close: () -> Void) {
        guard phase != .ended else { return }
        phase = .ended
        flush(context)
        heldFrames = []
        close()
    }

    private func stop(_ context: ChannelHandlerContext) {
        guard phase == .open || phase == .draining else { return }
        connection.isStopping = true
        goAway(reason: ProviderReason.shutdown.rawValue, last: highestStream, code: 0, context)
        for stream in streams.keys.sorted() { complete(stream, context) }
        // The listener closes the connection next.
        end(context) {}
    }

    private func pause(milliseconds: Int?, _ context: ChannelHandlerContext) {
        if phase != .paused { phaseAfterPause = phase }
        phase = .paused
        writes.pause()
        guard let milliseconds else { return }
        pauseEnds = true
        after(milliseconds, context) { [self] in
            guard phase == .paused else { return }
            pauseEnds = false
            phase = phaseAfterPause
            let frames = heldFrames
            heldFrames = []
            for (index, frame) in frames.enumerated() {
                receive(frame, context)
                if phase == .paused {
                    heldFrames = Array(frames[(index + 1)...])
                    break
                }
                if phase == .ended { break }
            }
            if phase == .open || phase == .draining { writes.resume() }
            resumeReading(context)
            closeIfDrained(context)
        }
    }

    private func watchIdleness(_ context: ChannelHandlerContext) {
        guard let idleTimeout else { return }
        idleTimer = context.eventLoop.assumeIsolated().scheduleTask(deadline: lastRead + idleTimeout) { [self] in
            guard phase == .open else { return }
            if context.eventLoop.now < lastRead + idleTimeout { return watchIdleness(context) }
            goAway(reason: ProviderReason.idleTimeout.rawValue, last: highestStream, code: 0, context)
            end(context) { context.close(promise: nil) }
        }
    }

    /// Runs `body` after this time, and flushes its writes. Does nothing if the connection has ended.
    private func after(_ milliseconds: Int, _ context: ChannelHandlerContext, _ body: @escaping () -> Void) {
        context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(Int64(milliseconds))) { [self] in
            guard phase != .ended else { return }
            body()
            if phase != .ended { finishWriting(context) }
        }
    }

    // MARK: Log

    private func warn(_ decision: SandboxDecision) {
        let deviations = connection.authentication.takeDeviations()
        if !deviations.isEmpty {
            logger.warning(
                "provider token deviates from the standard's form; --strict would reject it",
                metadata: ["deviations": "\(deviations.map(\.rawValue).joined(separator: "; "))"])
        }
        for warning in decision.warnings {
            logger.warning(
                "Live Activity push has a mistake that Apple does not report", metadata: ["why": "\(warning)"])
        }
        guard let token = decision.rejectedToken, !hasWarned else { return }
        hasWarned = true
        logger.warning("provider token rejected", metadata: ["reason": "\(token.reason)", "why": "\(token.details)"])
    }
}
