import Foundation

/// The members of `aps` that matter to a Live Activity (Apple, "Starting and updating Live Activities with ActivityKit
/// push notifications").
struct ActivityPayload: Sendable, Hashable {
    enum Event: String, Sendable, Hashable, Encodable {
        case start
        case update
        case end
    }

    /// `nil` if it is missing or unknown.
    let event: Event?
    /// Unix seconds. `nil` if it is missing or no whole number.
    let timestamp: Int?
    /// The content state as JSON with sorted keys. `nil` if there is none.
    let contentState: String?
    /// The names of the content state's members.
    let keys: Set<String>
    let staleDate: Int?
    let dismissalDate: Int?
    let attributesType: String?
    /// The attributes as JSON with sorted keys.
    let attributes: String?
    /// The channel to which a new activity listens.
    let channel: String?
    let hasAlert: Bool

    /// Reads a payload. A payload without an object `aps` has no members.
    /// - Returns: The members. `nil` if the payload is not a JSON object.
    init?(json: Data) {
        guard let object = try? JSONSerialization.jsonObject(with: json) as? [String: Any] else { return nil }
        let aps = object["aps"] as? [String: Any] ?? [:]
        let state = aps["content-state"] as? [String: Any]
        event = (aps["event"] as? String).flatMap(Event.init)
        timestamp = Self.seconds(aps["timestamp"])
        contentState = Self.text(state)
        keys = Set(state?.keys.map { String($0) } ?? [])
        staleDate = Self.seconds(aps["stale-date"])
        dismissalDate = Self.seconds(aps["dismissal-date"])
        attributesType = aps["attributes-type"] as? String
        attributes = Self.text(aps["attributes"] as? [String: Any])
        channel = aps["input-push-channel"] as? String
        hasAlert = aps["alert"] is [String: Any]
    }

    /// Returns the mistakes that can be seen without the activity. APNs accepts them all; the device then ignores the
    /// push or shows less.
    var warnings: [String] {
        var found: [String] = []
        if event == nil { found.append("event is not start, update or end") }
        if timestamp == nil { found.append("timestamp is missing: the device ignores the push") }
        if contentState == nil { found.append("content-state is missing") }
        if event == .start {
            if !hasAlert { found.append("alert is missing: a start needs one") }
            if attributesType == nil { found.append("attributes-type is missing: the activity does not start") }
            if attributes == nil { found.append("attributes is missing: the activity does not start") }
        }
        return found
    }

    private static func seconds(_ value: Any?) -> Int? {
        guard let number = value as? NSNumber, !(value is Bool) else { return nil }
        return Int(exactly: number.doubleValue.rounded(.down))
    }

    private static func text(_ object: [String: Any]?) -> String? {
        guard let object,
            let data = try? JSONSerialization.data(
                withJSONObject: object, options: [.sortedKeys, .withoutEscapingSlashes])
        else { return nil }
        return String(decoding: data, as: UTF8.self)
    }
}
