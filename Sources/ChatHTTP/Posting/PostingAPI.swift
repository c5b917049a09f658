import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// The API with which programs post messages in a room: `POST /v1/messages`, and the calls of other servers' clients, each
/// with an API in a folder. ``AdminGuard`` authenticates the caller.
struct PostingAPI: Sendable {
    let environment: ChatEnvironment
    let limiter: RequestLimiter
    let metrics: HTTPMetrics

    var routes: [Route] { [Route(.post, "/v1/messages", .scope(.post), post)] }

    /// The name on the administrator's messages if the request contains none.
    private static let administrator = "Relay"

    /// A message as read from a request, in a room in which the caller may post.
    struct Draft: Sendable {
        let room: SecretCode
        var name: String?
        let content: MessageContent
    }

    private var records: any RoomRecords { environment.stores.records }

    private static let fields: Set = ["room", "text", "name", "title", "link", "priority", "sound", "urgent"]

    /// `POST /v1/messages`
    func post(_ request: Request, _ context: ChatContext) async throws -> Response {
        let draft =
            request.headers.mediaType == "application/json"
            ? try await json(request, context.caller()) : try await plain(request, context.caller())
        let receipt = try await post(draft, request, context)
        var headers = Responses.location("/v1/messages/\(receipt.message)", for: request)
        if receipt.isRepeat { headers[.idempotencyReplayed] = "true" }
        return Responses.json(
            ["id": .number(receipt.message), "room": .string(draft.room.text)], status: .created, headers: headers)
    }

    private func json(_ request: Request, _ caller: Caller) async throws -> Draft {
        let query = try AdminQuery(request, names: ["room"])
        let body = try await AdminBody.read(request, members: Self.fields, hasQuery: true)
        let (inQuery, room) = (try await query.room(records), try await body.room(records))
        guard inQuery == nil || room == nil || inQuery == room else {
            throw ChatError.invalid("room", "differs from the one in the query")
        }
        guard let text = try body.text("text") else { throw ChatError.missing("text") }
        return Draft(
            room: try caller.room(room ?? inQuery), name: try body.text("name"),
            content: try content(text, body, of: caller))
    }

    /// Reads a draft whose text is the body. The query contains everything else. `curl -d` labels such a body as a
    /// form.
    private func plain(_ request: Request, _ caller: Caller) async throws -> Draft {
        let query = try AdminQuery(request, names: Self.fields.subtracting(["text"]))
        guard ["", "text/plain", "application/x-www-form-urlencoded"].contains(request.headers.mediaType) else {
            throw ChatError.unsupported("The body must be application/json or text/plain")
        }
        let (room, text) = (try await query.room(records), try await Self.text(of: request))
        return Draft(
            room: try caller.room(room), name: query.text("name"), content: try content(text, query, of: caller))
    }

    private func content(
        _ text: String, _ fields: some MessageFields, of caller: Caller
    ) throws(ChatError) -> MessageContent {
        try MessageContent(
            parsing: text, title: try fields.text("title"), link: try fields.text("link"),
            priority: try fields.priority(), sound: try fields.text("sound"), isUrgent: try fields.isTrue("urgent"),
            memberLimit: memberLimit(of: caller))
    }

    /// The limit of a text if the caller is a member. `nil` for a program.
    func memberLimit(of caller: Caller) -> Int? { caller.member == nil ? nil : environment.settings.textLimit }

    /// Returns the body as text, in the charset that the request declares.
    static func text(of request: Request) async throws -> String {
        guard request.headers.first(.contentEncoding) == nil else {
            throw ChatError.unsupported("The body must not have a Content-Encoding")
        }
        let bytes = try await RequestBody.read(request, limit: HTTPLimits.body)
        guard let text = request.headers.charset.text(bytes) else {
            throw ChatError.invalid("text", "must be UTF-8")
        }
        return text
    }

    /// Posts the draft in its room, in the caller's name.
    func post(
        _ draft: Draft, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> PostReceipt {
        let (caller, settings) = (try context.caller(), environment.settings)
        let name =
            if let name = draft.name { try Nickname(parsing: name) } else {
                caller.token?.name ?? Nickname(stored: Self.administrator)
            }
        let key = try request.headers.idempotencyKey()
        if caller != .administrator { try limiter.admit(caller.writer, limit: settings.memberRate) }
        let client = ClientAddress.find(request, context, trusted: settings.trustedProxies)
        let post = PostRequest(
            member: caller.writer,
            program: caller.member == nil ? PostRequest.Program(nickname: name, room: draft.room) : nil,
            onlyRoom: caller.member?.room, content: draft.content, idempotencyKey: key,
            client: ClientInfo(address: client?.description))
        let receipt: PostReceipt
        do throws(ChatError) {
            receipt = try await environment.stores.rooms.post(post)
        } catch {
            guard error.code == .notJoined else { throw error }
            throw .unauthorized("The member has left the room to which this credential belongs")
        }
        environment.logger.info(
            "message accepted",
            metadata: context.ids.metadata([
                LogKeys.message: "\(receipt.message)",
                LogKeys.queued: "\(receipt.queued)", LogKeys.isRepeat: "\(receipt.isRepeat)",
                LogKeys.caller: "\(caller.name)",
            ]))
        metrics.posts.record(metrics.clock.now() - context.received)
        return receipt
    }
}

extension PostingAPI.Draft {
    /// Fits a text from another server's client into the relay's rules: replaces control characters with spaces, and
    /// cuts a text that is too long. A shortened alarm is worth more than none.
    ///
    /// - Parameter keepsLines: Whether tabs and line breaks stay, as in a message's text.
    static func fitting(_ text: String, limit: Int, keepsLines: Bool = true) -> String {
        let scalars = text.unicodeScalars.map { scalar -> Unicode.Scalar in
            let isLine = scalar == "\t" || scalar == "\n" || scalar == "\r"
            let isControl = scalar.value < 32 || (0x7F...0x9F).contains(scalar.value)
            return isControl && !(isLine && keepsLines) ? " " : scalar
        }
        let text = String(String.UnicodeScalarView(scalars))
        guard text.utf8.count > limit else { return text }
        return JSONString.prefix(of: text, within: limit - "…".utf8.count) + "…"
    }
}

/// The fields of a message in a request: the members of its body, or those of its query.
private protocol MessageFields {
    func text(_ name: String) throws(ChatError) -> String?
    func priority() throws(ChatError) -> UInt8?
    func isTrue(_ name: String) throws(ChatError) -> Bool
}

extension AdminBody: MessageFields {
    func isTrue(_ name: String) throws(ChatError) -> Bool { try flag(name) }
}

extension AdminQuery: MessageFields {
    func isTrue(_ name: String) throws(ChatError) -> Bool { try flag(name) ?? false }

    func priority() throws(ChatError) -> UInt8? {
        try value("priority") { text, field throws(ChatError) in
            guard let number = UInt8(text) else { throw .invalid(field, "must be 10, 5 or 1") }
            return number
        }
    }
}
