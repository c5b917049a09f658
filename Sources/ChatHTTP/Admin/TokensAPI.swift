import ChatDomain
import ChatHooks
import HTTPTypes
import Hummingbird
import Logging

/// Handles `/v1/tokens`, the access tokens of programs, and trials of webhooks' formats. ``AdminGuard`` authenticates
/// the caller.
struct TokensAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any TokenStore { environment.stores.tokens }

    var routes: [Route] {
        [
            Route(.get, "/v1/tokens", .scope(.admin), list),
            Route(.post, "/v1/tokens", .scope(.admin), create),
            Route(.delete, "/v1/tokens/{id}", .scope(.admin), revoke),
            Route(.get, "/v1/hooks", .scope(.admin), formats),
            Route(.post, "/v1/hooks:try", .scope(.admin), tryFormat),
        ]
    }

    /// `POST /v1/tokens`: returns the token, which cannot be retrieved again.
    func create(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(request, members: ["name", "scopes", "room", "to", "expires_at", "hook"])
        guard let name = try body.text("name") else { throw ChatError.missing("name") }
        let hook = try settings(body)
        let usual: JSONValue? = hook == nil ? nil : .texts([Scope.post.rawValue])
        guard let scopes = body.object["scopes"] ?? usual, scopes != .null else { throw ChatError.missing("scopes") }
        let grant = try AccessGrant(
            scopes: Set(
                AdminBody.list(scopes, "scopes", max: Scope.allCases.count) { text, field throws(ChatError) in
                    try Scope(parsing: text, field: field)
                }),
            room: await body.room(environment.stores.records),
            audience: body.object["to"] == nil ? nil : await Audience(body, environment.stores.records),
            hook: hook.flatMap { HookGrant(stored: $0.stored) })
        let expiresAt = try body.end("expires_at", now: environment.now())
        let (token, secret) = try await store.create(
            AccessToken.name(name), grant, expiresAt: expiresAt)
        log("token created", token.name, try context.caller(), context)
        var json = token.json
        json["token"] = .string(secret)
        if let hook {
            json["url"] = .string((environment.settings.publicURL ?? "") + HookAddress.path(of: secret, hook.format))
        }
        return Responses.json(json, status: .created)
    }

    // MARK: - Webhooks

    /// Reads the settings of a new webhook. `nil` if the request has none.
    private func settings(_ body: AdminBody) throws(ChatError) -> HookSettings? {
        guard let value = body.object["hook"], value != .null else { return nil }
        guard let object = value.object else { throw .invalid("hook", "must be an object, is \(value.kind)") }
        try AdminBody.requireKnown(object, ["format", "secret", "template"], prefix: "hook.")
        return try settings(of: AdminBody(object: object))
    }

    private func settings(of hook: AdminBody) throws(ChatError) -> HookSettings {
        guard let format = try hook.text("format") else { throw .missing("format") }
        let template = hook.object["template"].flatMap { $0 == .null ? nil : $0 }
        return try HookFormats.settings(
            format: format, secret: hook.text("secret"),
            template: template.map { template throws(ChatError) in try HookTemplate(template) })
    }

    /// `GET /v1/hooks`: lists the formats of webhooks.
    func formats(_ request: Request, _ context: ChatContext) throws -> Response {
        _ = try AdminQuery(request, names: [])
        let formats = HookFormats.all.map { format -> JSONValue in
            .object(["name": .string(format.name), "title": .string(format.title), "signed": .bool(format.isSigned)])
        }
        return Responses.json(["formats": .array(formats)])
    }

    /// `POST /v1/hooks:try`: returns the messages that a delivery would become. Posts nothing.
    func tryFormat(_ request: Request, _ context: ChatContext) async throws -> Response {
        let body = try await AdminBody.read(
            request, members: ["format", "template", "headers", "query", "body"], limit: 2 * HookRequest.bodyLimit)
        let settings = try settings(of: body)
        guard let text = try body.text("body") else { throw ChatError.missing("body") }
        guard text.utf8.count <= HookRequest.bodyLimit else {
            throw ChatError.invalid("body", "must have at most \(HookRequest.bodyLimit) bytes")
        }
        let invalid = ChatError.invalid("headers", "must be an object of texts by the headers' names")
        var headers = HTTPFields()
        if let given = body.object["headers"], given != .null {
            guard let members = given.object?.members else { throw invalid }
            for (name, value) in members {
                guard let name = HTTPField.Name(name), let value = value.text else { throw invalid }
                headers.append(HTTPField(name: name, value: value))
            }
        }
        let delivery = HookRequest(headers, query: try body.text("query") ?? "", body: Array(text.utf8))
        return Responses.json(HookFormats.named(settings.format)?.trial(delivery, settings) ?? [:])
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
