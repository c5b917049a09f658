/// The webhook that a token is for. The token is valid only in the webhook's address, which another program's settings
/// and logs contain, and posts in one room.
package struct HookGrant: Sendable, Hashable {
    /// The name of the sender's format.
    package let format: String
    /// The settings of the format, as a JSON object. `ChatHooks` checks them.
    package let stored: String

    /// `nil` if the settings name no format, because another program has changed them.
    package init?(stored text: String) {
        guard let json = (try? JSONValue(parsing: text))?.object, let format = json["format"]?.text else { return nil }
        self.format = format
        stored = text
    }

    /// The grant as JSON, without its secret.
    package var json: JSONObject {
        let settings = (try? JSONValue(parsing: stored))?.object ?? JSONObject()
        var json: JSONObject = ["format": .string(format), "signed": .bool(settings["secret"] != nil)]
        json["template"] = settings["template"]
        return json
    }
}

/// The deliveries to a webhook that its format could not read. A token keeps their number and the last one.
package struct UnreadableDeliveries: Sendable, Hashable {
    package let count: Int
    package let at: Timestamp
    /// The reason for the last one.
    package let reason: String

    package init(count: Int, at: Timestamp, reason: String) {
        self.count = count
        self.at = at
        self.reason = reason
    }

    package var json: JSONObject {
        ["count": .number(count), "at": .time(at), "reason": .string(reason)]
    }

    /// Reads ``json`` in stored form. `nil` if another program has changed it.
    package init?(stored text: String) {
        guard let json = (try? JSONValue(parsing: text))?.object, let count = json["count"]?.integer,
            let at = json["at"]?.text.flatMap({ Timestamp(rfc3339: $0) }), let reason = json["reason"]?.text
        else { return nil }
        self.init(count: Int(count), at: at, reason: reason)
    }
}
