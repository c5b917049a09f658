import ChatDomain
import Foundation

/// The room feed with the topics of UnifiedPush, which streams read like rooms.
struct UnifiedPushFeed: RoomFeed {
    let rooms: any RoomFeed
    let pushes: any UnifiedPushStore
    /// Whether UnifiedPush is on.
    let isOn: @Sendable () -> Bool

    func messages(
        in room: SecretCode, after: MessageID, limit: Int
    ) async throws(ChatError) -> [Message] {
        let messages = try await rooms.messages(in: room, after: after, limit: limit)
        // A room wins against a topic of its name.
        guard messages.isEmpty, isOn(), let topic = UnifiedPushTopic(room.text) else { return messages }
        return try await pushes.messages(in: topic, after: after, limit: limit).map(Message.init)
    }

    func position(of member: MemberID) async throws(ChatError) -> RoomPosition {
        try await rooms.position(of: member)
    }
    func receipts(in room: SecretCode, for members: Set<MemberID>) async throws(ChatError) -> [MemberID: Receipt] {
        try await rooms.receipts(in: room, for: members)
    }
    func hasMoved(_ room: SecretCode, to code: SecretCode) async throws(ChatError) -> Bool {
        try await rooms.hasMoved(room, to: code)
    }
    func summary(of room: SecretCode) async throws(ChatError) -> RoomSummary { try await rooms.summary(of: room) }
    func roomChanges() -> AsyncStream<Void> { rooms.roomChanges() }
    func takeRoomChanges() async -> RoomChanges { await rooms.takeRoomChanges() }
    func handedOut(_ message: MessageID, to member: MemberID) { rooms.handedOut(message, to: member) }
}

extension MemberID {
    /// The sender of pushes of UnifiedPush. No member and no program has this id.
    static let unifiedPush = MemberID(stored: "unifiedpush")
}

extension Message {
    /// A push in the form of a message. Its text is the body in base64.
    init(_ push: UnifiedPushMessage) {
        self.init(
            id: push.id, sender: .unifiedPush, nickname: "", text: Data(push.body).base64EncodedString(),
            sentAt: push.sentAt)
    }

    /// The text of a push as ntfy's clients read it, and whether it is in base64. `nil` for other messages.
    var pushBody: (text: String, isEncoded: Bool)? {
        guard sender == .unifiedPush else { return nil }
        guard let body = Data(base64Encoded: text), let plain = String(validating: body, as: UTF8.self) else {
            return (text, true)
        }
        return (plain, false)
    }
}
