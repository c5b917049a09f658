import Foundation

/// The state of a room that survives the end of the app. A pure value.
struct ChatRoomState: Sendable, Hashable, Codable {
    /// The code with which the app opened the room.
    let opened: String
    /// The room's code, which may have changed since; the member's name in the room, and the member.
    private(set) var code: String
    var name: String
    let member: ChatMemberID
    /// The last message that the app has handled.
    var handled: Int64 = 0
    /// The last message that the user has read.
    var read: Int64 = 0
    /// The messages of others after ``read`` that the app has handled.
    var unread: Int = 0
    var outbox = Outbox()
    var token = TokenUpkeep()

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

    mutating func handle(_ event: ChatEvent) {
        switch event {
        case .message(let message):
            handled = max(handled, message.id)
            if message.isOwn { read(upTo: message.id) } else if message.id > read { unread += 1 }
        case .code(let code): self.code = code
        case .databaseReplaced: (handled, read, unread) = (0, 0, 0)
        case .deleted, .members, .receipt, .disconnected, .connected, .sent, .rejected: break
        }
    }

    mutating func read(upTo id: Int64) {
        guard id > read else { return }
        read = id
        if id >= handled { unread = 0 }
    }
}

/// Decides when the relay must learn the device's push token. A pure value.
struct TokenUpkeep: Sendable, Hashable, Codable {
    /// The token that the relay has. `nil` if it has none.
    private(set) var sent: Data?
    /// The token that the system gave the app. `nil` if it gave none yet.
    private(set) var current: Data?

    /// The token to send now. `nil` if the relay has the current one.
    var due: Data? { current == sent ? nil : current }

    mutating func received(_ token: Data) { current = token }

    /// Records that the relay has the token.
    mutating func stored(_ token: Data?) { sent = token }
}
