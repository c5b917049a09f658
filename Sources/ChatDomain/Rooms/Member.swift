import Foundation

/// The id of a chat user: the tutorial's `udid`. It has 40 hexadecimal digits, or 32 on the simulator and in later
/// editions, which send a UUID as `user_id`.
///
/// Dashes are removed and letters become lower case, so that all spellings of an id are the same member.
package struct MemberID: Sendable, Hashable, CustomStringConvertible {
    /// The number of digits of a UDID, and of a UUID without its dashes.
    package static let lengths: Set<Int> = [32, 40]

    package let text: String

    package init(parsing text: String, field: String = "udid") throws(ChatError) {
        let digits = FieldText.trimmed(text).utf8.filter { $0 != UInt8(ascii: "-") }
        guard Self.lengths.contains(digits.count), digits.allSatisfy(Hex.isDigit) else {
            throw .invalid(field, "must be 32 or 40 hexadecimal digits (dashes are ignored)")
        }
        // Sets the bit that distinguishes lower from upper case. Digits already have it.
        self.text = String(decoding: digits.map { $0 | 0x20 }, as: UTF8.self)
    }

    /// Wraps an id that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    package var description: String { text }

    // MARK: - Programs, which are not members

    /// The writer of messages that the operator's programs post.
    package static let administrator = MemberID(stored: "admin")

    /// The writer of messages that programs post with an access token.
    package static func program(token: Int64) -> MemberID { MemberID(stored: "token:\(token)") }

    /// The id of the access token. `nil` for another writer.
    package var token: Int64? { text.hasPrefix("token:") ? Int64(text.dropFirst("token:".count)) : nil }

    /// The writer of the messages of a bot.
    package static func bot(webhook: Int64) -> MemberID { MemberID(stored: "webhook:\(webhook)") }

    /// Whether the id is the writer of a program's messages. No member has such an id, because members' ids are digits.
    package var isProgram: Bool {
        self == .administrator || text.hasPrefix("token:") || text.hasPrefix("webhook:")
    }
}

/// A member's name, shown as the sender of messages.
package struct Nickname: Sendable, Hashable {
    package static let longest = 255

    package let text: String

    /// Rejects a name with `": "` inside. The app takes everything before the first `": "` as the sender's name, so the
    /// rest of such a name would appear as part of the text.
    package init(parsing text: String, field: String = "name") throws(ChatError) {
        try self.init(ofMember: text, field: field)
        guard !FieldText.isBlank(self.text) else { throw .invalid(field, "must not be empty") }
    }

    /// Reads the name of a member that exists. The name may be one that people do not see: earlier versions accepted
    /// such names, and the member's app sends its name with each join.
    package init(ofMember text: String, field: String = "name") throws(ChatError) {
        let name = try FieldText.checked(
            text, field: field, limit: Self.longest, composing: true, mayBeBlank: true)
        guard !name.utf8.contains(": ".utf8) else {
            throw .invalid(field, "must not contain a colon followed by a space, which separates name and text")
        }
        let shown = FieldText.visible(FieldText.withoutDirections(name)).replacing(": ", with: ":")
        self.text = shown.isEmpty ? name : shown
    }

    /// Wraps a name that was checked before it was stored. An earlier version, or a script, may have stored characters
    /// that change the direction of writing. They are removed.
    package init(stored text: String) {
        self.text = FieldText.withoutDirections(text)
    }

    /// Whether people see nothing of the name.
    package var isBlank: Bool { FieldText.isBlank(text) }

    /// A name for the beginning of a line. A name with letters that are written from right to left is isolated, so that
    /// it does not change the order of what follows it.
    package static func isolated(_ name: String) -> String {
        name.unicodeScalars.contains(where: isRightToLeft) ? "\u{2068}\(name)\u{2069}" : name
    }

    private static func isRightToLeft(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        // The blocks of the scripts that are written from right to left, and the mark of that direction.
        case 0x0590...0x08FF, 0x200F, 0xFB1D...0xFDFF, 0xFE70...0xFEFE, 0x10800...0x10FFF, 0x1E800...0x1EFFF: true
        default: false
        }
    }
}

/// The word that names a room. Anyone who knows it can join.
///
/// Codes are compared byte by byte in composed form (NFC). So `é` typed on two keyboards is one room, but `Secret` and
/// `secret` are two. ``RoomRecords/room(named:)`` removes invisible characters at the ends of a code.
package struct SecretCode: Sendable, Hashable {
    package static let longest = 255

    package let text: String

    package init(parsing text: String, field: String = "code") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: Self.longest, composing: true, mayBeBlank: true)
    }

    /// The code without the characters at its ends that people do not see. `nil` if nothing remains.
    package var visible: SecretCode? {
        let visible = FieldText.visible(text)
        return visible.isEmpty ? nil : SecretCode(stored: visible)
    }

    /// Wraps a code that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    /// Returns a code that cannot be guessed: 80 bits, in letters and digits that are hard to confuse.
    package static func random() -> SecretCode {
        let characters = Array("abcdefghjkmnpqrstuvwxyz123456789")
        let groups = (0..<4).map { _ in String((0..<4).map { _ in characters[Int.random(in: 0..<characters.count)] }) }
        return SecretCode(stored: groups.joined(separator: "-"))
    }
}
