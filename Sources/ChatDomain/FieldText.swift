import Foundation

/// The rules that nickname, secret code and message text share.
package enum FieldText {
    /// What PHP's `trim` removes at both ends, and so did the original server (pushchat-api.md §1).
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

    /// Composed (NFC), so that `é` typed on two keyboards is the same bytes. Costs the square of the length where combining marks
    /// follow each other: for texts whose length was checked.
    package static func composed(_ text: String) -> String {
        text.utf8.allSatisfy { $0 < 128 } ? text : text.precomposedStringWithCanonicalMapping
    }

    /// Composing leaves at least a third of a text's bytes, so one that is more than four times as long as its limit cannot
    /// fit. It is not composed, which may cost the square of its length.
    private static let mostShrinking = 4

    /// Trims, composes if asked to, and checks: not empty, no more UTF-8 bytes than `limit`, no control characters (U+0000 to
    /// U+001F but those allowed, U+007F to U+009F).
    static func checked(
        _ text: String, field: String, limit: Int, allowing allowed: Set<UInt8> = [], composing: Bool = false
    ) throws(ChatError) -> String {
        var text = trimmed(text)
        guard !text.isEmpty else { throw .invalid(field, "must not be empty") }
        // What is longer cannot fit.
        if composing, text.utf8.count <= mostShrinking * limit { text = composed(text) }
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
