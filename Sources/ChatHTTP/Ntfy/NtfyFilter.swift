import ChatDomain

/// The conditions that a message must meet to be sent to a client.
struct NtfyFilter: Sendable, Hashable {
    /// The id that the message must have.
    let id: String?
    private let text: String?
    private let title: String?
    /// The message must have one of these priorities. Empty for any.
    private let priorities: Set<NtfyPriority>
    /// The message must have all of these tags.
    private let tags: [String]
    /// The message must not be older. `nil` for any time.
    private let since: Timestamp?

    init(_ parameters: NtfyParameters, since: Timestamp? = nil) throws(ChatError) {
        id = parameters[.id]
        text = parameters[.message]
        title = parameters[.title]
        var priorities: Set<NtfyPriority> = []
        for text in parameters.list(.priority) { priorities.insert(try NtfyParameters.priority(text)) }
        self.priorities = priorities
        tags = parameters.tags
        self.since = since
    }

    /// Whether every message meets the conditions.
    var isEmpty: Bool { id == nil && text == nil && title == nil && priorities.isEmpty && tags.isEmpty }

    /// - Parameters:
    ///   - id: The id in the event: the message's, or that of its last change.
    ///   - time: The time of that.
    func includes(_ message: Message, id: MessageID, at time: Timestamp) -> Bool {
        includes(id: id, at: time) && (text == nil || text == message.text)
            && (title == nil || title == NtfyFormat.title(of: message))
            && (priorities.isEmpty || priorities.contains(NtfyPriority(of: message) ?? .usual))
            && tags.allSatisfy(message.content.extras.tags.contains)
    }

    /// Whether an event without a message passes. As on an ntfy server, the other conditions are for messages alone.
    func includes(id: MessageID, at time: Timestamp) -> Bool {
        (self.id == nil || self.id == NtfyMessageID.text(id)) && since.map { time >= $0 } ?? true
    }
}
