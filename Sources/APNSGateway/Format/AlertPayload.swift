import ChatDomain

/// The payload of a chat message: `{"aps":{"alert":"NAME: TEXT","sound":"default"}}`, as the tutorial's, and where the
/// gateway leaves room `{"aps":{…,"thread-id":"ROOM"},"message_id":NUMBER}`: an app groups by the one, and drops repeats
/// and fetches what it missed by the other.
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
    /// Whether it has `thread-id` and `message_id`.
    var namesMessage: Bool

    init(sound: String? = "default", limit: Int, namesMessage: Bool = false) {
        self.sound = sound
        self.limit = limit
        self.namesMessage = namesMessage
    }

    /// The document, as UTF-8.
    ///
    /// A name is cut only if the whole does not fit: first to ``shortNickname`` bytes, then the text is cut and
    /// ends with an ellipsis.
    /// - Throws: `invalid text` if not one character of the text fits (an overlong sound name, say).
    func json(_ alert: ChatAlert) throws(ChatError) -> String {
        let head = #"{"aps":{"alert":""#
        var tail = "\""
        if let sound {
            tail += #","sound":""#
            JSONString.escape(sound, into: &tail)
            tail += "\""
        }
        if namesMessage {
            tail += #","thread-id":"\#(Self.thread(of: alert.code))"},"message_id":\#(alert.message)}"#
        } else {
            tail += "}}"
        }

        var name = alert.nickname.text
        var body = alert.text.text
        let room = limit - head.utf8.count - tail.utf8.count - 2
        if JSONString.escapedSize(name) + JSONString.escapedSize(body) > room {
            name = Self.prefix(of: name, within: Self.shortNickname)
            let textRoom = room - JSONString.escapedSize(name)
            if JSONString.escapedSize(body) > textRoom {
                body = Self.prefix(of: body, within: textRoom - Self.ellipsis.utf8.count)
                guard !body.isEmpty else {
                    throw .invalid("text", "does not fit into a payload of \(limit) bytes, not even shortened")
                }
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

    /// Identifies the room without its secret code, the same for all its messages: FNV-1a, 64 bits, in hexadecimal digits.
    static func thread(of code: SecretCode) -> String {
        let hash = code.text.utf8.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        let digits = String(hash, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }

    /// The longest beginning whose escaped form has no more bytes than `budget`: whole characters, and where
    /// not even one fits, whole scalars.
    static func prefix(of text: String, within budget: Int) -> String {
        var used = 0
        var end = text.startIndex
        for index in text.indices {
            let size = JSONString.escapedSize(text[index].unicodeScalars)
            if used + size > budget { break }
            used += size
            end = text.index(after: index)
        }
        if end > text.startIndex || text.isEmpty { return String(text[..<end]) }
        let scalars = text.unicodeScalars
        for index in scalars.indices {
            let size = JSONString.escapedSize(scalars[index])
            if used + size > budget { break }
            used += size
            end = scalars.index(after: index)
        }
        return String(scalars[..<end])
    }
}
