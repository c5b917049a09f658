/// A topic at which ntfy's app receives the pushes of one other app: `up` with 12 letters and digits. The app invents
/// it, so it cannot be guessed.
package struct UnifiedPushTopic: Sendable, Hashable {
    package let text: String

    /// `nil` if the name has another form.
    package init?(_ text: some StringProtocol) {
        let bytes = text.utf8
        guard bytes.count == 14, text.hasPrefix("up"),
            bytes.allSatisfy({ $0.isASCIIDigit || $0.isASCIILetter })
        else { return nil }
        self.text = String(text)
    }
}

/// The owner of topics: the one of the credentials that may read them.
package enum UnifiedPushOwner: Sendable, Hashable {
    /// The member with this `member_id`.
    case member(Int64)
    /// The access token with this id.
    case token(Int64)
}

/// The answer to a subscription to a topic.
package enum UnifiedPushClaim: Sendable, Hashable {
    /// The topic belongs to the caller.
    case owned
    /// The topic belongs to another owner.
    case foreign
    /// A room has this code.
    case room
}

/// The answer to a push.
package enum UnifiedPushReceipt: Sendable, Hashable {
    case stored(MessageID)
    /// The topic has no subscriber, or a room has its name.
    case noOwner
    /// The owner's topics have ``UnifiedPushLimits/bytesPerOwner``, or all topics ``UnifiedPushLimits/totalBytes``.
    case full
}

package enum UnifiedPushLimits {
    /// The maximum size of a push in bytes, which UnifiedPush requires.
    package static let body = 4096
    package static let topicsPerOwner = 100
    /// A further push replaces the oldest of its topic.
    package static let messagesPerTopic = 100
    /// The bytes for which a smaller push counts, because its row and index entries need space as well.
    package static let smallestSize = 512
    /// The bytes of the pushes that wait for one owner, so that no owner takes the space of the others: five full topics
    /// of the largest pushes.
    package static let bytesPerOwner = 2 << 20
    /// The bytes of all pushes that wait. The store counts them every ``countInterval``, and adds new ones in between.
    /// Several relays together may exceed the limit by the pushes of that time.
    package static let totalBytes = 64 << 20
    package static let countInterval = Duration.seconds(10)
    /// The age at which a push is deleted even if it was not fetched.
    package static let lifetime = Duration.seconds(12 * 3600)
    /// The time after which an unused topic is deleted.
    package static let topicLifetime = Duration.seconds(30 * 86_400)
}

/// A push that waits for ntfy's app.
package struct UnifiedPushMessage: Sendable, Hashable {
    /// The id. Pushes and chat messages share their ids, so that one `since` fits both.
    package let id: MessageID
    package let body: [UInt8]
    package let sentAt: Timestamp

    package init(id: MessageID, body: [UInt8], sentAt: Timestamp) {
        self.id = id
        self.body = body
        self.sentAt = sentAt
    }
}

/// Stores the topics of UnifiedPush and their pushes.
package protocol UnifiedPushStore: Sendable {
    /// Makes the caller the owner of topics that have none. A topic ends with its owner, and if it has no subscription
    /// for ``UnifiedPushLimits/topicLifetime``. Beyond ``UnifiedPushLimits/topicsPerOwner``, the topics that were not
    /// used for the longest time end.
    func claim(
        _ topics: [UnifiedPushTopic], for owner: UnifiedPushOwner
    ) async throws(ChatError) -> [UnifiedPushTopic: UnifiedPushClaim]
    /// Returns the topics that the owner has. A topic is not among them once a room has its name.
    func owned(
        _ topics: [UnifiedPushTopic], by owner: UnifiedPushOwner
    ) async throws(ChatError) -> Set<UnifiedPushTopic>
    /// Stores a push. The room feed reports the topic.
    func post(_ body: [UInt8], to topic: UnifiedPushTopic) async throws(ChatError) -> UnifiedPushReceipt
    /// Returns pushes with ids above `after`, in order.
    func messages(
        in topic: UnifiedPushTopic, after: MessageID, limit: Int
    ) async throws(ChatError) -> [UnifiedPushMessage]
    /// Returns the highest id that a push or a chat message has or had.
    func lastID() async throws(ChatError) -> MessageID
    /// Deletes the pushes up to `last`, because the app has them.
    func confirm(_ last: MessageID, in topics: [UnifiedPushTopic]) async throws(ChatError)
}
