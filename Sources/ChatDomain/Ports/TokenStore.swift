/// Stores programs' access tokens.
package protocol TokenStore: Sendable {
    /// Creates a token.
    ///
    /// - Returns: The token, and its secret, which cannot be retrieved again.
    /// - Throws: ``ChatError/Code/conflict`` if a token with this name exists.
    func create(
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?, form: AccessToken.Form
    ) async throws(ChatError) -> (token: AccessToken, secret: String)
    /// Returns the token of a secret. `nil` if there is none, or if it has expired. Sees revocations of other processes
    /// at once.
    func token(of secret: String) async throws(ChatError) -> AccessToken?
    /// Returns tokens in the order of their creation.
    func tokens(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<AccessToken>
    /// Revokes a token, and drops its scheduled messages, with a record for each room.
    ///
    /// - Returns: The name of the revoked token. `nil` if there is no such token.
    func revoke(_ id: Int64, by moderator: Moderator) async throws(ChatError) -> Nickname?
    /// Records a use of a token. The record is kept in memory at first, so the call does not wait.
    func used(_ id: Int64, from address: String?)
}

extension TokenStore {
    /// Creates a token whose secret has the relay's own form.
    package func create(
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?
    ) async throws(ChatError) -> (token: AccessToken, secret: String) {
        try await create(name, grant, expiresAt: expiresAt, form: .relay)
    }
}
