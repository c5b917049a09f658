/// A permission of an access token.
package enum Scope: String, Sendable, Hashable, CaseIterable {
    /// Post messages to rooms.
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

/// The permissions of an access token and their limits.
package struct AccessGrant: Sendable, Hashable {
    package let scopes: Set<Scope>
    /// The only room that the token applies to. `nil` for any room.
    package let room: SecretCode?
    /// The only users or tags that the token may send notifications to. `nil` for any audience.
    package let audience: Audience?
    /// The only webhook that the token is for. `nil` for a token that programs send to the relay's APIs.
    package let hook: HookGrant?

    /// Rejects meaningless combinations: a limit without a scope to which it applies.
    package init(
        scopes: Set<Scope>, room: SecretCode? = nil, audience: Audience? = nil, hook: HookGrant? = nil
    ) throws(ChatError) {
        guard !scopes.isEmpty else { throw .missing("scopes") }
        if hook != nil {
            guard scopes == [.post] else { throw .invalid("scopes", "must be post alone for a webhook") }
            guard room != nil else {
                throw ChatError(.missingField, "Missing room: a webhook posts in one", field: "room")
            }
        }
        if scopes.contains(.admin) || scopes.contains(.figures) {
            guard room == nil, audience == nil else {
                throw .invalid("scopes", "admin and figures concern the whole relay: leave out room and to")
            }
        }
        if let audience {
            guard scopes.contains(.send) else { throw .invalid("to", "needs the scope send") }
            switch audience {
            case .users, .tags: break
            case .tokens, .room, .all: throw .invalid("to", "must be users or tags")
            }
        }
        self.scopes = scopes
        self.room = room
        self.audience = audience
        self.hook = hook
    }

    /// Whether the token permits an action that needs the scope. `admin` includes all scopes.
    package func includes(_ scope: Scope) -> Bool { scopes.contains(scope) || scopes.contains(.admin) }

    /// Whether the token may read the messages of a room.
    package func reads(_ wanted: SecretCode) -> Bool { includes(.read) && (room == nil || room == wanted) }

    /// Whether the token may post messages to a room.
    package func posts(to wanted: SecretCode) -> Bool { includes(.post) && (room == nil || room == wanted) }

    /// Whether the token may send to everyone in the audience.
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

/// A program's token without its secret. The secret is shown once, and stored as a hash.
package struct AccessToken: Sendable, Hashable {
    /// The id in the database. It is never reused.
    package let id: Int64
    package let name: Nickname
    package let grant: AccessGrant
    package let createdAt: Timestamp
    package let expiresAt: Timestamp?
    /// The time of the last use, a few seconds behind.
    package let lastUsedAt: Timestamp?
    package let lastUsedFrom: String?
    /// The deliveries to the token's webhook that could not be read. `nil` if there were none.
    package let unreadable: UnreadableDeliveries?

    package init(
        id: Int64, name: Nickname, grant: AccessGrant, createdAt: Timestamp, expiresAt: Timestamp? = nil,
        lastUsedAt: Timestamp? = nil, lastUsedFrom: String? = nil, unreadable: UnreadableDeliveries? = nil
    ) {
        self.id = id
        self.name = name
        self.grant = grant
        self.createdAt = createdAt
        self.expiresAt = expiresAt
        self.lastUsedAt = lastUsedAt
        self.lastUsedFrom = lastUsedFrom
        self.unreadable = unreadable
    }

    package func isValid(at now: Timestamp) -> Bool { expiresAt.map { now < $0 } ?? true }

    /// The prefix of every token, so that secret scanners recognise it.
    package static let prefix = "pct_"
    /// The maximum number of bytes of a name. The name is also the sender's name of messages that are posted with the
    /// token.
    package static let longestName = 64

    package static func name(_ text: String, field: String = "name") throws(ChatError) -> Nickname {
        let name = try Nickname(parsing: text, field: field)
        guard name.text.utf8.count <= longestName else {
            throw .invalid(field, "must have at most \(longestName) bytes of UTF-8, has \(name.text.utf8.count)")
        }
        return name
    }
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
    /// The token as JSON, without its secret.
    package var json: JSONObject {
        var json: JSONObject = [
            "id": .number(id), "name": .string(name.text),
            "scopes": .texts(Scope.allCases.filter(grant.scopes.contains).map(\.rawValue)),
            "room": .optional(grant.room?.text), "to": grant.audience?.json ?? .null, "created_at": .time(createdAt),
            "expires_at": .optional(expiresAt), "last_used_at": .optional(lastUsedAt),
            "last_used_from": .optional(lastUsedFrom),
        ]
        json["hook"] = grant.hook.map { .object($0.json) }
        json["unreadable"] = unreadable.map { .object($0.json) }
        return json
    }
}
