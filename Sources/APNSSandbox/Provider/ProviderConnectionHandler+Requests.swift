import NIOCore
import NIOHPACK
import NIOHTTP2

/// From frames to requests, and from verdicts to what the client feels.
extension ProviderConnectionHandler {
    func receive(_ frame: HTTP2Frame, _ context: ChannelHandlerContext) {
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
                if streams[frame.streamID]?.isSilent == false {
                    write(.rstStream(.noError), on: frame.streamID, context)
                }
            }
        case .settings(.ack):
            announce(limit.acknowledge(), context)
        default: break
        }
    }

    func forget(_ stream: HTTP2StreamID) {
        if streams.removeValue(forKey: stream)?.isSilent == true { silentStreams -= 1 }
    }

    func open(_ stream: HTTP2StreamID, _ headers: HPACKHeaders, _ context: ChannelHandlerContext) {
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

    func complete(_ stream: HTTP2StreamID, _ context: ChannelHandlerContext) {
        guard let request = streams[stream]?.request else { return }
        streams[stream]?.request = nil
        judge(request, on: stream, context)
    }

    func judge(
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

    func perform(
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

    func before(_ stream: HTTP2StreamID) -> HTTP2StreamID {
        HTTP2StreamID(max(0, Int(stream) - 2))
    }
}
