import ChatDomain
import Hummingbird

/// `cmd=credential`: the secrets with which other apps read the member's room and write as the member.
extension ChatAPI {
    private enum Verb: String, CaseIterable {
        case create, list, revoke
    }

    /// The name of a credential that is created without one.
    private static let anotherApp = "Another app"

    /// Responds in JSON whatever the client accepts, because a credential and a list have no text form.
    func credential(_ call: Call) throws(ChatError) -> Action {
        guard let action = Verb(rawValue: try call.optional(.action) ?? Verb.create.rawValue) else {
            throw .invalid(
                FormField.action.key, "must be one of " + Verb.allCases.map(\.rawValue).joined(separator: ", "))
        }
        return switch action {
        case .create: try createCredential(call)
        case .list: listCredentials(call)
        case .revoke: try revokeCredential(call)
        }
    }

    private func createCredential(_ call: Call) throws(ChatError) -> Action {
        let name = try Credential.name(call.optional(.name) ?? Self.anotherApp)
        return { member in
            // Create the alias first: a failure then leaves no credential behind.
            let topic = try await topic(of: member)
            let (credential, secret) = try await environment.stores.clients.createCredential(
                name, for: .member(member.id), by: member.session.map { .session($0.user) } ?? .owner)
            logger.info("credential created", metadata: call.metadata(member, [LogKeys.credential: "\(credential.id)"]))
            return response(
                [
                    "credential": .string(secret), "id": .number(credential.id), "name": .string(credential.name.text),
                    "topic": .string(topic),
                ], call.settings)
        }
    }

    private func listCredentials(_ call: Call) -> Action {
        { member in
            let topic = try await topic(of: member)
            let credentials = try await environment.stores.clients.credentials(of: .member(member.id))
            return response(
                ["credentials": .array(credentials.map { .object($0.jsonOfOwner) }), "topic": .string(topic)],
                call.settings)
        }
    }

    /// Adds the addresses that users type into clients of other servers.
    private func response(_ object: JSONObject, _ settings: ChatHTTPSettings) -> Response {
        var object = object
        for (name, address) in servers.addresses(settings) { object[name] = .optional(address) }
        return Responses.json(object)
    }

    private func revokeCredential(_ call: Call) throws(ChatError) -> Action {
        guard let id = try call.number(.id, 0...Int64.max, "must be a whole number, 0 or more") else {
            throw .missing(FormField.id.key)
        }
        return { member async throws(ChatError) in
            guard try await environment.stores.clients.revokeCredential(id, of: .member(member.id)) != nil else {
                throw .notFound("credential")
            }
            logger.info("credential revoked", metadata: call.metadata(member, [LogKeys.credential: "\(id)"]))
            return Responses.ok(asJSON: true)
        }
    }

    /// Returns the name of the member's room in clients of other servers.
    private func topic(of member: AdmittedMember) async throws(ChatError) -> String {
        let room = try await environment.stores.feed.position(of: member.id).code
        return try await environment.stores.clients.alias(of: room).text
    }
}

extension Credential {
    /// The form for the member who owns the credential.
    fileprivate var jsonOfOwner: JSONObject {
        [
            "id": .number(id), "name": .string(name.text), "created_at": .time(createdAt),
            "last_used_at": .optional(lastUsedAt), "last_used_from": .optional(lastUsedFrom),
        ]
    }
}
