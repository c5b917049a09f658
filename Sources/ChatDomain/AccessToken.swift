/// What the holder of a token may do.
package enum Scope: String, Sendable, Hashable, CaseIterable {
    /// Write messages to rooms.
    case post
    /// Read the messages of rooms.
    case read
    /// Send notifications to devices.
    case send
    /// Read totals, the queue's depth and metrics.
    case figures
    /// Everything.
    case admin
}

/// Where a token is good, and for what.
package struct AccessGrant: Sendable, Hashable {
    package let scopes: Set<Scope>
    /// Only this room; nil for any.
    package let room: SecretCode?
    /// Notifications only to these users or to devices with these tags; nil for anybody.
    package let audience: Audience?

    /// Refuses what would have no meaning: a limit without a scope that it limits.
    package init(scopes: Set<Scope>, room: SecretCode? = nil, audience: Audience? = nil) throws(ChatError) {
        guard !scopes.isEmpty else { throw .missing("scopes") }
        if scopes.contains(.admin) || scopes.contains(.figures) {
            guard room == nil, audience == nil else {
                throw .invalid("scopes", "admin and figures concern the whole relay: leave out room and to")
            }
        }
        if let audience {
            guard scopes.contains(.send) else { throw .invalid("to", "is for the scope send") }
            switch audience {
            case .users, .tags: break
            case .tokens, .room, .all: throw .invalid("to", "must be users or tags")
            }
        }
        self.scopes = scopes
        self.room = room
        self.audience = audience
    }

    /// Whether it opens what needs a scope; `admin` opens everything.
    package func includes(_ scope: Scope) -> Bool { scopes.contains(scope) || scopes.contains(.admin) }

    /// Whether it opens the messages of a room.
    package func reads(_ wanted: SecretCode) -> Bool { includes(.read) && (room == nil || room == wanted) }

    /// Whether it may send to all whom `wanted` names.
    package func allows(_ wanted: Audience) -> Bool {
        guard includes(.send) else { return false }
        switch (audience, wanted) {
        case (nil, .room(let code)): return room == nil || room == code
        case (nil, _): return room == nil
        case (.users(let allowed), .users(let wanted)): return Set(wanted).isSubset(of: allowed)
        case (.tags(let allowed), .tags(let wanted)): return Set(wanted).isSubset(of: allowed)
        default: return false
        }
    }
}

/// A program's token, without the secret: that is shown once, and kept as a hash.
package struct AccessToken: Sendable, Hashable {
    /// Of the database; never given to another token.
    package let id: Int64
    package let name: Nickname
    package let grant: AccessGrant
    package let createdAt: Timestamp
    package let expiresAt: Timestamp?
    /// Some seconds behind.
    package let lastUsedAt: Timestamp?
    package let lastUsedFrom: String?

    package init(
        id: Int64, name: Nickname, grant: AccessGrant, createdAt: Timestamp, expiresAt: Timestamp? = nil,
        lastUsedAt: Timestamp? = nil, lastUsedFrom: String? = nil
    ) {
        self.id = id
        self.name = name
        self.grant = grant
        self.createdAt = createdAt
        self.expiresAt = expiresAt
        self.lastUsedAt = lastUsedAt
        self.lastUsedFrom = lastUsedFrom
    }

    /// What every token begins with, so that scanners for secrets find it.
    package static let prefix = "pct_"
    /// Bytes of a name: it also signs the messages that are posted with the token.
    package static let longestName = 64

    package static func name(_ text: String, field: String = "name") throws(ChatError) -> Nickname {
        let name = try Nickname(parsing: text, field: field)
        guard name.text.utf8.count <= longestName else {
            throw .invalid(field, "must have at most \(longestName) bytes of UTF-8, has \(name.text.utf8.count)")
        }
        return name
    }
}

/// Keeps programs' tokens.
package protocol TokenStore: Sendable {
    /// Makes a token. Throws ``ChatError/Code/conflict`` where one of that name exists.
    /// - Returns: the secret too, which nobody can ask for again.
    func create(
        _ name: Nickname, _ grant: AccessGrant, expiresAt: Timestamp?
    ) async throws(ChatError) -> (token: AccessToken, secret: String)
    /// Whose secret it is; nil for nobody's, and for one that has expired. Sees at once what other processes revoke.
    func token(of secret: String) async throws(ChatError) -> AccessToken?
    /// In the order in which they were made.
    func tokens(after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<AccessToken>
    /// - Returns: the name of the one that was revoked; nil where there was none.
    func revoke(_ id: Int64) async throws(ChatError) -> Nickname?
    /// It was used. Kept in memory at first: nothing waits for it.
    func used(_ id: Int64, from address: String?)
}

extension Scope {
    package init(parsing text: String, field: String = "scopes") throws(ChatError) {
        guard let scope = Scope(rawValue: text) else {
            throw .invalid(field, "must be one of " + Scope.allCases.map(\.rawValue).joined(separator: ", "))
        }
        self = scope
    }
}

extension AccessToken {
    /// Without the secret.
    package var json: JSONObject {
        [
            "id": .number(id), "name": .string(name.text),
            "scopes": .texts(Scope.allCases.filter(grant.scopes.contains).map(\.rawValue)),
            "room": .optional(grant.room?.text), "to": grant.audience?.json ?? .null, "created_at": .time(createdAt),
            "expires_at": .optional(expiresAt), "last_used_at": .optional(lastUsedAt),
            "last_used_from": .optional(lastUsedFrom),
        ]
    }
}
