/// The content and handling of a notification, without its audience, as read from JSON fields. A gateway kind's
/// ``PushFormat`` translates it, and rejects content that the gateway does not support.
package struct NotificationContent: Sendable, Hashable {
    /// The fields from which a payload is composed.
    private static let composed = [
        "alert", "badge", "sound", "category", "thread_id", "content_available", "mutable_content",
        "interruption_level", "relevance_score", "target_content_id", "link", "image", "custom",
    ]
    /// The names of all fields of a content. The caller checks all other fields of the object.
    package static let fields = Set(
        composed + ["payload", "expiration", "priority", "urgent", "collapse_id", "push_type", "not_before"])
    /// The maximum number of bytes of a text other than the alert. No gateway accepts more.
    private static let longestText = 4096
    /// The maximum number of bytes of a link.
    private static let longestLink = 2000
    /// The time by which a notification may be scheduled ahead.
    package static let longestDelay = Duration.seconds(366 * 86_400)

    /// A text, or an object with its parts.
    package let alert: JSONValue?
    package let badge: Int64?
    /// The name of a sound, or an object with the name.
    package let sound: JSONValue?
    package let category: String?
    package let threadID: String?
    package let contentAvailable: Bool
    package let mutableContent: Bool
    /// The way in which the device announces the notification.
    package let interruptionLevel: InterruptionLevel?
    /// The place of the notification in the summary: a number from 0 to 1. The highest comes first.
    package let relevanceScore: JSONValue?
    /// The identifier of the app's window that comes forward.
    package let targetContentID: String?
    /// The target of a click. A browser opens it. An app finds it next to `aps`.
    package let link: String?
    /// The address of a picture. An app's extension finds it next to `aps`.
    package let image: String?
    /// Members to add to the composed payload, next to `aps`.
    package let custom: JSONObject?
    /// The whole document, instead of the fields above.
    package let payload: JSONObject?
    package let pushType: String?
    /// The expiration in UNIX seconds. See ``NotificationRequest/expiration``.
    package let expiration: Int64?
    package let priority: UInt8?
    package let collapseID: String?
    package let notBefore: Timestamp?

    /// Apple's interruption levels.
    package enum InterruptionLevel: String, Sendable, Hashable, CaseIterable {
        case passive, active, critical
        case timeSensitive = "time-sensitive"

        static let rule = "must be passive, active, time-sensitive or critical"
    }

    /// Reads and checks a content.
    ///
    /// - Parameters:
    ///   - now: The time to check other times against.
    ///   - isRepeat: Whether this content was accepted before. Its expiration may have passed since.
    package init(_ fields: JSONObject, now: Timestamp, isRepeat: Bool = false) throws(ChatError) {
        payload = try Self.object(fields["payload"], "payload", "must be an object")
        if payload != nil, let other = Self.composed.first(where: { Self.present(fields[$0]) != nil }) {
            throw .invalid("payload", "is the whole document: leave out \(other)")
        }
        alert = Self.present(fields["alert"])
        if let alert { try Self.requireAlert(alert, "alert") }
        badge = try Self.present(fields["badge"]).map { value throws(ChatError) in try Self.badge(value, "badge") }
        sound = Self.present(fields["sound"])
        if let sound { try Self.requireSound(sound, "sound") }
        contentAvailable = try Self.flag(fields["content_available"], "content_available")
        guard payload != nil || alert != nil || badge != nil || sound != nil || contentAvailable else {
            throw ChatError(
                .missingField, "Missing content: give alert, badge, sound, content_available or payload", field: "alert"
            )
        }
        mutableContent = try Self.flag(fields["mutable_content"], "mutable_content")
        category = try Self.text(fields["category"], "category")
        threadID = try Self.text(fields["thread_id"], "thread_id")
        relevanceScore = Self.present(fields["relevance_score"])
        if let relevanceScore, !(0...1).contains(relevanceScore.double ?? -1) {
            throw .invalid("relevance_score", "must be a number from 0 to 1")
        }
        targetContentID = try Self.text(fields["target_content_id"], "target_content_id")
        link = try Self.link(fields["link"], "link")
        image = try Self.link(fields["image"], "image")
        custom = try Self.object(
            fields["custom"], "custom", "must be an object, whose members are added beside aps")
        pushType = try Self.text(fields["push_type"], "push_type")
        expiration = try Self.expiration(fields["expiration"], now: now, isRepeat: isRepeat)
        let isUrgent = try Self.flag(fields["urgent"], "urgent")
        priority = try Self.priority(Self.priority(fields["priority"]), isUrgent: isUrgent)
        let level = try Self.present(fields["interruption_level"]).map { value throws(ChatError) in
            try Self.level(value, "interruption_level")
        }
        guard !isUrgent || alert != nil else {
            throw .invalid("urgent", "requires alert; a whole payload has interruption-level instead")
        }
        guard !isUrgent || level == nil || level == .timeSensitive else {
            throw .invalid("interruption_level", "must be time-sensitive or left out with urgent")
        }
        interruptionLevel = isUrgent ? .timeSensitive : level
        collapseID = try Self.text(fields["collapse_id"], "collapse_id")
        notBefore = try Self.notBefore(fields["not_before"], now: now)
        if let notBefore, let expiration, expiration > 0, notBefore.milliseconds >= expiration * 1000 {
            throw .invalid("not_before", "must be earlier than expiration")
        }
    }

    // MARK: - The document

    /// Returns the document for the queue's rows. It has Apple's format, which scripts know. Other gateway kinds
    /// translate it.
    package func document() throws(ChatError) -> JSONObject {
        if let payload { return try Self.checked(payload) }
        var aps = JSONObject()
        if let alert { aps["alert"] = alert }
        if let badge { aps["badge"] = .number(badge) }
        if let sound { aps["sound"] = sound }
        if contentAvailable { aps["content-available"] = .number(1) }
        if mutableContent { aps["mutable-content"] = .number(1) }
        if let category { aps["category"] = .string(category) }
        if let threadID { aps["thread-id"] = .string(threadID) }
        if let interruptionLevel { aps["interruption-level"] = .string(interruptionLevel.rawValue) }
        if let relevanceScore { aps["relevance-score"] = relevanceScore }
        if let targetContentID { aps["target-content-id"] = .string(targetContentID) }
        var document: JSONObject = ["aps": .object(aps)]
        if let link { document["link"] = .string(link) }
        if let image { document["image"] = .string(image) }
        guard let custom else { return document }
        guard custom["aps"] == nil else { throw .invalid("custom", "must not have the member aps") }
        for (name, value) in [("link", link), ("image", image)] where value != nil && custom[name] != nil {
            throw .invalid("custom", "must not have the member \(name) beside the field \(name)")
        }
        for (name, value) in custom.members { document.append(name, value) }
        return document
    }

    /// Checks a whole payload: the values of Apple's keys must have the right types. Each gateway kind checks its own
    /// members.
    private static func checked(_ document: JSONObject) throws(ChatError) -> JSONObject {
        guard let value = document["aps"] else { return document }
        guard let aps = value.object else { throw .invalid("payload.aps", "must be an object, is \(value.kind)") }
        func present(_ name: String) -> JSONValue? { aps[name] == .null ? nil : aps[name] }
        if let alert = present("alert") { try requireAlert(alert, "payload.aps.alert") }
        if let badge = present("badge") { _ = try Self.badge(badge, "payload.aps.badge") }
        if let sound = present("sound"), sound != .string("") {
            try requireSound(sound, "payload.aps.sound")
        }
        if let value = present("interruption-level") { _ = try level(value, "payload.aps.interruption-level") }
        // A Live Activity may have any number.
        if let score = present("relevance-score"), score.double == nil {
            throw .invalid("payload.aps.relevance-score", "must be a number, is \(score.kind)")
        }
        return document
    }

    // MARK: - Values

    private static func object(
        _ value: JSONValue?, _ field: String, _ rule: String
    ) throws(ChatError) -> JSONObject? {
        guard let value = present(value) else { return nil }
        guard let object = value.object else { throw .invalid(field, "\(rule); is \(value.kind)") }
        return object
    }

    package static func requireAlert(_ value: JSONValue, _ field: String) throws(ChatError) {
        switch value {
        case .string(let text) where !text.isEmpty: break
        case .object(let object) where hasText(object): break
        case .object(let object) where !object.isEmpty:
            throw .invalid(field, "must have a text: one of \(texts.joined(separator: ", "))")
        case .string, .object: throw .invalid(field, "must not be empty")
        default: throw .invalid(field, "must be a string or an object, is \(value.kind)")
        }
    }

    /// The members of an alert that a device shows (Apple, "Generating a remote notification").
    package static let texts = ["title", "subtitle", "body", "title-loc-key", "subtitle-loc-key", "loc-key"]

    /// Whether a device shows something of an alert. In Live Activities, a text may be an object with a key.
    package static func hasText(_ alert: JSONObject) -> Bool {
        texts.contains { name in
            switch alert[name] {
            case .string(let text)?: !text.isEmpty
            case .object(let object)?: !object.isEmpty
            default: false
            }
        }
    }

    package static func badge(_ value: JSONValue, _ field: String) throws(ChatError) -> Int64 {
        guard let number = value.integer, (0...Int64(Int32.max)).contains(number) else {
            throw .invalid(field, "must be a whole number from 0 to \(Int32.max)")
        }
        return number
    }

    package static func requireSound(_ value: JSONValue, _ field: String) throws(ChatError) {
        switch value {
        case .string(let name) where !name.isEmpty: break
        case .object(let object) where object["name"]?.text?.isEmpty == false: break
        case .object: throw .invalid(field, "must have a name, as critical alerts do")
        default: throw .invalid(field, "must be the name of a sound file, default, or an object")
        }
    }

    private static func priority(_ value: JSONValue?) throws(ChatError) -> UInt8? {
        guard let value = present(value) else { return nil }
        guard let number = value.integer.flatMap(UInt8.init(exactly:)) else { throw invalidPriority }
        return number
    }

    static func requirePriority(_ number: UInt8) throws(ChatError) {
        guard [1, 5, 10].contains(number) else { throw invalidPriority }
    }

    /// Checks a priority, and returns the one of an urgent message or notification if it names none.
    static func priority(_ priority: UInt8?, isUrgent: Bool) throws(ChatError) -> UInt8? {
        if let priority { try requirePriority(priority) }
        guard isUrgent else { return priority }
        guard priority ?? 10 == 10 else { throw .invalid("priority", "must be 10 or left out with urgent") }
        return 10
    }

    private static func level(_ value: JSONValue, _ field: String) throws(ChatError) -> InterruptionLevel {
        guard let level = value.text.flatMap(InterruptionLevel.init(rawValue:)) else {
            throw .invalid(field, InterruptionLevel.rule)
        }
        return level
    }

    private static let invalidPriority = ChatError.invalid("priority", "must be 10, 5 or 1")

    package static let isPast = "must not lie in the past (0 for a single attempt)"

    private static func expiration(
        _ value: JSONValue?, now: Timestamp, isRepeat: Bool
    ) throws(ChatError) -> Int64? {
        guard let time = try moment(value, "expiration") else { return nil }
        // The gateway tries once and stores nothing.
        if time.milliseconds == 0 { return 0 }
        // A time below one second would become 0, which has another meaning.
        guard time > now || (isRepeat && time.seconds > 0) else { throw .invalid("expiration", isPast) }
        return time.seconds
    }

    private static func notBefore(_ value: JSONValue?, now: Timestamp) throws(ChatError) -> Timestamp? {
        guard let time = try moment(value, "not_before") else { return nil }
        guard time <= now + longestDelay else { throw .invalid("not_before", "must be within a year from now") }
        return time > now ? time : nil
    }

    private static func moment(_ value: JSONValue?, _ field: String) throws(ChatError) -> Timestamp? {
        guard let value = present(value) else { return nil }
        if let seconds = value.integer, (0...Timestamp.latestSeconds).contains(seconds) {
            return Timestamp(seconds: seconds)
        }
        if let text = value.text, let time = Timestamp(rfc3339: text) { return time }
        throw .invalid(field, "must be UNIX seconds, or a time like 2026-05-07T21:57:29Z")
    }

    private static func flag(_ value: JSONValue?, _ field: String) throws(ChatError) -> Bool {
        switch present(value) {
        case nil: false
        case .bool(let value)?: value
        default: throw .invalid(field, "must be true or false")
        }
    }

    private static func link(_ value: JSONValue?, _ field: String) throws(ChatError) -> String? {
        guard let link = try text(value, field) else { return nil }
        guard isLink(link) else { throw invalidLink(field) }
        return link
    }

    /// - Parameter others: The other beginnings of a link.
    static func invalidLink(_ field: String, or others: [String] = []) -> ChatError {
        let beginnings = (["https://", "http://"] + others).joined(separator: " or ")
        return .invalid(field, "must be an address with \(beginnings), of at most \(longestLink) ASCII characters")
    }

    /// Whether the text may be a link as far as its characters show.
    static func isLinkText(_ text: String) -> Bool {
        text.utf8.count <= longestLink && text.isVisibleASCII
    }

    /// Whether a browser can open the text as a page.
    package static func isLink(_ text: String) -> Bool {
        guard isLinkText(text) else { return false }
        return ["https://", "http://"].contains {
            text.hasPrefix($0) && text.dropFirst($0.count).first != "/" && text.count > $0.count
        }
    }

    private static func text(_ value: JSONValue?, _ field: String) throws(ChatError) -> String? {
        guard let value = present(value) else { return nil }
        guard let text = value.text, !text.isEmpty else { throw .invalid(field, "must be a string that is not empty") }
        guard text.utf8.count <= longestText else { throw .invalid(field, "must have at most \(longestText) bytes") }
        guard !text.utf8.contains(0) else { throw .invalid(field, "must not contain the control character 0") }
        return text
    }

    /// Treats `null` as absent.
    private static func present(_ value: JSONValue?) -> JSONValue? {
        value == .null ? nil : value
    }
}
