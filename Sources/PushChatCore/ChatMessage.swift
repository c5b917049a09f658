public import Foundation

/// A message of a room, as the relay returns it to a member.
public struct ChatMessage: Sendable, Hashable, Codable, Identifiable {
    /// The last change of a message by its program.
    public struct Change: Sendable, Hashable {
        public enum Kind: String, Sendable, Hashable, CaseIterable {
            /// The message has another text.
            case edited
            /// Devices have removed the notification.
            case cleared
            /// The program has ended the message.
            case resolved
        }

        public let kind: Kind
        public let at: Date

        public init(_ kind: Kind, at time: Date) {
            self.kind = kind
            at = time
        }
    }

    /// Later messages have higher ids, across all rooms of a relay.
    public let id: Int64
    /// The writer's name.
    public let name: String
    public let text: String
    /// The heading above the text. Only programs write one.
    public let title: String?
    /// The page that belongs to the message. Only programs write one.
    public let link: String?
    public let sentAt: Date
    /// Whether this member wrote the message.
    public let isOwn: Bool
    /// Whether a program wrote the message, not a member.
    public let isFromProgram: Bool
    /// `nil` if the message was not changed.
    public let change: Change?
    /// Whether the text is Markdown. Only programs write it.
    public let isMarkdown: Bool

    public init(
        id: Int64, name: String, text: String, title: String? = nil, link: String? = nil, sentAt: Date,
        isOwn: Bool = false, isFromProgram: Bool = false, change: Change? = nil, isMarkdown: Bool = false
    ) {
        self.id = id
        self.name = name
        self.text = text
        self.title = title
        self.link = link
        self.sentAt = sentAt
        self.isOwn = isOwn
        self.isFromProgram = isFromProgram
        self.change = change
        self.isMarkdown = isMarkdown
    }

    private enum CodingKeys: String, CodingKey {
        case id, name, text, title, link
        case edited = "edited_at"
        case cleared = "cleared_at"
        case resolved = "resolved_at"
        case sentAt = "sent_at"
        case isOwn = "own"
        case isFromProgram = "program"
        case isMarkdown = "markdown"
    }

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        id = try values.decode(Int64.self, forKey: .id)
        name = try values.decode(String.self, forKey: .name)
        text = try values.decode(String.self, forKey: .text)
        title = try values.decodeIfPresent(String.self, forKey: .title)
        link = try values.decodeIfPresent(String.self, forKey: .link)
        func time(_ key: CodingKeys) throws -> Date {
            let text = try values.decode(String.self, forKey: key)
            if let time = RelayTime.date(text) { return time }
            throw DecodingError.dataCorruptedError(
                forKey: key, in: values, debugDescription: "not a time of RFC 3339: \(text)")
        }
        sentAt = try time(.sentAt)
        let changed = Change.Kind.allCases.first { values.contains(Self.key(of: $0)) }
        change = try changed.map { Change($0, at: try time(Self.key(of: $0))) }
        isOwn = try values.decodeIfPresent(Bool.self, forKey: .isOwn) ?? false
        isFromProgram = try values.decodeIfPresent(Bool.self, forKey: .isFromProgram) ?? false
        isMarkdown = try values.decodeIfPresent(Bool.self, forKey: .isMarkdown) ?? false
    }

    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(id, forKey: .id)
        try values.encode(name, forKey: .name)
        try values.encode(text, forKey: .text)
        try values.encodeIfPresent(title, forKey: .title)
        try values.encodeIfPresent(link, forKey: .link)
        try values.encode(RelayTime.text(sentAt), forKey: .sentAt)
        try values.encode(isOwn, forKey: .isOwn)
        if isFromProgram { try values.encode(true, forKey: .isFromProgram) }
        if isMarkdown { try values.encode(true, forKey: .isMarkdown) }
        if let change { try values.encode(RelayTime.text(change.at), forKey: Self.key(of: change.kind)) }
    }

    private static func key(of kind: Change.Kind) -> CodingKeys {
        switch kind {
        case .edited: .edited
        case .cleared: .cleared
        case .resolved: .resolved
        }
    }
}

/// A page of a room's history, oldest first.
public struct ChatPage: Sendable, Hashable, Decodable {
    /// A change of a message, in the order of the ids.
    struct Change: Sendable, Hashable, Decodable {
        /// A number from the sequence of message ids.
        let id: Int64
        /// `nil` for a kind that this version does not know.
        let event: ChatEvent?
        let message: Int64

        private enum CodingKeys: CodingKey { case id, event, message }
        private struct Reference: Decodable { let id: Int64 }

        init(from decoder: any Decoder) throws {
            let values = try decoder.container(keyedBy: CodingKeys.self)
            id = try values.decode(Int64.self, forKey: .id)
            message = try values.decode(Reference.self, forKey: .message).id
            let name = try values.decode(String.self, forKey: .event)
            if let kind = ChatMessage.Change.Kind(rawValue: name) {
                event = ChatEvent(kind, of: try values.decode(ChatMessage.self, forKey: .message))
            } else {
                event = name == "deleted" ? .deleted(message) : nil
            }
        }
    }

    public let messages: [ChatMessage]
    /// `nil` from relays before 0.6.
    let changes: [Change]?
    /// The id to continue after. If the page is empty, the position at which the member's history begins.
    public let next: Int64
    /// The room's code, which may have changed since the member joined. `nil` from relays before 0.4.
    public let code: String?

    public init(messages: [ChatMessage], next: Int64, code: String? = nil) {
        self.messages = messages
        changes = nil
        self.next = next
        self.code = code
    }
}

/// The reach of one of the member's own messages.
public struct ChatReceipt: Sendable, Hashable, Decodable {
    /// The message.
    public let id: Int64
    /// The number of devices whose push service has accepted the push.
    public let reached: Int
    /// The number of members who have fetched the message.
    public let read: Int
    /// The names of the first of these members.
    public let readBy: [String]

    public init(id: Int64, reached: Int, read: Int, readBy: [String]) {
        self.id = id
        self.reached = reached
        self.read = read
        self.readBy = readBy
    }

    private enum CodingKeys: String, CodingKey {
        case id, reached, read
        case readBy = "read_by"
    }
}

/// The times of the relay: RFC 3339 in UTC, with milliseconds.
enum RelayTime {
    private static let fine = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
    private static let plain = Date.ISO8601FormatStyle()

    static func date(_ text: String) -> Date? { (try? fine.parse(text)) ?? (try? plain.parse(text)) }

    static func text(_ date: Date) -> String { fine.format(date) }
}
