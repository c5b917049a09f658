import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// Gotify's users and clients. The user is the owner of a credential, and the clients are its credentials.
extension GotifyAPI {
    /// `GET /gotify/current/user`. Apps call it to check a password or a token.
    func user(_ request: Request, _ context: ChatContext) throws -> Response {
        let caller = try admitted(request, context)
        var user: JSONObject = [
            "id": .number(0), "name": .string(caller.name), "admin": .bool(caller == .administrator),
            "createdAt": .time(environment.started),
        ]
        if let token = caller.token {
            (user["id"], user["name"]) = (.number(token.id), .string(token.name.text))
            user["createdAt"] = .time(token.createdAt)
        }
        if case .credential(let credential) = caller {
            if let member = caller.member {
                (user["id"], user["name"]) = (.number(member.id), .string(member.nickname.text))
                user["createdAt"] = .time(credential.createdAt)
            }
            user["clientId"] = .number(credential.id)
        }
        return Responses.json(user)
    }

    /// `POST /gotify/client`, in JSON or as a form: makes a credential of the caller's owner.
    func createCredential(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try admitted(request, context)
        let given =
            request.headers.mediaType == "application/json"
            ? try await AdminBody.readLenient(request, members: ["name"]).text("name")
            : try await FormFields.read(request).text(.name)
        guard let given else { throw ChatError.missing("name") }
        guard let owner = caller.credentialOwner else {
            throw ChatError(
                .forbidden, "The administrator's token has no clients: create a token (pushchat token create)")
        }
        // Apps name themselves after their device. A name that breaks our rules must not prevent a login.
        let fitting = FieldText.fitting(given, limit: AccessToken.longestName, keepsLines: false)
        let name = try Credential.name(fitting.replacing(": ", with: " "))
        let (credential, secret) = try await clients.createCredential(
            name, for: owner, by: caller.credentialMaker)
        log("credential created", name, caller, context)
        return Responses.json(Self.json(credential, token: secret))
    }

    /// `GET /gotify/client`. Gotify's app finds itself in the list by its token.
    func credentials(_ request: Request, _ context: ChatContext) async throws -> Response {
        let caller = try admitted(request, context)
        guard let owner = caller.credentialOwner else { return Responses.json([]) }
        let all = try await clients.credentials(of: owner)
        let own: Int64? = if case .credential(let credential) = caller { credential.id } else { nil }
        let sent = Self.credential(request)
        return Responses.json(all.map { Self.json($0, token: $0.id == own ? sent : nil) })
    }

    /// `DELETE /gotify/client/{id}`: revokes a credential of the caller's owner.
    func revokeCredential(_ request: Request, _ context: ChatContext) async throws -> Response {
        let (caller, id) = (try admitted(request, context), try context.pathID())
        guard let owner = caller.credentialOwner, let name = try await clients.revokeCredential(id, of: owner) else {
            throw ChatError.notFound("client")
        }
        log("credential revoked", name, caller, context)
        return Self.done
    }

    /// The response of a call without a result.
    static let done = Response(status: .ok, headers: Responses.noStore)

    private static func json(_ credential: Credential, token: String?) -> JSONObject {
        var json: JSONObject = ["id": .number(credential.id)]
        if let token { json["token"] = .string(token) }
        json["name"] = .string(credential.name.text)
        json["createdAt"] = .time(credential.createdAt)
        json["lastUsed"] = .optional(credential.lastUsedAt)
        json["expiresAfterInactivitySeconds"] = .number(0)
        return json
    }

    private func log(_ message: Logger.Message, _ name: Nickname, _ caller: Caller, _ context: ChatContext) {
        environment.logger.notice(
            message,
            metadata: context.ids.metadata(["name": "\(name.text)", LogKeys.caller: "\(caller.name)"]))
    }
}
