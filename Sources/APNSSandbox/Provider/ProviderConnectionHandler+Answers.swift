import APNSWire
import Logging
import NIOCore
import NIOHPACK
import NIOHTTP2

/// What is written, when, and how a connection ends.
extension ProviderConnectionHandler {
    func write(_ payload: HTTP2Frame.FramePayload, on stream: HTTP2StreamID, _ context: ChannelHandlerContext) {
        context.write(wrapOutboundOut(HTTP2Frame(streamID: stream, payload: payload)), promise: nil)
    }

    func answer(_ answer: ProviderAnswer, on stream: HTTP2StreamID, _ context: ChannelHandlerContext) {
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

    func announce(_ streams: Int?, _ context: ChannelHandlerContext) {
        guard let streams else { return }
        let setting = HTTP2Setting(parameter: .maxConcurrentStreams, value: streams | WireValve.headroom)
        write(.settings(.settings([setting])), on: .rootStream, context)
    }

    func goAway(reason: String?, last: HTTP2StreamID, code: Int, _ context: ChannelHandlerContext) {
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
            isLingerOver = true
            closeIfDrained(context)
        }
    }

    func flush(_ context: ChannelHandlerContext) {
        context.flush()
        valve.flush()
    }

    /// Flushes what was written, opens the window for what was read, and closes if that was the last.
    func finishWriting(_ context: ChannelHandlerContext) {
        if windowToOpen > 0, phase != .paused {
            let increment = windowToOpen
            windowToOpen = 0
            write(.windowUpdate(windowSizeIncrement: increment), on: .rootStream, context)
        }
        flush(context)
        closeIfDrained(context)
    }

    /// After a GOAWAY: closes when no stream is left that the client may count on.
    ///
    /// Within the linger, one that was promised may still be on its way, and a silent one may be given up by the client;
    /// after it only late answers are waited for.
    func closeIfDrained(_ context: ChannelHandlerContext) {
        guard phase == .draining, streams.count == silentStreams else { return }
        if isLingerOver || silentStreams == 0 && highestStream >= lastStream ?? 0 {
            end(context) { context.close(promise: nil) }
        }
    }

    // MARK: Endings and pauses

    /// Ends the connection; what was written before goes out.
    func end(_ context: ChannelHandlerContext, _ close: () -> Void) {
        guard phase != .ended else { return }
        phase = .ended
        flush(context)
        held = []
        close()
    }

    func stop(_ context: ChannelHandlerContext) {
        guard phase == .open || phase == .draining else { return }
        connection.isStopping = true
        goAway(reason: ProviderReason.shutdown.rawValue, last: highestStream, code: 0, context)
        for stream in streams.keys.sorted() { complete(stream, context) }
        // The listener closes the connection next.
        end(context) {}
    }

    func pause(milliseconds: Int?, _ context: ChannelHandlerContext) {
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
                if phase == .paused {
                    held = Array(frames[(index + 1)...])
                    break
                }
                if phase == .ended { break }
            }
            if phase == .open || phase == .draining { valve.open() }
            readOn(context)
        }
    }

    func watchIdleness(_ timeout: TimeAmount, _ context: ChannelHandlerContext) {
        idleTimer = context.eventLoop.assumeIsolated().scheduleTask(deadline: lastRead + timeout) { [self] in
            guard phase == .open else { return }
            if NIODeadline.now() < lastRead + timeout { return watchIdleness(timeout, context) }
            goAway(reason: ProviderReason.idleTimeout.rawValue, last: highestStream, code: 0, context)
            end(context) { context.close(promise: nil) }
        }
    }

    /// Does something later, and flushes what it wrote.
    func after(_ milliseconds: Int, _ context: ChannelHandlerContext, _ body: @escaping () -> Void) {
        context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(Int64(milliseconds))) { [self] in
            guard phase != .ended else { return }
            body()
            if phase != .ended { finishWriting(context) }
        }
    }

    // MARK: The log

    func warn(_ verdict: ProviderVerdict) {
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

    func log(_ entry: InboxEntry) {
        logger.debug(
            "Notification",
            metadata: [
                "id": "\(entry.id)", "token": "\(entry.token.hex.prefix(8))…",
                "apns-id": "\(entry.request?.apnsID ?? "none")", "answer": "\(entry.answer.name)",
            ])
    }
}
