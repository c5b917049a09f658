import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// Lists rooms, members and messages, and changes the settings of a room. ``AdminGuard`` authenticates the caller.
struct RoomsAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any RoomRecords { environment.stores.records }

    var routes: [Route] {
        [
            Route(.get, "/v1/rooms", .scope(.admin), rooms),
            Route(.patch, "/v1/rooms", .scope(.admin), editRoom),
            Route(.get, "/v1/members", .scope(.admin), members),
            Route(.get, "/v1/messages", .scope(.read), messages),
        ]
    }

    /// `GET /v1/rooms`
    func rooms(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["prefix", "limit", "cursor"])
        let page = try await store.rooms(
            startingWith: FieldText.composed(try query.code("prefix")?.text ?? ""), after: query.code("cursor"),
            limit: query.limit())
        return Responses.page("rooms", page.rooms.map(\.json), next: .optional(page.next?.text))
    }

    /// `PATCH /v1/rooms`: changes the operator's settings for a room.
    func editRoom(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: ["room", "history", "title"])
        guard let room = try await body.room(store) else { throw ChatError.missing("room") }
        let edit = RoomEdit(
            history: try body.change("history", RoomHistory.init(parsing:field:)),
            title: try body.change("title", RoomTitle.init(parsing:field:)))
        guard edit != RoomEdit() else {
            throw ChatError(.missingField, "Missing history or title", field: "history")
        }
        let choices = try await store.edit(room, edit)
        let caller = try context.caller().name
        environment.logger.info("room changed", metadata: context.ids.metadata([LogKeys.caller: "\(caller)"]))
        return Responses.json([
            "room": .string(room.text), "history": .optional(choices.history?.rawValue),
            "title": .optional(choices.title?.text),
        ])
    }

    /// `GET /v1/members`
    func members(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "limit", "cursor"])
        let page = try await store.members(
            of: context.caller().room(await query.room(store)), after: query.cursor(), limit: query.limit())
        return Responses.page("members", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/messages`: newest first, or oldest first after the message in `since`.
    func messages(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "since", "search", "text", "reach", "limit", "cursor"])
        let room = try context.caller().room(await query.room(store))
        let (since, cursor) = (try query.since(), try query.cursor())
        guard since == nil || cursor == nil else {
            throw ChatError.invalid("since", "cannot go together with cursor: give the last message's id")
        }
        let search = try query.value("search", SearchText.init(parsing:field:))
        guard search == nil || since == nil else { throw ChatError.invalid("since", "cannot go together with search") }
        let withText = try query.flag("text") ?? false
        let withReach = try query.flag("reach") ?? false
        guard try !withReach || query.limit() <= HTTPLimits.reachPage else {
            throw ChatError.invalid("limit", "must be at most \(HTTPLimits.reachPage) with reach")
        }
        let page =
            if let search {
                try await store.search(
                    MessageSearch(search, in: .room(room), before: cursor), limit: query.limit())
            } else {
                try await store.messages(
                    of: room, since.map { .oldestFirst(after: $0) } ?? .newestFirst(before: cursor),
                    limit: query.limit())
            }
        var items = page.items.map { $0.json(withText: withText) }
        if withReach {
            for (index, reach) in try await store.reach(of: page.items).enumerated() {
                items[index]["sent"] = .number(reach.sent)
                items[index]["readers"] = .number(reach.readers)
                items[index]["fetched"] = .number(reach.fetched)
            }
        }
        return Responses.page("messages", items, next: .optional(page.next))
    }

    /// Responds with a message's progress and a page of its pushes.
    func progress(of id: MessageID, _ query: AdminQuery) async throws(ChatError) -> Response {
        let (limit, cursor) = (try query.limit(), try query.cursor())
        let progress = try await store.progress(of: id)
        let page = try await store.deliveries(ofMessage: id, after: cursor, limit: limit)
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next), of: progress.json)
    }
}

extension RoomRecord {
    fileprivate var json: JSONObject {
        [
            "code": .string(code.text), "members": .number(members), "last_message": .optional(lastMessage),
            "last_message_at": .optional(lastMessageAt), "history": .optional(choices.history?.rawValue),
            "title": .optional(choices.title?.text),
        ]
    }
}

extension MemberRecord {
    fileprivate var json: JSONObject {
        [
            "id": .number(id), "name": .string(nickname), "token": .optional(token), "app": .string(app.text),
            "joined_at": .time(joinedAt), "last_message_at": .optional(lastMessageAt),
            "fetched_to": .optional(fetchedTo), "fetched_at": .optional(fetchedAt),
            "shown_to": .optional(shownTo),
        ]
    }
}

extension MessageProgress {
    fileprivate var json: JSONObject {
        var json = message.json(withText: false)
        json["queueing"] = .bool(isQueueing)
        json["counts"] = .object(JSONObject(counts: counts))
        json["readers"] = .number(readers)
        json["shown"] = .number(shown)
        json["fetched"] = .number(fetched)
        json["fetched_by"] = .array(fetchedBy.map { .string($0) })
        return json
    }
}

extension MessageDelivery {
    fileprivate var json: JSONObject {
        var json = delivery.json
        json["fetched"] = .bool(isFetched)
        return json
    }
}
