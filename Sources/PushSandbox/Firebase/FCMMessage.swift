import Foundation
import PushWire

/// A message in a request to FCM, and the rules for it.
///
/// Google does not give the order of the checks. The sandbox first checks names and types, as the API's front end does,
/// and then FCM's own rules.
struct FCMMessage: Sendable, Hashable {
    /// The recipient.
    enum Target: Sendable, Hashable {
        /// A Firebase installation.
        case installation(String)
        /// A registration token.
        case token(String)
        case topic(String)
        case condition(FCMCondition, text: String)

        var text: String {
            switch self {
            case .installation(let text), .token(let text), .topic(let text), .condition(_, let text): text
            }
        }
    }

    /// The effect of a message on a phone.
    enum Kind: Sendable, Hashable {
        /// The app gets the message.
        case data
        /// The system shows the message, unless the app is in the foreground.
        case notification
        /// The system always shows the message.
        case remoteNotification
    }

    /// The maximum size in bytes of data and notification together. Google does not say what counts.
    static let maxSize = 4096
    /// The same for messages to topics.
    static let maxTopicSize = 2048
    /// The maximum size of a request's body in bytes.
    static let maxBody = 65_536
    /// The maximum lifetime in seconds, which is also the default.
    static let maxLifetime: Int64 = 2_419_200

    let target: Target
    /// The text that a phone shows. `nil` if the message has only data.
    let title: String?
    let body: String?
    /// The name by which a later notification replaces this one on the screen.
    let tag: String?
    let hasSound: Bool
    let hasNotification: Bool
    let data: [String: String]
    let isHighPriority: Bool
    /// The lifetime in seconds.
    let lifetime: Int64
    let collapseKey: String?
    let kind: Kind
    /// The app to which the message is restricted. `nil` for none.
    private let packageName: String?
    /// Whether the service only checks the message.
    let isOnlyChecked: Bool

    /// The key under which FCM keeps at most one message for a phone that is offline. `nil` for a message that is kept
    /// beside all others.
    ///
    /// Notifications without a key use the app's package name. The sandbox knows it only if the message names it.
    var storageKey: String? {
        collapseKey ?? (kind == .notification ? packageName ?? "(package)" : nil)
    }

    /// Parses and checks the body of a request.
    init(_ body: [UInt8]) throws(FCMRefusal) {
        let parsed: FCMValue
        do {
            parsed = try JSONDecoder().decode(FCMValue.self, from: Data(body))
        } catch {
            throw .invalid([
                .init(field: "", description: "Invalid JSON payload received. Unexpected end of string or token.")
            ])
        }
        var violations: [FCMRefusal.Violation] = []
        let request = Self.request.checked(parsed, at: "", &violations)
        guard violations.isEmpty else { throw .invalid(violations) }
        guard let message = request.object?["message"]?.object else {
            throw .invalid([.init(field: "message", description: "Missing required field message.")])
        }
        isOnlyChecked = request.object?["validate_only"] == .bool(true)
        target = try Self.target(of: message)
        data = try Self.data(in: message["data"], at: "message.data")
        let options = message["android"] == nil ? "android_v2" : "android"
        let android = message[options]?.object ?? [:]
        let remote = android["remote_notification"]?.object
        guard message["android"] == nil || message["android_v2"] == nil else {
            throw .broken("Only one of android and android_v2 may be set.")
        }
        _ = try Self.data(in: android["data"], at: "message.\(options).data")
        let general = message["notification"]?.object
        let own = (android["notification"] ?? remote?["notification"])?.object
        hasNotification = general != nil || own != nil
        kind =
            if let remote {
                remote["use_as_v1_data_message"] == .bool(true) ? .data : .remoteNotification
            } else {
                hasNotification ? .notification : .data
            }
        packageName = android["restricted_package_name"]?.string
        title = (own?["title"] ?? general?["title"])?.string
        self.body = (own?["body"] ?? general?["body"])?.string
        tag = own?["tag"]?.string
        hasSound = own?["sound"] != nil || own?["default_sound"] == .bool(true)
        isHighPriority = kind == .remoteNotification || android["priority"]?.string?.uppercased() == "HIGH"
        collapseKey = android["collapse_key"]?.string
        lifetime = android["ttl"]?.string.flatMap(FCMDuration.init)?.seconds ?? Self.maxLifetime
        guard (0...Self.maxLifetime).contains(lifetime) else {
            throw .invalid([
                .init(
                    field: "message.\(options).ttl",
                    description: "Invalid ttl: must be from 0s to \(Self.maxLifetime)s.")
            ])
        }
        try Self.checkApple(message)
        let size =
            Self.size(message["data"]) + Self.size(message["notification"]) + Self.size(android["data"])
            + Self.size(android["notification"]) + Self.size(remote?["notification"])
        let limit =
            switch target {
            case .topic, .condition: Self.maxTopicSize
            case .installation, .token: Self.maxSize
            }
        guard size <= limit else {
            throw .broken("Message payload size of \(size) bytes exceeds the limit of \(limit) bytes.")
        }
    }

    // MARK: - Rules

    private static func target(of message: [String: FCMValue]) throws(FCMRefusal) -> Target {
        let names = ["fid", "token", "topic", "condition"].filter { message[$0]?.string?.isEmpty == false }
        guard let name = names.first, let value = message[name]?.string else {
            throw .broken("Recipient of the message is not set.")
        }
        guard names.count == 1 else { throw .broken("Exactly one of fid, token, topic and condition must be set.") }
        switch name {
        case "fid":
            guard isInstallation(value) else { throw FCMRefusal(.invalidArgument) }
            return .installation(value)
        case "token":
            // During the transition, the field also accepts an installation id.
            guard isInstallation(value) || isToken(value) else { throw FCMRefusal(.invalidArgument) }
            return .token(value)
        case "topic":
            guard isTopic(value) else { throw .broken("Malformed topic name") }
            return .topic(value)
        default:
            guard let condition = FCMCondition(value) else { throw .broken("Invalid condition expression provided.") }
            return .condition(condition, text: value)
        }
    }

