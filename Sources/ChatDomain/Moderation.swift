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
        case address(BannedAddress, room: SecretCode?)
        /// Everybody: the room is closed.
        case room(SecretCode)
    }

    /// Bytes of a reason.
    package static let longestReason = 255

    package let subject: Subject
    /// With ``Subject/member(_:everywhere:)``: also bans the address of the member's last request, unless it is one of
    /// ``proxies`` or this machine's.
    package let includesAddress: Bool
    package let proxies: [AddressRange]
    /// Nil for never.
    package let endsAt: Timestamp?
    /// For the record; the banned are not shown it.
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

    /// The address that a ban of a member includes; `nil` for none.
    /// - Parameter text: that of the member's last request.
    /// - Throws: ``ChatError/Code/invalidField`` where it cannot be banned.
    package func address(lastUsed text: String?) throws(ChatError) -> BannedAddress? {
        guard includesAddress else { return nil }
        guard let address = text.flatMap({ IPAddress($0) }) else {
            throw .invalid("address", "is not known of this member")
        }
        return try BannedAddress(address, proxies: proxies)
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
    /// As ``BannedAddress/text``.
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

/// The client addresses that one ban keeps out: an IPv4 address, or a /64 network of IPv6, which is one customer's.
package struct BannedAddress: Sendable, Hashable {
    /// `192.0.2.7` or `2001:db8:0:1::/64`, as the table `bans` stores it.
    package let text: String

    /// - Parameter proxies: the trusted proxies, through which many clients come.
    /// - Throws: ``ChatError/Code/invalidField`` for an address of this machine or of a proxy.
    package init(_ address: IPAddress, proxies: [AddressRange]) throws(ChatError) {
        // The network of ::1 is 0.
        guard !address.isLoopback, address.rateKey.bits != 0, address != IPAddress(v4: 0) else {
            throw .invalid("address", "\(address) is this machine; a ban would keep out everybody who comes through it")
        }
        guard !proxies.contains(where: { $0.overlaps(address.rateKey) }) else {
            throw .invalid(
                "address", "\(address) is a trusted proxy; a ban would keep out everybody who comes through it")
        }
        text = Self.text(of: address)
    }

    /// - Parameter text: an address, or the /64 network of one.
    package init(parsing text: String, proxies: [AddressRange]) throws(ChatError) {
        let text = FieldText.trimmed(text)
        let isNetwork = text.contains(":") && text.hasSuffix("/64")
        guard let address = IPAddress(isNetwork ? text.dropLast(3) : text[...]) else {
            throw .invalid("address", "must be an IPv4 address, an IPv6 address or its /64 network")
        }
        try self.init(address, proxies: proxies)
    }

    /// The bannable form of a client's address, as stores keep it; `nil` if it is none.
    package static func text(of address: String?) -> String? {
        address.flatMap { IPAddress($0) }.map(text)
    }

    private static func text(of address: IPAddress) -> String {
        address.isV4 ? address.description : address.rateKey.description + "/64"
    }
}

/// What a new code for a room has changed.
package struct RecodedRoom: Sendable, Hashable {
    /// Members who are in the room now.
    package let members: Int
    /// Members whom a ban concerned.
    package let removed: Int

    package init(members: Int, removed: Int) {
        self.members = members
        self.removed = removed
    }
}

/// What was done, by whom and when.
package struct ModerationRecord: Sendable, Hashable {
    package enum Action: String, Sendable, CaseIterable {
        case remove, ban, unban, delete, close, open, recode
    }

    package let id: Int64
    /// An ``Action``, or what another program wrote.
    package let action: String
    package let room: SecretCode?
    /// A member's name, a message's number, or the code that a room had before.
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
    /// Gives a room another code: its members, history, bans, tokens and records move there in one transaction. Members whom a
    /// ban concerns are removed, as by ``remove(_:by:)``. The old code is closed for good.
    ///
    /// Throws ``ChatError/Code/notFound`` for a room of which nothing is stored, and ``ChatError/Code/conflict`` for one that
    /// is closed or too large, or for a code that is in use or closed.
    func recode(_ room: SecretCode, to code: SecretCode, by moderator: Moderator) async throws(ChatError) -> RecodedRoom
    /// The message is in no history and no stream any more, and its waiting pushes are cancelled. Throws
    /// ``ChatError/Code/notFound``.
    func delete(_ message: MessageID, by moderator: Moderator) async throws(ChatError)
    /// The newest first.
    func records(before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<ModerationRecord>
}
