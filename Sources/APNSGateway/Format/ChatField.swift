import ChatDomain

/// The optional fields of `aps` in a chat message over HTTP/2, in the order in which they are written. An app's setting
/// `leave_out` names those that its chat messages do not have.
package enum ChatField: String, Sendable, Hashable, CaseIterable {
    /// Groups the room's notifications.
    case threadID = "thread-id"
    /// Lets the app's extension change the notification before the device shows it.
    case mutableContent = "mutable-content"
    /// Selects the actions that the app has registered for chat messages.
    case category
    /// Makes the device show an urgent message at once.
    case interruptionLevel = "interruption-level"
    /// Sorts the notifications in the summary.
    case relevanceScore = "relevance-score"
    /// The window that comes forward: the room's.
    case targetContentID = "target-content-id"

    /// The category of every chat message.
    package static let categoryName = "message"

    /// Returns the value as JSON. `nil` if the message has no such field.
    ///
    /// - Parameters:
    ///   - room: The room's id. `nil` if rooms have none.
    ///   - isPassive: Whether the notification must not light up the screen.
    func value(for alert: ChatAlert, room: String?, isPassive: Bool) -> String? {
        switch self {
        case .threadID, .targetContentID: room.map { "\"\($0)\"" }
        case .mutableContent: "1"
        case .category: "\"\(Self.categoryName)\""
        // Without the field, the system's level is `active`.
        case .interruptionLevel:
            isPassive ? #""passive""# : alert.content.isUrgent ? #""time-sensitive""# : nil
        case .relevanceScore: relevance(of: alert.content)
        }
    }

    private func relevance(of content: MessageContent) -> String {
        if content.isUrgent { return "1" }
        return switch content.priority {
        case 1: "0"
        case 5: "0.25"
        default: "0.5"
        }
    }
}
