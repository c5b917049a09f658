/// A session of the operator's own system.
package struct UserSession: Sendable, Hashable {
    package let user: UserReference
    /// From then on its token is refused, and its event streams end.
    package let end: Timestamp

    package init(user: UserReference, end: Timestamp) {
        self.user = user
        self.end = end
    }
}

/// Checks bearer tokens of sessions.
package protocol SessionVerifier: Sendable {
    /// Returns the session that the token is for. Throws ``ChatError/Code/unauthorized`` with the reason.
    func session(of token: String) async throws(ChatError) -> UserSession
}
