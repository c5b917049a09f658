import APNSWire
package import ChatDomain

/// What Apple's gateways require of pushes, over either protocol: payloads with `aps`, their limits, types, header texts, and
/// Apple's names for what they refuse (apns-binary.md §6, apns-http2.md §2, aps-payload.md).
package struct APNSFormat: PushFormat {
    package enum Kind: String, Sendable, Hashable {
        case binary, http2
    }

    package let kind: Kind
    /// Bytes of a payload.
    package let payloadLimit: Int
    /// Of chat messages: the name of a sound file in the app, or `default`; nil for none.
    private let sound: String?
    private let threads: RoomThreads?

    /// - Parameter threads: names the rooms of chat messages. Without it their payloads have no `thread-id`.
    package init(_ kind: Kind, payloadLimit: Int, sound: String? = "default", threads: RoomThreads? = nil) {
        self.kind = kind
        self.payloadLimit = payloadLimit
        self.sound = sound
        self.threads = threads
    }

    /// Bytes of a payload of a type's pushes. Apple's own limits; where another is configured, it holds for all types.
    package func limit(of type: String) -> Int {
        guard kind == .http2, payloadLimit == PushType.alert.payloadLimit, type == PushType.voip.rawValue else {
            return payloadLimit
        }
        return PushType.voip.payloadLimit
    }

    /// The tutorial's payload to the byte where its protocol is spoken.
    package func payload(of alert: ChatAlert) throws(ChatError) -> String {
        let sound = alert.extras.sound.map { $0.isEmpty ? nil : $0 } ?? sound
        let thread = kind == .http2 ? threads?.id(of: alert.code) : nil
        return try AlertPayload(sound: sound, limit: payloadLimit, namesMessage: kind == .http2, thread: thread)
            .json(alert)
    }

    // MARK: - Rows of the queue

    package func push(_ row: QueuedPush, identifier: UInt32) throws(PushRefusal) -> Push {
        guard let address = row.address else { throw Refusal.token.named(by: kind) }
        guard let payload = row.payload else { throw Refusal.noJSON.named(by: kind) }
        var type = row.type ?? Push.alert
        if !row.isOurs, !payload.isEmpty {
            guard let scan = payload.withUnsafeBytes({ PayloadScan($0) }) else { throw Refusal.noJSON.named(by: kind) }
            if row.type == nil, scan.isBackground { type = Push.background }
        }
        guard !payload.isEmpty else { throw Refusal.missingPayload.named(by: kind) }
        guard payload.count <= limit(of: type) else { throw Refusal.payloadSize.named(by: kind) }
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
            id: row.id, identifier: identifier, address: address, payload: payload, expiration: row.expiration,
            priority: row.priority.flatMap(UInt8.init(exactly:)), apnsID: id, type: type, collapseID: row.collapseID)
    }

    /// Why a row can never be sent.
    private enum Refusal {
        case token, missingPayload, payloadSize, noJSON, type, collapseID, id

        /// With the gateway's own reason, where it has one.
        func named(by kind: Kind) -> PushRefusal {
            let isHTTP2 = kind == .http2
            let reason =
                switch self {
                case .token: isHTTP2 ? ProviderReason.badDeviceToken.rawValue : BinaryStatus.invalidToken.name
                case .missingPayload: isHTTP2 ? ProviderReason.payloadEmpty.rawValue : BinaryStatus.missingPayload.name
                case .payloadSize:
                    isHTTP2 ? ProviderReason.payloadTooLarge.rawValue : BinaryStatus.invalidPayloadSize.name
                case .noJSON: "InvalidJSON"
                case .type: ProviderReason.invalidPushType.rawValue
                case .collapseID: ProviderReason.badCollapseID.rawValue
                case .id: ProviderReason.badMessageID.rawValue
                }
            return PushRefusal(reason)
        }
    }

    /// What can stand in a header: a byte that cannot would end the connection, with all that is on it.
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

    /// Without a check of the size.
    package static func composed(_ content: NotificationContent) throws(ChatError) -> ComposedNotification {
        let document = try content.document()
        guard document["aps"] != nil || document["mdm"] != nil else {
            throw .invalid("payload", "must have the member aps")
        }
        let type = try pushType(content.pushType, of: document)
        if let id = content.collapseID {
            guard id.utf8.count <= ProviderHeader.longestCollapseID, id.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
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

    /// Apple refuses 10 for a background push, and treats none as 10.
    private static func priority(_ priority: UInt8?, pushType: String) throws(ChatError) -> UInt8? {
        guard pushType == Push.background else { return priority }
        guard let priority else { return 5 }
        guard priority < 10 else {
            throw .invalid("priority", "must be 5 or 1 for a push of type background")
        }
        return priority
    }
}

/// The payload of a chat message: `{"aps":{"alert":"NAME: TEXT","sound":"default"}}`, as the tutorial's, and where the
/// gateway leaves room `{"aps":{…,"thread-id":"THREAD"},"message_id":NUMBER}`: an app groups by the one, and drops repeats
/// and fetches what it missed by the other. A program's message may have a title, `"alert":{"title":"TITLE","body":"NAME: TEXT"}`,
/// and a `link` beside `aps`.
///
/// Shortens so that the whole document, with its escapes, has no more bytes than the gateway takes. Works on whole
/// characters and counts each one's escaped size before anything is escaped, so the document is always valid JSON
/// (aps-payload.md §4). The key order is fixed.
struct AlertPayload: Sendable, Hashable {
    /// Bytes that a nickname keeps when the payload has to be shortened (pushchat-api.md §3).
    static let shortNickname = 20
    /// U+2026, three bytes: the end of a text that was shortened.
    private static let ellipsis: Character = "…"

    /// Name of the sound file in the app, or `default`; nil for no `sound` key.
    var sound: String?
    /// Bytes that the gateway takes: 256, 2048 or 4096.
    var limit: Int
    /// Whether it has `message_id`.
    var namesMessage: Bool
    /// The room's `thread-id`; `nil` for none.
    var thread: String?

    init(sound: String? = "default", limit: Int, namesMessage: Bool = false, thread: String? = nil) {
        self.sound = sound
        self.limit = limit
        self.namesMessage = namesMessage
        self.thread = thread
    }

    /// Bytes that a title keeps when everything else was shortened and nothing fits.
    private static let shortTitle = 40
    /// Bytes of text for which a link is left out.
    private static let leastText = 40

    /// The document, as UTF-8.
    ///
    /// A name is cut only if the whole does not fit: first to ``shortNickname`` bytes, then the text is cut and
    /// ends with an ellipsis. Where that leaves next to nothing of the text, the link goes, and then the end of the title.
    /// - Throws: `invalid text` if not one character of the text fits (an overlong sound name, say).
    func json(_ alert: ChatAlert) throws(ChatError) -> String {
        let (title, link) = (alert.extras.title, alert.extras.link)
        if title != nil || link != nil {
            if let document = document(alert, title: title, link: link, leastText: Self.leastText) { return document }
            if let document = document(alert, title: title, link: nil, leastText: Self.leastText) { return document }
        }
        let short = title.map { JSONString.prefix(of: $0, within: Self.shortTitle) }
        guard let document = document(alert, title: short, link: nil, leastText: 1) else {
            throw .invalid("text", "does not fit into a payload of \(limit) bytes, not even shortened")
        }
        return document
    }

    /// Nil if not so many bytes of the text fit.
    private func document(_ alert: ChatAlert, title: String?, link: String?, leastText: Int) -> String? {
        func escaped(_ key: String, _ text: String) -> String {
            var member = "\"\(key)\":\""
            JSONString.escape(text, into: &member)
            return member + "\""
        }
        let head = #"{"aps":{"alert":"# + (title.map { "{" + escaped("title", $0) + #","body":""# } ?? "\"")
        var tail = title == nil ? "\"" : "\"}"
        if let sound { tail += "," + escaped("sound", sound) }
        if let thread { tail += #","thread-id":"\#(thread)""# }
        tail += "}"
        if namesMessage { tail += #","message_id":\#(alert.message)"# }
        if let link { tail += "," + escaped("link", link) }
        tail += "}"

        var name = alert.nickname.text
        var body = alert.text.text
        let room = limit - head.utf8.count - tail.utf8.count - 2
        if JSONString.escapedSize(name) + JSONString.escapedSize(body) > room {
            name = JSONString.prefix(of: name, within: Self.shortNickname)
            let textRoom = room - JSONString.escapedSize(name)
            if JSONString.escapedSize(body) > textRoom {
                body = JSONString.prefix(of: body, within: textRoom - Self.ellipsis.utf8.count)
                guard body.utf8.count >= leastText else { return nil }
                body.append(Self.ellipsis)
            }
        }
        var document = head
        document.reserveCapacity(head.utf8.count + name.utf8.count + 2 + body.utf8.count + tail.utf8.count)
        JSONString.escape(name, into: &document)
        document += ": "
        JSONString.escape(body, into: &document)
        document += tail
        return document
    }
}
