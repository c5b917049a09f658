import ChatDomain

/// The caller of a protected route.
enum Caller: Sendable, Hashable {
    /// A caller with the configuration's token, or one from this machine in development.
    case administrator
    case token(AccessToken)
    /// Another app with a credential of a member or of an access token. Only routes for such apps admit it.
    case credential(Credential)

    /// The name in records and log lines.
    var name: String {
        switch self {
        case .administrator: "admin"
        case .token(let token): token.name.text
        case .credential(let credential): credential.name.text
        }
    }

    /// The writer's id in the store.
    var writer: MemberID {
        if let member { return member.member }
        return token.map { .program(token: $0.id) } ?? .administrator
    }

    /// The id for which the caller's reads and streams count. Each app with a credential of a token counts for itself.
    var reader: MemberID {
        guard case .credential = self, token != nil else { return writer }
        return MemberID(stored: "\(writer) \(clientKey)")
    }

    /// The access token that the call uses. `nil` for the administrator, and for a member's credential.
    var token: AccessToken? {
        switch self {
        case .administrator: nil
        case .token(let token): token
        case .credential(let credential): if case .token(let token) = credential.owner { token } else { nil }
        }
    }

    /// Whether the caller may do everything.
    var isAdmin: Bool { self == .administrator || token?.grant.scopes.contains(.admin) ?? false }

    /// The id of the token to which the caller's view of notifications and Live Activities is limited. `nil` for administrators.
    var ownToken: Int64? { token.flatMap { $0.grant.scopes.contains(.admin) ? nil : $0.id } }

    /// The member to whom the caller's credential belongs.
    var member: CredentialMember? {
        guard case .credential(let credential) = self, case .member(let member) = credential.owner else { return nil }
        return member
    }

    /// The key under which the store keeps what the caller has hidden.
    var clientKey: String {
        switch self {
        case .administrator: "admin"
        case .token(let token): "token:\(token.id)"
        case .credential(let credential): "credential:\(credential.id)"
        }
    }

    /// Whether the caller may read a room's messages.
    func reads(_ room: SecretCode) -> Bool {
        if let member { return member.room == room }
        return token?.grant.reads(room) ?? true
    }

    /// A member's credential has the scopes `post` and `read`.
    func require(_ scope: Scope) throws(ChatError) {
        if member != nil { return }
        guard let grant = token?.grant, !grant.includes(scope) else { return }
        let scopes = Scope.allCases.filter(grant.scopes.contains).map(\.rawValue).joined(separator: ", ")
        throw ChatError(.forbidden, "This call needs a token with the scope \(scope.rawValue); this one has \(scopes)")
    }

    /// Returns the room of a call. A token for one room need not name it.
    func room(_ named: SecretCode?) throws(ChatError) -> SecretCode {
        guard let own = onlyRoom else {
            guard let named else { throw .missing("room") }
            return named
        }
        guard named == nil || named == own else {
            throw ChatError(.forbidden, "This token is for another room", field: "room")
        }
        return own
    }

    /// The only room that the caller may use. `nil` for any room.
    var onlyRoom: SecretCode? { member?.room ?? token?.grant.room }

    /// The owner of the credentials that the caller may make. `nil` for the administrator.
    var credentialOwner: CredentialOwner? {
        if let member { return .member(member.member) }
        return token.map { .token($0.id) }
    }

    /// The authority with which the caller makes credentials.
    var credentialMaker: CredentialMaker {
        if case .credential(let credential) = self { .credential(credential.id) } else { .owner }
    }

    /// The owner of the topics to which the caller subscribes. `nil` for the administrator.
    var pushOwner: UnifiedPushOwner? { member.map { .member($0.id) } ?? token.map { .token($0.id) } }

    /// Returns the key under which the store keeps a caller's `Idempotency-Key`, so that callers' keys never collide.
    func key(_ key: String?) -> String? { key.map { self == .administrator ? $0 : "\(writer):\($0)" } }
}
