/// What a notification says and how it is to be handled, apart from whom it is for: read from JSON fields, checked, with
/// the payload made.
package struct NotificationContent: Sendable, Hashable {
    /// The fields it is read from; what else stands in an object, its reader answers for.
    package static let fields: Set<String> = [
        "alert", "badge", "sound", "category", "thread_id", "content_available", "mutable_content", "custom",
        "payload", "expiration", "priority", "collapse_id", "push_type", "not_before",
    ]
    /// Bytes (apns-http2.md §2).
    package static let longestCollapseID = 64
    /// How far ahead a notification can be scheduled.
    package static let longestDelay = Duration.seconds(366 * 86_400)

    /// Compact JSON.
    package let payload: String
    package let pushType: String
    /// UNIX seconds; see ``NotificationRequest/expiration``.
    package let expiration: Int64?
    package let priority: UInt8?
    package let collapseID: String?
    package let notBefore: Timestamp?

    /// - Parameters:
    ///   - now: against which times are checked.
    ///   - isRepeat: what was accepted before may have expired since then.
    package init(_ fields: JSONObject, now: Timestamp, isRepeat: Bool = false) throws(ChatError) {
        let document = try Self.document(fields)
        payload = JSONValue.object(document).description
        pushType = try Self.pushType(fields["push_type"], of: document)
        expiration = try Self.expiration(fields["expiration"], now: now, isRepeat: isRepeat)
        priority = try Self.priority(fields["priority"], pushType: pushType)
        collapseID = try Self.collapseID(fields["collapse_id"])
        notBefore = try Self.notBefore(fields["not_before"], now: now)
        if let notBefore, let expiration, expiration > 0, notBefore.milliseconds >= expiration * 1000 {
            throw .invalid("not_before", "must be earlier than expiration")
        }
    }

    /// - Throws: by how many bytes the payload is too large for an app's gateway.
    package func requireSize(atMost limit: Int, app: AppName) throws(ChatError) {
        let size = payload.utf8.count
        guard size > limit else { return }
        throw .invalid(
            "payload",
            "has \(size) bytes of UTF-8, \(size - limit) more than the \(limit) that the gateway of app \(app) takes")
    }

    // MARK: - The payload

    private static func document(_ fields: JSONObject) throws(ChatError) -> JSONObject {
        let composed = [
            "alert", "badge", "sound", "category", "thread_id", "content_available", "mutable_content", "custom",
        ]
        if let raw = present(fields["payload"]) {
            if let other = composed.first(where: { present(fields[$0]) != nil }) {
                throw .invalid("payload", "is the whole document: leave out \(other)")
            }
            return try checked(raw)
        }
        var aps = JSONObject()
        if let alert = present(fields["alert"]) { aps["alert"] = try checkedAlert(alert, "alert") }
        if let badge = present(fields["badge"]) { aps["badge"] = try checkedBadge(badge, "badge") }
        if let sound = present(fields["sound"]) { aps["sound"] = try checkedSound(sound, "sound") }
        if try flag(fields["content_available"], "content_available") { aps["content-available"] = .number(1) }
        guard !aps.isEmpty else {
            throw ChatError(
                .missingField, "Missing content: give alert, badge, sound, content_available or payload", field: "alert"
            )
        }
        if try flag(fields["mutable_content"], "mutable_content") { aps["mutable-content"] = .number(1) }
        if let category = try text(fields["category"], "category") { aps["category"] = .string(category) }
        if let thread = try text(fields["thread_id"], "thread_id") { aps["thread-id"] = .string(thread) }
        var document: JSONObject = ["aps": .object(aps)]
        if let custom = present(fields["custom"]) {
            guard let members = custom.object else {
                throw .invalid("custom", "must be an object, whose members go beside aps; is \(custom.kind)")
            }
            guard members["aps"] == nil else { throw .invalid("custom", "must not have the member aps") }
            for (name, value) in members.members { document.append(name, value) }
        }
        return document
    }

    /// A whole payload: an object; what Apple's keys hold, where they are there, is of their type.
    private static func checked(_ raw: JSONValue) throws(ChatError) -> JSONObject {
        guard let document = raw.object else { throw .invalid("payload", "must be an object, is \(raw.kind)") }
        guard let value = document["aps"] else {
            guard document["mdm"] != nil else { throw .invalid("payload", "must have the member aps") }
            return document
        }
        guard let aps = value.object else { throw .invalid("payload.aps", "must be an object, is \(value.kind)") }
        if let alert = present(aps["alert"]) { _ = try checkedAlert(alert, "payload.aps.alert") }
        if let badge = present(aps["badge"]) { _ = try checkedBadge(badge, "payload.aps.badge") }
        if let sound = present(aps["sound"]), sound != .string("") { _ = try checkedSound(sound, "payload.aps.sound") }
        return document
    }

    private static func checkedAlert(_ value: JSONValue, _ field: String) throws(ChatError) -> JSONValue {
        switch value {
        case .string(let text) where !text.isEmpty: return value
        case .object(let object) where !object.isEmpty: return value
        case .string, .object: throw .invalid(field, "must not be empty")
        default: throw .invalid(field, "must be a string or an object, is \(value.kind)")
        }
    }

    private static func checkedBadge(_ value: JSONValue, _ field: String) throws(ChatError) -> JSONValue {
        guard let number = value.integer, (0...Int64(Int32.max)).contains(number) else {
            throw .invalid(field, "must be a whole number from 0 to \(Int32.max)")
        }
        return .number(number)
    }

    private static func checkedSound(_ value: JSONValue, _ field: String) throws(ChatError) -> JSONValue {
        switch value {
        case .string(let name) where !name.isEmpty: return value
        case .object(let object) where object["name"]?.text?.isEmpty == false: return value
        case .object: throw .invalid(field, "must have a name, as critical alerts do")
        default: throw .invalid(field, "must be the name of a sound file, default, or an object")
        }
    }

    // MARK: - The rest

    private static func pushType(_ value: JSONValue?, of document: JSONObject) throws(ChatError) -> String {
        let aps = document["aps"]?.object
        let shows = ["alert", "badge", "sound"].contains { aps?[$0] != nil }
        if let type = try text(value, "push_type") {
            guard Push.types.contains(type) else {
                throw .invalid("push_type", "must be one of \(Push.types.joined(separator: ", "))")
            }
            guard type != Push.background || (aps?["content-available"] != nil && !shows) else {
                throw .invalid("push_type", "background is for content_available without alert, badge and sound")
            }
            return type
        }
        if aps == nil { return "mdm" }
        return aps?["content-available"] != nil && !shows ? Push.background : Push.alert
    }

    /// Apple refuses 10 for a background push, and treats none as 10.
    private static func priority(_ value: JSONValue?, pushType: String) throws(ChatError) -> UInt8? {
        guard let value = present(value) else { return pushType == Push.background ? 5 : nil }
        guard let number = value.integer, [1, 5, 10].contains(number) else {
            throw .invalid("priority", "must be 10, 5 or 1")
        }
        guard number < 10 || pushType != Push.background else {
            throw .invalid("priority", "must be 5 or 1 for a push of type background")
        }
        return UInt8(number)
    }

    private static func collapseID(_ value: JSONValue?) throws(ChatError) -> String? {
        guard let id = try text(value, "collapse_id") else { return nil }
        guard id.utf8.count <= longestCollapseID, id.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw .invalid(
                "collapse_id", "must be at most \(longestCollapseID) printable ASCII characters without blanks")
        }
        return id
    }

    package static let isPast = "must not lie in the past (0 for a single attempt)"

    private static func expiration(
        _ value: JSONValue?, now: Timestamp, isRepeat: Bool
    ) throws(ChatError) -> Int64? {
        guard let time = try moment(value, "expiration") else { return nil }
        // Not stored by the gateway; tried once.
        if time.milliseconds == 0 { return 0 }
        guard time > now || isRepeat else { throw .invalid("expiration", isPast) }
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

    private static func text(_ value: JSONValue?, _ field: String) throws(ChatError) -> String? {
        guard let value = present(value) else { return nil }
        guard let text = value.text, !text.isEmpty else { throw .invalid(field, "must be a string that is not empty") }
        return text
    }

    /// Null says as much as nothing.
    private static func present(_ value: JSONValue?) -> JSONValue? {
        value == .null ? nil : value
    }
}
