/// A message that will be posted later.
package struct ScheduledMessage: Sendable, Hashable {
    /// The longest time ahead.
    package static let horizon = Duration.seconds(30 * 86_400)
    /// The maximum number of scheduled messages per author and room.
    package static let limit = 1000

    /// A number from the sequence of message ids. The message gets another id when it is posted. This number then also
    /// names that message.
    package let id: MessageID
    package let room: SecretCode
    package let author: MemberID
    package let nickname: String
    package let key: MessageKey?
    package let content: MessageContent
    package let revision: Int
    package let due: Timestamp
    /// Whether the message was due before a restore. It then waits for a decision of its author.
    package let isHeld: Bool

    package init(
        id: MessageID, room: SecretCode, author: MemberID, nickname: String, key: MessageKey?, content: MessageContent,
        revision: Int = 1, due: Timestamp, isHeld: Bool = false
    ) {
        self.id = id
        self.room = room
        self.author = author
        self.nickname = FieldText.withoutDirections(nickname)
        self.key = key
        self.content = content
        self.revision = revision
        self.due = due
        self.isHeld = isHeld
    }

    /// The scheduled messages that `pushchat check` reports.
    package struct Backlog: Sendable, Hashable {
        package var held = 0
        /// The messages that were due a minute ago or earlier. A relay posts them when it starts.
        package var overdue = 0

        package init(held: Int = 0, overdue: Int = 0) {
            self.held = held
            self.overdue = overdue
        }
    }

    /// Checks the time at which a message will be posted.
    package static func checkDue(_ due: Timestamp, now: Timestamp, field: String = "not_before") throws(ChatError) {
        guard due > now else { throw .invalid(field, "must be in the future") }
        guard due <= now + horizon else { throw .invalid(field, "must be within 30 days") }
    }
}
