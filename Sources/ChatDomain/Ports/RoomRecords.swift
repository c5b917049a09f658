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

/// The operator's choices for a room.
package struct RoomChoices: Sendable, Hashable {
    /// `nil` if the room follows the setting `messages.history`.
    package var history: RoomHistory?
    package var title: RoomTitle?

    package init(history: RoomHistory? = nil, title: RoomTitle? = nil) {
        self.history = history
        self.title = title
    }

    /// Returns the choices after an edit.
    package func edited(by edit: RoomEdit) -> RoomChoices {
        RoomChoices(history: edit.history.result(history) { $0 }, title: edit.title.result(title) { $0 })
    }
}

/// The changes that the operator makes to a room.
package struct RoomEdit: Sendable, Hashable {
    package var history: DeviceEdit.Change<RoomHistory>
    package var title: DeviceEdit.Change<RoomTitle>

    package init(history: DeviceEdit.Change<RoomHistory> = .keep, title: DeviceEdit.Change<RoomTitle> = .keep) {
        self.history = history
        self.title = title
    }
}

/// A room with members, as the operator sees it.
package struct RoomRecord: Sendable, Hashable {
    package let code: SecretCode
    package let members: Int
    package let lastMessage: MessageID?
    package let lastMessageAt: Timestamp?
    package let choices: RoomChoices

    package init(
        code: SecretCode, members: Int, lastMessage: MessageID?, lastMessageAt: Timestamp?,
        choices: RoomChoices = RoomChoices()
    ) {
        self.code = code
        self.members = members
        self.lastMessage = lastMessage
        self.lastMessageAt = lastMessageAt
        self.choices = choices
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
        self.nickname = FieldText.withoutDirections(nickname)
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
        self.readers = readers.map(FieldText.withoutDirections)
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

extension ChatAlert {
    package init(of record: MessageRecord) {
        self.init(
            nickname: Nickname(stored: record.message.nickname), content: record.message.content, code: record.room,
            message: record.message.id, isOfProgram: record.message.sender.isProgram)
    }
}

/// A search in a room's messages, newest first.
package struct MessageSearch: Sendable, Hashable {
    /// The messages to search.
    package enum Scope: Sendable, Hashable {
        /// All messages of a room.
        case room(SecretCode)
        /// The messages that the member may read.
        case member(MemberID)
    }

    /// The number of messages to read at a time.
    package static let step = 1000
    /// The maximum number of messages that one search examines: about 30 milliseconds of work.
    package static let mostExamined = 20_000
    /// The time after which a search reads no further ``step``, because a slow machine or long texts take longer.
    package static let timeLimit = Duration.milliseconds(50)

    package let text: SearchText
    package let scope: Scope
    /// Only messages before this one. `nil` for all.
    package let before: MessageID?
    package let limit: Duration

    package init(_ text: SearchText, in scope: Scope, before: MessageID? = nil, within limit: Duration = timeLimit) {
        self.text = text
        self.scope = scope
        self.before = before
        self.limit = limit
    }
}

/// A member of a room as the other members see it, without its udid, which is its proof of identity.
package struct RoomMember: Sendable, Hashable {
    package let nickname: String
    /// Whether it is the member that asks.
    package let isOwn: Bool
    /// The full hour in which the member was last seen. Others need not know more.
    package let lastSeen: Timestamp

    package init(nickname: String, isOwn: Bool, lastSeen: Timestamp) {
        self.nickname = FieldText.withoutDirections(nickname)
        self.isOwn = isOwn
        self.lastSeen = lastSeen.fullHour
    }
}

/// A program that wrote one of a room's newest messages.
package struct RoomProgram: Sendable, Hashable {
    /// The number of a room's newest messages in which to look for programs, and the maximum number of programs.
    package static let recent = 500
    package static let most = 50

    package let name: String
    /// Whether the operator has posted, or a program with the operator's token.
    package let isOperator: Bool
    /// The full hour of its last message.
    package let lastSeen: Timestamp

    package init(name: String, isOperator: Bool, lastSeen: Timestamp) {
        self.name = FieldText.withoutDirections(name)
        self.isOperator = isOperator
        self.lastSeen = lastSeen.fullHour
    }
}

extension Timestamp {
    fileprivate var fullHour: Timestamp { Timestamp(seconds: seconds - seconds % 3600) }
}

/// A receiver of webhooks that gets the messages of a room, as its members see it.
package struct RoomReceiver: Sendable, Hashable {
    /// Scheme, host and port. The rest of the URL may be a secret.
    package let origin: String
    /// The name under which the receiver answers. `nil` if it only listens.
    package let bot: String?

    /// - Returns: `nil` if the webhook reports neither messages nor members, or only messages of one program.
    package init?(_ webhook: WebhookSettings) {
        guard webhook.token == nil, webhook.events.contains(where: { $0.isAboutMessage || $0.isAboutMember }) else {
            return nil
        }
        origin = webhook.origin
        bot = (webhook.bot?.text).map(FieldText.withoutDirections)
    }
}

/// A page of the list of a room's members, for a member.
package struct RoomMemberPage: Sendable {
    package let members: Page<RoomMember>
    /// Programs, on the first page only. The one that has posted last comes first.
    package let programs: [RoomProgram]
    /// Receivers of webhooks, on the first page only.
    package let receivers: [RoomReceiver]

    package init(members: Page<RoomMember>, programs: [RoomProgram], receivers: [RoomReceiver] = []) {
        self.members = members
        self.programs = programs
        self.receivers = receivers
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
        self.fetchedBy = fetchedBy.map(FieldText.withoutDirections)
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

/// Rooms as the operator sees them, and the operator's choices for them. Also what members see of their room apart from
/// its messages.
package protocol RoomRecords: Sendable {
    /// Whether any data of a room are stored (``RoomRules/exists(_:)``).
    func exists(_ room: SecretCode) async throws(ChatError) -> Bool
    /// Changes the operator's choices for a room, which need not have members. A new history applies to members that
    /// join from then on. The feed reports the room among ``RoomChanges/memberships``.
    ///
    /// - Returns: The choices after the change.
    @discardableResult
    func edit(_ room: SecretCode, _ edit: RoomEdit) async throws(ChatError) -> RoomChoices
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
    /// Returns messages that contain a text, the newest first. Examines a limited number of messages, in a limited time.
    /// So a page may have fewer messages than `limit`, or none, and still a `next`.
    ///
    /// - Throws: ``ChatError/Code/notJoined``, if a member searches that is in no room.
    func search(_ search: MessageSearch, limit: Int) async throws(ChatError) -> Page<MessageRecord>
    /// Returns the members of the member's room in the order of entry, and the programs that it has messages of.
    ///
    /// - Throws: ``ChatError/Code/notJoined``.
    func members(
        for member: MemberID, after cursor: Int64?, limit: Int
    ) async throws(ChatError) -> RoomMemberPage
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

extension RoomRecords {
    /// Returns the room that someone means by a code. Characters at its ends that people do not see come from copying,
    /// and would name another room. A room whose code has them keeps it: earlier versions accepted such codes.
    ///
    /// - Throws: An error for the user if people see nothing of the code, and no room has it.
    package func room(named code: SecretCode, field: String = "code") async throws(ChatError) -> SecretCode {
        let visible = code.visible
        if visible == code { return code }
        if try await exists(code) { return code }
        guard let visible else { throw .invalid(field, "must not be empty") }
        return visible
    }

    /// Returns a grant for the room that is meant (``room(named:field:)``).
    package func grant(_ grant: AccessGrant, field: String = "room") async throws(ChatError) -> AccessGrant {
        guard let code = grant.room else { return grant }
        return try AccessGrant(
            scopes: grant.scopes, room: await room(named: code, field: field), audience: grant.audience,
            hook: grant.hook)
    }
}
