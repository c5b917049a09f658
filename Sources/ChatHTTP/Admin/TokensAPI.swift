import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// Handles `/v1/tokens`, the access tokens of programs. ``AdminGuard`` authenticates the caller.
struct TokensAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any TokenStore { environment.stores.tokens }

    var routes: [Route] {
        [
            Route(.get, "/v1/tokens", .scope(.admin), list),
            Route(.post, "/v1/tokens", .scope(.admin), create),
            Route(.delete, "/v1/tokens/{id}", .scope(.admin), revoke),
        ]
    }

    /// `POST /v1/tokens`: returns the token, which cannot be retrieved again.
    func create(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: ["name", "scopes", "room", "to", "expires_at"])
        guard let name = try body.text("name") else { throw ChatError.missing("name") }
        guard let scopes = body.object["scopes"], scopes != .null else { throw ChatError.missing("scopes") }
        let grant = try AccessGrant(
            scopes: Set(
                AdminBody.list(scopes, "scopes", max: Scope.allCases.count) { text, field throws(ChatError) in
                    try Scope(parsing: text, field: field)
                }),
            room: await body.room(environment.stores.records),
            audience: body.object["to"] == nil ? nil : await Audience(body, environment.stores.records))
        let expiresAt = try body.end("expires_at", now: environment.now())
        let (token, secret) = try await store.create(
            AccessToken.name(name), grant, expiresAt: expiresAt)
        log("token created", token.name, try context.caller(), context)
        var json = token.json
        json["token"] = .string(secret)
        return Responses.json(json, status: .created)
    }

    /// `GET /v1/tokens`
    func list(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["limit", "cursor"])
        let page = try await store.tokens(after: query.cursor(), limit: query.limit())
        return Responses.page("tokens", page.items.map(\.json), next: .optional(page.next))
    }

    /// `DELETE /v1/tokens/{id}`: revokes the token immediately.
    func revoke(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        _ = try AdminQuery(request, names: [])
        guard let name = try await store.revoke(id, by: context.moderator(request, environment)) else {
            throw ChatError.notFound("token")
        }
        log("token revoked", name, try context.caller(), context)
        return Responses.noContent
    }

    private func log(_ message: Logger.Message, _ name: Nickname, _ caller: Caller, _ context: ChatContext) {
        environment.logger.notice(
            message,
            metadata: context.ids.metadata([
                "name": "\(name.text)",
                LogKeys.caller: "\(caller.name)",
            ]))
    }
}
