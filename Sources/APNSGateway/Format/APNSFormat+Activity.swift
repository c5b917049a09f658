package import ChatDomain
import PushWire

/// Payloads of Live Activities.
///
/// Source: Apple, "Starting and updating Live Activities with ActivityKit push notifications", as of November 2026.
extension APNSFormat {
    package func compose(
        _ content: ActivityContent, tag: ActivityTag, timestamp: Int64
    ) throws(ChatError) -> ComposedNotification {
        guard kind == .http2 else {
            throw .invalid("app", "has the gateway \(kind.rawValue), which has no Live Activities; it needs http2")
        }
        var aps: JSONObject = ["timestamp": .number(timestamp), "event": .string(content.event.rawValue)]
        if let state = content.state { aps["content-state"] = .object(state) }
        if content.event == .start {
            aps["attributes-type"] = .string(content.type)
            var attributes = content.attributes
            // The app needs the tag to report the activity's update token.
            if attributes["tag"] == nil { attributes["tag"] = .string(tag.text) }
            aps["attributes"] = .object(attributes)
            if let channel = content.channel {
                aps["input-push-channel"] = .string(channel)
            } else {
                // From iOS 18 on, this asks for an update token. Older systems always create one.
                aps["input-push-token"] = .number(1)
            }
        }
        if let alert = content.alert { aps["alert"] = .object(alert) }
        if let date = content.staleDate { aps["stale-date"] = .number(date.seconds) }
        if let date = content.dismissalDate { aps["dismissal-date"] = .number(date.seconds) }
        if let relevance = content.relevance { aps["relevance-score"] = relevance }
        let payload = JSONValue.object(["aps": .object(aps)]).description
        let (size, limit) = (payload.utf8.count, limit(of: PushType.liveactivity.rawValue))
        guard size <= limit else {
            throw .invalid(
                "state", "makes a payload of \(size) bytes of UTF-8, \(size - limit) more than the \(limit) allowed")
        }
        return ComposedNotification(
            payload: payload, pushType: PushType.liveactivity.rawValue, priority: content.priority)
    }
}
