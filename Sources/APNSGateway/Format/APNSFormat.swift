package import ChatDomain
import PushWire

/// The rules of Apple's gateways for pushes, over either protocol: `aps` payloads and their limits, push types, header
/// values, and Apple's names for rejections.
///
/// Sources: Apple, "Sending notification requests to APNs" (limits and headers), "Generating a remote notification"
/// (payload), and "Binary Provider API" (limit of the binary protocol).
package struct APNSFormat: PushFormat {
    package enum Kind: String, Sendable, Hashable {
        case binary, http2
    }

    package let kind: Kind
    /// The configured limit of a payload, in bytes.
    package let payloadLimit: Int
    /// The sound of chat messages: the name of a sound file in the app, or `default`. `nil` for no sound.
    private let sound: String?
    private let threads: RoomThreads?
    private let fields: Set<ChatField>
    /// Whether chat messages show the number of unread messages. Never over the binary protocol.
    package let showsUnread: Bool

    /// Creates the rules of one protocol.
    /// - Parameters:
    ///   - payloadLimit: The limit of a payload, in bytes.
    ///   - sound: The sound of chat messages. `nil` for none.
    ///   - threads: Names the rooms of chat messages. If it is `nil`, payloads have no `thread-id`.
    ///   - fields: The optional fields of chat messages, over HTTP/2.
    ///   - showsUnread: Whether chat messages show the number of unread messages, over HTTP/2.
    package init(
        _ kind: Kind, payloadLimit: Int, sound: String? = "default", threads: RoomThreads? = nil,
        fields: Set<ChatField> = Set(ChatField.allCases), showsUnread: Bool = false
    ) {
        self.kind = kind
        self.payloadLimit = payloadLimit
        self.sound = sound
        self.threads = threads
        self.fields = fields
        self.showsUnread = showsUnread && kind == .http2
    }

    /// Returns the limit of a payload for a push type, in bytes. VoIP pushes have Apple's higher limit. If the operator
    /// has configured another limit, it applies to all types.
    package func limit(of type: String) -> Int {
        guard kind == .http2, payloadLimit == PushType.alert.payloadLimit, type == PushType.voip.rawValue else {
            return payloadLimit
        }
        return PushType.voip.payloadLimit
    }

    /// Returns the payload of a chat message. Over the binary protocol, it equals the tutorial's payload byte for byte.
    package func payload(of alert: ChatAlert) throws(ChatError) -> String {
        try payload(of: alert, isPassive: false)
    }

    private func payload(of alert: ChatAlert, isPassive: Bool) throws(ChatError) -> String {
        let sound = alert.content.sound.map { $0.isEmpty ? nil : $0 } ?? sound
        guard kind == .http2 else { return try AlertPayload(sound: sound, limit: payloadLimit).json(alert) }
        return try AlertPayload(
            sound: sound, limit: payloadLimit - (showsUnread ? AlertPayload.badgeRoom : 0), isForExtension: true,
            room: threads?.id(of: alert.code), fields: fields, isPassive: isPassive
        ).json(alert)
    }

    /// Over HTTP/2, a notification replaces the one with the same collapse id, and an app removes one when a background
    /// push wakes it. The binary protocol can only ring.
    package func update(
        _ update: AlertUpdate, of alert: ChatAlert, endpoint: String?
    ) throws(ChatError) -> PushUpdate? {
        switch update {
        case .ring:
            return PushUpdate(
                payload: try payload(of: alert), priority: alert.content.priority,
                collapse: kind == .http2 ? .firstPush : .none)
        case .replace where kind == .http2:
            return PushUpdate(
                payload: try payload(of: alert, isPassive: true), priority: Self.quietPriority, collapse: .firstPush)
        case .remove where kind == .http2:
            let payload = #"{"aps":{"content-available":1},"type":"clear","message_id":\#(alert.message)}"#
            return PushUpdate(payload: payload, pushType: Push.background, priority: Self.quietPriority)
        case .replace, .remove: return nil
        }
    }

    /// Apple delivers such a push when it saves power, and takes no higher priority for a background push.
    private static let quietPriority: UInt8 = 5

    // MARK: - Rows of the queue

    package func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
        guard case .token(let token)? = row.address, token.kind == tokens else { throw Refusal.token.named(by: kind) }
        guard var payload = row.payload else { throw PushRefusal("InvalidJSON") }
        var type = row.type ?? Push.alert
        if !row.isOurs, !payload.isEmpty {
            guard let scan = payload.withUnsafeBytes({ PayloadScan($0) }) else { throw PushRefusal.notJSON(payload) }
            if scan.isEmptyAlert { throw PushRefusal.noText }
            if row.type == nil, scan.isBackground { type = Push.background }
        }
        guard !payload.isEmpty else { throw Refusal.missingPayload.named(by: kind) }
        if kind == .http2, let unread = row.unread {
            payload = AlertPayload.adding(badge: unread, to: payload, limit: limit(of: type))
        }
        guard payload.count <= limit(of: type) else {
            throw PushRefusal.tooLarge(
                Refusal.payloadSize.named(by: kind).reason, payload.count, limit: limit(of: type))
        }
        var id: String?
        if kind == .http2 {
            guard Self.isHeaderText(type, limit: PushType.longest) else { throw Refusal.type.named(by: kind) }
            if let collapseID = row.collapseID, !Self.isHeaderText(collapseID, limit: ProviderHeader.longestCollapseID)
            {
                throw Refusal.collapseID.named(by: kind)
            }
            guard ProviderHeader.isID(row.apnsID) else { throw Refusal.id.named(by: kind) }
            id = row.apnsID.lowercased()
        }
        return Push(
            id: row.id, identifier: identifier, address: .token(token), payload: payload, expiration: row.expiration,
            priority: row.priority.flatMap(UInt8.init(exactly:)), apnsID: id, type: type, collapseID: row.collapseID)
    }

    /// A reason why a push of the queue can never be sent.
    private enum Refusal {
        case token, missingPayload, payloadSize, type, collapseID, id

        /// Names the refusal, with the gateway's own reason if it has one.
        func named(by kind: Kind) -> PushRefusal {
            let isHTTP2 = kind == .http2
            let reason =
                switch self {
                case .token: isHTTP2 ? ProviderReason.badDeviceToken.rawValue : BinaryStatus.invalidToken.name
                case .missingPayload: isHTTP2 ? ProviderReason.payloadEmpty.rawValue : BinaryStatus.missingPayload.name
                case .payloadSize:
                    isHTTP2 ? ProviderReason.payloadTooLarge.rawValue : BinaryStatus.invalidPayloadSize.name
                case .type: ProviderReason.invalidPushType.rawValue
                case .collapseID: ProviderReason.badCollapseID.rawValue
                case .id: ProviderReason.badMessageID.rawValue
                }
            return PushRefusal(reason)
        }
    }

    /// Whether a text is a valid header value. An invalid byte would end the connection and with it every push in
    /// flight.
    private static func isHeaderText(_ text: String, limit: Int) -> Bool {
        (1...limit).contains(text.utf8.count) && text.utf8.allSatisfy { (0x20...0x7E).contains($0) }
            && text.utf8.first != 0x20 && text.utf8.last != 0x20
    }

    // MARK: - Notifications

    package func compose(_ content: NotificationContent, for app: AppName) throws(ChatError) -> ComposedNotification {
        let composed = try Self.composed(content)
        let (size, limit) = (composed.payload.utf8.count, limit(of: composed.pushType))
        guard size <= limit else {
            throw .invalid(
                "payload",
                "has \(size) bytes of UTF-8, \(size - limit) more than the \(limit) that the gateway of app \(app) takes"
            )
        }
        return composed
    }

    package func warning(pushType: String) -> String? {
        kind == .http2 ? PushType(rawValue: pushType).warning : nil
    }

    /// Composes a notification without a check of its size.
    package static func composed(_ content: NotificationContent) throws(ChatError) -> ComposedNotification {
        let document = try content.document()
        guard document["aps"] != nil || document["mdm"] != nil else {
            throw .invalid("payload", "must have the member aps")
        }
        let type = try pushType(content.pushType, of: document)
        if let id = content.collapseID {
            guard id.utf8.count <= ProviderHeader.longestCollapseID, id.isVisibleASCII
            else {
                throw .invalid(
                    "collapse_id",
                    "must be at most \(ProviderHeader.longestCollapseID) printable ASCII characters without blanks")
            }
        }
        return ComposedNotification(
            payload: JSONValue.object(document).description, pushType: type,
            priority: try priority(content.priority, pushType: type))
    }

    private static func pushType(_ type: String?, of document: JSONObject) throws(ChatError) -> String {
        let aps = document["aps"]?.object
        let shows = ["alert", "badge", "sound"].contains { aps?[$0] != nil }
        let wakes = aps?["content-available"] != nil
        guard let type else {
            if aps == nil { return PushType.mdm.rawValue }
            return wakes && !shows ? Push.background : Push.alert
        }
        guard isHeaderText(type, limit: PushType.longest) else {
            throw .invalid(
                "push_type", "must be 1 to \(PushType.longest) printable ASCII characters, no blank at the ends")
        }
        guard type != Push.background || (wakes && !shows) else {
            throw .invalid("push_type", "background is for content_available without alert, badge and sound")
        }
        return type
    }

    /// Apple rejects priority 10 for a background push, and treats a missing priority as 10.
    private static func priority(_ priority: UInt8?, pushType: String) throws(ChatError) -> UInt8? {
        guard pushType == Push.background else { return priority }
        guard let priority else { return 5 }
        guard priority < 10 else {
            throw .invalid("priority", "must be 5 or 1 for a push of type background")
        }
        return priority
    }
}
