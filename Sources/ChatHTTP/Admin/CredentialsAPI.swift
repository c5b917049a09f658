import ChatDomain
import HTTPTypes
import Hummingbird

/// Handles `/v1/credentials`, the secrets of other apps. ``AdminGuard`` authenticates the caller.
struct CredentialsAPI: Sendable {
    let environment: ChatEnvironment

    private var store: any ClientStore { environment.stores.clients }

    var routes: [Route] {
        [
            Route(.get, "/v1/credentials", .scope(.admin), list),
            Route(.delete, "/v1/credentials", .scope(.admin), revokeAll),
            Route(.delete, "/v1/credentials/{id}", .scope(.admin), revoke),
        ]
    }

    /// `GET /v1/credentials`: all credentials, or those of a room's members.
    func list(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["room", "limit", "cursor"])
        let page = try await store.credentials(
            ofMembersOf: query.room(environment.stores.records), after: query.cursor(), limit: query.limit())
        return Responses.page("credentials", page.items.map(\.json), next: .optional(page.next))
    }

    /// `DELETE /v1/credentials?user=`: revokes all credentials of a user immediately.
    func revokeAll(_ request: Request, _ context: ChatContext) async throws -> Response {
        let query = try AdminQuery(request, names: ["user"])
        guard let text = query.text("user") else { throw ChatError.missing("user") }
        let count = try await store.revokeCredentials(ofUser: UserReference(parsing: text, field: "user"))
        let caller = try context.caller()
        environment.logger.notice(
            "credentials revoked",
            metadata: context.ids.metadata([LogKeys.count: "\(count)", LogKeys.caller: "\(caller.name)"]))
        return Responses.json(["revoked": .number(count)])
    }

    /// `DELETE /v1/credentials/{id}`: revokes the credential immediately.
    func revoke(_ request: Request, _ context: ChatContext) async throws -> Response {
        let id = try context.pathID()
        _ = try AdminQuery(request, names: [])
        guard try await store.revokeCredential(id, of: nil) != nil else { throw ChatError.notFound("credential") }
        let caller = try context.caller()
        environment.logger.notice(
            "credential revoked",
            metadata: context.ids.metadata([LogKeys.credential: "\(id)", LogKeys.caller: "\(caller.name)"]))
        return Responses.noContent
    }
}
