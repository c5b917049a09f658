/// The number of a Live Activity. Later activities have higher numbers.
package typealias ActivityID = Int64

/// The limits of Live Activities.
package enum ActivityLimits {
    /// The maximum size of a tag, in bytes.
    package static let tag = 64
    /// The maximum number of devices that a start reaches, and of devices that may report a token for one activity.
    package static let devices = 10_000
    /// The maximum number of push-to-start tokens of a device: one for each type of attributes.
    package static let startTokens = 8
    /// The maximum number of devices in one notification: an activity's pushes are sent in notifications of this size.
    package static let batch = Audience.mostNames
    /// The maximum size of the name of a type of attributes, in bytes.
    package static let type = 100
    /// The time for which the system shows an activity (Apple, "Displaying live data with Live Activities"). Pushes that
    /// are older are not worth sending.
    package static let lifetime = Duration.seconds(8 * 3600)
    /// The time in which a relay has to send an activity's pushes. After it, another relay may send them.
    package static let lease = Duration.seconds(60)
    /// The pause after which a relay tries again to read a record that cannot be read.
    package static let unreadablePause = Duration.seconds(3600)
    /// The type of the attributes that the package for apps defines.
    package static let standardType = "PushChatActivityAttributes"
}

/// The name of a Live Activity in the operator's own system.
package struct ActivityTag: Sendable, Hashable, CustomStringConvertible {
    package let text: String

    package init(parsing text: String, field: String = "tag") throws(ChatError) {
        let text = FieldText.trimmed(text)
        guard (1...ActivityLimits.tag).contains(text.utf8.count),
            text.isVisibleASCII
        else {
            throw .invalid(
                field, "must be 1 to \(ActivityLimits.tag) printable ASCII characters without blanks")
        }
        self.text = text
    }

    package init(stored text: String) {
        self.text = text
    }

    package var description: String { text }
}

/// The content of one call about a Live Activity, independent of the gateway.
package struct ActivityContent: Sendable, Hashable {
    package enum Event: String, Sendable, Hashable, CaseIterable {
        case start, update, end
    }

    package let event: Event
    /// The dynamic content. `nil` only at the end, if the content does not change.
    package var state: JSONObject?
    /// The static content and its type. Only with a start.
    package let attributes: JSONObject
    package let type: String
    /// `title`, `body` and `sound`.
    package let alert: JSONObject?
    package let staleDate: Timestamp?
    /// The time at which the system removes an activity that has ended.
    package let dismissalDate: Timestamp?
    package let relevance: JSONValue?
    /// 10 or 5.
    package let priority: UInt8
    /// The channel to which a started activity listens. The relay sets it for one push. ``json`` does not have it.
    package var channel: String?

    /// The permitted members of a call.
    package static let fields: Set<String> = [
        "event", "state", "attributes", "type", "alert", "stale_date", "dismissal_date", "relevance_score", "priority",
    ]

    /// Reads the members of a call, or those that ``json`` has written.
    package init(_ object: JSONObject) throws(ChatError) {
        func member(_ name: String) -> JSONValue? { object[name].flatMap { $0 == .null ? nil : $0 } }
        func text(_ name: String) throws(ChatError) -> String? {
            guard let value = member(name) else { return nil }
            guard let text = value.text else { throw .invalid(name, "must be a string, is \(value.kind)") }
            return text
        }
        func document(_ name: String) throws(ChatError) -> JSONObject? {
            guard let value = member(name) else { return nil }
            guard let object = value.object else { throw .invalid(name, "must be an object, is \(value.kind)") }
            return object
        }
        func time(_ name: String) throws(ChatError) -> Timestamp? {
            guard let text = try text(name) else { return nil }
            guard let time = Timestamp(rfc3339: text) else {
                throw .invalid(name, "must be a time such as 2026-05-07T21:57:29Z")
            }
            return time
        }
        guard let name = try text("event") else { throw .missing("event") }
        guard let event = Event(rawValue: name) else {
            throw .invalid("event", "must be one of " + Event.allCases.map(\.rawValue).joined(separator: ", "))
        }
        self.event = event
        for name in ["attributes", "type"] where event != .start && member(name) != nil {
            throw .invalid(name, "is only allowed with the event start")
        }
        guard event != .start || member("dismissal_date") == nil else {
            throw .invalid("dismissal_date", "is only allowed with the events update and end")
        }
        state = try document("state")
        guard state != nil || event == .end else { throw .missing("state") }
        attributes = try document("attributes") ?? JSONObject()
        type = try text("type") ?? ActivityLimits.standardType
        guard Self.isType(type) else { throw .invalid("type", Self.typeRule) }
        alert = try document("alert")
        guard alert != nil || event != .start else { throw .missing("alert") }
        if let alert {
            for (name, value) in alert.members {
                guard ["title", "body", "sound"].contains(name) else {
                    throw .invalid("alert", "may have the members title, body and sound")
                }
                guard value.text != nil || value.object != nil && name != "sound" else {
                    throw .invalid("alert.\(name)", "must be a string, is \(value.kind)")
                }
            }
        }
        staleDate = try time("stale_date")
        dismissalDate = try time("dismissal_date")
        relevance = member("relevance_score")
        if let relevance, relevance.kind != JSONValue.number(0).kind {
            throw .invalid("relevance_score", "must be a number, is \(relevance.kind)")
        }
        let priority = member("priority").map { $0.integer ?? 0 } ?? 5
        guard priority == 5 || priority == 10 else { throw .invalid("priority", "must be 10 or 5") }
        self.priority = UInt8(priority)
    }

    package static let typeRule = "must be 1 to \(ActivityLimits.type) letters, digits, points and underscores"

    /// Whether the text can be the name of a Swift type.
    package static func isType(_ text: String) -> Bool {
        (1...ActivityLimits.type).contains(text.utf8.count)
            && text.utf8.allSatisfy { $0.isASCIIDigit || $0.isASCIILetter || "._".utf8.contains($0) }
    }

    /// The form in which the store keeps the content.
    package var json: JSONObject {
        var json: JSONObject = ["event": .string(event.rawValue)]
        if let state { json["state"] = .object(state) }
        if event == .start {
            json["attributes"] = .object(attributes)
            json["type"] = .string(type)
        }
        if let alert { json["alert"] = .object(alert) }
        if let staleDate { json["stale_date"] = .time(staleDate) }
        if let dismissalDate { json["dismissal_date"] = .time(dismissalDate) }
        if let relevance { json["relevance_score"] = relevance }
        json["priority"] = .number(Int(priority))
        return json
    }

    /// Whether a call repeats another one. Its members may have another order.
    package func isSame(as other: ActivityContent) -> Bool {
        JSONValue.object(json).sorted == JSONValue.object(other.json).sorted
    }
}

