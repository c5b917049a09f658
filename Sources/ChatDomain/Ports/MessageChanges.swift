/// The caller of a change.
package struct ChangeAuthor: Sendable, Hashable {
    /// ``MemberID/administrator`` or ``MemberID/program(token:)``.
    package var writer: MemberID
    /// Whether the caller may also change other authors' messages.
    package var isAdmin: Bool
    /// The room of a message that is named by its key. For an id, the only room that the caller may change, or `nil` for
    /// any.
    package var room: SecretCode?
    /// The name for the record of a deletion of another author's message.
    package var moderator: Moderator?

    package init(writer: MemberID, isAdmin: Bool = false, room: SecretCode? = nil, moderator: Moderator? = nil) {
        self.writer = writer
        self.isAdmin = isAdmin
        self.room = room
        self.moderator = moderator
    }
}

/// A program's post with a key, or for later, or both.
package struct KeyedPost: Sendable, Hashable {
    /// The post of a program, with its idempotency key.
    package var request: PostRequest
    package var key: MessageKey?
    /// Whether devices ring also if the post replaces a message. A new message always rings.
    package var renotify: Bool
    /// The time at which to post the message. `nil` for now.
    package var notBefore: Timestamp?

    package init(
        _ request: PostRequest, key: MessageKey? = nil, renotify: Bool = false, notBefore: Timestamp? = nil
    ) {
        self.request = request
        self.key = key
        self.renotify = renotify
        self.notBefore = notBefore
    }
}

package struct MessageChangeRequest: Sendable, Hashable {
    package enum Action: Sendable, Hashable {
        /// Replaces the content. With `revision`, only if the message's own is lower. `notBefore` is for a scheduled
        /// message alone.
        case edit(MessageContent, revision: Int? = nil, renotify: Bool = false, notBefore: Timestamp? = nil)
        /// Removes the notification from devices.
        case clear
        /// Ends the key. Without a content, the text stays, and devices remove the notification.
        case resolve(MessageContent?, renotify: Bool = false)
        /// Deletes the message, or cancels the scheduled one.
        case delete
    }

    package var message: MessageReference
    package var author: ChangeAuthor
    package var action: Action
    /// A second request with the same key gets the message as it is then, and changes nothing.
    package var idempotencyKey: String?

    package init(
        _ message: MessageReference, by author: ChangeAuthor, _ action: Action, idempotencyKey: String? = nil
    ) {
        self.message = message
        self.author = author
        self.action = action
        self.idempotencyKey = idempotencyKey
    }
}

package struct ChangeReceipt: Sendable, Hashable {
    /// The message's id, or the number of the scheduled message.
    package let message: MessageID
    package let room: SecretCode
    /// The number of the message's last change. `nil` for a message without one, and for a scheduled message.
    package let change: MessageID?
    /// The time of the change, or else that of the post.
    package let time: Timestamp
    package let revision: Int
    /// Whether the request posted or scheduled a new message.
    package let isNew: Bool
    /// Whether an earlier request with the same idempotency key did the work.
    package let isRepeat: Bool
    /// The time at which the scheduled message will be posted. `nil` for a message.
    package let due: Timestamp?
    /// Whether a message of another author had the key first.
    package let isApart: Bool

    package init(
        message: MessageID, room: SecretCode, change: MessageID? = nil, time: Timestamp, revision: Int = 1,
        isNew: Bool = false, isRepeat: Bool = false, due: Timestamp? = nil, isApart: Bool = false
    ) {
        self.message = message
        self.room = room
        self.change = change
        self.time = time
        self.revision = revision
        self.isNew = isNew
        self.isRepeat = isRepeat
        self.due = due
        self.isApart = isApart
    }
}

/// A message that a caller named, as it is now.
package enum FoundMessage: Sendable, Hashable {
    case message(MessageRecord, MessageChange?)
    case scheduled(ScheduledMessage)
}

/// Stores programs' messages that change, and those for later. When a call returns, its changes are on disk. When it
/// throws, it has changed nothing.
package protocol MessageChanges: Sendable {
    /// Posts a message with a key. If the author has an open message with the key, its content is replaced instead.
    /// With `notBefore`, stores the message for later.
    func post(_ post: KeyedPost) async throws(ChatError) -> ChangeReceipt
    /// Changes a message, or a scheduled one.
    ///
    /// - Throws: ``ChatError/Code/notFound`` if the caller has no such message. ``ChatError/Code/conflict`` if several
    ///   authors have the key, or if the message has a higher revision.
    func change(_ request: MessageChangeRequest) async throws(ChatError) -> ChangeReceipt
    /// Returns the message, or the scheduled one, that a caller names. The number of a scheduled message also finds the
    /// message that it has become.
    ///
    /// - Throws: The errors of ``change(_:)``.
    func find(_ message: MessageReference, for author: ChangeAuthor) async throws(ChatError) -> FoundMessage
    /// Returns a room's scheduled messages in the order of their numbers.
    ///
    /// - Parameter author: The only author. `nil` for all.
    func scheduled(
        in room: SecretCode, author: MemberID?, after: MessageID?, limit: Int
    ) async throws(ChatError) -> Page<ScheduledMessage>
    /// Performs one step of due work: posts a scheduled message, or queues pushes of a changed one.
    ///
    /// - Returns: False if none is due.
    func performDue() async throws(ChatError) -> Bool
    /// The time of the next work that is known now. `nil` if there is none.
    func nextDue() async throws(ChatError) -> Timestamp?
    /// Yields after each commit of this relay that may have added work.
    func announceWork(to signal: AsyncStream<Void>.Continuation)
}
