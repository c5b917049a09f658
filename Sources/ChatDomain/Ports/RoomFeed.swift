/// A member's position in its room, where an event stream begins.
package struct RoomPosition: Sendable, Hashable {
    package let code: SecretCode
    /// The member may read only messages after this one.
    package let historyFrom: MessageID
    /// The newest message of all rooms. Messages that are posted in the room from now on have higher ids.
    package let last: MessageID

    package init(code: SecretCode, historyFrom: MessageID, last: MessageID) {
        self.code = code
        self.historyFrom = historyFrom
        self.last = last
    }
}

/// The number of a room's members, and its title: what streams report about the room itself.
package struct RoomSummary: Sendable, Hashable {
    package let members: Int
    package let title: RoomTitle?

    package init(members: Int, title: RoomTitle? = nil) {
        self.members = members
        self.title = title
    }
}

/// The changes in rooms since the last ``RoomFeed/takeRoomChanges()``.
package struct RoomChanges: Sendable, Hashable {
    /// Rooms with new messages, or with changes of messages.
    package var messages: Set<SecretCode> = []
    /// Topics of UnifiedPush with new pushes.
    package var topics: Set<UnifiedPushTopic> = []
    /// Rooms that a member has entered or left, or that have another title.
    package var memberships: Set<SecretCode> = []
    /// Members that have entered or left.
    package var members: Set<MemberID> = []
    /// The members that a moderator removed. They are also in ``members``.
    package var removed: Set<MemberID> = []
    /// Rooms whose members were all removed or have moved to a new code. These members are not in ``members``.
    package var closed: Set<SecretCode> = []
    /// Deleted messages, by room.
    package var deleted: [SecretCode: [MessageID]] = [:]
    /// Rooms whose members have fetched messages.
    package var reads: Set<SecretCode> = []
    /// Whether the details are unknown, because another process has written or there were too many changes. Any change
    /// in any room is possible.
    package var isUnknown = false
    /// Every message up to this one is in a room of ``messages`` or a topic of ``topics``, of these or of earlier
    /// changes, or is older than the listener. A message of another room may come before a later one. `nil` if the feed
    /// does not know.
    package var completeTo: MessageID?

    package init() {}

    /// Whether nothing has changed.
    package var isEmpty: Bool {
        var changes = self
        changes.completeTo = nil
        return changes == RoomChanges()
    }
}

/// Reports changes in rooms to one listener as they happen.
package protocol RoomFeed: Sendable {
    /// Returns a member's position.
    ///
    /// - Throws: ``ChatError/Code/notJoined``.
    func position(of member: MemberID) async throws(ChatError) -> RoomPosition
    /// Returns messages with ids above `after`, in order.
    func messages(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [Message]
    /// Returns messages, and changes of earlier messages, with ids above `after`, in order.
    func entries(in room: SecretCode, after: MessageID, limit: Int) async throws(ChatError) -> [RoomEntry]
    /// Returns the id of the room's newest message or change. 0 if it has none.
    func lastEntry(in room: SecretCode) async throws(ChatError) -> MessageID
    /// Returns the receipt of each member's last message.
    ///
    /// Considers only the room's last ``Receipt/recent`` messages. Rooms with more than ``Receipt/largestRoom`` members
    /// have no receipts.
    func receipts(in room: SecretCode, for members: Set<MemberID>) async throws(ChatError) -> [MemberID: Receipt]
    /// Returns whether `room` was given the new code `code`.
    func hasMoved(_ room: SecretCode, to code: SecretCode) async throws(ChatError) -> Bool
    func summary(of room: SecretCode) async throws(ChatError) -> RoomSummary
    /// Returns a stream that yields when there are changes to take. Signals that no one has consumed are merged into
    /// one. The feed collects changes from the first call on.
    func roomChanges() -> AsyncStream<Void>
    func takeRoomChanges() async -> RoomChanges
    /// Records that a member was sent a message and all earlier ones. The record is kept in memory at first, so the
    /// call does not wait.
    func handedOut(_ message: MessageID, to member: MemberID)
}
