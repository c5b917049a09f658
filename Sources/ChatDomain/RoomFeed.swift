/// Where a member is, for a stream of its room.
package struct RoomPosition: Sendable, Hashable {
    package let code: SecretCode
    /// What came before is not the member's to read.
    package let historyFrom: MessageID
    /// The last message of all rooms: what is said in the room from now on has a higher id.
    package let last: MessageID

    package init(code: SecretCode, historyFrom: MessageID, last: MessageID) {
        self.code = code
        self.historyFrom = historyFrom
        self.last = last
    }
}

/// What has happened in rooms since it was asked last.
package struct RoomChanges: Sendable, Hashable {
    /// Rooms with new messages.
    package var messages: Set<SecretCode> = []
    /// Rooms that somebody has entered or left.
    package var memberships: Set<SecretCode> = []
    /// Who has entered or left.
    package var members: Set<MemberID> = []
    /// Of ``members``, those who did not leave by themselves.
    package var removed: Set<MemberID> = []
    /// Rooms whose members were all removed, or have moved to a new code; these are not in ``members``.
    package var closed: Set<SecretCode> = []
    /// Messages that were deleted, by their rooms.
    package var deleted: [SecretCode: [MessageID]] = [:]
    /// Rooms whose members have fetched something.
    package var reads: Set<SecretCode> = []
    /// Another process has written something: any of these, in any room.
    package var isUnknown = false

    package init() {}

    package var isEmpty: Bool { self == RoomChanges() }
}

/// Says what happens in rooms as it happens. For one listener.
package protocol RoomFeed: Sendable {
    /// Throws ``ChatError/Code/notJoined``.
    func position(of member: MemberID) async throws(ChatError) -> RoomPosition
    /// Those after an id, in order.
    func messages(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [Message]
    /// How far the last message has come that each of these members has written: of those among the room's last
    /// ``Receipt/recent`` messages, in rooms with up to ``Receipt/largestRoom`` members; none in larger ones.
    func receipts(in room: SecretCode, for members: Set<MemberID>) async throws(ChatError) -> [MemberID: Receipt]
    /// Whether a room was given a new code, and this is its code now.
    func hasMoved(_ room: SecretCode, to code: SecretCode) async throws(ChatError) -> Bool
    func memberCount(of room: SecretCode) async throws(ChatError) -> Int
    /// Yields when there are changes to take; merged while nobody looks. Collects from the first call on.
    func roomChanges() -> AsyncStream<Void>
    func takeRoomChanges() async -> RoomChanges
    /// A message, and what came before it, was handed out to a member. Kept in memory at first: nothing waits for it.
    func handedOut(_ message: MessageID, to member: MemberID)
}
