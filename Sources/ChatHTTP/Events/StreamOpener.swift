import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import NIOCore

/// Opens streams over HTTP, or over a WebSocket if the request asks for one.
struct StreamOpener: Sendable {
    let hub: EventHub
    let logger: Logger

    /// The ends of the paths of streams.
    private static let pathEnds = ["/events", "/json", "/sse", "/raw", "/ws", "/stream"]

    /// Whether a request may open a stream.
    static func mayServe(_ path: String) -> Bool { pathEnds.contains { path.hasSuffix($0) } }

    /// Opens a stream and returns its response.
    ///
    /// - Parameters:
    ///   - starts: The sources, at most ``HTTPLimits/streamRooms``. A source that comes again is ignored.
    ///   - reader: The reader. For a program, the id under which it posts.
    ///   - admission: The client's right to read the sources.
    ///   - headers: More headers of the response.
    func open(
        _ starts: [StreamStart], for reader: MemberID, _ admission: EventStream.Admission, as format: any EventFormat,
        extraHeaders headers: HTTPFields = [:], _ address: IPAddress?, _ request: Request, _ context: ChatContext
    ) throws(ChatError) -> Response {
        let form = StreamForm(format, isWebSocket: request.asksForWebSocket)
        var head: HTTPFields = [.contentType: format.contentType, .cacheControl: "no-store", .accelBuffering: "no"]
        if form.isWebSocket { head = try WebSocket.handshake(request.headers) }
        var seen: Set<StreamSource> = []
        let starts = starts.filter { seen.insert($0.source).inserted }
        let subscription = try hub.open(
            reader, from: address, at: starts, admission: admission, heartbeat: form.heartbeatInterval
        ) { [channel = context.channel] in
            channel.close(promise: nil)
        }
        logger.debug("stream opened", metadata: context.ids.metadata([LogKeys.streams: "\(hub.count)"]))
        return Response(
            status: form.isWebSocket ? .switchingProtocols : .ok, headers: head + headers,
            body: ResponseBody { [hub, channel = context.channel, starts = starts.map(\.start)] writer in
                let stream = subscription.stream
                channel.setOption(.writeBufferWaterMark, value: HTTPLimits.streamBuffer).whenFailure { _ in }
                channel.whenEnding { reason in
                    switch reason {
                    case .clientLeft: stream.end(.disconnected)
                    case .serverStops: stream.end(.reconnect, closesConnection: true)
                    }
                }
                if form.isWebSocket { channel.whenFrameArrives { stream.heard() } }
                try await hub.follow(stream, from: starts, as: form, into: &writer)
                if form.dropsConnection { channel.close(promise: nil) } else { try await writer.finish(nil) }
            })
    }
}

extension EventHub {
    /// Writes events until the stream ends. If an event does not fit into one write with the others, it begins the next
    /// write.
    ///
    /// - Parameter starts: For each of the stream's sources, the message or change after which it begins.
    fileprivate func follow(
        _ stream: EventStream, from starts: [MessageID], as form: StreamForm,
        into writer: inout any ResponseBodyWriter
    ) async throws {
        var cursors = starts
        var summary: RoomSummary?
        try await write(form.format.opening(from: starts.min() ?? 0), of: stream, as: form, into: &writer)
        while true {
            try Task.checkCancellation()
            if let end = stream.end {
                return try await write(form.format.event(.ended(end)), of: stream, as: form, into: &writer)
            }
            switch next(for: stream, after: cursors, summary: summary) {
            case .events(let events):
                try await write(events, after: &cursors, of: stream, as: form, into: &writer)
            case .behind(let starts):
                guard let events = try await older(for: stream, after: cursors) else {
                    await stream.wait()
                    continue
                }
                if events.isEmpty {
                    // Retention may have deleted the messages in between.
                    for (source, start) in starts.enumerated() { cursors[source] = max(cursors[source], start) }
                } else {
                    try await write(events[...], after: &cursors, of: stream, as: form, into: &writer)
                }
            case .room(let new):
                summary = new
                try await write(form.format.event(.room(new)), of: stream, as: form, into: &writer)
            case .receipt(let receipt):
                try await write(form.format.event(.receipt(receipt)), of: stream, as: form, into: &writer)
            case .heartbeat:
                if form.isWebSocket { stream.willPing() }
                // If there is nothing to write, the silence begins again.
                try await write(form.heartbeat() ?? ByteBuffer(), of: stream, into: &writer)
            case .nothing:
                await stream.wait()
            }
        }
    }

    private func write(
        _ events: ArraySlice<RoomEvent>, after cursors: inout [MessageID], of stream: EventStream,
        as form: StreamForm, into writer: inout any ResponseBodyWriter
    ) async throws {
        let some = EventWrite(events, as: form, for: stream.member, mayRead: stream.mayRead)
        if some.bytes.readableBytes > 0 { try await write(some.bytes, of: stream, into: &writer) }
        if let last = some.lastMessage { handedOut(last, to: stream) }
        for event in events.prefix(some.count) {
            if let source = stream.sources.firstIndex(of: event.source) { cursors[source] = event.id }
        }
    }

    private func write(
        _ text: String?, of stream: EventStream, as form: StreamForm, into writer: inout any ResponseBodyWriter
    ) async throws {
        if let text { try await write(form.bytes(text), of: stream, into: &writer) }
    }

    private func write(
        _ bytes: ByteBuffer, of stream: EventStream, into writer: inout any ResponseBodyWriter
    ) async throws {
        stream.beginWrite()
        defer { stream.endWrite() }
        if bytes.readableBytes > 0 { try await writer.write(bytes) }
    }
}
