import Foundation

/// What names a user of the chat: the `udid` of the tutorial (40 hexadecimal digits, 32 on the simulator and in later
/// editions, which send a UUID as `user_id`).
///
/// Dashes are ignored and letters become lower case, so that every spelling of one id is one member.
package struct MemberID: Sendable, Hashable, CustomStringConvertible {
    /// Digits of a UDID, and of a UUID without its dashes.
    package static let lengths: Set<Int> = [32, 40]

    package let text: String

    package init(parsing text: String, field: String = "udid") throws(ChatError) {
        let digits = FieldText.trimmed(text).utf8.filter { $0 != UInt8(ascii: "-") }
        guard Self.lengths.contains(digits.count), digits.allSatisfy(Hex.isDigit) else {
            throw .invalid(field, "must be 32 or 40 hexadecimal digits (dashes are ignored)")
        }
        // Sets the bit that tells lower from upper case; digits have it anyway.
        self.text = String(decoding: digits.map { $0 | 0x20 }, as: UTF8.self)
    }

    /// An id that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    package var description: String { text }

    // MARK: - Programs, which are no members

    /// The writer of what the operator's programs post.
    package static let administrator = MemberID(stored: "admin")

    /// The writer of what programs with a token post.
    package static func program(token: Int64) -> MemberID { MemberID(stored: "token:\(token)") }

    /// Whether it is the writer of a program's messages. No member has such an id: theirs are digits.
    package var isProgram: Bool { self == .administrator || text.hasPrefix("token:") }
}

/// What a member is called; shown as the sender of messages.
package struct Nickname: Sendable, Hashable {
    package static let longest = 255

    package let text: String

    /// Refuses `": "` inside: the app takes everything before the first one as the sender's name, so such a
    /// name would arrive as part of the text.
    package init(parsing text: String, field: String = "name") throws(ChatError) {
        let name = try FieldText.checked(text, field: field, limit: Self.longest)
        guard !name.utf8.contains(": ".utf8) else {
            throw .invalid(field, "must not contain a colon followed by a space, which separates name and text")
        }
        self.text = name
    }

    /// A name that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }
}

/// The word that names a room; anyone who knows it can join.
///
/// Compared byte for byte after composing (NFC), so that `é` typed on two keyboards is one room, and `Secret` and
/// `secret` are two.
package struct SecretCode: Sendable, Hashable {
    package static let longest = 255

    package let text: String

    package init(parsing text: String, field: String = "code") throws(ChatError) {
        self.text = try FieldText.checked(text, field: field, limit: Self.longest, composing: true)
    }

    /// A code that was checked before it was stored.
    package init(stored text: String) {
        self.text = text
    }

    /// A code that nobody can guess: 80 bits, in letters and digits that look different.
    package static func random() -> SecretCode {
        let characters = Array("abcdefghjkmnpqrstuvwxyz123456789")
        let groups = (0..<4).map { _ in String((0..<4).map { _ in characters[Int.random(in: 0..<characters.count)] }) }
        return SecretCode(stored: groups.joined(separator: "-"))
    }
}

/// What a client says of itself and what the connection says of it: for debugging, against abuse, for statistics.
package struct ClientInfo: Sendable, Hashable {
    /// Bytes of each text that are kept.
    package static let longest = 255

    package var address: String?
    package var appVersion: String?
    package var osVersion: String?
    package var deviceModel: String?

    package init(
        address: String? = nil, appVersion: String? = nil, osVersion: String? = nil, deviceModel: String? = nil
    ) {
        self.address = address
        self.appVersion = appVersion
        self.osVersion = osVersion
        self.deviceModel = deviceModel
    }

    package var withoutAddress: ClientInfo {
        ClientInfo(appVersion: appVersion, osVersion: osVersion, deviceModel: deviceModel)
    }

    /// One of the texts, as a request brought it; absent or blank is nil.
    package static func text(_ text: String?, field: String) throws(ChatError) -> String? {
        guard let text, !FieldText.trimmed(text).isEmpty else { return nil }
        return try FieldText.checked(text, field: field, limit: longest)
    }
}
