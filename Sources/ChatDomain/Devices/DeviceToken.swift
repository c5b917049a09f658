/// The address of a device at its push service.
package enum DeviceToken: Sendable, Hashable, CustomStringConvertible {
    /// Opaque bytes that the app received from iOS. For a browser, the SHA-256 of its endpoint.
    case binary([UInt8])
    /// A Firebase installation id or a registration token, which the app received from Google's library.
    case firebase(String)

    /// The number of bytes. Apple's tokens have 32 today, and Apple asks not to assume a size. A shorter one is a
    /// truncated token.
    package static let sizes = 32...100
    /// The number of characters of a Firebase installation id.
    package static let installationID = 22
    /// The maximum number of characters of Google's tokens. They have about 160 today.
    package static let longestFirebase = 1024

    package init?(bytes: [UInt8]) {
        guard Self.sizes.contains(bytes.count) else { return nil }
        self = .binary(bytes)
    }

    /// Reads the text of a token of either kind.
    ///
    /// Apple's tokens may have any form that Apple's documents and tutorials print: hexadecimal digits of either case,
    /// with or without blanks and `<…>`. The form of `NSData.description` since iOS 13 (`{length = 32, bytes = 0x…}`) is
    /// rejected. It is abbreviated, so the token cannot be recovered from it.
    package init(parsing text: String, field: String = "token") throws(ChatError) {
        let text = FieldText.trimmed(text)
        if Self.isFirebase(text) {
            self = .firebase(text)
            return
        }
        var digits = text.utf8[...]
        guard !digits.contains(where: { $0 == UInt8(ascii: "{") || $0 == UInt8(ascii: "=") }) else {
            throw .invalid(
                field, "is the description of a Data value, not a token; send the hexadecimal digits of its bytes")
        }
        if digits.first == UInt8(ascii: "<"), digits.last == UInt8(ascii: ">") {
            digits = digits.dropFirst().dropLast()
        }
        let packed = digits.filter { $0 != UInt8(ascii: " ") }
        guard let bytes = Hex.bytes(packed) else {
            // Only Google's tokens have a colon.
            guard !digits.contains(UInt8(ascii: ":")) else { throw .invalid(field, Self.firebaseRule) }
            throw .invalid(field, "must be an even number of hexadecimal digits")
        }
        guard let token = DeviceToken(bytes: bytes) else {
            let digits = (Self.sizes.lowerBound * 2, Self.sizes.upperBound * 2)
            throw .invalid(field, "must have \(digits.0) to \(digits.1) hexadecimal digits, has \(packed.count)")
        }
        self = token
    }

    /// Whether the text has the form of a Firebase installation id, or of a registration token: such an id, a colon, and
    /// base64url. No token of Apple's has one of these forms: an id is shorter, and a token has no colon.
    package static func isFirebase(_ text: String) -> Bool {
        guard text.utf8.count <= longestFirebase, let first = text.utf8.first,
            (UInt8(ascii: "c")...UInt8(ascii: "f")).contains(first)
        else { return false }
        guard text.utf8.prefix(installationID).allSatisfy(\.isBase64URL) else { return false }
        let rest = text.utf8.dropFirst(installationID)
        guard let colon = rest.first else { return text.utf8.count == installationID }
        return colon == UInt8(ascii: ":") && rest.count > 8 && rest.dropFirst().allSatisfy(\.isBase64URL)
    }

    /// The text that both forms of an Android phone's address have in common: the installation id, with which a
    /// registration token begins (Firebase, "Manage FCM registration tokens"). Other tokens stay as they are.
    package static func installation(of text: String) -> String {
        isFirebase(text) ? String(text.prefix(installationID)) : text
    }

    package static let firebaseRule =
        "must be a Firebase installation id of \(installationID) characters, or a registration token of at most "
        + "\(longestFirebase)"

    /// The bytes of Apple's token. `nil` for Google's.
    package var bytes: [UInt8]? { if case .binary(let bytes) = self { bytes } else { nil } }
    package var isFirebase: Bool { bytes == nil }

    /// Apple's tokens in lower-case hexadecimal digits, Google's as they are. Tokens are stored and shown in this form.
    package var description: String {
        switch self {
        case .binary(let bytes): Hex.text(bytes)
        case .firebase(let text): text
        }
    }

    /// The first eight characters. They are enough to tell devices apart in the log, but not enough to push to one.
    package var shortened: String {
        switch self {
        case .binary(let bytes): Hex.text(Array(bytes.prefix(4))) + "…"
        case .firebase(let text): text.prefix(8) + "…"
        }
    }
}

extension UInt8 {
    fileprivate var isBase64URL: Bool {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "-"), UInt8(ascii: "_"):
            true
        default: false
        }
    }
}
