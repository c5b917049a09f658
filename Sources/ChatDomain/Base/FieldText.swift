import Foundation

/// The rules for text fields: nicknames, secret codes, message texts and others.
package enum FieldText {
    /// Removes the characters that PHP's `trim` removes at both ends, as the tutorial's server did
    /// (`docs/moving-in.md`).
    package static func trimmed(_ text: String) -> String {
        func isBlank(_ scalar: Unicode.Scalar) -> Bool {
            switch scalar {
            case " ", "\t", "\n", "\r", "\0", "\u{0B}": true
            default: false
            }
        }
        let scalars = text.unicodeScalars
        guard let first = scalars.firstIndex(where: { !isBlank($0) }),
            let last = scalars.lastIndex(where: { !isBlank($0) })
        else { return "" }
        return String(scalars[first...last])
    }

    /// Whether people see nothing of a character: a blank of any script, or one that fonts do not show.
    private static func isInvisible(_ scalar: Unicode.Scalar) -> Bool {
        // The pattern of Braille without dots looks like a blank.
        scalar.value == 0x2800 || scalar.properties.isDefaultIgnorableCodePoint
            || (scalar.properties.isWhitespace && scalar.value != 0x85)
    }

    /// Whether people see nothing of a text.
    package static func isBlank(_ text: String) -> Bool { text.unicodeScalars.allSatisfy(isInvisible) }

    /// Removes the characters at both ends of a text that people do not see. A joiner or a variation selector stays
    /// after a character whose form it may choose: an emoji, or a letter of a script such as Persian.
    package static func visible(_ text: String) -> String {
        let scalars = text.unicodeScalars
        guard let first = scalars.firstIndex(where: { !isInvisible($0) }),
            let last = scalars.lastIndex(where: { !isInvisible($0) })
        else { return "" }
        let end = scalars.index(after: last)
        let joiners = mayChooseForm(of: scalars[last]) ? scalars[end...].prefix(while: isJoiner) : scalars[end..<end]
        return String(scalars[first..<joiners.endIndex])
    }

    /// Whether a character may have several forms. Letters of Latin, Greek and Cyrillic do not.
    private static func mayChooseForm(of scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        // From Hebrew to the scripts of India and beyond; symbols, ideographs and emoji; © and ®.
        case 0x0590...0x1CFF, 0x2000..., 0xA9, 0xAE: true
        default: false
        }
    }

    /// Whether a character joins two others, or selects the form of the one before it. Flags of regions contain tags.
    private static func isJoiner(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x200C, 0x200D, 0x180B...0x180F, 0xFE00...0xFE0F, 0xE0020...0xE007F, 0xE0100...0xE01EF: true
        default: false
        }
    }

    /// Removes the characters that override or isolate the direction of writing, and the separators of lines and
    /// paragraphs. In a name, the former change the order of the text around it: the badge `program` becomes `margorp`.
    /// The latter let a name show a second line, which looks like another member's message.
    package static func withoutDirections(_ text: String) -> String {
        // Each of them begins with this byte.
        guard text.utf8.contains(0xE2) else { return text }
        return String(
            String.UnicodeScalarView(
                text.unicodeScalars.filter {
                    !(0x2028...0x202E).contains($0.value) && !(0x2066...0x2069).contains($0.value)
                }))
    }

    /// Returns the text in composed form (NFC), so that `é` typed on two keyboards becomes the same bytes. If combining
    /// marks follow each other, the cost grows with the square of the length, so check the length first.
    package static func composed(_ text: String) -> String {
        text.utf8.allSatisfy { $0 < 128 } ? text : text.precomposedStringWithCanonicalMapping
    }

    /// Fits a text of another program into the relay's rules: replaces control characters with spaces, and cuts a text
    /// that is too long. A shortened alarm is worth more than none.
    ///
    /// - Parameter keepsLines: Whether tabs and line breaks stay, as in a message's text.
    package static func fitting(_ text: String, limit: Int, keepsLines: Bool = true) -> String {
        let isWhole = text.utf8.count <= limit
        let kept = isWhole ? text[...] : characters(of: text, within: limit - "…".utf8.count)
        let scalars = kept.unicodeScalars.map { scalar -> Unicode.Scalar in
            let isLine = scalar == "\t" || scalar == "\n" || scalar == "\r"
            let isControl = scalar.value < 32 || (0x7F...0x9F).contains(scalar.value)
            return isControl && !(isLine && keepsLines) ? " " : scalar
        }
        return String(String.UnicodeScalarView(scalars)) + (isWhole ? "" : "…")
    }

    /// Returns the characters at the start of a longer text that have at most `size` bytes together. If not even one
    /// fits, returns the Unicode scalars of the first that fit.
    private static func characters(of text: String, within size: Int) -> Substring {
        // A slice ends after a whole scalar.
        let slice = text[..<text.utf8.index(text.startIndex, offsetBy: size)]
        // An index of the slice remembers the size of its character there, so make a new one for the whole text.
        let lastSize = slice.last?.utf8.count ?? 0
        let last = text.utf8.index(text.startIndex, offsetBy: slice.utf8.count - lastSize)
        return last > text.startIndex && text.index(after: last) > slice.endIndex ? text[..<last] : slice
    }

    /// The factor by which a text may exceed its limit in bytes before it is rejected without being composed. Composing
    /// leaves at least a third of a text's bytes, so such a text cannot fit, and composing it may cost the square of
    /// its length.
    private static let maxShrinkFactor = 4

    /// Trims, optionally composes, and checks a text. It must not be empty or have more than `limit` bytes of UTF-8. It
    /// must have no control characters: U+0000 to U+001F except the allowed ones, and U+007F to U+009F.
    ///
    /// - Parameter mayBeBlank: Whether a text of characters that people do not see is allowed.
    static func checked(
        _ text: String, field: String, limit: Int, allowing allowed: Set<UInt8> = [], composing: Bool = false,
        mayBeBlank: Bool = false
    ) throws(ChatError) -> String {
        var text = trimmed(text)
        guard !text.isEmpty, mayBeBlank || !isBlank(text) else { throw .invalid(field, "must not be empty") }
        // A longer text cannot fit.
        if composing, text.utf8.count <= maxShrinkFactor * limit { text = composed(text) }
        let size = text.utf8.count
        guard size <= limit else {
            throw .invalid(field, "must have at most \(limit) bytes of UTF-8, has \(size)")
        }
        let control = text.unicodeScalars.first { scalar in
            scalar.value < 32 ? !allowed.contains(UInt8(scalar.value)) : (0x7F...0x9F).contains(scalar.value)
        }
        if let control { throw .invalid(field, "must not contain the control character \(control.value)") }
        return text
    }
}
