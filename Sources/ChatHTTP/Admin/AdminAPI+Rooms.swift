import ChatDomain
import Hummingbird

extension AdminAPI {
    /// `GET /v1/rooms`
    func rooms(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["prefix", "limit", "cursor"])
        let page = try await stores.records.rooms(
            startingWith: FieldText.composed(try query.code("prefix")?.text ?? ""), after: query.code("cursor"),
            limit: query.limit())
        return Self.page("rooms", page.rooms.map(\.json), next: .optional(page.next?.text))
    }

    /// `GET /v1/members`
    func members(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "limit", "cursor"])
        let page = try await stores.records.members(of: query.room(), after: query.cursor(), limit: query.limit())
        return Self.page("members", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/messages`
    func messages(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "limit", "cursor"])
        let page = try await stores.records.messages(of: query.room(), before: query.cursor(), limit: query.limit())
        return Self.page("messages", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/messages/{id}`
    func message(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try Self.id(context)
        let query = try AdminQuery(request, names: ["limit", "cursor"])
        let (limit, cursor) = (try query.limit(), try query.cursor())
        let progress = try await stores.records.progress(of: id)
        let page = try await stores.records.deliveries(ofMessage: id, after: cursor, limit: limit)
        var json = progress.message.json
        json["queueing"] = .bool(progress.isQueueing)
        json["counts"] = .object(JSONObject(counts: progress.counts))
        json["readers"] = .number(progress.readers)
        json["fetched"] = .number(progress.fetched)
        json["deliveries"] = .array(
            page.items.map { item in
                var json = item.delivery.json
                json["fetched"] = .bool(item.isFetched)
                return .object(json)
            })
        json["next"] = .optional(page.next)
        return Answers.json(.object(json))
    }

    /// `GET /v1/failures`
    func failures(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["app", "limit", "cursor"])
        let page = try await stores.records.failures(
            of: app(query.text("app")), before: query.cursor(), limit: query.limit())
        return Self.page("deliveries", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/warnings`
    func warnings(_ request: Request, _ context: ChatContext) throws -> Response {
        _ = try AdminQuery(request, names: [])
        return Answers.json(.object(["warnings": .array(recentWarnings())]))
    }
}

extension AdminQuery {
    /// A code, or how one begins: as it stands in the database, blanks at its ends included.
    fileprivate func code(_ name: String) throws(ChatError) -> SecretCode? {
        guard let text = text(name) else { return nil }
        guard !text.isEmpty else { throw .invalid(name, "must not be empty") }
        guard text.utf8.count <= SecretCode.longest else {
            throw .invalid(name, "must not be longer than \(SecretCode.longest) bytes")
        }
        guard !text.contains("\0") else { throw .invalid(name, "must not contain a NUL") }
        return SecretCode(stored: text)
    }

    /// The room that a call is about.
    fileprivate func room() throws(ChatError) -> SecretCode {
        guard let code = try code("room") else { throw ChatError(.missingField, "Missing room", field: "room") }
        return code
    }
}

extension RoomRecord {
    fileprivate var json: JSONObject {
        [
            "code": .string(code.text), "members": .number(members), "last_message": .optional(lastMessage),
            "last_message_at": .optional(lastMessageAt),
        ]
    }
}

extension MemberRecord {
    fileprivate var json: JSONObject {
        [
            "name": .string(nickname), "token": .optional(token), "app": .string(app.text),
            "joined_at": .time(joinedAt), "last_message_at": .optional(lastMessageAt),
            "fetched_to": .optional(fetchedTo), "fetched_at": .optional(fetchedAt),
        ]
    }
}

extension MessageRecord {
    fileprivate var json: JSONObject {
        [
            "id": .number(id), "room": .string(room.text), "name": .string(nickname), "bytes": .number(bytes),
            "sent_at": .time(sentAt),
        ]
    }
}
