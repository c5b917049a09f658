package import APNSWire
package import ChatDomain

/// Where an app's provider tokens come from: a key signs them, a store keeps them as long as they must be reused.
package struct TokenSource: Sendable {
    private let key: ProviderKey
    private let name: ProviderKeyName
    private let store: any ProviderTokenStore

    package init(key: ProviderKey, store: any ProviderTokenStore) {
        self.key = key
        self.name = ProviderKeyName(teamID: key.teamID, keyID: key.keyID, fingerprint: key.fingerprint)
        self.store = store
    }

    /// The token in force; another than `refused`, the one that the service did not take, if it may be replaced already.
    package func token(refused: String?) async throws -> IssuedToken {
        let key = key
        return try await store.providerToken(for: name, refused: refused) { try key.token(issuedAt: $0.seconds) }
    }
}
