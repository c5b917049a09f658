import ChatDomain
import HTTPTypes
import Hummingbird

/// Changes and shows single messages, which a path names by the id or the key. A program changes its own messages, an
/// administrator all. ``AdminGuard`` authenticates the caller.
struct ChangesAPI: Sendable {
    let posting: PostingAPI

    private var environment: ChatEnvironment { posting.environment }

    var routes: [Route] {
        [
            Route(.get, "/v1/messages", .scope(.post), in: .admin, when: Self.isOfSchedules, scheduled),
            Route(.get, "/v1/messages/{id}", .scope(.post), message),
            Route(.put, "/v1/messages/{id}", .scope(.post), replace),
            Route(.delete, "/v1/messages/{id}", .scope(.post), delete),
            Route(.post, "/v1/messages/{id}:clear", .scope(.post), clear),
            Route(.post, "/v1/messages/{id}:resolve", .scope(.post), resolve),
        ]
    }

    /// `PUT /v1/messages/{id}`: replaces the content.
    func replace(_ request: Request, _ context: ChatContext) async throws -> Response {
        let form = try await MessageForm.read(
            request, names: ["revision", "renotify", "not_before"], environment.stores.records)
        let edit = MessageChangeRequest.Action.edit(
            try form.content(form.text ?? ""), revision: try form.fields.count("revision"),
            renotify: try form.fields.isTrue("renotify"), notBefore: try form.fields.time("not_before"))
        return try await change(edit, in: form.room, request, context)
    }

    /// `POST /v1/messages/{id}:clear`: removes the notification from devices.
    func clear(_ request: Request, _ context: ChatContext) async throws -> Response {
        try await change(.clear, in: room(request), request, context)
    }

    /// `POST /v1/messages/{id}:resolve`: ends the key, with a last text or without.
    func resolve(_ request: Request, _ context: ChatContext) async throws -> Response {
        let form = try await MessageForm.read(
            request, names: ["renotify"], isOptional: true, environment.stores.records)
        let action = MessageChangeRequest.Action.resolve(
            try form.optionalContent(), renotify: try form.fields.isTrue("renotify"))
        return try await change(action, in: form.room, request, context)
    }

    /// `DELETE /v1/messages/{id}`
    func delete(_ request: Request, _ context: ChatContext) async throws -> Response {
        let receipt = try await posting.change(
            context.reference(), in: room(request), .delete, request, context)
        var response = Responses.noContent
        if receipt.isRepeat { response.headers[.idempotencyReplayed] = "true" }
        return response
    }

    /// `GET /v1/messages/{id}`: for an administrator the progress of the message, for its author the message.
    func message(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "limit", "cursor"])
        let (reference, room) = (try context.reference(), try await query.room(environment.stores.records))
        let author = try posting.author(of: reference, in: room, request, context)
        let rooms = RoomsAPI(environment: environment)
        if author.isAdmin, room == nil, case .id(let id) = reference {
            do throws(ChatError) {
                return try await rooms.progress(of: id, query)
            } catch  where error.code == .notFound {
                // It may be the number of a scheduled message.
            }
        }
        switch try await environment.stores.changes.find(reference, for: author) {
        case .scheduled(let message): return Responses.json(message.json)
        case .message(let record, _):
            if author.isAdmin { return try await rooms.progress(of: record.message.id, query) }
            return Responses.json(record.json(withText: true))
        }
    }

    /// Whether a request lists scheduled messages, rather than those of the room's history.
    @Sendable static func isOfSchedules(_ request: Request) -> Bool { request.uri.queryParameters["scheduled"] != nil }

    /// `GET /v1/messages?scheduled=true`: lists scheduled messages, those of a program for itself.
    func scheduled(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try context.caller()
        let query = try AdminQuery(request, names: ["room", "scheduled", "limit", "cursor"])
        guard try query.flag("scheduled") == true else { throw ChatError.invalid("scheduled", "must be true") }
        let room = try caller.room(await query.room(environment.stores.records))
        let page = try await environment.stores.changes.scheduled(
            in: room, author: caller.isAdmin ? nil : caller.writer, after: query.cursor(), limit: query.limit())
        return Responses.page("scheduled", page.items.map(\.json), next: .optional(page.next))
    }

    private func room(_ request: Request) async throws(ChatError) -> SecretCode? {
        try await AdminQuery(request, names: ["room"]).room(environment.stores.records)
    }

    private func change(
        _ action: MessageChangeRequest.Action, in room: SecretCode?, _ request: Request, _ context: ChatContext
    ) async throws(ChatError) -> Response {
        let receipt = try await posting.change(context.reference(), in: room, action, request, context)
        var headers = Responses.noStore
        if receipt.isRepeat { headers[.idempotencyReplayed] = "true" }
        return Responses.json(receipt.json, headers: headers)
    }
}

extension ChatContext {
    /// Returns the message that the path names.
    fileprivate func reference() throws(ChatError) -> MessageReference {
        try MessageReference(parsing: parameters.get("id") ?? "", field: "id")
    }
}

extension ScheduledMessage {
    fileprivate var json: JSONObject {
        var json: JSONObject = [
            "id": .number(id), "room": .string(room.text), "name": .string(nickname),
            "text": .string(content.text.text),
            "title": .optional(content.title), "link": .optional(content.link), "revision": .number(revision),
            "not_before": .time(due), "held": .bool(isHeld),
        ]
        for (name, value) in content.extras.shown { json[name] = value }
        json["key"] = key.map { .string($0.text) }
        return json
    }
}
