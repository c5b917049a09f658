/// The moderator or operator who acts, for the record of the action.
package struct Moderator: Sendable, Hashable {
    /// The name of an access token, or `admin`.
    package let name: String
    package let address: String?

    package init(name: String, address: String?) {
        self.name = name
        self.address = address
    }

    /// A person with access to the database, through a command.
    package static let commandLine = Moderator(name: "command line", address: nil)
    /// The relay, when a scheduled message is due.
    package static let schedule = Moderator(name: "schedule", address: nil)
}

/// A request to ban members, devices or addresses from a room or from all rooms, or to close a room.
package struct BanRequest: Sendable, Hashable {
    package enum Subject: Sendable, Hashable {
        /// A member, by its number. The ban covers the member's udid and device, in its room or in every room.
        case member(Int64, everywhere: Bool)
        /// A udid, in a room. `nil` for every room.
        case udid(MemberID, room: SecretCode?)
        case device(DeviceToken, room: SecretCode?)
        case address(BannedAddress, room: SecretCode?)
        /// Everyone. The ban closes the room.
        case room(SecretCode)
    }

    /// The maximum number of bytes of a reason.
    package static let longestReason = 255

    package let subject: Subject
    /// Whether the ban includes the address of the member's last request. Applies to ``Subject/member(_:everywhere:)``.
    /// The address must not be one of ``proxies`` or this machine's.
    package let includesAddress: Bool
    package let proxies: [AddressRange]
    /// The end of the ban. `nil` if it never ends.
    package let endsAt: Timestamp?
    /// The reason for the record. Banned members do not see it.
    package let reason: String?

    package init(
        _ subject: Subject, includesAddress: Bool = false, proxies: [AddressRange] = [], endsAt: Timestamp? = nil,
        reason: String? = nil
    ) {
        self.subject = subject
        self.includesAddress = includesAddress
        self.proxies = proxies
        self.endsAt = endsAt
        self.reason = reason
    }

    /// Whether the ban covers an address.
    package var concernsAddress: Bool {
        if case .address = subject { true } else { includesAddress }
    }

    /// Returns the address that a ban of a member includes. `nil` if the ban does not include the address.
    ///
    /// - Parameter text: The address of the member's last request.
    /// - Throws: ``ChatError/Code/invalidField`` if the address is not known or cannot be banned.
    package func address(lastUsed text: String?) throws(ChatError) -> BannedAddress? {
        guard includesAddress else { return nil }
        guard let address = text.flatMap({ IPAddress($0) }) else {
            throw .invalid("address", "is unknown for this member")
        }
        return try BannedAddress(address, proxies: proxies)
    }

    package static func reason(_ text: String) throws(ChatError) -> String {
        try FieldText.checked(text, field: "reason", limit: longestReason)
    }
}

/// A ban as the operator sees it, without the udid, which is the member's proof of identity.
package struct Ban: Sendable, Hashable {
    package let id: Int64
    /// The room of the ban. `nil` for every room.
    package let room: SecretCode?
    /// Whether the ban closes the room for everyone.
    package let isClosed: Bool
    /// The name of the banned member, if there was one.
    package let name: String?
    /// The device's token, shortened.
    package let device: String?
    /// The form of ``BannedAddress/text``.
    package let address: String?
    package let reason: String?
    package let createdAt: Timestamp
    package let endsAt: Timestamp?
    package let hasEnded: Bool

    package init(
        id: Int64, room: SecretCode?, isClosed: Bool, name: String?, device: String?, address: String?, reason: String?,
        createdAt: Timestamp, endsAt: Timestamp?, hasEnded: Bool
    ) {
        self.id = id
        self.room = room
        self.isClosed = isClosed
        self.name = name
        self.device = device
        self.address = address
        self.reason = reason
        self.createdAt = createdAt
        self.endsAt = endsAt
        self.hasEnded = hasEnded
    }
}

