/// Who keeps order, for the record.
package struct Moderator: Sendable, Hashable {
    /// A token's name, or `admin`.
    package let name: String
    package let address: String?

    package init(name: String, address: String?) {
        self.name = name
        self.address = address
    }
}

/// Who is to be kept out of a room or of all, from now on.
package struct BanRequest: Sendable, Hashable {
    package enum Subject: Sendable, Hashable {
        /// A member, by its number: its udid and its device, from its room or from every room.
        case member(Int64, everywhere: Bool)
        /// From a room; nil for every room.
        case udid(MemberID, room: SecretCode?)
        case device(DeviceToken, room: SecretCode?)
        /// Everybody: the room is closed.
        case room(SecretCode)
    }

    /// Bytes of a reason.
    package static let longestReason = 255

    package let subject: Subject
    /// Nil for never.
    package let endsAt: Timestamp?
    /// For the record; the banned are not shown it.
    package let reason: String?

    package init(_ subject: Subject, endsAt: Timestamp? = nil, reason: String? = nil) {
        self.subject = subject
        self.endsAt = endsAt
        self.reason = reason
    }

    package static func reason(_ text: String) throws(ChatError) -> String {
        try FieldText.checked(text, field: "reason", limit: longestReason)
    }
}

/// A ban as the operator sees it. Without the udid: it is what a member proves itself with.
package struct Ban: Sendable, Hashable {
    package let id: Int64
    /// Nil for every room.
    package let room: SecretCode?
    /// Nobody may come in.
    package let isClosed: Bool
    /// As the member was called, if there was one.
    package let name: String?
    /// Shortened.
    package let device: String?
    package let reason: String?
    package let createdAt: Timestamp
    package let endsAt: Timestamp?
    package let hasEnded: Bool

    package init(
        id: Int64, room: SecretCode?, isClosed: Bool, name: String?, device: String?, reason: String?,
        createdAt: Timestamp, endsAt: Timestamp?, hasEnded: Bool
    ) {
        self.id = id
        self.room = room
        self.isClosed = isClosed
        self.name = name
        self.device = device
        self.reason = reason
        self.createdAt = createdAt
        self.endsAt = endsAt
        self.hasEnded = hasEnded
    }
}

/// What was done, by whom and when.
package struct ModerationRecord: Sendable, Hashable {
    package enum Action: String, Sendable, CaseIterable {
        case remove, ban, unban, delete, close, open
    }

    package let id: Int64
    /// An ``Action``, or what another program wrote.
    package let action: String
    package let room: SecretCode?
    /// A member's name, or a message's number.
    package let subject: String?
    package let actor: String
    package let address: String?
    package let at: Timestamp

    package init(
        id: Int64, action: String, room: SecretCode?, subject: String?, actor: String, address: String?, at: Timestamp
    ) {
        self.id = id
        self.action = action
        self.room = room
        self.subject = subject
        self.actor = actor
        self.address = address
        self.at = at
    }
}

/// Keeps order in rooms. Each call that changes something leaves one record, in the same transaction.
package protocol Moderation: Sendable {
    /// As if the member had left, and its waiting pushes of the room are not sent. Throws ``ChatError/Code/notFound``.
    func remove(_ member: Int64, by moderator: Moderator) async throws(ChatError)
    /// From then on ``RoomStore`` refuses whom it concerns; those who are in are removed, as by ``remove(_:by:)``.
    /// Throws ``ChatError/Code/notFound`` for a member.
    func ban(_ request: BanRequest, by moderator: Moderator) async throws(ChatError) -> Ban
    /// The ban ends now, and stays for the record. Throws ``ChatError/Code/notFound``, also where it has ended.
    func endBan(_ id: Int64, by moderator: Moderator) async throws(ChatError)
    /// The newest first, those that have ended too.
    /// - Parameter room: only bans from this room; nil for all.
    func bans(in room: SecretCode?, before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Ban>
    /// The message is in no history and no stream any more, and its waiting pushes are cancelled. Throws
    /// ``ChatError/Code/notFound``.
    func delete(_ message: MessageID, by moderator: Moderator) async throws(ChatError)
    /// The newest first.
    func records(before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ModerationRecord>
}
