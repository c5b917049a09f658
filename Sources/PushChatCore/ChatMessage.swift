public import Foundation

/// A message of a room, as the relay returns it to a member.
public struct ChatMessage: Sendable, Hashable, Codable, Identifiable {
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

    public init(
        id: Int64, name: String, text: String, title: String? = nil, link: String? = nil, sentAt: Date,
        isOwn: Bool = false, isFromProgram: Bool = false
    ) {
        self.id = id
        self.name = name
        self.text = text
        self.title = title
        self.link = link
        self.sentAt = sentAt
        self.isOwn = isOwn
        self.isFromProgram = isFromProgram
    }

    private enum CodingKeys: String, CodingKey {
        case id, name, text, title, link
        case sentAt = "sent_at"
        case isOwn = "own"
        case isFromProgram = "program"
    }

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        id = try values.decode(Int64.self, forKey: .id)
        name = try values.decode(String.self, forKey: .name)
        text = try values.decode(String.self, forKey: .text)
        title = try values.decodeIfPresent(String.self, forKey: .title)
        link = try values.decodeIfPresent(String.self, forKey: .link)
        let time = try values.decode(String.self, forKey: .sentAt)
        guard let sentAt = RelayTime.date(time) else {
            throw DecodingError.dataCorruptedError(
                forKey: .sentAt, in: values, debugDescription: "not a time of RFC 3339: \(time)")
        }
        self.sentAt = sentAt
        isOwn = try values.decodeIfPresent(Bool.self, forKey: .isOwn) ?? false
        isFromProgram = try values.decodeIfPresent(Bool.self, forKey: .isFromProgram) ?? false
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
    }
}

/// A page of a room's history, oldest first.
public struct ChatPage: Sendable, Hashable, Decodable {
    public let messages: [ChatMessage]
    /// The id to continue after. If the page is empty, the position at which the member's history begins.
    public let next: Int64
    /// The room's code, which may have changed since the member joined. `nil` from relays before 0.4.
    public let code: String?

    public init(messages: [ChatMessage], next: Int64, code: String? = nil) {
        self.messages = messages
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
