#if canImport(UserNotifications)
import Foundation
import PushChatCore
public import UserNotifications
#if canImport(Intents)
import Intents
#endif

extension NotificationCompleter {
    /// Starts to complete a notification of the system. Call it from `didReceive(_:withContentHandler:)`, and keep the
    /// result for `serviceExtensionTimeWillExpire`.
    public func start(
        _ request: UNNotificationRequest, handler: @escaping (UNNotificationContent) -> Void
    ) -> NotificationDelivery {
        let system = SystemNotification(request.content, handler)
        return start(PushContent(request.content), PushDetails(userInfo: request.content.userInfo)) {
            system.deliver($0)
        }
    }
}

extension PushDetails {
    /// Removes the notifications of a message that was deleted, resolved or marked as done. Call it from
    /// `application(_:didReceiveRemoteNotification:fetchCompletionHandler:)`.
    /// - Returns: Whether the push asks for this.
    @discardableResult
    public func removeNotifications() async -> Bool {
        guard isClear, let message else { return false }
        await withCheckedContinuation { done in
            UNUserNotificationCenter.current().getDeliveredNotifications { shown in
                let ids = shown.map(\.request).filter { PushDetails(userInfo: $0.content.userInfo).message == message }
                UNUserNotificationCenter.current().removeDeliveredNotifications(withIdentifiers: ids.map(\.identifier))
                done.resume()
            }
        }
        return true
    }
}

extension PushContent {
    fileprivate init(_ content: UNNotificationContent) {
        self.init(
            title: content.title, subtitle: content.subtitle, body: content.body, badge: content.badge?.intValue,
            threadID: content.threadIdentifier)
    }
}

/// The system's content of a notification, and the function that takes the result.
///
/// `@unchecked Sendable` is sound: a delivery calls `deliver` once, and nothing else uses the properties.
private final class SystemNotification: @unchecked Sendable {
    private let original: UNNotificationContent
    private let handler: (UNNotificationContent) -> Void

    init(_ original: UNNotificationContent, _ handler: @escaping (UNNotificationContent) -> Void) {
        self.original = original
        self.handler = handler
    }

    func deliver(_ content: PushContent) {
        guard let changed = original.mutableCopy() as? UNMutableNotificationContent else { return handler(original) }
        changed.title = content.title
        changed.subtitle = content.subtitle
        changed.body = content.body
        changed.badge = content.badge.map { NSNumber(value: $0) }
        changed.threadIdentifier = content.threadID
        if let picture = content.picture,
            let attachment = try? UNNotificationAttachment(identifier: "picture", url: picture)
        {
            changed.attachments = [attachment]
        }
        handler(content.sender.flatMap { Self.communication(changed, from: $0) } ?? changed)
    }

    /// Returns the content as a communication notification. `nil` if the app does not have this capability.
    private static func communication(
        _ content: UNNotificationContent, from sender: PushSender
    ) -> UNNotificationContent? {
        #if canImport(Intents)
        let person = INPerson(
            personHandle: INPersonHandle(value: sender.handle, type: .unknown), nameComponents: nil,
            displayName: sender.name, image: nil, contactIdentifier: nil, customIdentifier: sender.handle)
        let intent = INSendMessageIntent(
            recipients: nil, outgoingMessageType: .outgoingMessageText, content: content.body,
            speakableGroupName: sender.conversationName.map { INSpeakableString(spokenPhrase: $0) },
            conversationIdentifier: sender.conversationID, serviceName: nil, sender: person, attachments: nil)
        let interaction = INInteraction(intent: intent, response: nil)
        interaction.direction = .incoming
        interaction.donate(completion: nil)
        return try? content.updating(from: intent)
        #else
        return nil
        #endif
    }
}
#endif
