import ChatDomain
import HTTPTypes
import Hummingbird

/// Handles `/v1/webhooks`, which send events to other programs. ``AdminGuard`` authenticates the caller.
struct WebhooksAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any WebhookStore { environment.stores.webhooks }

    var routes: [Route] {
        [
            Route(.get, "/v1/webhooks", .scope(.admin), list),
            Route(.post, "/v1/webhooks", .scope(.admin), create),
            Route(.get, "/v1/webhooks/{id}", .scope(.admin), show),
            Route(.patch, "/v1/webhooks/{id}", .scope(.admin), change),
            Route(.delete, "/v1/webhooks/{id}", .scope(.admin), delete),
            Route(.post, "/v1/webhooks/{id}:rotate", .scope(.admin), rotate),
            Route(.post, "/v1/webhooks/{id}:test", .scope(.admin), test),
            Route(.get, "/v1/webhooks/{id}/deliveries", .scope(.admin), deliveries),
            Route(.post, "/v1/webhooks/{id}:redeliver", .scope(.admin), redeliver),
        ]
    }

    private static let members: Set<String> = ["url", "room", "token", "events", "bot", "only_mentions"]

    /// `GET /v1/webhooks`: returns all webhooks, of which there are few.
    func list(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room"])
        let room = try await query.room(environment.stores.records)
        let all = try await store.webhooks().filter {
            room == nil || $0.settings.room == nil || $0.settings.room == room
        }
        return Responses.page("webhooks", all.map(\.json), next: .null)
    }

    /// `POST /v1/webhooks`: returns the secret, which cannot be retrieved again.
    func create(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: Self.members)
        guard let url = try body.text("url") else { throw ChatError.missing("url") }
        try environment.configuration.check(webhook: url)
        let settings = try WebhookSettings(
            url: url, room: await body.room(environment.stores.records), token: Self.token(body),
            events: Self.events(body),
            bot: body.value("bot", Nickname.init(parsing:field:)), onlyMentions: body.flag("only_mentions"))
        let secret = WebhookSecret.random()
        let webhook = try await store.create(settings, secret: secret, by: context.moderator(request, environment))
        return Responses.json(webhook.json(with: secret), status: .created)
    }

    /// `GET /v1/webhooks/{id}`
    func show(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        return Responses.json(try await webhook(context).json)
    }

    /// `PATCH /v1/webhooks/{id}`: an absent member keeps its value, and null removes it. `state` pauses and resumes.
    func change(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: Self.members.union(["state"]))
        let old = try await webhook(context).settings
        func has(_ name: String) -> Bool { body.object[name] != nil }
        let url = try body.text("url") ?? old.url
        if has("url") { try environment.configuration.check(webhook: url) }
        let settings = try WebhookSettings(
            url: url, room: has("room") ? await body.room(environment.stores.records) : old.room,
            token: has("token") ? Self.token(body) : old.token, events: Self.events(body) ?? old.events,
            bot: has("bot") ? body.value("bot", Nickname.init(parsing:field:)) : old.bot,
            onlyMentions: has("only_mentions") ? body.flag("only_mentions") : old.onlyMentions)
        let state = try body.value("state") { text, field throws(ChatError) in
            guard let state = Webhook.State(rawValue: text), state != .ended else {
                throw .invalid(field, "must be active or paused")
            }
            return state
        }
        let changed = try await store.change(
            context.pathID(), to: WebhookEdit(settings: settings, state: state),
            by: context.moderator(request, environment))
        return Responses.json(try Self.found(changed).json)
    }

    /// `DELETE /v1/webhooks/{id}`: also deletes its events.
    func delete(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try AdminQuery(request, names: [])
        guard try await store.delete(context.pathID(), by: context.moderator(request, environment)) else {
            throw ChatError.notFound("webhook")
        }
        return Responses.noContent
    }

    /// `POST /v1/webhooks/{id}:rotate`: returns a new secret. The old one also signs for a day.
    func rotate(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try await AdminBody.read(request, members: [], isOptional: true)
        let secret = WebhookSecret.random()
        let webhook = try await store.rotate(
            context.pathID(), to: secret, by: context.moderator(request, environment))
        return Responses.json(try Self.found(webhook).json(with: secret))
    }

    /// `POST /v1/webhooks/{id}:test`: sends an event without content.
    func test(_ request: Request, _ context: ChatContext) async throws -> Response {
        _ = try await AdminBody.read(request, members: [], isOptional: true)
        guard let id = try await store.test(context.pathID()) else { throw ChatError.notFound("webhook") }
        return Responses.json(["event": .number(id)], status: .accepted)
    }

    /// `GET /v1/webhooks/{id}/deliveries`: returns events with the last response, newest first.
    func deliveries(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["state", "limit", "cursor"])
        let state = try query.text("state").map { try WebhookEvent.State(parsing: $0) }
        _ = try await webhook(context)
        let page = try await store.deliveries(
            of: context.pathID(), in: state, before: query.cursor(), limit: query.limit())
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next))
    }

    /// `POST /v1/webhooks/{id}:redeliver`: sends events again, by their ids or by their state.
    func redeliver(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: ["events", "state"])
        _ = try await webhook(context)
        let chosen: WebhookRedelivery
        switch (body.object["events"], try body.text("state")) {
        case (let events?, nil):
            guard let ids = events.array?.map(\.integer), ids.count <= WebhookRedelivery.most, !ids.contains(nil) else {
                throw ChatError.invalid("events", "must be a list of at most \(WebhookRedelivery.most) ids")
            }
            chosen = .events(ids.compactMap(\.self))
        case (nil, let state?): chosen = try .all(in: state, field: "state")
        default: throw ChatError.invalid("events", "is needed, or state, but not both")
        }
        return Responses.json(["events": .number(try await store.redeliver(chosen, of: context.pathID()))])
    }

    // MARK: - Parts

    private func webhook(_ context: ChatContext) async throws -> Webhook {
        try Self.found(await store.webhook(context.pathID()))
    }

    private static func found(_ webhook: Webhook?) throws(ChatError) -> Webhook {
        guard let webhook else { throw .notFound("webhook") }
        return webhook
    }

    private static func events(_ body: AdminBody) throws(ChatError) -> Set<WebhookEventKind>? {
        guard let events = body.object["events"], events != .null else { return nil }
        return Set(
            try AdminBody.list(
                events, "events", max: WebhookEventKind.allCases.count, WebhookEventKind.init(parsing:field:)))
    }

    private static func token(_ body: AdminBody) throws(ChatError) -> Int64? {
        guard let token = body.object["token"], token != .null else { return nil }
        guard let id = token.integer else { throw .invalid("token", "must be the id of a token") }
        return id
    }
}
