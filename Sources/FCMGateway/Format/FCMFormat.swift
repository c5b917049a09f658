package import ChatDomain

/// The messages for Android apps. See `docs/fcm.md`, and Google, "Firebase Cloud Messaging API", `Message`.
///
/// A payload is a message without its target and its lifetime, which ``FCMBody`` adds. Its first member is `android`, and
/// the first or the last member of a chat message is known, so that the number of unread messages can be added.
package struct FCMFormat: PushFormat {
    /// Whether Google's library shows messages, or the app does.
    package enum Kind: String, Sendable, CaseIterable {
        /// The app gets every message as data, and shows it.
        case data
        /// The library shows the message while the app is in the background.
        case notification
    }

    /// The limit of a message in bytes. Google counts `data` and `notification`.
    package static let payloadLimit = 4096

    private let kind: Kind
    private let payloadLimit: Int
    /// The notification channel in the app. `nil` for the app's default.
    private let channel: String?
    /// The notification channel for changes of messages, which must be silent. `nil` if the app has none. Android rings for
    /// each notification of any other channel, even if it only replaces one.
    private let updateChannel: String?
    /// The sound of chat messages. `nil` for none.
    private let sound: String?
    /// Returns the id of a room, by which an app groups messages. `nil` if rooms have no ids.
    private let room: (@Sendable (SecretCode) -> String)?

    package init(
        _ kind: Kind, payloadLimit: Int = FCMFormat.payloadLimit, channel: String? = nil, updateChannel: String? = nil,
        sound: String? = "default", room: (@Sendable (SecretCode) -> String)? = nil
    ) {
        self.kind = kind
        self.payloadLimit = payloadLimit
        self.channel = channel
        self.updateChannel = updateChannel
        self.sound = sound
        self.room = room
    }

    package var tokens: TokenKind { .installation }
    package var showsUnread: Bool { true }

    // MARK: - Chat messages

    /// The minimum size of the text, in bytes. The link is left out if less would remain.
    private static let minText = 200

    /// Returns the payload of a chat message, shortened so that the largest number of unread messages still fits.
    package func payload(of alert: ChatAlert) throws(ChatError) -> String { try payload(of: alert, isUpdate: false) }

    private func payload(of alert: ChatAlert, isUpdate: Bool) throws(ChatError) -> String {
        if let link = alert.content.link,
            let payload = payload(of: alert, isUpdate: isUpdate, link: link, minText: Self.minText)
        {
            return payload
        }
        guard let payload = payload(of: alert, isUpdate: isUpdate, link: nil, minText: 0) else {
            throw .invalid("text", "does not fit into a payload of \(payloadLimit) bytes, not even shortened")
        }
        return payload
    }

    /// The app updates and removes notifications itself, if it shows them. Google's library can only replace one.
    package func update(
        _ update: AlertUpdate, of alert: ChatAlert, endpoint: String?
    ) throws(ChatError) -> PushUpdate? {
        switch update {
        case .ring: return PushUpdate(payload: try payload(of: alert), priority: alert.content.priority)
        case .replace:
            guard kind == .data || updateChannel != nil else { return nil }
            return PushUpdate(payload: try payload(of: alert, isUpdate: true), priority: 5)
        case .remove:
            let data: JSONObject = [
                "type": .string("clear"), "message_id": .string(String(alert.message)),
                "tag": .string(Self.tag(of: alert)),
            ]
            return PushUpdate(payload: composed(nil, data, isHigh: false, collapseID: nil).description, priority: 5)
        }
    }

    private static func tag(of alert: ChatAlert) -> String { "message-\(alert.message)" }

    /// Returns the payload. `nil` if fewer than `minText` bytes of the text fit.
    private func payload(of alert: ChatAlert, isUpdate: Bool, link: String?, minText: Int) -> String? {
        let content = alert.content
        let sound = isUpdate ? nil : content.sound.map { $0.isEmpty ? nil : $0 } ?? sound
        let isHigh = !isUpdate && (content.isUrgent || (content.priority ?? 10) == 10)
        func message(_ text: String) -> String {
            let shown = Shown(
                title: content.title ?? alert.nickname.text,
                body: content.title == nil ? text : "\(Nickname.isolated(alert.nickname.text)): \(text)", sound: sound,
                tag: Self.tag(of: alert), isUpdate: isUpdate)
            var data: JSONObject = ["type": .string("message")]
            if kind == .data {
                data.append("title", .string(shown.title ?? ""))
                data.append("body", .string(shown.body ?? ""))
                data.append("text", .string(text))
                if let sound { data.append("sound", .string(sound)) }
                if content.isUrgent { data.append("urgent", .string("true")) }
            }
            data.append("sender", .string(alert.nickname.text))
            if alert.isOfProgram { data.append("program", .string("true")) }
            data.append("message_id", .string(String(alert.message)))
            if let revision = content.extras.revision { data.append("revision", .string(String(revision))) }
            if isUpdate { data.append("update", .string("true")) }
            if let room { data.append("room", .string(room(alert.code))) }
            if let link { data.append("link", .string(link)) }
            return composed(shown, data, isHigh: isHigh, collapseID: nil).description
        }
        let limit = payloadLimit - Self.unreadRoom
        let whole = message(alert.content.text.text)
        let excess = whole.utf8.count - limit
        if excess <= 0 { return whole }
        // With data, the text is in the message twice.
        let copies = kind == .data ? 2 : 1
        let ellipsis = "…".utf8.count
        let space = JSONString.escapedSize(alert.content.text.text) - (excess + copies - 1) / copies - ellipsis
        let text = JSONString.prefix(of: alert.content.text.text, within: max(0, space))
        guard text.utf8.count >= minText else { return nil }
        let shortened = message(text + "…")
        return shortened.utf8.count <= limit ? shortened : nil
    }

    /// The part of a message that people see.
    private struct Shown {
        var title: String?
        var body: String?
        /// The texts of the app's own resources that stand for the title and the body.
        var titleKey: LocalizedText?
        var bodyKey: LocalizedText?
        var image: String?
        var sound: String?
        /// A later notification with the same tag replaces an earlier one.
        var tag: String?
        /// Whether the notification must replace another one silently.
        var isUpdate = false
        var count: Int64?
        /// The app's action for a tap.
        var category: String?

        /// Whether there is a text to show.
        var hasText: Bool { title != nil || body != nil || titleKey != nil || bodyKey != nil }

        /// The keys of texts and their arguments, with FCM's names.
        var keys: [(name: String, text: LocalizedText)] {
            [("title_loc", titleKey), ("body_loc", bodyKey)].compactMap { name, text in text.map { (name, $0) } }
        }
    }

    /// A text that the app looks up in its resources, and the values that it inserts there.
    private struct LocalizedText {
        let key: JSONValue
        let arguments: JSONValue?

        /// Reads Apple's members `NAME-key` and `NAME-args`. `nil` without a key.
        init?(_ alert: JSONObject?, _ name: String) {
            guard let key = alert?[name + "-key"]?.nonEmptyText else { return nil }
            self.key = .string(key)
            arguments = alert?[name + "-args"]?.array.map { .texts($0.map { $0.text ?? $0.description }) }
        }
    }

    /// Returns the message, with `android` first and `data` last.
    private func composed(_ shown: Shown?, _ data: JSONObject, isHigh: Bool, collapseID: String?) -> JSONValue {
        var android = JSONObject()
        var message = JSONObject()
        if kind == .notification, let shown {
            var own = JSONObject()
            if let channel = shown.isUpdate ? updateChannel : channel { own.append("channel_id", .string(channel)) }
            if let tag = shown.tag { own.append("tag", .string(tag)) }
            if let sound = shown.sound { own.append("sound", .string(sound)) }
            if let count = shown.count { own.append(Self.count, .number(count)) }
            if let category = shown.category { own.append("click_action", .string(category)) }
            for (name, text) in shown.keys {
                own.append(name + "_key", text.key)
                if let arguments = text.arguments { own.append(name + "_args", arguments) }
            }
            android.append("notification", .object(own))
            var notification = JSONObject()
            if let title = shown.title { notification.append("title", .string(title)) }
            if let body = shown.body { notification.append("body", .string(body)) }
            if let image = shown.image { notification.append("image", .string(image)) }
            if !notification.isEmpty { message.append("notification", .object(notification)) }
        }
        android.append("priority", .string(isHigh ? "HIGH" : "NORMAL"))
        if let collapseID { android.append("collapse_key", .string(collapseID)) }
        if !data.isEmpty { message.append("data", .object(data)) }
        return Self.message(android, message)
    }

    /// Returns the message with `android` first. It replaces the one in `rest`.
    private static func message(_ android: JSONObject, _ rest: JSONObject) -> JSONValue {
        var whole: JSONObject = ["android": .object(android)]
        for (name, value) in rest.members where name != "android" { whole.append(name, value) }
        return .object(whole)
    }

    // MARK: - The number of unread messages

    private static let count = "notification_count"
    private static let ownHead = Array(#"{"android":{"notification":{"#.utf8)
    private static func dataMember(_ number: Int64) -> [UInt8] { Array(#","unread":"\#(number)""#.utf8) }
    private static func countMember(_ number: Int64) -> [UInt8] { Array(#""\#(count)":\#(number),"#.utf8) }
    /// The number of bytes that the largest number takes in both places.
    private static let unreadRoom = dataMember(UnreadCount.most).count + countMember(UnreadCount.most).count

    /// Adds the number of unread messages to a chat message of ``payload(of:)``: to its data, and to the part that the
    /// library shows.
    private static func adding(_ unread: Int64, to payload: [UInt8], limit: Int) -> [UInt8] {
        let (member, count) = (dataMember(unread), countMember(unread))
        guard payload.count + member.count + count.count <= limit, payload.suffix(3) == Array(#""}}"#.utf8) else {
            return payload
        }
        var result = payload
        result.insert(contentsOf: member, at: result.count - 2)
        if result.starts(with: ownHead), result[ownHead.count] != UInt8(ascii: "}") {
            result.insert(contentsOf: count, at: ownHead.count)
        }
        return result
    }

    // MARK: - Notifications

    /// Returns Apple's document, which the queue stores and which is translated when the push is sent, or a whole message
    /// for FCM. This function tries the translation only to check that it is possible and fits.
    package func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
        let document = try content.document()
        let translated: [UInt8]
        do throws(Untranslatable) {
            translated = try self.translated(
                document, priority: content.priority, collapseID: content.collapseID, hasExpiration: false
            ).utf8
        } catch {
            throw .invalid(error.field, error.rule + ", for the Android app \(app)")
        }
        let (size, limit) = (translated.count, payloadLimit)
        guard size <= limit else {
            throw .invalid(
                "payload",
                "has \(size) bytes of UTF-8 for FCM, \(size - limit) more than the \(limit) that app \(app) takes")
        }
        let aps = document["aps"]?.object
        let shows = ["alert", "badge", "sound"].contains { aps?[$0] != nil }
        let wakes = aps?["content-available"] != nil && !shows
        return ComposedNotification(
            payload: JSONValue.object(document).description,
            pushType: content.pushType ?? (wakes ? Push.background : Push.alert),
            priority: content.priority ?? (wakes ? 5 : nil))
    }

    /// The reason why a document cannot become a message.
    private struct Untranslatable: Error {
        let field: String
        let rule: String
    }

    /// The members of a whole message for FCM that a caller may write. The relay sets the target.
    private static let members: Set<String> = [
        "android", "apns", "data", "fcm_options", "notification", "webpush",
    ]

    /// Translates Apple's document. A whole message for FCM is kept, with the priority and collapse id of the push.
    private func translated(
        _ document: JSONObject, priority: UInt8?, collapseID: String?, hasExpiration: Bool, unread: Int64? = nil
    ) throws(Untranslatable) -> JSONValue {
        guard let aps = document["aps"]?.object else {
            return try raw(document, priority: priority, collapseID: collapseID, hasExpiration: hasExpiration)
        }
        let alert = aps["alert"]
        var shown = Shown()
        shown.title = alert?.object?["title"]?.nonEmptyText
        shown.body = alert?.nonEmptyText ?? alert?.object?["body"]?.nonEmptyText
        shown.titleKey = LocalizedText(alert?.object, "title-loc")
        shown.bodyKey = LocalizedText(alert?.object, "loc")
        shown.sound = aps["sound"]?.text ?? aps["sound"]?.object?["name"]?.text
        shown.image = document["image"]?.text
        shown.category = aps["category"]?.text
        shown.tag = collapseID
        shown.count = unread ?? aps["badge"]?.integer
        let isShown = shown.hasText
        if let alert = alert?.object, !isShown, NotificationContent.hasText(alert) {
            throw Untranslatable(
                field: "alert",
                rule: "must have title, body, title-loc-key or loc-key: Android shows nothing else of it")
        }
        var data = JSONObject()
        for (name, value) in document.members where name != "aps" && (name != "image" || kind == .data || !isShown) {
            try append(name, value, to: &data, field: "custom")
        }
        if let thread = aps["thread-id"]?.text {
            try append("thread_id", .string(thread), to: &data, field: "thread_id")
        }
        if kind == .data || !isShown {
            for (name, value) in [
                ("title", shown.title), ("body", shown.body), ("sound", shown.sound), ("category", shown.category),
                ("collapse_id", collapseID), ("unread", shown.count.map { String($0) }),
            ] {
                if let value { try append(name, .string(value), to: &data, field: "custom") }
            }
            for (name, text) in shown.keys {
                try append(name + "_key", text.key, to: &data, field: "custom")
                if let arguments = text.arguments { try append(name + "_args", arguments, to: &data, field: "custom") }
            }
        }
        if !isShown, data.isEmpty {
            // An app cannot tell a message without any content from a broken one.
            guard aps["content-available"] != nil else {
                throw Untranslatable(field: "payload", rule: "has nothing for Android: no text, sound, badge or data")
            }
            data.append("content_available", .string("1"))
        }
        let showsSomething = isShown || shown.count != nil || shown.sound != nil
        return composed(
            isShown ? shown : nil, data, isHigh: priority.map { $0 == 10 } ?? showsSomething, collapseID: collapseID)
    }

    /// Appends a value to `data`, whose values are strings. Other values are written as JSON.
    private func append(
        _ name: String, _ value: JSONValue, to data: inout JSONObject, field: String
    ) throws(Untranslatable) {
        guard !Self.isReserved(name) else {
            throw Untranslatable(
                field: field,
                rule: "must not have the member \(name): Google reserves from, message_type, and names that begin with "
                    + "google or gcm")
        }
        guard data[name] == nil else {
            throw Untranslatable(field: field, rule: "must not have the member \(name), which the relay sets")
        }
        data.append(name, .string(value.text ?? value.description))
    }

    private static func isReserved(_ name: String) -> Bool {
        name == "from" || name == "message_type" || name.hasPrefix("google") || name.hasPrefix("gcm")
    }

    private func raw(
        _ document: JSONObject, priority: UInt8?, collapseID: String?, hasExpiration: Bool
    ) throws(Untranslatable) -> JSONValue {
        if let other = document.members.first(where: { !Self.members.contains($0.name) })?.name {
            throw Untranslatable(
                field: "payload", rule: "must have aps, or only members of a message for FCM; \(other) is none")
        }
        guard !document.isEmpty else { throw Untranslatable(field: "payload", rule: "must not be empty") }
        var android = JSONObject()
        if let value = document["android"] {
            guard let object = value.object else {
                throw Untranslatable(field: "payload.android", rule: "must be an object, is \(value.kind)")
            }
            android = object
        }
        if let data = document["data"] {
            guard let members = data.object?.members else {
                throw Untranslatable(field: "payload.data", rule: "must be an object, is \(data.kind)")
            }
            for (name, value) in members {
                guard !Self.isReserved(name) else {
                    throw Untranslatable(field: "payload.data.\(name)", rule: "is a name that Google reserves")
                }
                guard value.text != nil else {
                    throw Untranslatable(field: "payload.data.\(name)", rule: "must be a string, is \(value.kind)")
                }
            }
        }
        try requireContent(document, android)
        if priority != nil || android["priority"] == nil {
            android["priority"] = .string((priority ?? 10) == 10 ? "HIGH" : "NORMAL")
        }
        if let collapseID { android["collapse_key"] = .string(collapseID) }
        if hasExpiration { android["ttl"] = nil }
        return Self.message(android, document)
    }

    /// Refuses a whole message that would reach a phone empty: without data, or with a notification without a text.
    private func requireContent(_ document: JSONObject, _ android: JSONObject) throws(Untranslatable) {
        let notifications = [document["notification"], android["notification"]].compactMap { $0?.object }
        guard notifications.isEmpty else {
            let shown = ["title", "body", "title_loc_key", "body_loc_key", "image"]
            guard notifications.contains(where: { own in shown.contains { own[$0]?.nonEmptyText != nil } }) else {
                throw Untranslatable(field: "payload.notification", rule: "must have a title or a body")
            }
            return
        }
        let contents = [document["data"], android["data"], document["apns"], document["webpush"]]
        guard contents.contains(where: { $0?.object?.isEmpty == false }) else {
            throw Untranslatable(field: "payload", rule: "must have a notification, or data that is not empty")
        }
    }

    // MARK: - Rows of the queue

    /// The maximum size of a row's document in bytes, before it is translated.
    private static let longestDocument = 1 << 16

    package func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
        guard case .token(let token)? = row.address, token.kind == tokens else { throw PushRefusal("InvalidToken") }
        guard var payload = row.payload, !payload.isEmpty else { throw PushRefusal("PayloadEmpty") }
        let priority = row.priority.flatMap(UInt8.init(exactly:))
        if row.message != nil, row.isOurs, payload.starts(with: FCMBody.start) {
            // A chat message already has the right form.
            if let unread = row.unread { payload = Self.adding(unread, to: payload, limit: payloadLimit) }
        } else {
            // All other documents are parsed. A chat message among them was queued for Apple.
            guard payload.count <= Self.longestDocument,
                let document = (try? JSONValue(parsing: payload))?.object
            else { throw PushRefusal.notJSON(payload, limit: Self.longestDocument) }
            do throws(Untranslatable) {
                payload = try translated(
                    document, priority: priority, collapseID: row.collapseID, hasExpiration: row.expiration != nil,
                    unread: row.unread
                ).utf8
            } catch {
                throw PushRefusal("InvalidMessage: \(error.field) \(error.rule)")
            }
        }
        guard payload.count <= payloadLimit else {
            throw PushRefusal.tooLarge("PayloadTooLarge", payload.count, limit: payloadLimit)
        }
        return Push(
            id: row.id, identifier: identifier, address: .token(token), payload: payload, expiration: row.expiration,
            priority: priority, apnsID: row.apnsID, type: row.type ?? Push.alert, collapseID: row.collapseID)
    }
}
