/// A user's session in the operator's own system.
package struct UserSession: Sendable, Hashable {
    package let user: UserReference
    /// The end of the session. From then on its token is rejected, and its event streams end.
    package let end: Timestamp

    package init(user: UserReference, end: Timestamp) {
        self.user = user
        self.end = end
    }
}

/// Verifies the bearer tokens of sessions.
package protocol SessionVerifier: Sendable {
    /// Returns the session of a token.
    ///
    /// - Throws: ``ChatError/Code/unauthorized`` with the reason.
    func session(of token: String) async throws(ChatError) -> UserSession
}
