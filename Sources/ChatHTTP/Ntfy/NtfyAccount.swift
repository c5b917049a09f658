import ChatDomain
import Hummingbird

/// ntfy's calls about the caller's account. Home Assistant and ntfy's web app make them.
extension NtfyAPI {
    /// `GET /ntfy/v1/account` without a credential.
    func anonymousAccount(_ request: Request, _ context: ChatContext) throws(ChatError) -> Response {
        try limiter.admit(request, context, environment.settings)
        return account("*", role: "anonymous")
    }

    /// `GET /ntfy/v1/account`
    func account(_ request: Request, _ context: ChatContext) throws(ChatError) -> Response {
        try limiter.admit(request, context, environment.settings)
        // Home Assistant rejects another name than the one that its user typed.
        let caller = try context.caller()
        return account(Self.userName(request) ?? caller.name, role: "user")
    }

    /// Returns the account with all numbers that clients require. The relay has rates instead of daily quotas.
    private func account(_ name: String, role: String) -> Response {
        let (unlimited, none) = (JSONValue.number(Self.unlimited), JSONValue.number(0))
        let limits: JSONObject = [
            "basis": .string("ip"), "messages": unlimited, "messages_expiry_duration": none, "emails": none,
            "calls": none, "reservations": none, "attachment_total_size": none, "attachment_file_size": none,
            "attachment_expiry_duration": none, "attachment_bandwidth": none,
        ]
        let stats: JSONObject = [
            "messages": none, "messages_remaining": unlimited, "emails": none, "emails_remaining": none,
            "calls": none, "calls_remaining": none, "reservations": none, "reservations_remaining": none,
            "attachment_total_size": none, "attachment_total_size_remaining": none,
        ]
        return Responses.json([
            "username": .string(name), "role": .string(role), "limits": .object(limits), "stats": .object(stats),
        ])
    }

    private static let unlimited: Int64 = 1_000_000

    /// `POST /ntfy/v1/account/token`: creates a credential with the caller's rights. The administrator
    /// gets its own secret back, which is not a credential of an app.
    func makeToken(_ request: Request, _ context: ChatContext) async throws -> Response {
        try limiter.admit(request, context, environment.settings)
        let caller = try context.caller()
        guard let sent = Self.credential(request) else { throw Self.forbidden }
        let label = try await label(request)
        let name = label ?? (try? Credential.name(caller.name)) ?? Nickname(stored: "ntfy")
        var secret = sent
        if let owner = caller.credentialOwner {
            try limiter.admit(caller.writer, limit: environment.settings.memberRate)
            secret = try await environment.stores.clients.createCredential(
                name, for: owner, by: caller.credentialMaker
            ).secret
            environment.logger.info(
                "credential created",
                metadata: context.ids.metadata([LogKeys.caller: "\(caller.name)", "name": "\(name.text)"]))
        }
        return Responses.json([
            "token": .string(secret), "label": .string(name.text),
            "last_access": .number(environment.now().seconds), "last_origin": .string(""),
        ])
    }

    /// Returns the label in the body as the name of a credential. `nil` if there is none, or none that a name can be.
    private func label(_ request: Request) async throws -> Nickname? {
        let bytes = try await RequestBody.read(request, limit: HTTPLimits.body)
        guard !bytes.isEmpty else { return nil }
        let value: JSONValue
        do throws(JSONValue.Malformed) {
            value = try JSONValue(parsing: bytes, isLenient: true)
        } catch {
            throw ChatError.malformed("The body is not valid JSON: \(error)")
        }
        guard let text = value.object?["label"]?.text else { return nil }
        return try? Credential.name(
            FieldText.fitting(text, limit: AccessToken.longestName, keepsLines: false))
    }
}
