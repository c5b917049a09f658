import ChatDomain
import HTTPTypes
import Hummingbird
import Logging
import NIOCore

/// `GET /events`: the events of a member's room, or of a room that a program may read, as Server-Sent Events (WHATWG
/// HTML, "Server-sent events").
///
/// Comments between the events keep the connection open. The events are:
///
/// - `message`: a new message, as in the response of `messages`. The event's id is the message's id.
/// - `room`: the number of `members`.
/// - `receipt`: the number of devices that the member's own last message reached, and its readers.
/// - `edited`, `cleared`, `resolved`: the message in its newest form. The event's id is the number of the change.
/// - `deleted`: the `id` of a message that was deleted. The event's id is the number of the change.
/// - `left`: the stream ends. Has a `reason` if the member was removed.
/// - `code`: the room's new code. The stream ends, and the client must reconnect.
struct EventsAPI: Sendable {
    let environment: ChatEnvironment
    let streams: StreamOpener
    let chat: ChatAPI
    let tickets: EventTickets

    /// The path of event streams.
    static let path = "/events"

    var routes: [Route] {
        [
            // HEAD would open no stream but use up a ticket.
            Route(.get, Self.path, .scope(.read), in: .chat, when: Self.isOfProgram, servesHead: false, programStream),
            Route(.get, Self.path, .anyone, servesHead: false, stream),
            Route(.post, "/events/ticket", .anyone, ticket),
            Route(.post, "/v1/probes", .scope(.admin), probe),
        ]
    }

    /// The holder of probe tickets. No member has this id, because members' ids are hexadecimal digits.
    private static let prober = MemberID(stored: "probe")

    func stream(_ request: Request, _ context: ChatContext) async throws -> Response {
        let settings = environment.settings
        let address = try chat.limiter.admit(request, context, settings)
        let holder = try await holder(request)
        if holder.member == Self.prober { return probeStream(request, context, settings, address) }
        let since = try Self.since(request)
        let position = try await environment.stores.feed.position(of: holder.member)
        // An id after the last one comes from another database. The stream then begins with the member's whole
        // history.
        let start =
            since.map { max($0, position.historyFrom) }.map { $0 > position.last ? position.historyFrom : $0 }
            ?? position.last
        return try streams.open(
            [StreamStart(position, start: start)], for: holder.member,
            .member(sessionEnd: holder.sessionEnd), as: RoomEvents(isWebSocket: request.asksForWebSocket), address,
            request, context)
    }

    /// Whether a stream request names no member and carries a token of the relay.
    @Sendable static func isOfProgram(_ request: Request) -> Bool {
        let query = request.uri.queryParameters
        return request.headers.bearerToken.map(AccessToken.isSecret) == true && request.headers.first(.udid) == nil
            && ["ticket", "udid", "user_id"].allSatisfy { query[$0[...]] == nil }
    }

    /// Opens the stream of a room for a program with the scope `read`.
    func programStream(_ request: Request, _ context: ChatContext) async throws -> Response {
        let address = try chat.limiter.admit(request, context, environment.settings)
        guard let secret = request.headers.bearerToken else {
            throw ChatError(.internalError, "the stream has no token")
        }
        var named = try request.uri.queryParameters["room"].map { text throws(ChatError) in
            try SecretCode(parsing: String(text), field: "room")
        }
        if let code = named { named = try await environment.stores.records.room(named: code, field: "room") }
        let (caller, since) = (try context.caller(), try Self.since(request))
        let room = try caller.room(named)
        let last = try await environment.stores.feed.lastEntry(in: room)
        return try streams.open(
            [StreamStart(.room(room), last: last, start: min(since ?? last, last))], for: caller.writer,
            .program(secret: secret), as: RoomEvents(isWebSocket: request.asksForWebSocket), address, request, context)
    }

    private static let headers: HTTPFields = [
        .contentType: "text/event-stream", .cacheControl: "no-store", .accelBuffering: "no",
    ]

    /// Sends two events, ``HTTPLimits/probeTime`` apart. The first contains the client's address and the proxy headers
    /// as the relay sees them, so that the operator's check can verify the proxy's configuration. The time between the
    /// two events shows whether the proxy buffers streams.
    private func probeStream(
        _ request: Request, _ context: ChatContext, _ settings: ChatHTTPSettings, _ address: IPAddress?
    ) -> Response {
        let peer = context.peerAddress
        let seen: JSONObject = [
            "client": address.map { .string("\($0)") } ?? .null, "peer": peer.map { .string("\($0)") } ?? .null,
            "trusted": .bool(peer.map { peer in settings.trustedProxies.contains { $0.contains(peer) } } ?? false),
            "forwarded": .array(request.headers[values: .forwarded].map { .string($0) }),
            "x_forwarded_for": .array(request.headers[values: .xForwardedFor].map { .string($0) }),
        ]
        return Response(
            status: .ok, headers: Self.headers,
            body: ResponseBody { writer in
                try await writer.write(ByteBuffer(string: "event: probe\ndata: \(JSONValue.object(seen))\n\n"))
                try await environment.clocks.monotonic.sleep(HTTPLimits.probeTime)
                try await writer.write(ByteBuffer(string: "event: end\ndata: {}\n\n"))
                try await writer.finish(nil)
            })
    }

    /// `POST /v1/probes`: returns a ticket for one stream that shows how requests reach the relay.
    func probe(_ request: Request, _ context: ChatContext) -> Response { ticket(for: .init(member: Self.prober)) }

    /// `POST /events/ticket`: returns a ticket for one stream of a member, because browsers cannot add headers to a
    /// stream request.
    func ticket(_ request: Request, _ context: ChatContext) async throws -> Response {
        let member = try await chat.member(of: request, context)
        _ = try await environment.stores.feed.position(of: member.id)
        return ticket(for: .init(member: member.id, sessionEnd: member.session?.end))
    }

    private func ticket(for holder: EventTickets.Holder) -> Response {
        Responses.json([
            "ticket": .string(tickets.make(for: holder)),
            "expires_in": .number(Int(HTTPLimits.ticketTime.components.seconds)),
        ])
    }

    /// Returns the holder of the stream, from a ticket, the header, or the query. Proxies write the query into their
    /// logs.
    private func holder(_ request: Request) async throws(ChatError) -> EventTickets.Holder {
        let query = request.uri.queryParameters
        if let ticket = query["ticket"] {
            // The session was verified when the ticket was created.
            if let holder = tickets.take(ticket) { return holder }
            throw .unauthorized("The ticket is not valid: it was used, or is older than 30 s; get another")
        }
        let header = request.headers.first(.udid)
        guard let text = header ?? (query["udid"] ?? query["user_id"]).map({ String($0) }) else {
            throw .missing("udid")
        }
        let member = try MemberID(parsing: text, field: header == nil ? "udid" : HTTPField.Name.udid.rawName)
        return .init(member: member, sessionEnd: try await chat.admit(member, request.headers).session?.end)
    }

    /// Returns the message or change after which the stream begins, from the header that browsers send when they
    /// reconnect, or from the query.
    private static func since(_ request: Request) throws(ChatError) -> MessageID? {
        var (text, field) = (request.headers[.lastEventID] ?? "", "Last-Event-ID")
        if text.isEmpty { (text, field) = (request.uri.queryParameters["since"].map { String($0) } ?? "", "since") }
        guard !text.isEmpty else { return nil }
        guard let id = MessageID(digits: text) else { throw .invalid(field, "must be a whole number, 0 or more") }
        return id
    }
}
