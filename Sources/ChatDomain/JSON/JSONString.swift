/// Converts text into the content of a JSON string (RFC 8259 §7).
package enum JSONString {
    package static func escapedSize(_ text: String) -> Int {
        isPlain(text) ? text.utf8.count : escapedSize(text.unicodeScalars)
    }

    /// Whether the text needs no escapes. Most texts need none and are copied unchanged.
    private static func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy(isPlain) }

    /// Whether a JSON string may contain the byte without an escape.
    @inline(__always)
    static func isPlain(_ byte: UInt8) -> Bool {
        byte >= 0x20 && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
    }

    package static func escapedSize(_ scalars: some Sequence<Unicode.Scalar>) -> Int {
        scalars.reduce(0) { $0 + escapedSize($1) }
    }

    package static func escapedSize(_ scalar: Unicode.Scalar) -> Int {
        switch scalar.value {
        case 0x22, 0x5C, 0x08, 0x09, 0x0A, 0x0C, 0x0D: 2
        case 0..<0x20: 6
        default: UTF8.width(scalar)
        }
    }

    package static func escape(_ text: String, into document: inout String) {
        if isPlain(text) {
            document += text
        } else {
            var bytes: [UInt8] = []
            escape(text, into: &bytes)
            document += String(decoding: bytes, as: UTF8.self)
        }
    }

    package static func escape(_ text: String, into document: inout [UInt8]) {
        if isPlain(text) {
            document += text.utf8
            return
        }
        for byte in text.utf8 {
            if isPlain(byte) {
                document.append(byte)
            } else {
                document += escaped(byte).utf8
            }
        }
    }

    /// Returns the shortest escape of a character that a string must not contain (RFC 8259 §7). `/` and characters
    /// outside ASCII need no escape.
    private static func escaped(_ byte: UInt8) -> String {
        switch byte {
        case 0x22: #"\""#
        case 0x5C: #"\\"#
        case 0x08: #"\b"#
        case 0x09: #"\t"#
        case 0x0A: #"\n"#
        case 0x0C: #"\f"#
        case 0x0D: #"\r"#
        // A control character below 32.
        default: "\\u" + Hex.text([0, byte])
        }
    }

    /// Returns the longest prefix whose escaped form has no more bytes than `budget`. It ends after a whole character,
    /// or, if not even one character fits, after a whole scalar.
    package static func prefix(of text: String, within budget: Int) -> String {
        var used = 0
        var end = text.startIndex
        for index in text.indices {
            let size = escapedSize(text[index].unicodeScalars)
            if used + size > budget { break }
            used += size
            end = text.index(after: index)
        }
        if end > text.startIndex || text.isEmpty { return String(text[..<end]) }
        let scalars = text.unicodeScalars
        for index in scalars.indices {
            let size = escapedSize(scalars[index])
            if used + size > budget { break }
            used += size
            end = scalars.index(after: index)
        }
        return String(scalars[..<end])
    }
}
