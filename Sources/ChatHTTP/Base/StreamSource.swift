import ChatDomain
import Foundation

/// A source of a stream's messages. A room and a topic may have the same name. They have no messages in common.
enum StreamSource: Sendable, Hashable {
    case room(SecretCode)
    /// A topic of UnifiedPush, which the stream's client owns.
    case topic(UnifiedPushTopic)

    /// The room's code. `nil` for a topic.
    var room: SecretCode? { if case .room(let code) = self { code } else { nil } }
    /// `nil` for a room.
    var topic: UnifiedPushTopic? { if case .topic(let topic) = self { topic } else { nil } }
}

extension Stores {
    /// Returns a source's messages and changes with ids above `after`, in order.
    func entries(in source: StreamSource, after: MessageID, limit: Int) async throws(ChatError) -> [RoomEntry] {
        switch source {
        case .room(let code): try await feed.entries(in: code, after: after, limit: limit)
        case .topic: try await messages(in: source, after: after, limit: limit).map { .message($0) }
        }
    }

    /// Returns a source's messages with ids above `after`, in order.
    func messages(
        in source: StreamSource, after: MessageID, limit: Int
    ) async throws(ChatError) -> [Message] {
        switch source {
        case .room(let code): try await feed.messages(in: code, after: after, limit: limit)
        case .topic(let topic):
            try await unifiedPush.messages(in: topic, after: after, limit: limit).map(Message.init)
        }
    }
}

extension MemberID {
    /// The sender of pushes of UnifiedPush. No member and no program has this id.
    static let unifiedPush = MemberID(stored: "unifiedpush")
}

extension Message {
    /// A push in the form of a message. Its text is the body in base64.
    init(_ push: UnifiedPushMessage) {
        self.init(
            id: push.id, sender: .unifiedPush, nickname: "",
            content: MessageContent(stored: Data(push.body).base64EncodedString()), sentAt: push.sentAt)
    }

    /// The text of a push as clients read it, and whether it is in base64. `nil` for other messages.
    var pushBody: (text: String, isEncoded: Bool)? {
        guard sender == .unifiedPush else { return nil }
        guard let body = Data(base64Encoded: text), let plain = String(validating: body, as: UTF8.self) else {
            return (text, true)
        }
        return (plain, false)
    }
}
