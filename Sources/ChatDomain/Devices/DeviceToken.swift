/// The address of a device at its push service.
package enum DeviceToken: Sendable, Hashable, CustomStringConvertible {
    /// Opaque bytes that the app received from iOS. For a browser, the SHA-256 of its endpoint.
    case binary([UInt8])
    /// A text, which is kept unchanged.
    case text(String, TokenKind)

    /// The number of bytes. Apple's tokens have 32 today, and Apple asks not to assume a size. A shorter one is a
    /// truncated token.
    package static let sizes = 32...100

    package init?(bytes: [UInt8]) {
        guard Self.sizes.contains(bytes.count) else { return nil }
        self = .binary(bytes)
    }

    /// Reads the text of a token of any kind.
    ///
    /// Apple's tokens may have any form that Apple's documents and tutorials print: hexadecimal digits of either case,
    /// with or without blanks and `<…>`. The form of `NSData.description` since iOS 13 (`{length = 32, bytes = 0x…}`) is
    /// rejected. It is abbreviated, so the token cannot be recovered from it.
    package init(parsing text: String, field: String = "token") throws(ChatError) {
        let text = FieldText.trimmed(text)
        if let kind = TokenKind(ofText: text) {
            self = .text(text, kind)
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
            // Only registration tokens have a colon.
            guard !digits.contains(UInt8(ascii: ":")) else { throw .invalid(field, TokenKind.installation.rule) }
            throw .invalid(field, "must be an even number of hexadecimal digits")
        }
        guard let token = DeviceToken(bytes: bytes) else {
            let digits = (Self.sizes.lowerBound * 2, Self.sizes.upperBound * 2)
            throw .invalid(field, "must have \(digits.0) to \(digits.1) hexadecimal digits, has \(packed.count)")
        }
        self = token
    }

    /// The text that all tokens of one phone have in common: the installation id, with which a registration token begins.
    /// Other tokens stay as they are.
    package static func installation(of text: String) -> String {
        TokenKind(ofText: text) == .installation ? String(text.prefix(TokenKind.installationID)) : text
    }

    /// `nil` for a token that is a text.
    package var bytes: [UInt8]? { if case .binary(let bytes) = self { bytes } else { nil } }
    package var kind: TokenKind { if case .text(_, let kind) = self { kind } else { .bytes } }

    /// Bytes in lower-case hexadecimal digits, texts unchanged. Tokens are stored and shown in this form.
    package var description: String {
        switch self {
        case .binary(let bytes): Hex.text(bytes)
        case .text(let text, _): text
        }
    }

    /// The first eight characters. They are enough to tell devices apart in the log, but not enough to push to one.
    package var shortened: String {
        switch self {
        case .binary(let bytes): Hex.text(Array(bytes.prefix(4))) + "…"
        case .text(let text, _): text.prefix(8) + "…"
        }
    }
}
