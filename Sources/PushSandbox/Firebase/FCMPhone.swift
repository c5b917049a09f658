import Foundation

/// An Android phone with an app: the messages that FCM keeps while the phone is offline, the part of the phone that gets
/// a message, and the topics to which the app has subscribed.
///
/// Google's guides describe these rules: "Non-collapsible and collapsible messages", "Lifespan of a message", "Receive
/// messages in an Android app".
struct FCMPhone: Sendable, Hashable {
    enum Connection: String, Sendable, CaseIterable {
        case online, offline
    }

    enum AppState: String, Sendable, CaseIterable {
        case background, foreground
    }

    /// A change to the delivery of a message.
    struct Change: Sendable, Hashable {
        /// The message's id in the inbox.
        let message: Int
        let progress: InboxEntry.PhoneDelivery.Progress
        /// The part of the phone that got the message. `nil` if the message was not delivered.
        var receiver: InboxEntry.PhoneDelivery.Receiver?
    }

    private struct Stored: Sendable, Hashable {
        let message: Int
        let kind: FCMMessage.Kind
        let collapseKey: String?
        let expiresAt: Date
    }

    /// The maximum number of collapse keys for which FCM keeps a message.
    static let maxKeys = 4
    /// The maximum number of messages without a collapse key that FCM keeps.
    static let maxNonCollapsible = 100
    /// The maximum number of topics of an app on one phone.
    static let maxTopics = 2000

    private(set) var connection = Connection.online
    var app = AppState.background
    /// The topics, with the times of their subscriptions.
    var topics: [String: Date] = [:]
    /// The number of calls of the app's `onDeletedMessages`.
    private(set) var deletedMessagesCalls = 0
    /// Whether FCM has dropped all messages since the phone was last online.
    private var hasLostMessages = false
    private var stored: [Stored] = []

    var storedCount: Int { stored.count }

    /// Delivers a message, or keeps it for an offline phone.
    /// - Parameter id: The message's id in the inbox.
    /// - Returns: The message's change, and those of the messages that it replaces.
    mutating func receive(_ message: FCMMessage, id: Int, at now: Date) -> [Change] {
        guard connection == .offline else { return [delivered(id, message.kind)] }
        // "0s" means now or never.
        guard message.lifetime > 0 else { return [Change(message: id, progress: .expired)] }
        var changes = expire(at: now)
        let key = message.storageKey
        if key != nil {
            changes += drop(.replaced) { $0.collapseKey == key }
            let keys = stored.compactMap(\.collapseKey)
            if keys.count == Self.maxKeys, let oldest = keys.first {
                // FCM keeps the messages of any four keys.
                changes += drop(.dropped) { $0.collapseKey == oldest }
            }
        } else if stored.count(where: { $0.collapseKey == nil }) == Self.maxNonCollapsible {
            hasLostMessages = true
            return changes + drop(.dropped) { _ in true } + [Change(message: id, progress: .dropped)]
        }
        stored.append(
            Stored(
                message: id, kind: message.kind, collapseKey: key,
                expiresAt: now.addingTimeInterval(Double(message.lifetime))))
        return changes + [Change(message: id, progress: .waiting)]
    }

    /// Connects the phone or disconnects it. A phone that connects gets its messages, and learns if some were dropped.
    mutating func set(_ connection: Connection, at now: Date) -> [Change] {
        self.connection = connection
        guard connection == .online else { return [] }
        var changes = expire(at: now)
        changes += stored.map { delivered($0.message, $0.kind) }
        stored = []
        if hasLostMessages {
            hasLostMessages = false
            deletedMessagesCalls += 1
        }
        return changes
    }

    /// Drops all messages, because the app was removed.
    mutating func remove() -> [Change] {
        topics = [:]
        return drop(.unregistered) { _ in true }
    }

    /// Returns the receiver of a message. The Firebase SDK shows notifications itself only while the app is in the
    /// background. The new form of Android's options shows them in any case.
    private func delivered(_ id: Int, _ kind: FCMMessage.Kind) -> Change {
        let isShown = kind == .remoteNotification || kind == .notification && app == .background
        return Change(message: id, progress: .delivered, receiver: isShown ? .tray : .onMessageReceived)
    }

    private mutating func expire(at now: Date) -> [Change] {
        drop(.expired) { $0.expiresAt <= now }
    }

    private mutating func drop(
        _ progress: InboxEntry.PhoneDelivery.Progress, where isDropped: (Stored) -> Bool
    ) -> [Change] {
        let changes = stored.filter(isDropped).map { Change(message: $0.message, progress: progress) }
        stored.removeAll(where: isDropped)
        return changes
    }
}
