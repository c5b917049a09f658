import ChatDomain
import HTTPTypes
import Hummingbird

/// The stream of new messages.
extension GotifyAPI {
    /// The number of the newest messages whose rooms a stream has first, if there are more rooms than it may have.
    private static let recentMessages = 1000

    /// `GET /gotify/stream`: a WebSocket with the messages that are posted from now on.
    func stream(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try admitted(request, context)
        try Self.checkOrigin(request)
        guard request.asksForWebSocket else {
            throw ChatError.malformed("Send Connection: Upgrade and Upgrade: websocket: the stream is a WebSocket")
        }
        guard caller != .administrator, let secret = Self.credential(request) else {
            throw ChatError(
                .forbidden, "The administrator's token has no stream: create a token (pushchat token create)")
        }
        let rooms = try await streamRooms(of: caller)
        guard !rooms.isEmpty else {
            throw ChatError(.unavailable, "There are no rooms yet", retryAfter: .seconds(60))
        }
        var starts: [StreamStart] = []
        for room in rooms { starts.append(try await start(in: room.code, for: caller)) }
        let format = GotifyEvents(
            applications: Dictionary(rooms.map { (.room($0.code), $0.id) }, uniquingKeysWith: { first, _ in first }))
        let address = ClientAddress.find(request, context, trusted: environment.settings.trustedProxies)
        return try streams.open(
            starts, for: caller.reader, .program(secret: secret), as: format, address, request, context)
    }

    /// Rejects pages of other sites, as Gotify does. Programs send no origin. Some proxies send the host without its
    /// port (`proxy_set_header Host $host` of nginx), so a port counts only if both have one. The stream needs a token,
    /// so that a page of another port gains nothing.
    private static func checkOrigin(_ request: Request) throws(ChatError) {
        let host = hostAndPort((request.head.authority ?? "")[...])
        for origin in request.headers[values: .origin] {
            let given = origin.firstRange(of: "://").map { hostAndPort(origin[$0.upperBound...]) }
            guard let given, given.host == host.host, given.port == host.port || given.port == nil || host.port == nil
            else {
                throw ChatError(.forbidden, "Origin: pages of other sites may not open the stream", field: "Origin")
            }
        }
    }

    private static func hostAndPort(_ authority: Substring) -> (host: String, port: Substring?) {
        guard let colon = authority.lastIndex(of: ":"), authority[colon...].dropFirst().utf8.allSatisfy(\.isASCIIDigit)
        else { return (authority.lowercased(), nil) }
        return (authority[..<colon].lowercased(), authority[authority.index(after: colon)...])
    }

    /// Returns the rooms of a stream, at most ``HTTPLimits/streamRooms``: those with the newest messages first.
    private func streamRooms(of caller: Caller) async throws(ChatError) -> [ClientRoom] {
        if let room = caller.onlyRoom { return [try await clients.room(room)] }
        let oldest = try await clients.rooms(after: nil, limit: HTTPLimits.streamRooms)
        guard oldest.next != nil else { return oldest.items }
        let recent = try await clients.messages(
            ClientReading(room: nil, client: ""), before: nil, limit: Self.recentMessages)
        var (rooms, seen): ([ClientRoom], Set<SecretCode>) = ([], [])
        for record in recent where rooms.count < HTTPLimits.streamRooms && seen.insert(record.room).inserted {
            rooms.append(try await clients.room(record.room))
        }
        return rooms + oldest.items.filter { !seen.contains($0.code) }.prefix(HTTPLimits.streamRooms - rooms.count)
    }

    /// Returns the position after a room's newest message. Hidden messages count: they must not come again.
    private func start(in room: SecretCode, for caller: Caller) async throws(ChatError) -> StreamStart {
        if let member = caller.member {
            let position = try await environment.stores.feed.position(of: member.member)
            return StreamStart(position)
        }
        let newest = try await environment.stores.records.messages(of: room, .newestFirst(before: nil), limit: 1)
        let last = newest.items.first?.message.id ?? 0
        return StreamStart(.room(room), last: last, start: last)
    }
}

/// The events of Gotify's stream: one document for each message, and no others.
struct GotifyEvents: EventFormat {
    /// The ids of the stream's rooms.
    let applications: [StreamSource: Int64]

    var key: String { "gotify" }
    var heartbeatInterval: Duration { WebSocket.pingInterval }
    var contentType: String { "application/json" }
    var dropsConnection: Bool { true }

    func includes(_ entry: RoomEntry, in source: StreamSource) -> Bool { applications[source] != nil }

    func message(_ message: Message, in source: StreamSource, isOwn: Bool) -> String {
        JSONValue.object(message.gotify(application: applications[source] ?? 0)).description
    }

    func opening(from start: MessageID) -> String? { nil }
    func event(_ event: StreamEvent) -> String? { nil }
    func heartbeat() -> String? { nil }
}
