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

    init(_ parameters: NtfyParameters) throws(ChatError) {
        id = parameters[.id]
        text = parameters[.message]
        title = parameters[.title]
        var priorities: Set<NtfyPriority> = []
        for text in parameters.list(.priority) { priorities.insert(try NtfyParameters.priority(text)) }
        self.priorities = priorities
        tags = parameters.tags
    }

    /// Whether every message meets the conditions.
    var isEmpty: Bool { id == nil && text == nil && title == nil && priorities.isEmpty && tags.isEmpty }

    func includes(_ message: Message) -> Bool {
        (id == nil || id == NtfyMessageID.text(message.id)) && (text == nil || text == message.text)
            && (title == nil || title == NtfyFormat.title(of: message))
            && (priorities.isEmpty || priorities.contains(NtfyPriority(of: message) ?? .usual))
            && tags.allSatisfy(message.content.extras.tags.contains)
    }
}
