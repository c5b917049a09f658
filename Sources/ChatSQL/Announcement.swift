package import ChatDomain

/// The changes of a commit, for the listeners of every relay of the database. A transaction collects them.
package struct Announcement: Sendable, Hashable {
    /// Whether announcements were missed, so that listeners have to query everything.
    package var everything = false
    /// Apps that may have due pushes, or were paused or resumed.
    package var apps: Set<String> = []
    /// Rooms with new messages.
    package var messages: Set<String> = []
    /// Topics of UnifiedPush with new pushes.
    package var topics: Set<String> = []
    /// Rooms that members have joined or left, or that the operator has changed.
    package var memberships: Set<String> = []
    /// Members who have joined or left; those of them who were removed; rooms whose members were all removed.
    package var members: Set<String> = []
    package var removed: Set<String> = []
    package var closed: Set<String> = []
    /// Deleted messages, by room.
    package var deleted: [String: [MessageID]] = [:]
    /// Rooms whose members have fetched messages.
    package var read: Set<String> = []
    /// Whether there is new background work.
    package var jobs = false
    /// Whether an API token or a credential was revoked.
    package var tokens = false
    /// The newest message or push of UnifiedPush. Only this relay's listeners get it, in the order of the commits.
    package var last: MessageID?
    /// Whether waiting pushes may no longer be sent as they were. Only this relay's queue gets it, because it may have
    /// their content in memory.
    package var withdrawal = false

    package init() {}

    package static let everything = {
        var announcement = Announcement()
        announcement.everything = true
        return announcement
    }()

    package var isEmpty: Bool { self == Announcement() }

    package var concernsRooms: Bool {
        everything || !messages.isEmpty || !topics.isEmpty || !memberships.isEmpty || !members.isEmpty
            || !closed.isEmpty || !deleted.isEmpty || !read.isEmpty
    }
}

extension RoomChanges {
    package mutating func add(_ announcement: Announcement) {
        func codes(_ texts: Set<String>) -> some Sequence<SecretCode> { texts.lazy.map(SecretCode.init(stored:)) }
        func ids(_ texts: Set<String>) -> some Sequence<MemberID> { texts.lazy.map(MemberID.init(stored:)) }
        if announcement.everything { isUnknown = true }
        messages.formUnion(codes(announcement.messages))
        topics.formUnion(announcement.topics.lazy.compactMap { UnifiedPushTopic($0) })
        memberships.formUnion(codes(announcement.memberships))
        members.formUnion(ids(announcement.members))
        removed.formUnion(ids(announcement.removed))
        closed.formUnion(codes(announcement.closed))
        reads.formUnion(codes(announcement.read))
        for (room, ids) in announcement.deleted { deleted[SecretCode(stored: room), default: []] += ids }
    }
}
