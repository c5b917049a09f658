/// A member's place in a room, as a ``ChatRoom`` has saved it. For processes that only read, such as an app's
/// notification service.
public struct SavedRoom: Sendable, Hashable {
    /// The room's code. It is a secret of the room's members.
    public let code: String
    /// The member's name in the room.
    public let name: String
    public let member: ChatMemberID
    /// The last message that the app has handled. 0 if there is none.
    public let lastHandled: Int64
    /// The number of handled messages of others that the user has not read.
    public let unread: Int

    public init(code: String, name: String, member: ChatMemberID, lastHandled: Int64 = 0, unread: Int = 0) {
        self.code = code
        self.name = name
        self.member = member
        self.lastHandled = lastHandled
        self.unread = unread
    }

    /// Reads the storage of a room.
    ///
    /// - Returns: `nil` if no room has saved anything there.
    /// - Throws: ``PushChatError/storage(_:)`` if the storage cannot be read.
    public static func load(from storage: any ChatStorage) async throws(PushChatError) -> SavedRoom? {
        guard let state = try await ChatRoomState.load(from: storage) else { return nil }
        return SavedRoom(
            code: state.code, name: state.name, member: state.member, lastHandled: state.handled, unread: state.unread)
    }
}
