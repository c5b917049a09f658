import ChatDomain
import Hummingbird
import Logging
import WebAssets

/// The admin API for the operator's programs, with its own calls for diagnostics. ``AdminGuard`` authenticates the
/// caller.
struct AdminAPI: Sendable {
    let environment: ChatEnvironment
    let metrics: AdminMetrics

    /// The routes of the APIs of all subjects.
    var routes: [Route] {
        DevicesAPI(environment: environment).routes + NotificationsAPI(environment: environment).routes
            + ActivitiesAPI(environment: environment).routes + RoomsAPI(environment: environment).routes
            + ModerationAPI(environment: environment).routes + TokensAPI(environment: environment).routes
            + WebhooksAPI(environment: environment).routes
            + QueueAPI(environment: environment).routes + CredentialsAPI(environment: environment).routes
            + metrics.routes + [
                Route(.get, "/v1/failures", .scope(.admin), failures),
                Route(.get, "/v1/warnings", .scope(.admin), warnings),
                Route(.get, "/v1/openapi.json", .scope(.admin), description),
            ]
    }

    /// `GET /v1/failures`
    func failures(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["app", "limit", "cursor"])
        let page = try await environment.stores.records.failures(
            of: environment.app(query.text("app")), before: query.cursor(), limit: query.limit())
        return Responses.page("deliveries", page.items.map(\.json), next: .optional(page.next))
    }

    /// `GET /v1/warnings`
    func warnings(_ request: Request, _ context: ChatContext) throws -> Response {
        _ = try AdminQuery(request, names: [])
        return Responses.json(["warnings": .array(environment.relay.recentWarnings)])
    }

    private static let openAPI = WebFile("/v1/openapi.json", "application/json", WebFile.embedded("openapi.json"))

    /// `GET /v1/openapi.json`: the OpenAPI document of the admin API.
    func description(_ request: Request, _ context: ChatContext) throws -> Response {
        _ = try AdminQuery(request, names: [])
        return Self.openAPI.response(to: request)
    }
}

extension ChatEnvironment {
    /// Returns the app that a request names. `nil` if it names none.
    func app(_ name: String?) throws(ChatError) -> AppName? {
        guard let name else { return nil }
        guard !name.isEmpty else { throw .invalid("app", "must not be empty") }
        return try app(named: name)
    }

    /// Returns the app with a name or topic.
    func app(named name: String) throws(ChatError) -> AppName {
        do throws(ChatError) {
            return try configuration.app(named: name)
        } catch {
            throw .invalid("app", "names no app of this relay")
        }
    }

    /// Logs an operator's action.
    func note(_ action: Logger.Message, _ values: Logger.Metadata, by moderator: Moderator, _ context: ChatContext) {
        var values = values
        values[LogKeys.caller] = "\(moderator.name)"
        values[LogKeys.address] = "\(moderator.address ?? "unknown")"
        logger.notice(action, metadata: context.ids.metadata(values))
    }
}

extension ChatContext {
    /// The operator who called, for the record of an action.
    func moderator(_ request: Request, _ environment: ChatEnvironment) throws(ChatError) -> Moderator {
        let client = ClientAddress.find(request, self, trusted: environment.settings.trustedProxies)
        return Moderator(name: try caller().name, address: client?.description)
    }
}
