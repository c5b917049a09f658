import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import ServiceLifecycle

/// `GET /events`: a member's room as Server-Sent Events (WHATWG HTML, "Server-sent events").
///
/// Events: `message`, whose id is the message's and whose data is a message as `messages` answers it; `room`, with the number
/// of `members`; `left`, after which nothing comes any more. Comments in between are signs of life.
struct EventsAPI: Sendable {
    let feed: any RoomFeed
    let hub: EventHub
    let chat: ChatAPI
    let logger: Logger

    /// Milliseconds after which a client is to come again.
    private static let retry = 2000

    func stream(_ request: Request, _ context: ChatContext) async throws -> Response {
        try chat.admit(request, context)
        let query = request.uri.queryParameters
        guard let text = query["udid"] ?? query["user_id"] else {
            throw ChatError(.missingField, "Missing udid", field: "udid")
        }
        let member = try MemberID(parsing: String(text))
        let since = try Self.since(request)
        let place = try await feed.position(of: member)
        let ticket = try hub.enter(member, place) { [channel = context.channel] in channel.close(promise: nil) }
        logger.debug(
            "stream opened", metadata: [LogKeys.requestID: "\(context.requestID)", LogKeys.streams: "\(hub.count)"])
        // Without anything said it begins now. What is ahead of the room is of another database.
        let start =
            since.map { max($0, place.historyFrom) }.map { $0 > place.last ? place.historyFrom : $0 } ?? place.last
        let body = request.body
        return Response(
            status: .ok,
            headers: [
                .contentType: "text/event-stream", .cacheControl: "no-store",
                // nginx would collect what is to come at once.
                HTTPField.Name("X-Accel-Buffering")!: "no",
            ],
            body: ResponseBody { writer in
                let stream = ticket.stream
                try await body.consumeWithInboundCloseHandler { _ in
                    try await withGracefulShutdownHandler {
                        try await follow(stream, from: start, into: &writer)
                    } onGracefulShutdown: {
                        stream.end(.comeAgain, cutsOff: true)
                    }
                } onInboundClosed: {
                    stream.end(.gone)
                }
                try await writer.finish(nil)
            })
    }

    /// After which message it is to begin: what a client says that comes again, or the query.
    private static func since(_ request: Request) throws(ChatError) -> MessageID? {
        let (text, field) =
            request.headers[HTTPField.Name("Last-Event-ID")!].flatMap { $0.isEmpty ? nil : $0 }.map {
                ($0, "Last-Event-ID")
            }
            ?? (request.uri.queryParameters["since"].map(String.init) ?? "", "since")
        guard !text.isEmpty else { return nil }
        guard text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }), let id = MessageID(text)
        else { throw .invalid(field, "must be a whole number, 0 or more") }
        return id
    }

    /// Writes until the stream ends.
    private func follow(
        _ stream: EventStream, from start: MessageID, into writer: inout any ResponseBodyWriter
    ) async throws {
        var cursor = start
        var members: Int?
        // The id is for a client that loses the connection before the first message.
        try await write("retry: \(Self.retry)\nid: \(start)\n\n", of: stream, into: &writer)
        while true {
            try Task.checkCancellation()
            switch stream.end {
            case .left: return try await write("event: left\ndata: {}\n\n", of: stream, into: &writer)
            case .comeAgain, .gone: return
            case nil: break
            }
            switch hub.next(for: stream, after: cursor, members: members) {
            case .events(let events):
                cursor = try await write(events, of: stream, into: &writer) ?? cursor
            case .behind:
                cursor =
                    try await write(hub.older(for: stream, after: cursor)[...], of: stream, into: &writer) ?? cursor
            case .members(let count):
                members = count
                try await write("event: room\ndata: {\"members\":\(count)}\n\n", of: stream, into: &writer)
            case .heartbeat:
                try await write(":\n\n", of: stream, into: &writer)
            case .nothing:
                await stream.wait()
            }
        }
    }

    private func write(
        _ events: ArraySlice<MessageEvent>, of stream: EventStream, into writer: inout any ResponseBodyWriter
    ) async throws -> MessageID? {
        guard let last = events.last?.id else { return nil }
        var buffer = ByteBuffer()
        for event in events {
            var bytes = event.bytes(for: stream.member)
            buffer.writeBuffer(&bytes)
        }
        try await write(buffer, of: stream, into: &writer)
        feed.handedOut(last, to: stream.member)
        return last
    }

    private func write(
        _ text: String, of stream: EventStream, into writer: inout any ResponseBodyWriter
    ) async throws {
        try await write(ByteBuffer(string: text), of: stream, into: &writer)
    }

    private func write(
        _ buffer: ByteBuffer, of stream: EventStream, into writer: inout any ResponseBodyWriter
    ) async throws {
        stream.willWrite()
        defer { stream.hasWritten() }
        try await writer.write(buffer)
    }
}
