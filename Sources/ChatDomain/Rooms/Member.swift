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

    /// Whether the id is the writer of a program's messages. No member has such an id, because members' ids are digits.
    package var isProgram: Bool { self == .administrator || text.hasPrefix("token:") }
}

/// A member's name, shown as the sender of messages.
package struct Nickname: Sendable, Hashable {
    package static let longest = 255

    package let text: String

    /// Rejects a name with `": "` inside. The app takes everything before the first `": "` as the sender's name, so the
    /// rest of such a name would appear as part of the text.
    package init(parsing text: String, field: String = "name") throws(ChatError) {
        let name = try FieldText.checked(text, field: field, limit: Self.longest)
        guard !name.utf8.contains(": ".utf8) else {
            throw .invalid(field, "must not contain a colon followed by a space, which separates name and text")
        }
        self.text = name
    }

    /// Wraps a name that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }
}

/// The word that names a room. Anyone who knows it can join.
///
/// Codes are compared byte by byte in composed form (NFC). So `é` typed on two keyboards is one room, but `Secret` and
/// `secret` are two.
package struct SecretCode: Sendable, Hashable {
    package static let longest = 255

    package let text: String

    package init(parsing text: String, field: String = "code") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: Self.longest, composing: true)
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
