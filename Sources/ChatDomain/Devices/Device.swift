/// The name of the app that a member or device belongs to: a key of `apps` in the configuration.
package struct AppName: Sendable, Hashable, Comparable, CustomStringConvertible {
    package static let `default` = AppName("default")
    /// The app of browsers. Every relay has it, in addition to the apps of its configuration.
    package static let web = AppName("webpush")

    package let text: String

    package init(_ text: String) {
        self.text = text
    }

    package static func < (left: AppName, right: AppName) -> Bool { left.text < right.text }

    package var description: String { text }
}

/// A user's name in the operator's own system, for example an account's id. The relay does not interpret it. References
/// are compared in composed form (NFC).
package struct UserReference: Sendable, Hashable, CustomStringConvertible {
    /// The maximum number of UTF-8 bytes.
    package static let longest = 255

    package let text: String

    package init(parsing text: String, field: String = "user_reference") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: Self.longest, composing: true)
    }

    /// Wraps a reference that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    package var description: String { text }
}

/// A word by which the operator groups devices. Tags are case-sensitive, and compared in composed form (NFC).
package struct Tag: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The maximum number of UTF-8 bytes.
    package static let longest = 64
    /// The maximum number of tags of one device.
    package static let most = 32

    package let text: String

    package init(parsing text: String, field: String = "tags") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: Self.longest, composing: true)
    }

    /// Wraps a tag that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    package static func < (left: Tag, right: Tag) -> Bool { left.text < right.text }

    package var description: String { text }
}

/// A stored text about a device, from its app (client info) or from the operator's server (server info).
package enum DeviceNote {
    /// The maximum number of UTF-8 bytes.
    package static let longest = 4096

    /// Checks a note. It may contain line feeds, carriage returns and tabs. `nil` if it is blank.
    package static func text(_ text: String, field: String) throws(ChatError) -> String? {
        guard !FieldText.isBlank(text) else { return nil }
        return try FieldText.checked(text, field: field, limit: longest, allowing: [9, 10, 13])
    }
}

/// A registered device of an app, and its stored data.
package struct Device: Sendable, Hashable {
    /// The row of `devices`. Newer devices have higher ids.
    package let id: Int64
    package let token: DeviceToken
    package let app: AppName
    package let user: UserReference?
    package let clientInfo: String?
    package let serverInfo: String?
    /// The values that its app reports, without an address.
    package let client: ClientInfo
    /// The tags in alphabetical order.
    package let tags: [Tag]
    package let createdAt: Timestamp
    /// The time of the last registration, join or update, accurate to ``DeviceRegistration/freshness``.
    package let registeredAt: Timestamp
    /// The time at which the device last registered, wrote or read, a few minutes behind. `nil` if the relay does not
    /// store it.
    package let seenAt: Timestamp?
    /// The time since which nothing is sent to the device. `nil` if the device is active.
    package let deactivatedAt: Timestamp?
    package let deactivatedReason: String?

    package init(
        id: Int64, token: DeviceToken, app: AppName, user: UserReference?, clientInfo: String?, serverInfo: String?,
        client: ClientInfo = ClientInfo(), tags: [Tag], createdAt: Timestamp, registeredAt: Timestamp,
        seenAt: Timestamp? = nil, deactivatedAt: Timestamp?, deactivatedReason: String?
    ) {
        self.id = id
        self.token = token
        self.app = app
        self.user = user
        self.clientInfo = clientInfo
        self.serverInfo = serverInfo
        self.client = client
        self.tags = tags
        self.createdAt = createdAt
        self.registeredAt = registeredAt
        self.seenAt = seenAt
        self.deactivatedAt = deactivatedAt
        self.deactivatedReason = deactivatedReason
    }
}
