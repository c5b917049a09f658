import ChatDomain

/// The payload of a chat message.
///
/// The tutorial's form is `{"aps":{"alert":"NAME: TEXT","sound":"default"}}`. Over HTTP/2, `aps` also has the fields of
/// ``ChatField``, and beside it are `message_id`, `room_id` and `sender`. An app's extension needs them to fetch the
/// message, and to show its sender and room. A message that a program posts may have a title,
/// `"alert":{"title":"TITLE","body":"NAME: TEXT"}`, and a `link` beside `aps`. ``adding(badge:to:limit:)`` adds the
/// number of unread messages when the push is sent.
///
/// The text is shortened so that the whole document, with its escapes, fits into the gateway's limit. Shortening keeps
/// whole characters and counts their escaped size before it escapes anything, so the document is always valid JSON. The
/// order of keys is fixed.
struct AlertPayload: Sendable, Hashable {
    /// The number of escaped bytes that remain of a nickname if the payload must be shortened, as in the tutorial's
    /// server.
    static let shortNickname = 20
    /// The end of a shortened text: U+2026, three bytes.
    private static let ellipsis: Character = "…"

    /// The name of a sound file in the app, or `default`. `nil` for no `sound` key.
    var sound: String?
    /// The gateway's limit in bytes: 256, 2,048 or 4,096.
    var limit: Int
    /// Whether the payload has `message_id`.
    var namesMessage: Bool
    /// Whether the payload has `room_id` and `sender`.
    var namesSender: Bool
    /// The room's id. `nil` for none.
    var room: String?
    var fields: Set<ChatField>
    /// Whether the notification neither rings nor lights up the screen. It then has its level whatever ``fields`` are,
    /// and no sound.
    var isPassive: Bool

    /// - Parameter isForExtension: Whether the payload has the members beside `aps` that an app's extension needs.
    init(
        sound: String? = "default", limit: Int, isForExtension: Bool = false, room: String? = nil,
        fields: Set<ChatField> = [], isPassive: Bool = false
    ) {
        self.sound = isPassive ? nil : sound
        self.limit = limit
        namesMessage = isForExtension
        namesSender = isForExtension
        self.room = room
        self.fields = fields
        self.isPassive = isPassive
    }

    /// The number of escaped bytes that remain of a title if nothing else can be shortened.
    private static let shortTitle = 40
    /// The minimum size of the text, in bytes. Other parts are left out if less would remain.
    private static let minText = 40

    /// Returns the document.
    ///
    /// If the document does not fit, its parts are shortened in this order: first the name to ``shortNickname`` bytes,
    /// then the text, which then ends with an ellipsis. If too little of the text would remain, the link is left out,
    /// then all that only today's systems use, and then the title is shortened.
    /// - Throws: `invalid text` if not even one character of the text fits, for example because of a very long sound
    ///   name.
    func json(_ alert: ChatAlert) throws(ChatError) -> String {
        let (title, link) = (alert.content.title, alert.content.link)
        if let document = document(alert, title: title, link: link, minText: Self.minText) { return document }
        if link != nil, let document = document(alert, title: title, link: nil, minText: Self.minText) {
            return document
        }
        var plain = self
        plain.fields.formIntersection([.threadID])
        plain.namesSender = false
        if let document = plain.document(alert, title: title, link: nil, minText: Self.minText) { return document }
        let short = title.map { JSONString.prefix(of: $0, within: Self.shortTitle) }
        guard let document = plain.document(alert, title: short, link: nil, minText: 1) else {
            throw .invalid("text", "does not fit into a payload of \(limit) bytes, not even shortened")
        }
        return document
    }

    /// Returns the document. `nil` if fewer than `minText` bytes of the text fit.
    private func document(_ alert: ChatAlert, title: String?, link: String?, minText: Int) -> String? {
        func escaped(_ key: String, _ text: String) -> String {
            var member = "\"\(key)\":\""
            JSONString.escape(text, into: &member)
            return member + "\""
        }
        let head = Self.head + (title.map { "{" + escaped("title", $0) + #","body":""# } ?? "\"")
        var tail = title == nil ? "\"" : "\"}"
        if let sound { tail += "," + escaped("sound", sound) }
        for field in ChatField.allCases where fields.contains(field) || isPassive && field == .interruptionLevel {
            if let value = field.value(for: alert, room: room, isPassive: isPassive) {
                tail += ",\"\(field.rawValue)\":\(value)"
            }
        }
        tail += "}"
        if namesMessage { tail += #","message_id":\#(alert.message)"# }
        if namesSender {
            if let room { tail += #","room_id":"\#(room)""# }
            tail += "," + escaped("sender", alert.nickname.text)
            if alert.isOfProgram { tail += #","program":true"# }
        }
        if let link { tail += "," + escaped("link", link) }
        tail += "}"

        var name = Nickname.isolated(alert.nickname.text)
        var body = alert.content.text.text
        let room = limit - head.utf8.count - tail.utf8.count - 2
        if JSONString.escapedSize(name) + JSONString.escapedSize(body) > room {
            name = Nickname.isolated(JSONString.prefix(of: alert.nickname.text, within: Self.shortNickname))
            let textRoom = room - JSONString.escapedSize(name)
            if JSONString.escapedSize(body) > textRoom {
                body = JSONString.prefix(of: body, within: textRoom - Self.ellipsis.utf8.count)
                guard body.utf8.count >= minText else { return nil }
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

    // MARK: - The number at the icon

    /// The start of every document.
    private static let head = #"{"aps":{"alert":"#
    private static let start = Array(head.utf8)
    /// The number of bytes that the largest number of unread messages takes.
    static let badgeRoom = badge(UnreadCount.most).count

    private static func badge(_ number: Int64) -> [UInt8] { Array(#""badge":\#(number),"#.utf8) }

    /// Adds the number of unread messages to a document.
    /// - Returns: The unchanged document if it is not one of the relay's or if the number does not fit.
    static func adding(badge number: Int64, to document: [UInt8], limit: Int) -> [UInt8] {
        let member = badge(number)
        guard document.count + member.count <= limit, document.starts(with: start) else { return document }
        let first = #"{"aps":{"#.utf8.count
        return document[..<first] + member + document[first...]
    }
}
