import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// The calls about Live Activities: start, update, end, and lists. ``AdminGuard`` authenticates the caller.
struct ActivitiesAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any ActivityStore { environment.stores.activities }

    var routes: [Route] {
        [
            Route(.post, "/v1/activities", .scope(.send), post),
            Route(.get, "/v1/activities", .scope(.send), activities),
            Route(.get, "/v1/activities/{id}", .scope(.send), activity),
        ]
    }

    private static let fields = ActivityContent.fields.union(["tag", "app", "to", "channel"])

    /// `POST /v1/activities`
    func post(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: Self.fields)
        let caller = try context.caller()
        guard let tag = try body.value("tag", ActivityTag.init(parsing:field:)) else { throw ChatError.missing("tag") }
        let app = try body.text("app").map(environment.app(named:)) ?? environment.configuration.app(named: nil)
        let content = try ActivityContent(body.object)
        let audience = try await audience(body, content.event, caller)
        let wantsChannel = try body.flag("channel")
        if wantsChannel, content.event != .start {
            throw ChatError.invalid("channel", "is only allowed with the event start")
        }
        // Check the size before the call is stored.
        _ = try environment.configuration.format(of: app).compose(
            content, tag: tag, timestamp: environment.now().seconds)
        let (activity, isRepeat) = try await store.accept(
            ActivityRequest(
                tag: tag, app: app, content: content, audience: audience, token: caller.token?.id,
                isAdministrator: caller.token?.grant.scopes.contains(.admin) ?? true, wantsChannel: wantsChannel))
        environment.logger.info(
            "Live Activity accepted",
            metadata: context.ids.metadata([
                LogKeys.activity: "\(activity.id)", LogKeys.event: "\(content.event.rawValue)",
                LogKeys.isRepeat: "\(isRepeat)", LogKeys.caller: "\(caller.name)",
            ]))
        return Responses.json(
            activity.json, status: .accepted,
            headers: Responses.location("/v1/activities/\(activity.id)", for: request))
    }

    /// Returns the devices of a start. `nil` if the apps start the activity themselves, and with other events.
    private func audience(
        _ body: AdminBody, _ event: ActivityContent.Event, _ caller: Caller
    ) async throws(ChatError) -> Audience? {
        guard let value = body.object["to"], value != .null else {
            if event == .start, let grant = caller.token?.grant, grant.audience != nil || grant.room != nil {
                throw ChatError(.forbidden, "This token may only start activities with to", field: "to")
            }
            return nil
        }
        guard event == .start else { throw .invalid("to", "is only allowed with the event start") }
        let audience = try await Audience(body, environment.stores.records)
        if let grant = caller.token?.grant, !grant.allows(audience) {
            throw ChatError(.forbidden, "This token may not send to this audience", field: "to")
        }
        return audience
    }

    /// `GET /v1/activities`: newest first. A token without the scope `admin` sees only activities that it started.
    func activities(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["limit", "cursor"])
        let page = try await store.activities(
            startedWith: context.caller().ownToken, before: query.cursor(), limit: query.limit())
        return Responses.page("activities", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/activities/{id}`
    func activity(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        _ = try AdminQuery(request, names: [])
        let activity = try await store.activity(id)
        if let token = try context.caller().ownToken, activity.token != token { throw ChatError.notFound("activity") }
        return Responses.json(activity.json)
    }
}

extension ActivityRecord {
    fileprivate var json: JSONObject {
        [
            "id": .number(id), "tag": .string(tag.text), "app": .string(app.text),
            "event": .string(newest.event.rawValue), "state": .optional(newest.state),
            "to": audience.map(\.json) ?? .null, "type": .string(start.type), "channel": .optional(channel?.json),
            "revision": .number(revision),
            "devices": .number(devices), "notifications": .array(startedBy.map { .number($0) }),
            "created_at": .time(createdAt), "updated_at": .time(updatedAt), "ended_at": .optional(endedAt),
        ]
    }
}

extension ActivityChannel {
    fileprivate var json: JSONObject { ["state": .string(state.rawValue), "id": .optional(id)] }
}

extension JSONValue {
    fileprivate static func optional(_ object: JSONObject?) -> JSONValue { object.map { .object($0) } ?? .null }
}
