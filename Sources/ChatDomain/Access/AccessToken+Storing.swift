import Foundation

extension AccessToken {
    /// The number of random bytes in a secret. With this many, nobody can guess it, and a plain hash of it is safe to
    /// store.
    private static let secretSize = 32

    /// A new secret: the prefix, then random bytes in base64url.
    package static func makeSecret(prefix: String = prefix) -> String { prefix + randomText(bytes: secretSize) }

    /// Random bytes in base64url without padding.
    package static func randomText(bytes count: Int) -> String {
        var random = SystemRandomNumberGenerator()
        let bytes = (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        return Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
            .replacing("=", with: "")
    }

    /// Reads a row of `api_tokens`. `nil` if another program has changed the row so that it grants nothing.
    package init?(
        id: Int64, name: String, scopes: String, room: String?, audience: String?, createdAt: Timestamp,
        expiresAt: Timestamp?, lastUsedAt: Timestamp?, lastUsedFrom: String?
    ) {
        let scopes = (try? JSONValue(parsing: scopes))?.array?.compactMap { $0.text.flatMap(Scope.init) }
        let grant = try? AccessGrant(
            scopes: Set(scopes ?? []), room: room.map(SecretCode.init(stored:)),
            audience: audience.map(Audience.init(stored:)))
        guard let grant else { return nil }
        self.init(
            id: id, name: Nickname(stored: name), grant: grant, createdAt: createdAt, expiresAt: expiresAt,
            lastUsedAt: lastUsedAt, lastUsedFrom: lastUsedFrom)
    }
}

extension AccessGrant {
    /// The scopes in stored form: a JSON array, always in the same order.
    package var storedScopes: String {
        JSONValue.texts(Scope.allCases.filter(scopes.contains).map(\.rawValue)).description
    }
}
