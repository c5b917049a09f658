/// A signed token with which the relay proves itself to the push service.
package struct IssuedToken: Sendable, Hashable {
    /// How old it may become. The service refuses it after an hour (apns-http2.md §5).
    package static let lifetime = Duration.seconds(50 * 60)
    /// How old it has to be until the service accepts another.
    package static let shortestLife = Duration.seconds(20 * 60)
    /// How far in the future its time may lie: clocks that differ, or are corrected. The service takes an hour.
    package static let tolerance = Duration.seconds(600)

    package let text: String
    package let issuedAt: Timestamp

    package init(text: String, issuedAt: Timestamp) {
        self.text = text
        self.issuedAt = issuedAt
    }

    /// Whether it can still be shown to the service.
    package func isUsable(at now: Timestamp) -> Bool {
        issuedAt + Self.lifetime > now && issuedAt <= now + Self.tolerance
    }

    /// Whether another may be made though this one has not run out.
    package func mayBeReplaced(at now: Timestamp) -> Bool {
        issuedAt + Self.shortestLife <= now || issuedAt > now + Self.tolerance
    }
}

/// Which key signs: two apps of a team that share a key share the token, too.
package struct ProviderKeyName: Sendable, Hashable {
    package let teamID: String
    package let keyID: String
    /// Of the key itself: another key under the same id is another key.
    package let fingerprint: String

    package init(teamID: String, keyID: String, fingerprint: String) {
        self.teamID = teamID
        self.keyID = keyID
        self.fingerprint = fingerprint
    }
}

/// Keeps the signed tokens where a restart and another process find them: the service accepts a new one only every
/// twenty minutes.
package protocol ProviderTokenStore: Sendable {
    /// The token in force for a key. Another is signed, and stored before it is used, where there is none, where its
    /// time has run out, or where it is the one that the service `refused` and it may be replaced already.
    /// - Parameter sign: makes a token that says it was issued at the time.
    func providerToken(
        for key: ProviderKeyName, refused: String?, sign: @escaping @Sendable (Timestamp) throws -> String
    ) async throws(ChatError) -> IssuedToken
}
