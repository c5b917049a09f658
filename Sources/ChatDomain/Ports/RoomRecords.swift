/// The messages that new members of a room may read.
package enum RoomHistory: String, Sendable, Hashable, CaseIterable {
    /// Messages that are posted after the member has joined.
    case joined
    /// All stored messages, including earlier ones.
    case all

    package init(parsing text: String, field: String = "history") throws(ChatError) {
        guard let history = RoomHistory(rawValue: text) else { throw .invalid(field, "must be joined, all or null") }
        self = history
    }
}

/// A room with members, as the operator sees it.
package struct RoomRecord: Sendable, Hashable {
    package let code: SecretCode
    package let members: Int
    package let lastMessage: MessageID?
    package let lastMessageAt: Timestamp?
    /// The operator's choice. `nil` if the room follows the setting `messages.history`.
    package let history: RoomHistory?

    package init(
        code: SecretCode, members: Int, lastMessage: MessageID?, lastMessageAt: Timestamp?, history: RoomHistory? = nil
    ) {
        self.code = code
        self.members = members
        self.lastMessage = lastMessage
        self.lastMessageAt = lastMessageAt
        self.history = history
    }
}

/// A page of the list of rooms, in the order of their codes.
package struct RoomPage: Sendable, Hashable {
    package let rooms: [RoomRecord]
    /// The cursor for the next page. `nil` at the end of the list.
    package let next: SecretCode?

    package init(rooms: [RoomRecord], next: SecretCode?) {
        self.rooms = rooms
        self.next = next
    }
}

/// A member of a room, without the udid, which is the member's proof of identity.
package struct MemberRecord: Sendable, Hashable {
    package let id: Int64
    package let nickname: String
    /// The token as it is stored. `nil` if the app has none.
    package let token: String?
    package let app: AppName
    package let joinedAt: Timestamp
    package let lastMessageAt: Timestamp?
    /// The newest message that the member has fetched, a few seconds behind. `nil` if it has fetched none.
    package let fetchedTo: MessageID?
    package let fetchedAt: Timestamp?
    /// The newest message that the member's phone has reported as shown, a few seconds behind. `nil` if there is none.
    package let shownTo: MessageID?

    package init(
        id: Int64, nickname: String, token: String?, app: AppName, joinedAt: Timestamp, lastMessageAt: Timestamp?,
        fetchedTo: MessageID?, fetchedAt: Timestamp?, shownTo: MessageID? = nil
    ) {
        self.id = id
        self.nickname = nickname
        self.token = token
        self.app = app
        self.joinedAt = joinedAt
        self.lastMessageAt = lastMessageAt
        self.fetchedTo = fetchedTo
        self.fetchedAt = fetchedAt
        self.shownTo = shownTo
    }
}

/// The reach of a message, for its writer. It contains no udids, which are the members' proof of identity.
package struct Receipt: Sendable, Hashable {
    /// The maximum number of readers to name.
    package static let mostNames = 10
    /// The maximum number of devices and members to count.
    package static let mostCounted = 1000
    /// The largest number of members of a room in which streams report receipts to writers.
    package static let largestRoom = 50
    /// The number of a room's newest messages to search for each writer's last message.
    package static let recent = 50

    package let message: MessageID
    /// The number of devices whose push service has accepted the push.
    package let reached: Int
    /// The number of members, without the writer, who have fetched the message. Includes members who have left since.
    /// `readers` has the names of the first of them.
    package let fetched: Int
    package let readers: [String]

    package init(message: MessageID, reached: Int, fetched: Int, readers: [String]) {
        self.message = message
        self.reached = reached
        self.fetched = fetched
        self.readers = readers
    }
}

/// The reach of a message in a list. Each number is counted up to ``Receipt/mostCounted``.
package struct MessageReach: Sendable, Hashable {
    package let sent: Int
    package let readers: Int
    /// The number of readers whose phone has shown the message, or who have fetched it.
    package let shown: Int
    package let fetched: Int

    package init(sent: Int, readers: Int, shown: Int, fetched: Int) {
        self.sent = sent
        self.readers = readers
        self.shown = shown
        self.fetched = fetched
    }
}

/// A message as programs and the operator see it.
package struct MessageRecord: Sendable, Hashable {
    package let message: Message
    package let room: SecretCode

    package init(message: Message, room: SecretCode) {
        self.message = message
        self.room = room
    }
}

/// The direction of a list of messages.
package enum MessageOrder: Sendable, Hashable {
    /// Messages before the given one. `nil` for all.
    case newestFirst(before: MessageID?)
    /// Messages after the given one.
    case oldestFirst(after: MessageID)
}

/// The reach of a message, with the states of its pushes.
package struct MessageProgress: Sendable, Hashable {
    package let message: MessageRecord
    /// Whether pushes are still being queued.
    package let isQueueing: Bool
    package let counts: [PushState: Int]
    /// The number of members who may read the message, without the writer: members of the room now, and members who
    /// fetched it and have left. `fetched` counts those who have fetched it, and `fetchedBy` names the first
    /// ``mostNames`` of them. `shown` also counts members whose phone has shown it.
    package let readers: Int
    package let shown: Int
    package let fetched: Int
    package let fetchedBy: [String]

    /// The maximum number of readers to name.
    package static let mostNames = 100

    package init(
        message: MessageRecord, isQueueing: Bool, counts: [PushState: Int], readers: Int, shown: Int,
        fetched: Int, fetchedBy: [String] = []
    ) {
        self.message = message
        self.isQueueing = isQueueing
        self.counts = counts
        self.readers = readers
        self.shown = shown
        self.fetched = fetched
        self.fetchedBy = fetchedBy
    }
}

/// A push of a message, and whether its member has fetched the message.
package struct MessageDelivery: Sendable, Hashable {
    package let delivery: Delivery
    package let isFetched: Bool

    package init(delivery: Delivery, isFetched: Bool) {
        self.delivery = delivery
        self.isFetched = isFetched
    }
}

/// Rooms as the operator sees them, and the operator's choices for them.
package protocol RoomRecords: Sendable {
    /// Sets the history of a room, which need not have members. `nil` selects the setting's history. The choice applies
    /// to members that join from then on.
    func setHistory(_ history: RoomHistory?, of room: SecretCode) async throws(ChatError)
    /// Returns rooms whose code begins with `prefix` and follows `cursor`, in the order of their codes.
    func rooms(
        startingWith prefix: String, after cursor: SecretCode?, limit: Int
    ) async throws(ChatError) -> RoomPage
    /// Returns members in the order of entry.
    func members(of room: SecretCode, after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<MemberRecord>
    /// Returns a page of a room's messages. Its `next` is the id of its last message, or `nil` if there are no more.
    func messages(
        of room: SecretCode, _ order: MessageOrder, limit: Int
    ) async throws(ChatError) -> Page<MessageRecord>
    /// Returns the reach of each of a room's messages.
    func reach(of messages: [MessageRecord]) async throws(ChatError) -> [MessageReach]
    /// Returns the reach of a message.
    ///
    /// - Throws: ``ChatError/Code/notFound``.
    func progress(of message: MessageID) async throws(ChatError) -> MessageProgress
    func deliveries(
        ofMessage message: MessageID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<MessageDelivery>
    /// Returns pushes that failed or expired, the latest first.
    ///
    /// - Throws: An error for the user if `cursor` is not a failed or expired push.
    func failures(of app: AppName?, before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Delivery>
}
