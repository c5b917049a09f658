import Foundation

/// The state of a room that survives the end of the app. A pure value.
struct ChatRoomState: Sendable, Hashable, Codable {
    /// The code with which the app opened the room.
    let opened: String
    /// The room's code, which may have changed since; the member's name in the room, and the member.
    private(set) var code: String
    var name: String
    let member: ChatMemberID
    /// The last message or change that the app has handled.
    var handled: Int64 = 0
    /// The last message that the user has read.
    var read: Int64 = 0
    /// The ids of other members' messages after ``read`` that the app has handled, in their order: the newest
    /// ``maximumUnread``.
    private var unreadIDs: [Int64] = []
    var outbox = Outbox()
    var token = TokenUpkeep()

    static let maximumUnread = 1000

    var unread: Int { unreadIDs.count }

    init(code: String, name: String, member: ChatMemberID) {
        opened = code
        self.code = code
        self.name = name
        self.member = member
    }

    /// Returns the state that a room has saved. `nil` if it has saved none.
    static func load(from storage: any ChatStorage) async throws(PushChatError) -> ChatRoomState? {
        do {
            return try await storage.load().map { try JSONDecoder().decode(ChatRoomState.self, from: $0) }
        } catch {
            throw .storage("\(error)")
        }
    }

    mutating func handle(_ received: ReceivedEvent) {
        if let position = received.position { handled = max(handled, position) }
        switch received.event {
        case .message(let message):
            if message.isOwn {
                read(upTo: message.id)
            } else if message.id > max(read, unreadIDs.last ?? 0) {
                unreadIDs = unreadIDs.suffix(Self.maximumUnread - 1) + [message.id]
            }
        case .deleted(let id): unreadIDs.removeAll { $0 == id }
        case .code(let code): self.code = code
        case .databaseReplaced:
            (handled, read, unreadIDs) = (0, 0, [])
            token.stored(nil, at: .distantPast)
        case .edited, .cleared, .resolved, .members, .receipt, .disconnected, .connected, .sent, .rejected: break
        }
    }

    mutating func read(upTo id: Int64) {
        guard id > read else { return }
        read = id
        unreadIDs.removeAll { $0 <= id }
    }
}

/// Decides when the relay must learn the device's push token. A pure value.
struct TokenUpkeep: Sendable, Hashable, Codable {
    /// The time in seconds after which a token is sent again. The relay may have lost it: it deactivates a device that
    /// the push service rejects, and only a registration reactivates the device.
    private static let renewal: TimeInterval = 86_400

    /// The token that the relay has. `nil` if it has none.
    private var sent: Data?
    private var sentAt: Date?
    /// The token that the system gave the app. `nil` if it gave none yet.
    private(set) var current: Data?

    /// Returns the token to send now. `nil` if the relay has the current one.
    func due(at now: Date) -> Data? {
        // After the clock was set back, the time since then is negative.
        let isFresh = sentAt.map { (0..<Self.renewal).contains(now.timeIntervalSince($0)) } ?? false
        return current == sent && isFresh ? nil : current
    }

    mutating func received(_ token: Data) { current = token }

    /// Records that the relay has the token.
    mutating func stored(_ token: Data?, at now: Date) { (sent, sentAt) = (token, now) }
}
