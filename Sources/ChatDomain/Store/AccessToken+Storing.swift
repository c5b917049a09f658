import Foundation

extension AccessToken {
    /// Bytes of a secret: nobody guesses it, and a plain hash of it is enough.
    private static let secretSize = 32

    /// A new secret: random bytes in base64url, after the prefix.
    package static func makeSecret() -> String {
        var random = SystemRandomNumberGenerator()
        let bytes = (0..<secretSize).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        return prefix
            + Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
            .replacing("=", with: "")
    }

    /// A row of `api_tokens`; nil for one that another program has changed into one that grants nothing.
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
    /// The scopes as they are stored: a JSON array, always in the same order.
    package var storedScopes: String {
        JSONValue.texts(Scope.allCases.filter(scopes.contains).map(\.rawValue)).description
    }
}
