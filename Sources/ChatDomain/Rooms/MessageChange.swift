/// The last change of a message. A message keeps no earlier ones.
package struct MessageChange: Sendable, Hashable {
    package enum Kind: String, Sendable, Hashable, CaseIterable {
        /// The message has another text.
        case edited
        /// The message stays in the history and open, and devices remove its notification.
        case cleared
        /// The message is gone.
        case deleted
        /// The message stays in the history, and its key has ended.
        case resolved
    }

    /// A number from the sequence of message ids. In a room, the numbers of changes and the ids of messages grow in the
    /// order of the commits.
    package let id: MessageID
    package let kind: Kind
    package let message: MessageID
    /// The writer of the message.
    package let author: MemberID
    /// The message's key, also after it has ended. `nil` for a message without one.
    package let key: MessageKey?
    /// Whether a message of another author had the key first.
    package let isApart: Bool
    package let revision: Int
    package let time: Timestamp

    package init(
        id: MessageID, kind: Kind, message: MessageID, author: MemberID, key: MessageKey? = nil, isApart: Bool = false,
        revision: Int, time: Timestamp
    ) {
        self.id = id
        self.kind = kind
        self.message = message
        self.author = author
        self.key = key
        self.isApart = isApart
        self.revision = revision
        self.time = time
    }
}

package enum MessageChangeLimits {
    /// The number of idempotency keys to remember per message, those of its last changes.
    package static let retries = 20
    /// The minimum interval between two silent updates of a message.
    package static let spacing = Duration.seconds(15)
    /// The maximum number of open keys per author and room. The oldest beyond it ends.
    package static let openKeys = 1000
}
