import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// The API with which programs post messages in a room: `POST /v1/messages`, and the calls of other servers' clients, each
/// with an API in a folder. ``ChangesAPI`` changes messages. ``AdminGuard`` authenticates the caller.
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
        /// The key under which the caller may change the message, or replaces an earlier one.
        var key: MessageKey?
        /// Whether devices ring also if the post replaces a message.
        var renotify = false
        /// The time at which to post the message. `nil` for now.
        var notBefore: Timestamp?
    }

    /// `POST /v1/messages`
    func post(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try context.caller()
        let form = try await MessageForm.read(
            request, names: ["name", "key", "renotify", "not_before"], environment.stores.records)
        let (fields, text) = (form.fields, form.text ?? "")
        let draft = Draft(
            room: try caller.room(form.room), name: try fields.text("name"), content: try form.content(text),
            key: try fields.text("key").map { key throws(ChatError) in try MessageKey(parsing: key) },
            renotify: try fields.isTrue("renotify"), notBefore: try fields.time("not_before"))
        guard draft.key != nil || !draft.renotify else { throw ChatError.invalid("renotify", "needs a key") }
        let receipt = try await post(draft, request, context)
        var headers = Responses.location("/v1/messages/\(receipt.message)", for: request)
        if receipt.isRepeat { headers[.idempotencyReplayed] = "true" }
        return Responses.json(
            draft.isPlain ? ["id": .number(receipt.message), "room": .string(draft.room.text)] : receipt.json,
            status: receipt.isNew ? .created : .ok, headers: headers)
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
    ) async throws(ChatError) -> ChangeReceipt {
        let caller = try context.caller()
        guard draft.isPlain || caller.member == nil else {
            throw ChatError(
                .forbidden, "Messages of members have no key and no time: this call needs a token",
                field: draft.key == nil ? "not_before" : "key")
        }
        let key = try request.headers.idempotencyKey()
        try admit(caller)
        return try await accept(draft, idempotencyKey: key, request, context)
    }

    /// Posts the draft of a caller whose rate allows it.
    func accept(
        _ draft: Draft, idempotencyKey key: String?, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> ChangeReceipt {
        let caller = try context.caller()
        let name =
            if let name = draft.name { try Nickname(parsing: name) } else {
                caller.token?.name ?? Nickname(stored: Self.administrator)
            }
        let client = ClientAddress.find(request, context, trusted: environment.settings.trustedProxies)
        let post = PostRequest(
            member: caller.writer,
            program: caller.member == nil ? PostRequest.Program(nickname: name, room: draft.room) : nil,
            onlyRoom: caller.member?.room, content: draft.content, idempotencyKey: key,
            client: ClientInfo(address: client?.description))
        let (receipt, queued) = try await store(post, draft)
        var values: Logger.Metadata = [
            LogKeys.message: "\(receipt.message)", LogKeys.isRepeat: "\(receipt.isRepeat)",
            LogKeys.caller: "\(caller.name)",
        ]
        values[LogKeys.queued] = queued.map { "\($0)" }
        environment.logger.info("message accepted", metadata: context.ids.metadata(values))
        metrics.posts.record(metrics.clock.now() - context.received)
        return receipt
    }

    /// - Returns: The receipt, and the number of pushes that are queued. `nil` if they are queued after the response.
    private func store(
        _ post: PostRequest, _ draft: Draft
    ) async throws(ChatError) -> (ChangeReceipt, queued: Int?) {
        guard draft.isPlain else {
            let keyed = KeyedPost(post, key: draft.key, renotify: draft.renotify, notBefore: draft.notBefore)
            return (try await environment.stores.changes.post(keyed), nil)
        }
        do throws(ChatError) {
            let receipt = try await environment.stores.rooms.post(post)
            return (
                ChangeReceipt(
                    message: receipt.message, room: draft.room, time: receipt.time, isNew: true,
                    isRepeat: receipt.isRepeat), receipt.queued
            )
        } catch {
            guard error.code == .notJoined else { throw error }
            throw .unauthorized("The member has left the room to which this credential belongs")
        }
    }

    /// Counts a post or a change towards the limit of members.
    func admit(_ caller: Caller) throws(ChatError) {
        guard caller != .administrator else { return }
        try limiter.admit(caller.writer, limit: environment.settings.memberRate)
    }

    /// Changes a message in the caller's name.
    ///
    /// - Parameter room: The room that the request names.
    func change(
        _ message: MessageReference, in room: SecretCode?, _ action: MessageChangeRequest.Action, _ request: Request,
        _ context: ChatContext
    ) async throws(ChatError) -> ChangeReceipt {
        let author = try author(of: message, in: room, request, context)
        let key = try request.headers.idempotencyKey()
        try admit(context.caller())
        return try await accept(MessageChangeRequest(message, by: author, action, idempotencyKey: key), context)
    }

    /// Makes the change of a caller whose rate allows it.
    func accept(_ request: MessageChangeRequest, _ context: ChatContext) async throws(ChatError) -> ChangeReceipt {
        let caller = try context.caller()
        let receipt = try await environment.stores.changes.change(request)
        if request.action == .delete, let moderator = request.author.moderator {
            environment.note("message deleted", ["id": "\(receipt.message)"], by: moderator, context)
        } else {
            environment.logger.info(
                "message changed",
                metadata: context.ids.metadata([
                    LogKeys.message: "\(receipt.message)", LogKeys.isRepeat: "\(receipt.isRepeat)",
                    LogKeys.caller: "\(caller.name)",
                ]))
        }
        return receipt
    }

    /// Returns the caller as the author of changes.
    ///
    /// - Parameter room: The room that the request names. A key names a message only within a room.
    func author(
        of message: MessageReference, in room: SecretCode?, _ request: Request, _ context: ChatContext
    ) throws(ChatError) -> ChangeAuthor {
        let caller = try context.caller()
        guard caller.member == nil else {
            throw ChatError(.forbidden, "Only programs change their messages: this call needs a token")
        }
        var only = caller.onlyRoom
        if room != nil { only = try caller.room(room) }
        if case .key = message { only = try caller.room(room) }
        return ChangeAuthor(
            writer: caller.writer, isAdmin: caller.isAdmin, room: only,
            moderator: caller.isAdmin ? try context.moderator(request, environment) : nil)
    }
}

extension ChangeReceipt {
    /// The response to a post with a key, and to a change.
    var json: JSONObject {
        var json: JSONObject = [
            "id": .number(message), "room": .string(room.text), "revision": .number(revision),
        ]
        json["change"] = change.map { .number($0) }
        json["not_before"] = due.map { .time($0) }
        return json
    }
}

extension PostingAPI.Draft {
    /// Whether the message cannot change later, and is posted now.
    var isPlain: Bool { key == nil && notBefore == nil }
}
