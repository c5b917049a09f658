import ChatDomain

/// The caller of a protected route.
enum Caller: Sendable, Hashable {
    /// A caller with the configuration's token, or one from this machine in development.
    case administrator
    case token(AccessToken)

    /// The name in records and log lines.
    var name: String {
        switch self {
        case .administrator: "admin"
        case .token(let token): token.name.text
        }
    }

    /// The writer's id in the store.
    var writer: MemberID {
        switch self {
        case .administrator: .administrator
        case .token(let token): .program(token: token.id)
        }
    }

    var token: AccessToken? {
        switch self {
        case .administrator: nil
        case .token(let token): token
        }
    }

    func require(_ scope: Scope) throws(ChatError) {
        guard let grant = token?.grant, !grant.includes(scope) else { return }
        let scopes = Scope.allCases.filter(grant.scopes.contains).map(\.rawValue).joined(separator: ", ")
        throw ChatError(.forbidden, "This call needs a token with the scope \(scope.rawValue); this one has \(scopes)")
    }

    /// Returns the room of a call. A token for one room need not name it.
    func room(_ named: SecretCode?) throws(ChatError) -> SecretCode {
        guard let own = token?.grant.room else {
            guard let named else { throw .missing("room") }
            return named
        }
        guard named == nil || named == own else {
            throw ChatError(.forbidden, "This token is for another room", field: "room")
        }
        return own
    }

    /// Returns the key under which the store keeps a caller's `Idempotency-Key`, so that callers' keys never collide.
    func key(_ key: String?) -> String? { key.map { token == nil ? $0 : "\(writer):\($0)" } }
}
