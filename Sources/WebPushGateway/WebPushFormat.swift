package import ChatDomain
import PushWire

/// The payload for browsers: a declarative push message (Push API §3.3). Safari shows it by itself; in other browsers
/// the page's service worker shows it.
package struct WebPushFormat: PushFormat {
    /// The maximum size of a payload, in bytes.
    package static let payloadLimit = MessageEncryption.largestText
    /// The marker of a declarative push message.
    static let declarative: Int64 = 8030
    /// The relay's own address, `https://chat.example.org`, to which a click leads. If it is `nil`, only the page's
    /// service worker shows messages.
    private let publicURL: String?
    private let isSilent: Bool

    /// - Parameter sound: The sound of chat messages. `nil` for none.
    package init(publicURL: String?, sound: String? = "default") {
        self.publicURL = publicURL.map { $0.hasSuffix("/") ? String($0.dropLast()) : $0 }
        isSilent = sound == nil
    }

    package var showsUnread: Bool { true }

    // MARK: - Chat messages

    /// The minimum size of the text, in bytes. The link is left out if less would remain.
    private static let minText = 200

    /// Returns the payload of a chat message, shortened so that the largest number of unread messages still fits. The
    /// text is shortened first. If too little of it would remain, the link is left out.
    package func payload(of alert: ChatAlert) throws(ChatError) -> String { try payload(of: alert, update: nil) }

    private func payload(of alert: ChatAlert, update: AlertUpdate?) throws(ChatError) -> String {
        if alert.content.link != nil,
            let payload = payload(of: alert, update: update, link: alert.content.link, minText: Self.minText)
        {
            return payload
        }
        guard let payload = payload(of: alert, update: update, link: nil, minText: 0) else {
            throw .invalid("text", "does not fit into a payload of \(Self.payloadLimit) bytes, not even shortened")
        }
        return payload
    }

    /// Browsers show every push, so none can only remove a notification. Safari also rings for a push that replaces one.
    package func update(
        _ update: AlertUpdate, of alert: ChatAlert, endpoint: String?
    ) throws(ChatError) -> PushUpdate? {
        switch update {
        case .ring: return PushUpdate(payload: try payload(of: alert, update: .ring), priority: alert.content.priority)
        case .replace:
            guard let endpoint = endpoint.flatMap({ try? PushEndpoint($0) }), !endpoint.isOfApple else { return nil }
            return PushUpdate(payload: try payload(of: alert, update: .replace), priority: 5)
        case .remove: return nil
        }
    }

    /// Returns the payload. `nil` if fewer than `minText` bytes of the text fit.
    private func payload(of alert: ChatAlert, update: AlertUpdate?, link: String?, minText: Int) -> String? {
        let (title, text) = (alert.content.title, alert.content.text.text)
        let isSilent = update == .replace || alert.content.sound.map(\.isEmpty) ?? isSilent
        let room = Self.name(of: alert.code)
        func document(_ text: String) -> String {
            var notification: JSONObject = [
                "title": .string(title ?? alert.nickname.text),
                "body": .string(title == nil ? text : "\(Nickname.isolated(alert.nickname.text)): \(text)"),
            ]
            notification.append("tag", .string("message-\(alert.message)"))
            if isSilent { notification.append("silent", .bool(true)) }
            // Without it, a notification that replaces another one is silent (Notifications API).
            if update == .ring { notification.append("renotify", .bool(true)) }
            // Browsers open only pages. Another link is in the message on the chat page.
            if let link, NotificationContent.isLink(link) { notification.append("navigate", .string(link)) }
            var data: JSONObject = ["room": .string(room), "message_id": .number(alert.message)]
            if alert.isOfProgram { data.append("program", .bool(true)) }
            notification.append("data", .object(data))
            return self.document(notification, path: "/#room=\(room)", badge: nil)
        }
        let whole = document(text)
        let limit = Self.payloadLimit - Self.badgeRoom
        let excess = whole.utf8.count - limit
        if excess <= 0 { return whole }
        let space = JSONString.escapedSize(text) - excess - "…".utf8.count
        let body = JSONString.prefix(of: text, within: max(0, space))
        guard body.utf8.count >= minText else { return nil }
        let shortened = document(body + "…")
        return shortened.utf8.count <= limit ? shortened : nil
    }

    /// Returns the name by which the page finds the room among its rooms: FNV-1a, 64 bits, of the code, in hexadecimal
    /// digits.
    ///
    /// Anyone who reads the name can find a short code by trying. It may only appear in a document that only the
    /// browser can decrypt. A push service must never see it.
    static func name(of code: SecretCode) -> String {
        let hash = code.text.utf8.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        let digits = String(hash, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }

    private func document(_ notification: JSONObject, path: String, badge: Int64?) -> String {
        var document = JSONObject()
        var notification = notification
        if let publicURL, notification["navigate"] == nil {
            notification.append("navigate", .string(publicURL + path))
        }
        // Without `navigate`, a message is not declarative.
        if notification["navigate"] != nil { document.append("web_push", .number(Self.declarative)) }
        if let badge { notification.append(Self.badge, .number(badge)) }
        document.append("notification", .object(notification))
        if let badge { document.append(Self.badge, .number(badge)) }
        return JSONValue.object(document).description
    }

    // MARK: - The number at the icon

    /// The member with the number at the app's icon. Safari 18.4 and 18.5 read it inside `notification`, later versions
    /// read it at the top level, and the worker does not run for declarative messages. So it is always sent in both
    /// places.
    private static let badge = "app_badge"
    /// The number of bytes that the largest number of unread messages takes in both places.
    private static let badgeRoom = 2 * badgeMember(UnreadCount.most).count

    private static func badgeMember(_ number: Int64) -> [UInt8] { Array(#","\#(badge)":\#(number)"#.utf8) }

    /// Adds the number of unread messages to the document of a chat message.
    /// - Returns: The unchanged document if it is not one of the relay's or if the number does not fit.
    private static func adding(_ unread: Int64, to document: [UInt8]) -> [UInt8] {
        let member = badgeMember(unread)
        guard document.count + 2 * member.count <= payloadLimit, document.last == UInt8(ascii: "}"),
            let head = heads.first(where: { document.starts(with: $0) })
        else { return document }
        var result = head
        result.reserveCapacity(document.count + 2 * member.count)
        // The member becomes the first one of `notification`, so its comma moves from its start to its end.
        result += member.dropFirst()
        result.append(UInt8(ascii: ","))
        result += document[head.count...].dropLast()
        result += member
        result.append(UInt8(ascii: "}"))
        return result
    }

    /// The possible starts of documents of chat messages.
    private static let heads = [
        Array(#"{"web_push":\#(declarative),"notification":{"#.utf8), Array(#"{"notification":{"#.utf8),
    ]

    /// Returns a caller's document with its number in both places.
    private static func withBadges(_ document: JSONObject) -> JSONObject {
        guard var notification = document["notification"]?.object,
            let number = document[badge] ?? notification[badge]
        else { return document }
        var document = document
        if notification[badge] == nil {
            notification.append(badge, number)
            document["notification"] = .object(notification)
        }
        if document[badge] == nil { document.append(badge, number) }
        return document
    }

    // MARK: - Notifications

    /// Returns Apple's document, which the queue stores and which is translated when the push is sent. This function
    /// tries the translation only to check that it is possible and fits.
    package func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
        let document = try content.document()
        try BrowserDocument.check(document)
        guard let translated = translated(document, collapseID: content.collapseID) else {
            throw .invalid(
                content.payload == nil ? "alert" : "payload",
                "must have a text for browsers of app \(app): they show every push")
        }
        let (size, limit) = (translated.utf8.count, Self.payloadLimit)
        guard size <= limit else {
            throw .invalid(
                "payload",
                "has \(size) bytes of UTF-8 for browsers, \(size - limit) more than the \(limit) that app \(app) takes")
        }
        return ComposedNotification(
            payload: JSONValue.object(document).description, pushType: Push.alert, priority: content.priority)
    }

    /// Translates Apple's document for browsers. A document for browsers stays as it is, except for ``withBadges(_:)``.
    /// Returns `nil` if there is no text to show.
    private func translated(_ document: JSONObject, collapseID: String?) -> String? {
        if document["notification"]?.object?["title"]?.text?.isEmpty == false {
            return JSONValue.object(Self.withBadges(document)).description
        }
        guard let aps = document["aps"]?.object else { return nil }
        let alert = aps["alert"]
        let title = alert?.nonEmptyText ?? alert?.object?["title"]?.nonEmptyText
        let body = alert?.object?["body"]?.nonEmptyText
        guard let first = title ?? body else { return nil }
        var notification: JSONObject = ["title": .string(first)]
        if title != nil, let body { notification.append("body", .string(body)) }
        if aps["sound"] == nil { notification.append("silent", .bool(true)) }
        if let collapseID { notification.append("tag", .string(collapseID)) }
        var data = document
        data["aps"] = nil
        if let link = document["link"]?.text, NotificationContent.isLink(link) {
            notification.append("navigate", .string(link))
            data["link"] = nil
        }
        if !data.isEmpty { notification.append("data", .object(data)) }
        return self.document(notification, path: "/", badge: aps["badge"]?.integer)
    }

    // MARK: - Rows of the queue

    package func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
        guard let address = row.address else { throw PushRefusal("BadSubscription") }
        guard var payload = row.payload, !payload.isEmpty else { throw PushRefusal("PayloadEmpty") }
        if row.message == nil || !row.isOurs || !payload.starts(with: ownStart) {
            // A chat message already has the right form. All other documents are parsed.
            guard payload.count <= Self.longestDocument,
                let document = (try? JSONValue(parsing: payload))?.object
            else { throw PushRefusal.notJSON(payload, limit: Self.longestDocument) }
            guard let text = translated(document, collapseID: row.collapseID) else { throw PushRefusal.noText }
            payload = Array(text.utf8)
        }
        if let unread = row.unread { payload = Self.adding(unread, to: payload) }
        guard payload.count <= Self.payloadLimit else {
            throw PushRefusal.tooLarge("PayloadTooLarge", payload.count, limit: Self.payloadLimit)
        }
        return Push(
            id: row.id, identifier: identifier, address: address, payload: payload, expiration: row.expiration,
            priority: row.priority.flatMap(UInt8.init(exactly:)), apnsID: row.apnsID, collapseID: row.collapseID)
    }

    /// The maximum size of a row's document in bytes, before it is translated.
    private static let longestDocument = 1 << 16
    /// The start of documents of chat messages with the current address.
    private var ownStart: [UInt8] { publicURL == nil ? Self.heads[1] : Self.heads[0] }
}