    /// Whether the text has the form of a Firebase installation id: 22 characters of base64url, the first from c to f.
    static func isInstallation(_ text: String) -> Bool {
        text.utf8.count == 22 && "cdef".contains(text.prefix(1)) && text.utf8.allSatisfy(\.isURLSafe)
    }

    /// Whether the text has the form of a registration token: an installation id, a colon, and base64url.
    static func isToken(_ text: String) -> Bool {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, text.utf8.count <= 4096 else { return false }
        return isInstallation(String(parts[0])) && parts[1].utf8.count >= 8 && parts[1].utf8.allSatisfy(\.isURLSafe)
    }

    static func isTopic(_ text: some StringProtocol) -> Bool {
        (1...900).contains(text.utf8.count) && text.utf8.allSatisfy { $0.isURLSafe || ".~%".utf8.contains($0) }
    }

    private static func data(in value: FCMValue?, at path: String) throws(FCMRefusal) -> [String: String] {
        let data = (value?.object ?? [:]).compactMapValues(\.string)
        for key in data.keys.sorted() {
            let isReserved =
                ["from", "message_type", "gcm"].contains(key) || key.hasPrefix("google")
                || key.hasPrefix("gcm.notification.")
            guard !isReserved else {
                throw .invalid([.init(field: path, description: "Invalid data payload key: \(key.prefix(100))")])
            }
        }
        return data
    }

    private static func checkApple(_ message: [String: FCMValue]) throws(FCMRefusal) {
        guard let payload = message["apns"]?.object?["payload"]?.object, let aps = payload["aps"] else { return }
        guard aps.object != nil else {
            throw .invalid([
                .init(field: "message.apns.payload.aps", description: "Invalid value at 'message.apns.payload.aps'")
            ])
        }
    }

    /// Returns the number of bytes of all names and texts in a value.
    private static func size(_ value: FCMValue?) -> Int {
        switch value {
        case nil, .null?: 0
        case .bool?, .integer?, .number?: 8
        case .string(let text)?: text.utf8.count
        case .array(let elements)?: elements.reduce(0) { $0 + size($1) }
        case .object(let members)?: members.reduce(0) { $0 + $1.key.utf8.count + size($1.value) }
        }
    }

    // MARK: - Fields

    private static let request = FCMForm.object(["message": .object(message), "validate_only": .bool])

    private static let message: [String: FCMForm] = [
        "name": .string, "fid": .string, "token": .string, "topic": .string, "condition": .string, "data": .texts,
        "notification": .object(["title": .string, "body": .string, "image": .string]),
        "android": .object(android), "android_v2": .object(androidV2),
        "apns": .object([
            "headers": .texts, "payload": .anyObject, "live_activity_token": .string,
            "fcm_options": .object(["analytics_label": .string, "image": .string]),
        ]),
        "webpush": .object([
            "headers": .texts, "data": .texts, "notification": .anyObject,
            "fcm_options": .object(["link": .string, "analytics_label": .string]),
        ]),
        "fcm_options": .object(["analytics_label": .string]),
    ]

    /// The members that both forms of Android's options have.
    private static let androidCommon: [String: FCMForm] = [
        "collapse_key": .string, "ttl": .duration, "restricted_package_name": .string, "data": .texts,
        "fcm_options": .object(["analytics_label": .string]), "direct_boot_ok": .bool,
        "bandwidth_constrained_ok": .bool,
        "restricted_satellite_ok": .bool,
    ]

    private static let android = androidCommon.merging([
        "priority": .choice(["NORMAL", "HIGH"]),
        "notification": .object(
            androidNotification.merging([
                "proxy": .choice(["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"]),
                "bypass_proxy_notification": .bool,
            ]) { $1 }),
    ]) { $1 }

    private static let androidV2 = androidCommon.merging([
        "remote_notification": .object([
            "mutable_content": .bool, "use_as_v1_data_message": .bool,
            "notification": .object(androidNotification.merging(["id": .int32]) { $1 }),
        ]),
        "background_sync": .object([:]),
    ]) { $1 }

    private static let androidNotification: [String: FCMForm] = [
        "title": .string, "body": .string, "icon": .string, "sound": .string, "tag": .string, "image": .string,
        "click_action": .string, "channel_id": .string, "ticker": .string, "title_loc_key": .string,
        "body_loc_key": .string, "title_loc_args": .list(.string), "body_loc_args": .list(.string), "color": .color,
        "sticky": .bool, "local_only": .bool, "default_sound": .bool, "default_vibrate_timings": .bool,
        "default_light_settings": .bool, "event_time": .timestamp, "notification_count": .int32,
        "notification_priority": .choice(
            ["UNSPECIFIED", "MIN", "LOW", "DEFAULT", "HIGH", "MAX"].map { "PRIORITY_" + $0 }),
        "visibility": .choice(["VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"]),
        "vibrate_timings": .list(.duration),
        "light_settings": .object([
            "color": .object([
                "red": .number(0...1), "green": .number(0...1), "blue": .number(0...1), "alpha": .number(0...1),
            ]),
            "light_on_duration": .duration, "light_off_duration": .duration,
        ]),
    ]
}
