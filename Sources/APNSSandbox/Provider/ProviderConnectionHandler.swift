import APNSWire
import Foundation
import Logging
import NIOCore
import NIOHPACK
import NIOHTTP2
import NIOSSL

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
    private static let standardWindow = 65_535

    private enum Phase {
        case open
        /// A fault plays dead: nothing is read or written, frames that had been read already wait.
        case paused
        /// GOAWAY was sent; the connection closes when the streams that are left have their answers.
        case draining
        case ended
    }

    /// An open stream.
    private struct Stream {
        /// What has come of the request; nil once it was judged.
        var request: ProviderRequest?
        /// A fault has swallowed it: it will never be answered.
        var isSilent = false
    }

    private var connection: ProviderConnection
    private var limit: StreamLimit
    private let valve: WireValve
    private let world: SandboxWorld
    private let logger: Logger
    private var phase = Phase.open
    private var streams: [HTTP2StreamID: Stream] = [:]
    private var silentStreams = 0
    private var mostStreams = 0
    private var highestStream: HTTP2StreamID = 0
    private var lastStream: HTTP2StreamID?
    /// Frames that were read together with the one that paused the connection; nothing is read from the socket meanwhile.
    private var held: [HTTP2Frame] = []
    private var windowToOpen = 0
    private var isReadHeldBack = false
    private var hasWarned = false
    private var lastRead = NIODeadline.now()
    private var idleTimer: Scheduled<Void>?
    /// A pause has an end of its own.
    private var resumes = false

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

    private func readOn(_ context: ChannelHandlerContext) {
        guard isReadHeldBack, phase != .paused, context.channel.isWritable else { return }
        isReadHeldBack = false
        context.read()
    }

    // MARK: Requests

    private func receive(_ frame: HTTP2Frame, _ context: ChannelHandlerContext) {
        switch frame.payload {
        case .headers(let headers):
            if streams[frame.streamID] == nil { open(frame.streamID, headers.headers, context) }
            if headers.endStream { complete(frame.streamID, context) }
        case .data(let data):
            if case .byteBuffer(let piece) = data.data { streams[frame.streamID]?.request?.append(piece) }
            if data.endStream {
                complete(frame.streamID, context)
            } else if let size = streams[frame.streamID]?.request?.bodySize, size > ProviderPolicy.discardLimit {
                complete(frame.streamID, context)
                // Answered before its end: the client need not send the rest (RFC 9113 §8.1).
                context.flush()
                if streams[frame.streamID]?.isSilent == false { write(.rstStream(.noError), on: frame.streamID, context) }
            }
        case .settings(.ack):
            announce(limit.acknowledge(), context)
        default: break
        }
    }

    private func forget(_ stream: HTTP2StreamID) {
        if streams.removeValue(forKey: stream)?.isSilent == true { silentStreams -= 1 }
    }

    private func open(_ stream: HTTP2StreamID, _ headers: HPACKHeaders, _ context: ChannelHandlerContext) {
        if let lastStream, stream > lastStream { return }
        highestStream = max(highestStream, stream)
        guard streams.count < limit.enforced else {
            streams[stream] = Stream()
            world.withState { $0.stats.provider.streamsOverLimit += 1 }
            write(.rstStream(.refusedStream), on: stream, context)
            return
        }
        streams[stream] = Stream(request: ProviderRequest(headers))
        mostStreams = max(mostStreams, streams.count)
    }

    private func complete(_ stream: HTTP2StreamID, _ context: ChannelHandlerContext) {
        guard let request = streams[stream]?.request else { return }
        streams[stream]?.request = nil
        judge(request, on: stream, context)
    }

    private func judge(
        _ request: ProviderRequest, on stream: HTTP2StreamID, faults: Bool = true, _ context: ChannelHandlerContext
    ) {
        let now = world.now()
        let isLogged = logger.logLevel <= .debug
        let (verdict, entry) = world.withState { state in
            let before = state.inbox.lastID
            let verdict = state.judge(request, stream: Int(stream), on: &connection, at: now, faults: faults)
            state.stats.provider.mostStreams = max(state.stats.provider.mostStreams, mostStreams)
            return (verdict, isLogged ? state.inbox.page(since: before, limit: 1).entries.first : nil)
        }
        if let entry { log(entry) }
        warn(verdict)
        announce(limit.judged(isAuthenticated: verdict.isAuthenticated, outcome: verdict.outcome), context)
        perform(verdict, request, on: stream, context)
    }

    private func perform(
        _ verdict: ProviderVerdict, _ request: ProviderRequest, on stream: HTTP2StreamID,
        _ context: ChannelHandlerContext
    ) {
        switch verdict.effect {
        case nil:
            if let answer = verdict.answer {
                self.answer(answer, on: stream, context)
            } else if streams[stream] != nil {
                streams[stream]?.isSilent = true
                silentStreams += 1
            }
        case .late(let milliseconds):
            after(milliseconds, context) { [self] in
                if let answer = verdict.answer { self.answer(answer, on: stream, context) }
            }
        case .postpone(let milliseconds):
            after(milliseconds, context) { [self] in
                if streams[stream] != nil { judge(request, on: stream, faults: false, context) }
            }
        case .pause(let milliseconds):
            pause(milliseconds: milliseconds, context)
            if let answer = verdict.answer { self.answer(answer, on: stream, context) }
        case .limitStreams(let count, let milliseconds):
            announce(limit.set(byFault: count), context)
            if let answer = verdict.answer { self.answer(answer, on: stream, context) }
            if let milliseconds {
                after(milliseconds, context) { [self] in announce(limit.set(byFault: nil), context) }
            }
        case .resetStream(let code):
            write(.rstStream(HTTP2ErrorCode(networkCode: code)), on: stream, context)
        case .goAway(let reason, let last, let code):
            goAway(reason: reason, last: last.map { HTTP2StreamID($0) } ?? before(stream), code: code, context)
            if let answer = verdict.answer { self.answer(answer, on: stream, context) }
        case .close:
            end(context) { context.close(promise: nil) }
        case .reset:
            end(context) { context.resetConnection() }
        }
    }

    private func before(_ stream: HTTP2StreamID) -> HTTP2StreamID {
        HTTP2StreamID(max(0, Int(stream) - 2))
    }

    // MARK: Writing

    private func write(_ payload: HTTP2Frame.FramePayload, on stream: HTTP2StreamID, _ context: ChannelHandlerContext) {
        context.write(wrapOutboundOut(HTTP2Frame(streamID: stream, payload: payload)), promise: nil)
    }

    private func answer(_ answer: ProviderAnswer, on stream: HTTP2StreamID, _ context: ChannelHandlerContext) {
        // The client may have given the stream up meanwhile.
        guard streams[stream] != nil else { return }
        var headers = HPACKHeaders()
        headers.reserveCapacity(4)
        headers.add(name: ":status", value: String(answer.status))
        headers.add(name: ProviderHeader.id, value: answer.id, indexing: .nonIndexable)
        let body = answer.body
        if answer.refusal == nil {
            headers.add(name: ProviderHeader.uniqueID, value: connection.newID(), indexing: .nonIndexable)
        } else if body != nil {
            headers.add(name: "content-type", value: "application/json")
        }
        write(.headers(.init(headers: headers, endStream: body == nil)), on: stream, context)
        if let body {
            write(.data(.init(data: .byteBuffer(ByteBuffer(string: body)), endStream: true)), on: stream, context)
        }
    }

    private func announce(_ streams: Int?, _ context: ChannelHandlerContext) {
        guard let streams else { return }
        let setting = HTTP2Setting(parameter: .maxConcurrentStreams, value: streams | WireValve.headroom)
        write(.settings(.settings([setting])), on: .rootStream, context)
    }

    private func goAway(reason: String?, last: HTTP2StreamID, code: Int, _ context: ChannelHandlerContext) {
        // A later GOAWAY cannot promise more than an earlier one.
        let last = min(last, lastStream ?? last)
        lastStream = last
        valve.writeGoAway(
            lastStream: Int(last), code: code, text: reason.map { #"{"reason":"\#($0)"}"# } ?? "")
        // What lies above is neither answered nor looked at any more.
        for stream in streams.keys where stream > last { forget(stream) }
        guard phase == .open else { return }
        phase = .draining
        let linger = TimeAmount(connection.policy.linger)
        context.eventLoop.assumeIsolated().scheduleTask(in: linger) { [self] in
            // Late answers may still be on their way; silent streams never are.
            if streams.count == silentStreams { end(context) { context.close(promise: nil) } }
        }
    }

    /// Flushes what was written, opens the window for what was read, and closes if that was the last.
    private func finishWriting(_ context: ChannelHandlerContext) {
        if windowToOpen > 0, phase != .paused {
            let increment = windowToOpen
            windowToOpen = 0
            write(.windowUpdate(windowSizeIncrement: increment), on: .rootStream, context)
        }
        context.flush()
        if phase == .draining, streams.count == silentStreams, silentStreams == 0 {
            end(context) { context.close(promise: nil) }
        }
    }

    // MARK: Endings and pauses

    /// Ends the connection; what was written before goes out.
    private func end(_ context: ChannelHandlerContext, _ close: () -> Void) {
        guard phase != .ended else { return }
        phase = .ended
        context.flush()
        held = []
        close()
    }

    private func stop(_ context: ChannelHandlerContext) {
        guard phase == .open || phase == .draining else { return }
        connection.isStopping = true
        goAway(reason: ProviderReason.shutdown.rawValue, last: highestStream, code: 0, context)
        for stream in streams.keys.sorted() { complete(stream, context) }
        context.flush()
    }

    private func pause(milliseconds: Int?, _ context: ChannelHandlerContext) {
        phase = .paused
        valve.shut()
        guard let milliseconds else { return }
        resumes = true
        after(milliseconds, context) { [self] in
            guard phase == .paused else { return }
            resumes = false
            phase = .open
            let frames = held
            held = []
            for (index, frame) in frames.enumerated() {
                receive(frame, context)
                guard phase == .open else {
                    if phase == .paused { held = Array(frames[(index + 1)...]) }
                    break
                }
            }
            if phase == .open, let valve = try? context.pipeline.syncOperations.context(handler: valve) {
                self.valve.open(context: valve)
            }
            readOn(context)
        }
    }

    private func watchIdleness(_ timeout: TimeAmount, _ context: ChannelHandlerContext) {
        idleTimer = context.eventLoop.assumeIsolated().scheduleTask(deadline: lastRead + timeout) { [self] in
            guard phase == .open else { return }
            if NIODeadline.now() < lastRead + timeout { return watchIdleness(timeout, context) }
            goAway(reason: ProviderReason.idleTimeout.rawValue, last: highestStream, code: 0, context)
            end(context) { context.close(promise: nil) }
        }
    }

    /// Does something later, and flushes what it wrote.
    private func after(_ milliseconds: Int, _ context: ChannelHandlerContext, _ body: @escaping () -> Void) {
        context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(Int64(milliseconds))) { [self] in
            guard phase != .ended else { return }
            body()
            if phase != .ended { finishWriting(context) }
        }
    }

    // MARK: The log

    private func warn(_ verdict: ProviderVerdict) {
        if !connection.authentication.deviations.isEmpty {
            logger.warning(
                "The provider token leaves the standard's form; the sandbox takes it, with --strict it does not",
                metadata: [
                    "deviations": "\(connection.authentication.deviations.map(\.rawValue).joined(separator: "; "))"
                ])
            connection.authentication.deviations = []
        }
        guard let why = verdict.why, !hasWarned else { return }
        hasWarned = true
        logger.warning(
            "Provider token refused",
            metadata: ["reason": "\(verdict.answer?.refusal?.reason ?? "none")", "why": "\(why)"])
    }

    private func log(_ entry: InboxEntry) {
        logger.debug(
            "Notification",
            metadata: [
                "id": "\(entry.id)", "token": "\(entry.token.hex.prefix(8))…",
                "apns-id": "\(entry.request?.apnsID ?? "none")", "answer": "\(entry.answer.name)",
            ])
    }
}
