import Foundation

extension AccessToken {
    /// The number of random bytes in a secret. With this many, nobody can guess it, and a plain hash of it is safe to
    /// store.
    private static let secretSize = 32

    /// The form of a token's secret.
    package enum Form: String, Sendable, CaseIterable {
        /// ``AccessToken/prefix``, then random bytes in base64url.
        case relay
        /// The form of the tokens of Gotify's applications, which some programs check before they send: `A`, then 14
        /// letters or digits. It has fewer random bits: 84. The limit of wrong tokens keeps them from being guessed.
        case gotify
    }

    private static let gotifyPrefix = "A"
    private static let gotifyLength = 15

    /// Whether a secret may be that of a token, as far as its form shows.
    package static func isSecret(_ text: String) -> Bool {
        text.hasPrefix(prefix) || (text.hasPrefix(gotifyPrefix) && text.utf8.count == gotifyLength)
    }

    package static func makeSecret(_ form: Form) -> String {
        switch form {
        case .relay: makeSecret()
        // 11 bytes are 15 characters.
        case .gotify: gotifyPrefix + randomText(bytes: 11).prefix(gotifyLength - gotifyPrefix.count)
        }
    }

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
        id: Int64, name: String, scopes: String, room: String?, audience: String?, hook: String?,
        createdAt: Timestamp, expiresAt: Timestamp?, lastUsedAt: Timestamp?, lastUsedFrom: String?, unreadable: String?
    ) {
        let hookGrant = hook.flatMap { HookGrant(stored: $0) }
        // A token for a webhook must never become valid elsewhere.
        guard (hook == nil) == (hookGrant == nil) else { return nil }
        let scopes = (try? JSONValue(parsing: scopes))?.array?.compactMap { $0.text.flatMap(Scope.init) }
        let grant = try? AccessGrant(
            scopes: Set(scopes ?? []), room: room.map(SecretCode.init(stored:)),
            audience: audience.map(Audience.init(stored:)), hook: hookGrant)
        guard let grant else { return nil }
        self.init(
            id: id, name: Nickname(stored: name), grant: grant, createdAt: createdAt, expiresAt: expiresAt,
            lastUsedAt: lastUsedAt, lastUsedFrom: lastUsedFrom,
            unreadable: unreadable.flatMap { UnreadableDeliveries(stored: $0) })
    }
}

extension AccessGrant {
    /// The scopes in stored form: a JSON array, always in the same order.
    package var storedScopes: String {
        JSONValue.texts(Scope.allCases.filter(scopes.contains).map(\.rawValue)).description
    }
}
