import APNSGateway
import ChatDomain

/// A format of devices that can replace and remove notifications. Payloads are readable: `ring: text`.
struct ChangingFormat: PushFormat {
    private let base = APNSFormat(.http2, payloadLimit: 4096)

    func payload(of alert: ChatAlert) throws(ChatError) -> String { "ring: \(alert.content.text.text)" }

    func update(_ update: AlertUpdate, of alert: ChatAlert, endpoint: String?) throws(ChatError) -> PushUpdate? {
        switch update {
        case .ring: PushUpdate(payload: try payload(of: alert), collapse: .firstPush)
        case .replace:
            PushUpdate(payload: "replace: \(alert.content.text.text)", priority: 5, collapse: .firstPush)
        case .remove: PushUpdate(payload: "remove", pushType: "background", priority: 5)
        }
    }

    func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
        try base.compose(content, for: app)
    }

    func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
        try base.push(row, identifier: identifier)
    }
}
