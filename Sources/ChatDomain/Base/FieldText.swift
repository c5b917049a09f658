import Foundation

/// The rules for text fields: nicknames, secret codes, message texts and others.
package enum FieldText {
    /// Removes the characters that PHP's `trim` removes at both ends, as the tutorial's server did
    /// (`docs/compatibility.md`).
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

    /// Returns the text in composed form (NFC), so that `é` typed on two keyboards becomes the same bytes. If combining
    /// marks follow each other, the cost grows with the square of the length, so check the length first.
    package static func composed(_ text: String) -> String {
        text.utf8.allSatisfy { $0 < 128 } ? text : text.precomposedStringWithCanonicalMapping
    }

    /// The factor by which a text may exceed its limit in bytes before it is rejected without being composed. Composing
    /// leaves at least a third of a text's bytes, so such a text cannot fit, and composing it may cost the square of
    /// its length.
    private static let maxShrinkFactor = 4

    /// Trims, optionally composes, and checks a text. It must not be empty or have more than `limit` bytes of UTF-8. It
    /// must have no control characters: U+0000 to U+001F except the allowed ones, and U+007F to U+009F.
    static func checked(
        _ text: String, field: String, limit: Int, allowing allowed: Set<UInt8> = [], composing: Bool = false
    ) throws(ChatError) -> String {
        var text = trimmed(text)
        guard !text.isEmpty else { throw .invalid(field, "must not be empty") }
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
