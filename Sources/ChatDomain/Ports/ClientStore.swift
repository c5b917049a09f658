/// The name of a room as a topic of ntfy: 22 characters of base64url with 128 random bits. It stays the same when the
/// room gets a new code. A reader also needs a token or a credential.
package struct RoomAlias: Sendable, Hashable {
    package let text: String

    /// Wraps a name that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    /// A new alias, which cannot be guessed.
    package static func random() -> RoomAlias { RoomAlias(stored: AccessToken.randomText(bytes: 16)) }
}

/// A room as clients of other servers see it.
package struct ClientRoom: Sendable, Hashable {
    /// The number of the room, which Gotify's clients use as the id of an application. It is never reused.
    package let id: Int64
    package let code: SecretCode
    /// `nil` until a call of ``ClientStore/alias(of:)``.
    package let alias: RoomAlias?
    package let title: RoomTitle?
    package let createdAt: Timestamp

    package init(id: Int64, code: SecretCode, alias: RoomAlias?, title: RoomTitle? = nil, createdAt: Timestamp) {
        self.id = id
        self.code = code
        self.alias = alias
        self.title = title
        self.createdAt = createdAt
    }
}

/// The owner of credentials, as the store looks it up.
package enum CredentialOwner: Sendable, Hashable {
    /// The member with this udid, in the room where it is now.
    case member(MemberID)
    /// The access token with this id.
    case token(Int64)
}

/// The authority with which a credential is made.
package enum CredentialMaker: Sendable, Hashable {
    /// The owner itself, on a relay without sessions; or an access token.
    case owner
    /// The member, with a session of this user.
    case session(UserReference)
    /// Another credential of the owner, with this id. The new one has the same user and the same end.
    case credential(Int64)
}

/// The messages that a client of another server may read, without those that it has hidden.
package struct ClientReading: Sendable, Hashable {
    /// The room. `nil` for all rooms.
    package var room: SecretCode?
    /// Only messages after this one.
    package var after: MessageID
    /// The client whose hidden messages are left out: `clientKey` of the caller.
    package var client: String

    package init(room: SecretCode?, after: MessageID = 0, client: String) {
        self.room = room
        self.after = after
        self.client = client
    }
}

/// Stores what the clients of other servers need: credentials, the aliases of rooms, and hidden messages.
package protocol ClientStore: Sendable {
    // MARK: Credentials

    /// Creates a credential.
    ///
    /// - Returns: The credential, and its secret, which cannot be retrieved again.
    /// - Throws: ``ChatError/Code/notJoined`` if the member is in no room. ``ChatError/Code/notFound`` if there is no
    ///   such token, or if the credential that makes this one has ended. ``ChatError/Code/conflict`` if the owner has ``Credential/perMember`` or ``Credential/perToken``
    ///   credentials.
    func createCredential(
        _ name: Nickname, for owner: CredentialOwner, by maker: CredentialMaker
    ) async throws(ChatError) -> (credential: Credential, secret: String)
    /// Returns the credential of a secret. `nil` if there is none, if its token has expired, or if its member has had no
    /// session for ``StoreSettings/credentialLifetime``. Sees the end of memberships and tokens at once, also in other
    /// processes.
    func credential(of secret: String) async throws(ChatError) -> Credential?
    /// Returns an owner's credentials in the order of their creation.
    func credentials(of owner: CredentialOwner) async throws(ChatError) -> [Credential]
    /// Returns all credentials in the order of their creation, or those of a room's members.
    func credentials(
        ofMembersOf room: SecretCode?, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<Credential>
    /// Revokes a credential.
    ///
    /// - Parameter owner: Revokes only a credential of this owner. `nil` for any owner.
    /// - Returns: The name of the revoked credential. `nil` if there is no such credential.
    func revokeCredential(_ id: Int64, of owner: CredentialOwner?) async throws(ChatError) -> Nickname?
    /// Revokes all credentials of a user.
    ///
    /// - Returns: The number of revoked credentials.
    func revokeCredentials(ofUser user: UserReference) async throws(ChatError) -> Int
    /// Records a member's call with a valid session of a user: the member's credentials of this user live on, and those
    /// without a user get it. The record is kept in memory at first, so the call does not wait.
    func hadSession(_ member: MemberID, of user: UserReference)
    /// Records a use of a credential. The record is kept in memory at first, so the call does not wait.
    func usedCredential(_ id: Int64, from address: String?)

    // MARK: Rooms

    /// Returns the room with this code. Creates its row if necessary.
    func room(_ code: SecretCode) async throws(ChatError) -> ClientRoom
    /// Returns the room with this id. `nil` if there is none.
    func room(id: Int64) async throws(ChatError) -> ClientRoom?
    /// Returns the rooms in the order of their ids.
    func rooms(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ClientRoom>
    /// Returns the room's alias. Creates it if necessary.
    func alias(of room: SecretCode) async throws(ChatError) -> RoomAlias
    /// Returns the code of the room with this alias. `nil` if there is none.
    func room(aliased alias: RoomAlias) async throws(ChatError) -> SecretCode?

    // MARK: Messages

    /// Returns messages, the newest first.
    ///
    /// - Parameter before: Only messages before this one. `nil` for all.
    func messages(
        _ reading: ClientReading, before: MessageID?, limit: Int
    ) async throws(ChatError) -> [MessageRecord]
    /// Returns a message. `nil` if there is none that the client may read and has not hidden.
    func message(_ id: MessageID, _ reading: ClientReading) async throws(ChatError) -> MessageRecord?
    /// Hides a message from a client. Others still see it. A client that has hidden ``mostHidden`` messages one by one
    /// loses its older history at once.
    func hide(_ message: MessageID, from client: String) async throws(ChatError)
    /// Hides all messages up to `last` from a client, in one room or in all rooms.
    func hideAll(upTo last: MessageID, in room: SecretCode?, from client: String) async throws(ChatError)
}

extension ClientStore {
    package func createCredential(
        _ name: Nickname, for owner: CredentialOwner
    ) async throws(ChatError) -> (credential: Credential, secret: String) {
        try await createCredential(name, for: owner, by: .owner)
    }

    /// The maximum number of messages that a client hides one by one.
    package static var mostHidden: Int { 10_000 }
}