/// The client addresses that one ban covers: an IPv4 address, or a /64 network of IPv6, which belongs to one customer.
package struct BannedAddress: Sendable, Hashable {
    /// `192.0.2.7` or `2001:db8:0:1::/64`, as stored in the table `bans`.
    package let text: String

    /// Checks an address.
    ///
    /// - Parameter proxies: The trusted proxies, through which many clients connect.
    /// - Throws: ``ChatError/Code/invalidField`` for an address of this machine or of a proxy.
    package init(_ address: IPAddress, proxies: [AddressRange]) throws(ChatError) {
        // The /64 network of ::1 is 0.
        guard !address.isLoopback, address.rateKey.bits != 0, address != IPAddress(v4: 0) else {
            throw .invalid(
                "address", "\(address) is this machine; a ban would lock out every client that connects through it")
        }
        guard !proxies.contains(where: { $0.overlaps(address.rateKey) }) else {
            throw .invalid(
                "address", "\(address) is a trusted proxy; a ban would lock out every client that connects through it")
        }
        text = Self.text(of: address)
    }

    /// Reads and checks an address.
    ///
    /// - Parameter text: An address, or its /64 network.
    package init(parsing text: String, proxies: [AddressRange]) throws(ChatError) {
        let text = FieldText.trimmed(text)
        let isNetwork = text.contains(":") && text.hasSuffix("/64")
        guard let address = IPAddress(isNetwork ? text.dropLast(3) : text[...]) else {
            throw .invalid("address", "must be an IPv4 address, an IPv6 address or its /64 network")
        }
        try self.init(address, proxies: proxies)
    }

    /// Returns the form in which stores keep a client's address for bans. `nil` if the text is not an address.
    package static func text(of address: String?) -> String? {
        address.flatMap { IPAddress($0) }.map(text)
    }

    private static func text(of address: IPAddress) -> String {
        address.isV4 ? address.description : address.rateKey.description + "/64"
    }
}

/// The result of giving a room a new code.
package struct RecodedRoom: Sendable, Hashable {
    /// The number of members who are in the room now.
    package let members: Int
    /// The number of members who were removed because a ban applies to them.
    package let removed: Int

    package init(members: Int, removed: Int) {
        self.members = members
        self.removed = removed
    }
}

/// The record of one action of a moderator or operator.
package struct ModerationRecord: Sendable, Hashable {
    package enum Action: String, Sendable, CaseIterable {
        case remove, ban, unban, delete, close, open, recode
        /// Scheduled messages were dropped: the room was closed, or the token was revoked or may no longer post there.
        case unschedule
        /// Changes of the queue: ``QueueAdministration``.
        case retry, cancel, purge, pause, resume
        /// A webhook was created, changed or deleted, or got a new secret.
        case webhook
    }

    package let id: Int64
    /// An ``Action``, or any text that another program stored.
    package let action: String
    package let room: SecretCode?
    /// A member's name, a message's id, the room's previous code, a number of scheduled messages, or the pushes of a
    /// change of the queue.
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

/// Moderates rooms. Each change by a moderator writes one record in the same transaction.
package protocol Moderation: Sendable {
    /// Removes a member from its room, as if it had left. Its waiting pushes for the room are not sent.
    ///
    /// - Throws: ``ChatError/Code/notFound``.
    func remove(_ member: Int64, by moderator: Moderator) async throws(ChatError)
    /// Bans the subject. From then on ``RoomStore`` rejects everyone whom the ban covers. Members who are in a room are
    /// removed as by ``remove(_:by:)``.
    ///
    /// - Throws: ``ChatError/Code/notFound`` if the subject is a member that does not exist.
    func ban(_ request: BanRequest, by moderator: Moderator) async throws(ChatError) -> Ban
    /// Ends a ban now. The ban stays stored.
    ///
    /// - Throws: ``ChatError/Code/notFound``, also if the ban has already ended.
    func endBan(_ id: Int64, by moderator: Moderator) async throws(ChatError)
    /// Returns bans, newest first, including those that have ended.
    ///
    /// - Parameter room: The room whose bans to return. `nil` for all bans.
    func bans(in room: SecretCode?, before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Ban>
    /// Gives a room another code. Its members, history, bans, tokens and records move to the new code in one
    /// transaction. Members to whom a ban applies are removed as by ``remove(_:by:)``. The old code is closed for good.
    ///
    /// - Throws: ``ChatError/Code/notFound`` if nothing of the room is stored. ``ChatError/Code/conflict`` if the room
    ///   is closed or too large, or if the new code is in use or closed.
    func recode(_ room: SecretCode, to code: SecretCode, by moderator: Moderator) async throws(ChatError) -> RecodedRoom
    /// Deletes a message from all histories and streams, and cancels its waiting pushes.
    ///
    /// - Throws: ``ChatError/Code/notFound``.
    func delete(_ message: MessageID, by moderator: Moderator) async throws(ChatError)
    /// Deletes a message of a member as ``delete(_:by:)`` does, at the member's own request. Writes no record.
    ///
    /// - Throws: ``ChatError/Code/notJoined``. ``ChatError/notOwnMessage`` unless the member has written the message,
    ///   in the room where it is now.
    func deleteOwn(_ message: MessageID, of member: MemberID) async throws(ChatError)
    /// Returns moderation records, newest first.
    func records(before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ModerationRecord>
}
