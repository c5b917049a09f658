/// A signed token with which the relay authenticates to the push service (Apple, "Establishing a token-based connection
/// to APNs").
package struct IssuedToken: Sendable, Hashable {
    /// The age up to which the relay uses a token. The service rejects it after one hour.
    package static let lifetime = Duration.seconds(50 * 60)
    /// The age from which the relay may replace a token. The service accepts no new token earlier.
    package static let shortestLife = Duration.seconds(20 * 60)
    /// The maximum time that the issue time may be in the future, for clocks that differ or are corrected. The service
    /// allows one hour.
    package static let tolerance = Duration.seconds(600)

    package let text: String
    package let issuedAt: Timestamp

    package init(text: String, issuedAt: Timestamp) {
        self.text = text
        self.issuedAt = issuedAt
    }

    /// Whether the relay may still send the token.
    package func isUsable(at now: Timestamp) -> Bool {
        issuedAt + Self.lifetime > now && issuedAt <= now + Self.tolerance
    }

    /// Whether the relay may sign another token although this one has not expired.
    package func mayBeReplaced(at now: Timestamp) -> Bool {
        issuedAt + Self.shortestLife <= now || issuedAt > now + Self.tolerance
    }
}

/// The identity of a signing key. Two apps of a team that share a key also share its token.
package struct ProviderKeyName: Sendable, Hashable {
    package let teamID: String
    package let keyID: String
    /// The fingerprint of the key itself. It distinguishes two keys with the same id.
    package let fingerprint: String

    package init(teamID: String, keyID: String, fingerprint: String) {
        self.teamID = teamID
        self.keyID = keyID
        self.fingerprint = fingerprint
    }
}

/// Stores signed tokens for later starts and for other processes: the service accepts a new token only every twenty
/// minutes.
package protocol ProviderTokenStore: Sendable {
    /// Returns the current token of a key. Signs and stores another token if none is stored, or if the stored one has
    /// expired. Also replaces a stored token that is `refused`, if it may already be replaced.
    ///
    /// - Parameters:
    ///   - refused: The token that the service has rejected. `nil` if it has rejected none.
    ///   - sign: Returns a token with the given issue time.
    func providerToken(
        for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
    ) async throws(ChatError) -> IssuedToken
}