/// A call about a Live Activity.
package struct ActivityRequest: Sendable, Hashable {
    package let tag: ActivityTag
    package let app: AppName
    package let content: ActivityContent
    /// The devices on which a start starts the activity. `nil` if the apps start it themselves, and with other events.
    package let audience: Audience?
    /// The ``AccessToken`` of the caller. `nil` for the administrator.
    package let token: Int64?
    /// Whether a start asks for a broadcast channel.
    package let wantsChannel: Bool
    /// Whether the caller may change activities that other tokens have started.
    package let isAdministrator: Bool

    package init(
        tag: ActivityTag, app: AppName, content: ActivityContent, audience: Audience?, token: Int64?,
        isAdministrator: Bool, wantsChannel: Bool = false
    ) {
        self.isAdministrator = isAdministrator
        self.wantsChannel = wantsChannel
        self.tag = tag
        self.app = app
        self.content = content
        self.audience = audience
        self.token = token
    }
}

/// A Live Activity and its newest content.
package struct ActivityRecord: Sendable, Hashable {
    package let id: ActivityID
    package let tag: ActivityTag
    package let app: AppName
    package let audience: Audience?
    /// The content of the start.
    package let start: ActivityContent
    /// The content of the newest call.
    package let newest: ActivityContent
    /// The number of accepted calls. 1 after the start.
    package let revision: Int64
    /// The time of the newest call in UNIX seconds, and more than that of the call before.
    package let timestamp: Int64
    /// The notifications that carried the start.
    package let startedBy: [NotificationID]
    /// Whether the start was sent, or has no devices.
    package let isStarted: Bool
    /// The number of devices with an update token.
    package let devices: Int
    /// `nil` if the start did not ask for one.
    package let channel: ActivityChannel?
    package let token: Int64?
    package let createdAt: Timestamp
    package let updatedAt: Timestamp
    package let endedAt: Timestamp?
    /// The time until which this relay may send the activity's pushes. `nil` without a lease.
    package let lease: Timestamp?

    package init(
        id: ActivityID, tag: ActivityTag, app: AppName, audience: Audience?, start: ActivityContent,
        newest: ActivityContent, revision: Int64, timestamp: Int64, startedBy: [NotificationID], isStarted: Bool,
        devices: Int, token: Int64?, createdAt: Timestamp, updatedAt: Timestamp, endedAt: Timestamp?,
        channel: ActivityChannel? = nil, lease: Timestamp? = nil
    ) {
        self.id = id
        self.channel = channel
        self.tag = tag
        self.app = app
        self.audience = audience
        self.start = start
        self.newest = newest
        self.revision = revision
        self.timestamp = timestamp
        self.startedBy = startedBy
        self.isStarted = isStarted
        self.devices = devices
        self.token = token
        self.createdAt = createdAt
        self.updatedAt = updatedAt
        self.endedAt = endedAt
        self.lease = lease
    }
}

/// A token of a Live Activity that an app reports.
package struct ActivityTokenReport: Sendable, Hashable {
    package enum Use: Sendable, Hashable {
        /// Updates and ends the activity with this tag.
        case update(ActivityTag)
        /// Starts activities with this type of attributes.
        case start(type: String)
    }

    package let token: DeviceToken
    package let use: Use
    /// The major version of the device's system. `nil` if the app did not tell.
    package let system: Int?

    package init(token: DeviceToken, use: Use, system: Int?) {
        self.token = token
        self.use = use
        self.system = system
    }
}

/// A device that gets an activity's pushes.
package struct ActivityTarget: Sendable, Hashable {
    package let token: DeviceToken
    /// The notification with which the device last got a push of the activity. `nil` if it got none.
    package let notification: NotificationID?

    package init(token: DeviceToken, notification: NotificationID?) {
        self.token = token
        self.notification = notification
    }
}

/// The result of leasing an activity that is due.
package enum ActivityLease: Sendable, Hashable {
    case activity(ActivityRecord)
    /// The record cannot be read. It is due again after ``ActivityLimits/unreadablePause``.
    case unreadable(ActivityID, String)
}

/// The devices on which an activity starts, by their systems.
package enum ActivityAudiencePart: Sendable, Hashable {
    case all
    /// Devices whose activities can listen to a channel, and the others.
    case channel, noChannel
}
