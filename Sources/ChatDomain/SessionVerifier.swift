/// Tells by a bearer token whose session it is.
package protocol SessionVerifier: Sendable {
    /// The user that the token speaks for. Throws ``ChatError/Code/unauthorized`` with the reason.
    func user(of token: String) async throws(ChatError) -> UserReference
}
