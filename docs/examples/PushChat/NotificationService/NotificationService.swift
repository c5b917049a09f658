import PushChatKit
import PushChatNotificationService
import UserNotifications

/// Completes the notification of a chat message before the system shows it.
final class NotificationService: UNNotificationServiceExtension {
    private var delivery: NotificationDelivery?

    override func didReceive(
        _ request: UNNotificationRequest, withContentHandler handler: @escaping (UNNotificationContent) -> Void
    ) {
        guard let group = AppGroup(.main) else { return handler(request.content) }
        let completer = NotificationCompleter(api: PushChatAPI(url: group.relay), storages: [group.storage])
        delivery = completer.start(request, handler: handler)
    }

    override func serviceExtensionTimeWillExpire() {
        delivery?.expire()
    }
}
