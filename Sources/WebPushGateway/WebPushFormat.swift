package import ChatDomain
import WebPushWire

/// What browsers get to see: a declarative push message (Push API §3.3), which Safari shows by itself and the page's service worker
/// elsewhere.
package struct WebPushFormat: PushFormat {
    /// Bytes of a payload.
    package static let payloadLimit = MessageEncryption.largestText
    /// What marks a declarative push message.
    private static let declarative: Int64 = 8030
    /// Bytes of a topic before its hash is taken (``WebPushRequest``); as Apple's collapse ids, so that one fits both.
    private static let longestCollapseID = 64

    /// The relay's own address, `https://chat.example.org`: where a click leads. Nil: browsers show the message by the
    /// page's service worker only.
    private let publicURL: String?
    private let isSilent: Bool

    /// - Parameter sound: of chat messages; nil for none.
    package init(publicURL: String?, sound: String? = "default") {
        self.publicURL = publicURL.map { $0.hasSuffix("/") ? String($0.dropLast()) : $0 }
        isSilent = sound == nil
    }

    // MARK: - Chat messages

    /// Shortened to what fits: first the text, then the name.
    package func payload(of alert: ChatAlert) throws(ChatError) -> String {
        func document(_ title: String, _ body: String) -> String {
            var notification: JSONObject = ["title": .string(title), "body": .string(body)]
            notification.append("tag", .string("message-\(alert.message)"))
            if isSilent { notification.append("silent", .bool(true)) }
            notification.append(
                "data", .object(["room": .string(alert.room), "message_id": .number(alert.message)]))
            return self.document(notification, path: "/#room=\(alert.room)", badge: nil)
        }
        let whole = document(alert.nickname.text, alert.text.text)
        let excess = whole.utf8.count - Self.payloadLimit
        if excess <= 0 { return whole }
        let room = JSONString.escapedSize(alert.text.text) - excess - "…".utf8.count
        let body = JSONString.prefix(of: alert.text.text, within: max(0, room)) + "…"
        let shortened = document(alert.nickname.text, body)
        guard shortened.utf8.count <= Self.payloadLimit else {
            throw .invalid("text", "does not fit into a payload of \(Self.payloadLimit) bytes, not even shortened")
        }
        return shortened
    }

    private func document(_ notification: JSONObject, path: String, badge: Int64?) -> String {
        var document = JSONObject()
        var notification = notification
        if let publicURL {
            document.append("web_push", .number(Self.declarative))
            if notification["navigate"] == nil { notification.append("navigate", .string(publicURL + path)) }
        }
        document.append("notification", .object(notification))
        if let badge { document.append("app_badge", .number(badge)) }
        return JSONValue.object(document).description
    }

    // MARK: - Notifications

    package func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
        let payload = try payload(of: content)
        let size = payload.utf8.count
        guard size <= Self.payloadLimit else {
            throw .invalid(
                "payload",
                "has \(size) bytes of UTF-8, \(size - Self.payloadLimit) more than the \(Self.payloadLimit) that browsers of app \(app) take"
            )
        }
        if let id = content.collapseID, id.utf8.count > Self.longestCollapseID {
            throw .invalid("collapse_id", "must have at most \(Self.longestCollapseID) bytes")
        }
        return ComposedNotification(payload: payload, pushType: Push.alert, priority: content.priority)
    }

    private func payload(of content: NotificationContent) throws(ChatError) -> String {
        // A document for browsers goes as it is; one for iPhones is translated as far as browsers know its parts.
        if let document = content.payload, document["notification"]?.object?["title"]?.text?.isEmpty == false {
            return JSONValue.object(document).description
        }
        let aps = content.payload?["aps"]?.object
        let alert = content.alert ?? aps?["alert"]
        let texts = (title: alert?.text ?? alert?.object?["title"]?.text, body: alert?.object?["body"]?.text)
        guard let title = texts.title ?? texts.body, !title.isEmpty else {
            throw .invalid("alert", "must have a text: browsers show every push")
        }
        var notification: JSONObject = ["title": .string(title)]
        if texts.title != nil, let body = texts.body { notification.append("body", .string(body)) }
        if (content.sound ?? aps?["sound"]) == nil { notification.append("silent", .bool(true)) }
        if let id = content.collapseID { notification.append("tag", .string(id)) }
        var custom = content.custom ?? content.payload ?? JSONObject()
        custom["aps"] = nil
        if !custom.isEmpty { notification.append("data", .object(custom)) }
        return document(notification, path: "/", badge: content.badge ?? aps?["badge"]?.integer)
    }

    // MARK: - Rows of the queue

    package func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
        guard let address = row.address else { throw PushRefusal("BadSubscription") }
        guard let payload = row.payload, !payload.isEmpty else { throw PushRefusal("PayloadEmpty") }
        guard payload.count <= Self.payloadLimit else { throw PushRefusal("PayloadTooLarge") }
        return Push(
            entry: row.entry, identifier: identifier, address: address, payload: payload, expiration: row.expiration,
            priority: row.priority.flatMap(UInt8.init(exactly:)), id: row.id, collapseID: row.collapseID)
    }
}
