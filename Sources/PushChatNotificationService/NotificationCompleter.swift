public import Foundation
public import PushChatCore

/// Completes the notification of a chat message: the whole text, the number of unread messages, the writer and the
/// room, and a picture. Also reports to the relay that the device has shown the message.
public struct NotificationCompleter: Sendable {
    /// The longest time for a notification, by default. The system allows about 30 seconds.
    public static let timeLimit = Duration.seconds(20)
    /// The maximum size of a picture in bytes, by default. A notification service has 24 MB of memory.
    public static let pictureLimit = 5 << 20

    private let api: PushChatAPI
    private let storages: [any ChatStorage]
    private let roomName: @Sendable (SavedRoom) -> String?
    private let pictures: PictureDownload
    let timeLimit: Duration
    let clock: any Clock<Duration>

    /// Creates a completer.
    ///
    /// - Parameters:
    ///   - api: The relay's API.
    ///   - storages: The storages of the app's rooms, in a place that app and extension share. They are only read.
    ///   - folder: The folder of the downloaded pictures.
    ///   - roomName: Returns the name that notifications show for a room. `nil` shows none. A room's code is a secret,
    ///     and a notification is visible on the locked screen.
    ///   - pictureLimit: The maximum size of a picture in bytes.
    ///   - timeLimit: The longest time for a notification.
    ///   - clock: Measures the time.
    public init(
        api: PushChatAPI, storages: [any ChatStorage], folder: URL = FileManager.default.temporaryDirectory,
        roomName: @escaping @Sendable (SavedRoom) -> String? = { _ in nil },
        pictureLimit: Int = NotificationCompleter.pictureLimit, timeLimit: Duration = NotificationCompleter.timeLimit,
        clock: any Clock<Duration> = ContinuousClock()
    ) {
        self.api = api
        self.storages = storages
        self.roomName = roomName
        pictures = PictureDownload(transport: api.transport, folder: folder, limit: pictureLimit, timeout: timeLimit)
        self.timeLimit = timeLimit
        self.clock = clock
    }

    /// Starts to complete a notification.
    ///
    /// - Parameters:
    ///   - content: The notification as it arrived. It is delivered if nothing better is known in time.
    ///   - details: The relay's members of the payload.
    ///   - deliver: Passes the notification to the system. Called once.
    public func start(
        _ content: PushContent, _ details: PushDetails, deliver: @escaping @Sendable (PushContent) -> Void
    ) -> NotificationDelivery {
        NotificationDelivery(self, content, details, deliver)
    }

    // MARK: - Steps

    /// A message that was fetched, and its room.
    struct Found: Sendable {
        let room: SavedRoom
        let message: ChatMessage
        /// The messages that the app has not handled, with this one.
        let missed: [ChatMessage]
        /// The number of unread messages in all rooms.
        let unread: Int

        init(_ message: ChatMessage, in room: SavedRoom, missed: [ChatMessage], rooms: [SavedRoom]) {
            self.room = room
            self.message = message
            self.missed = missed
            unread = rooms.reduce(missed.count { !$0.isOwn }) { $0 + $1.unread }
        }
    }

    /// Fetches the message and those that were missed before it. `nil` if no room of the device has it.
    func find(_ message: Int64) async -> Found? {
        var rooms: [SavedRoom] = []
        for storage in storages {
            if let room = try? await SavedRoom.load(from: storage) { rooms.append(room) }
        }
        for room in rooms where !Task.isCancelled {
            let limit = 500
            guard
                let page = try? await api.messages(
                    after: room.lastHandled, limit: limit, member: room.member, isPeek: true)
            else { continue }
            if let found = page.messages.first(where: { $0.id == message }) {
                return Found(found, in: room, missed: page.messages, rooms: rooms)
            }
            // The message may follow after a full page, and the app may have handled it already.
            guard page.messages.count == limit || message <= room.lastHandled else { continue }
            let exact = try? await api.messages(after: message - 1, limit: 1, member: room.member, isPeek: true)
            if let found = exact?.messages.first, found.id == message {
                return Found(found, in: room, missed: page.messages, rooms: rooms)
            }
        }
        return nil
    }

    /// Returns the notification with what the message says. A badge of the payload stays.
    func completed(_ content: PushContent, _ details: PushDetails, with found: Found) -> PushContent {
        let message = found.message
        var content = content
        content.title = message.title ?? message.name
        content.subtitle = message.title == nil ? "" : message.name
        // The push has the plain text of a message in Markdown, after the name.
        let head = message.name + ": "
        let plain = content.body.hasPrefix(head) ? String(content.body.dropFirst(head.count)) : content.body
        content.body = message.isMarkdown ? plain : message.text
        content.missed = found.missed
        content.badge = content.badge ?? found.unread
        let conversation = details.room ?? (content.threadID.isEmpty ? nil : content.threadID)
        if let conversation, !message.isFromProgram {
            content.sender = PushSender(
                handle: details.sender ?? message.name, name: message.name, conversationID: conversation,
                conversationName: roomName(found.room))
        }
        return content
    }

    /// Downloads the picture. `nil` if there is none to show. The request has neither the member's id nor a session.
    /// Addresses must be encrypted, unless they lie on the relay.
    func picture(_ details: PushDetails) async -> URL? {
        guard let image = details.image, let scheme = image.scheme?.lowercased(),
            scheme == "https" || scheme == "http" && image.host == api.url.host
        else { return nil }
        return await pictures.file(of: image)
    }

    /// Reports the message as shown. A failed report is lost, because a notification must not wait for it.
    func report(_ found: Found) async {
        try? await api.shown(found.message.id, member: found.room.member)
    }
}
