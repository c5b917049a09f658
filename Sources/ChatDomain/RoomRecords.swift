/// The messages that new members of a room may read.
package enum RoomHistory: String, Sendable, Hashable, CaseIterable {
    /// Messages that are posted after the member has joined.
    case joined
    /// All messages that are kept, also earlier ones.
    case all

    package init(parsing text: String, field: String = "history") throws(ChatError) {
        guard let history = RoomHistory(rawValue: text) else { throw .invalid(field, "must be joined, all or null") }
        self = history
    }
}

/// A room that somebody is in, as the operator sees it.
package struct RoomRecord: Sendable, Hashable {
    package let code: SecretCode
    package let members: Int
    package let lastMessage: MessageID?
    package let lastMessageAt: Timestamp?
    /// The operator's choice; `nil` if the room follows the setting `messages.history`.
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

/// A piece of the list of rooms, in the order of their codes.
package struct RoomPage: Sendable, Hashable {
    package let rooms: [RoomRecord]
    /// What to ask from next; nil at the end.
    package let next: SecretCode?

    package init(rooms: [RoomRecord], next: SecretCode?) {
        self.rooms = rooms
        self.next = next
    }
}

/// Who is in a room. Without the udid: it is what a member proves itself with.
package struct MemberRecord: Sendable, Hashable {
    package let id: Int64
    package let nickname: String
    /// As it is stored; nil while the app has none.
    package let token: String?
    package let app: AppName
    package let joinedAt: Timestamp
    package let lastMessageAt: Timestamp?
    /// The newest message that was handed out to it, some seconds behind; nil for none.
    package let fetchedTo: MessageID?
    package let fetchedAt: Timestamp?

    package init(
        id: Int64, nickname: String, token: String?, app: AppName, joinedAt: Timestamp, lastMessageAt: Timestamp?,
        fetchedTo: MessageID?, fetchedAt: Timestamp?
    ) {
        self.id = id
        self.nickname = nickname
        self.token = token
        self.app = app
        self.joinedAt = joinedAt
        self.lastMessageAt = lastMessageAt
        self.fetchedTo = fetchedTo
        self.fetchedAt = fetchedAt
    }
}

/// How far a message has come, for its writer. Without udids: they are what members prove themselves with.
package struct Receipt: Sendable, Hashable {
    /// Readers that are named.
    package static let mostNames = 10
    /// Devices and members that are counted.
    package static let mostCounted = 1000
    /// Members of a room in which writers are told by themselves.
    package static let largestRoom = 50
    /// Messages of a room among which their writers' last ones are looked for.
    package static let recent = 50

    package let message: MessageID
    /// Devices whose push service has taken it.
    package let reached: Int
    /// How many have fetched it, the writer left out, also those who have left since; and what the first of them are called.
    package let fetched: Int
    package let readers: [String]

    package init(message: MessageID, reached: Int, fetched: Int, readers: [String]) {
        self.message = message
        self.reached = reached
        self.fetched = fetched
        self.readers = readers
    }
}

/// How far a message of a list has come; counted up to ``Receipt/mostCounted``.
package struct MessageReach: Sendable, Hashable {
    package let sent: Int
    package let readers: Int
    package let fetched: Int

    package init(sent: Int, readers: Int, fetched: Int) {
        self.sent = sent
        self.readers = readers
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

/// Which end of a room's history a list begins at.
package enum MessageOrder: Sendable, Hashable {
    /// Those before a message; all for nil.
    case newestFirst(before: MessageID?)
    /// Those after a message.
    case oldestFirst(after: MessageID)
}

/// How far a message has come.
package struct MessageProgress: Sendable, Hashable {
    package let message: MessageRecord
    /// Pushes are still being queued.
    package let isQueueing: Bool
    package let counts: [PushState: Int]
    /// Those who may read it, the writer left out: members of the room now, and who has fetched it and has left. Then who of
    /// them has fetched it, and what the first ``mostNames`` of these are called.
    package let readers: Int
    package let fetched: Int
    package let fetchedBy: [String]

    /// Readers that are named.
    package static let mostNames = 100

    package init(
        message: MessageRecord, isQueueing: Bool, counts: [PushState: Int], readers: Int, fetched: Int,
        fetchedBy: [String] = []
    ) {
        self.message = message
        self.isQueueing = isQueueing
        self.counts = counts
        self.readers = readers
        self.fetched = fetched
        self.fetchedBy = fetchedBy
    }
}

/// A push of a message, and whether the member that it was for has fetched the message.
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
    /// Chooses the history of a room, which need not have members; `nil` for the setting's. It counts for members that join
    /// from then on.
    func setHistory(_ history: RoomHistory?, of room: SecretCode) async throws(ChatError)
    /// Those whose code begins with a text, after a code, in order.
    func rooms(
        startingWith prefix: String, after cursor: SecretCode?, limit: Int
    ) async throws(ChatError) -> RoomPage
    /// In the order of entry.
    func members(of room: SecretCode, after cursor: Int64?, limit: Int) async throws(ChatError) -> Page<MemberRecord>
    /// With a next one for as long as there are more; oldest first, it is the last message.
    func messages(
        of room: SecretCode, _ order: MessageOrder, limit: Int
    ) async throws(ChatError) -> Page<MessageRecord>
    /// How far each of a room's messages has come.
    func reach(of messages: [MessageRecord]) async throws(ChatError) -> [MessageReach]
    /// Throws ``ChatError/Code/notFound``.
    func progress(of message: MessageID) async throws(ChatError) -> MessageProgress
    func deliveries(
        ofMessage message: MessageID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> Page<MessageDelivery>
    /// Pushes that failed or expired, in that order, the last first. Throws what the user reads for a cursor that is none.
    func failures(of app: AppName?, before cursor: Int64?, limit: Int) async throws(ChatError) -> Page<Delivery>
}
