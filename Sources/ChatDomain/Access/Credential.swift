/// A secret with which another app reads and posts: a client of ntfy or Gotify. It belongs to a member of a room, or to
/// an access token. The secret is shown once, and stored as a hash.
package struct Credential: Sendable, Hashable {
    /// The right that a credential carries.
    package enum Owner: Sendable, Hashable {
        /// A member. The credential reads the member's room and posts in the member's name. It ends when the member
        /// leaves or is removed, and follows the room to a new code.
        case member(CredentialMember)
        /// An access token. The credential has its rights, and ends with it.
        case token(AccessToken)
    }

    /// The id in the database. It is never reused.
    package let id: Int64
    package let name: Nickname
    package let owner: Owner
    package let createdAt: Timestamp
    /// The time of the last use, a few seconds behind.
    package let lastUsedAt: Timestamp?
    package let lastUsedFrom: String?
    /// The user of the member's sessions. `nil` for a token's credential, or if the member has had no session yet.
    package let user: UserReference?
    /// The user's last call with a valid session, up to an hour behind.
    package let sessionAt: Timestamp?

    package init(
        id: Int64, name: Nickname, owner: Owner, createdAt: Timestamp, lastUsedAt: Timestamp? = nil,
        lastUsedFrom: String? = nil, user: UserReference? = nil, sessionAt: Timestamp? = nil
    ) {
        self.id = id
        self.name = name
        self.owner = owner
        self.createdAt = createdAt
        self.lastUsedAt = lastUsedAt
        self.lastUsedFrom = lastUsedFrom
        self.user = user
        self.sessionAt = sessionAt
    }

    /// The prefix of every credential's secret, so that secret scanners recognise it.
    package static let prefix = "pcc_"
    /// The maximum number of credentials of a member, and of an access token.
    package static let perMember = 20
    package static let perToken = 200

    /// A new secret: the prefix, then random bytes in base64url.
    package static func makeSecret() -> String { AccessToken.makeSecret(prefix: prefix) }

    package static func name(_ text: String, field: String = "name") throws(ChatError) -> Nickname {
        try AccessToken.name(text, field: field)
    }

    /// The credential as JSON, without its secret.
    package var json: JSONObject {
        var json: JSONObject = [
            "id": .number(id), "name": .string(name.text), "created_at": .time(createdAt),
            "last_used_at": .optional(lastUsedAt), "last_used_from": .optional(lastUsedFrom),
        ]
        switch owner {
        case .member(let member):
            json["room"] = .string(member.room.text)
            json["member"] = .number(member.id)
            json["nickname"] = .string(member.nickname.text)
            json["user_reference"] = user.map { .string($0.text) }
            json["session_at"] = sessionAt.map { .time($0) }
        case .token(let token):
            json["room"] = .optional(token.grant.room?.text)
            json["token"] = .string(token.name.text)
        }
        return json
    }
}

/// The member to whom a credential belongs.
package struct CredentialMember: Sendable, Hashable {
    /// The id of the member's stay in the room (`member_id`).
    package let id: Int64
    package let member: MemberID
    package let nickname: Nickname
    package let room: SecretCode
    /// The member may read only messages after this one.
    package let historyFrom: MessageID

    package init(id: Int64, member: MemberID, nickname: Nickname, room: SecretCode, historyFrom: MessageID) {
        self.id = id
        self.member = member
        self.nickname = nickname
        self.room = room
        self.historyFrom = historyFrom
    }
}
