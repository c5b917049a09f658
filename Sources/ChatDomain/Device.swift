/// Which app a member or device belongs to: the name of an entry under `apps` in the configuration.
package struct AppName: Sendable, Hashable, Comparable, CustomStringConvertible {
    package static let `default` = AppName("default")
    /// Browsers: what every relay has beside the apps of its configuration.
    package static let web = AppName("webpush")

    package let text: String

    package init(_ text: String) {
        self.text = text
    }

    package static func < (left: AppName, right: AppName) -> Bool { left.text < right.text }

    package var description: String { text }
}

/// Where the push service finds a device: opaque bytes that the app received from iOS.
package struct DeviceToken: Sendable, Hashable, CustomStringConvertible {
    /// Bytes. Apple's have 32 today and Apple asks not to assume a size; a shorter one is a token that was cut.
    package static let sizes = 32...100

    package let bytes: [UInt8]

    package init?(bytes: [UInt8]) {
        guard Self.sizes.contains(bytes.count) else { return nil }
        self.bytes = bytes
    }

    /// Reads any form that Apple's documents and tutorials print: hexadecimal digits of either case, with or without
    /// blanks and `<…>`. Not the form of `NSData.description` since iOS 13 (`{length = 32, bytes = 0x…}`), from which
    /// the token cannot be recovered, because it is abbreviated.
    package init(parsing text: String, field: String = "token") throws(ChatError) {
        var digits = FieldText.trimmed(text).utf8[...]
        guard !digits.contains(where: { $0 == UInt8(ascii: "{") || $0 == UInt8(ascii: "=") }) else {
            throw .invalid(
                field, "is the description of a Data value, not a token; send the hexadecimal digits of its bytes")
        }
        if digits.first == UInt8(ascii: "<"), digits.last == UInt8(ascii: ">") {
            digits = digits.dropFirst().dropLast()
        }
        let packed = digits.filter { $0 != UInt8(ascii: " ") }
        guard let bytes = Hex.bytes(packed) else {
            throw .invalid(field, "must be an even number of hexadecimal digits")
        }
        guard let token = DeviceToken(bytes: bytes) else {
            let digits = (Self.sizes.lowerBound * 2, Self.sizes.upperBound * 2)
            throw .invalid(field, "must have \(digits.0) to \(digits.1) hexadecimal digits, has \(packed.count)")
        }
        self = token
    }

    /// Lower-case hexadecimal digits: the form in which tokens are stored and shown.
    package var description: String { Hex.text(bytes) }

    /// The first eight digits: enough for the log to tell devices apart, not enough to push to one.
    package var shortened: String { Hex.text(Array(bytes.prefix(4))) + "…" }
}

/// Names a user in the operator's own system: an account's id, say. Not interpreted; compared after composing (NFC).
package struct UserReference: Sendable, Hashable, CustomStringConvertible {
    /// Bytes of UTF-8.
    package static let longest = 255

    package let text: String

    package init(parsing text: String, field: String = "user_reference") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: Self.longest, composing: true)
    }

    /// A reference that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    package var description: String { text }
}

/// A word that groups devices, as the operator likes. Case counts; compared after composing (NFC).
package struct Tag: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// Bytes of UTF-8.
    package static let longest = 64
    /// Tags of one device.
    package static let most = 32

    package let text: String

    package init(parsing text: String, field: String = "tags") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: Self.longest, composing: true)
    }

    /// A tag that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    package static func < (left: Tag, right: Tag) -> Bool { left.text < right.text }

    package var description: String { text }
}

/// A text about a device that is kept and given back: by the app (client info) or the operator's server (server info).
package enum DeviceNote {
    /// Bytes of UTF-8.
    package static let longest = 4096

    /// Line feeds, carriage returns and tabs may stand in it; an empty one is none.
    package static func text(_ text: String, field: String) throws(ChatError) -> String? {
        guard !FieldText.trimmed(text).isEmpty else { return nil }
        return try FieldText.checked(text, field: field, limit: longest, allowing: [9, 10, 13])
    }
}

/// A registered device of an app, and what is known of it.
package struct Device: Sendable, Hashable {
    /// The row of `devices`; grows with each device that is new.
    package let id: Int64
    package let token: DeviceToken
    package let app: AppName
    package let user: UserReference?
    package let clientInfo: String?
    package let serverInfo: String?
    /// What its app says of itself, without an address.
    package let client: ClientInfo
    /// In alphabetical order.
    package let tags: [Tag]
    package let createdAt: Timestamp
    /// The last registration, join or update, within ``DeviceRegistration/freshness``.
    package let registeredAt: Timestamp
    /// When it registered, wrote or read last, some minutes behind; nil where that is not kept.
    package let seenAt: Timestamp?
    /// Since when nothing is sent to it, and why; nil while it is active.
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
