/// Text that comes from outside, made safe for one line of a log or a terminal.
enum LogText {
    /// Control characters and line separators, which could forge lines or steer a terminal, and marks that turn the
    /// direction of writing, as escapes: `\n`, `\t`, `\r`, `\u{1b}`.
    static func escaped(_ text: String) -> String {
        cut(text, limit: .max)
    }

    /// Escaped, and cut where it would have more than `limit` bytes; then `…` follows.
    static func cut(_ text: String, limit: Int) -> String {
        guard text.utf8.count > limit || text.unicodeScalars.contains(where: isUnsafe) else { return text }
        return replacing(text, limit: limit, with: escape)
    }

    /// In quotation marks, with `"` and `\` escaped as well, and cut in the same way.
    static func quoted(_ text: String, limit: Int) -> String {
        let inner = replacing(text, limit: limit) { scalar in
            scalar == "\"" || scalar == "\\" ? "\\\(scalar)" : escape(scalar)
        }
        return "\"\(inner)\""
    }

    /// A JSON string (RFC 8259 §7), cut in the same way.
    static func json(_ text: String, limit: Int) -> String {
        if isPrintableASCII(text, limit: limit) { return "\"\(text)\"" }
        let inner = replacing(text, limit: limit) { scalar in
            switch scalar {
            case "\"", "\\": return "\\\(scalar)"
            case "\n", "\r", "\t": return escape(scalar)
            case _ where isUnsafe(scalar):
                let digits = String(scalar.value, radix: 16)
                return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: return nil
            }
        }
        return "\"\(inner)\""
    }

    /// And neither a quotation mark nor a backslash, within the limit: the usual case, and quickly told.
    private static func isPrintableASCII(_ text: String, limit: Int) -> Bool {
        text.utf8.count <= limit
            && text.utf8.allSatisfy {
                (0x20..<0x7F).contains($0) && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\")
            }
    }

    static func isUnsafe(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0..<0x20, 0x7F...0x9F: true
        case 0x2028, 0x2029: true
        case 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: true
        default: false
        }
    }

    private static func escape(_ scalar: Unicode.Scalar) -> String? {
        switch scalar {
        case "\n": #"\n"#
        case "\r": #"\r"#
        case "\t": #"\t"#
        case _ where isUnsafe(scalar): "\\u{\(String(scalar.value, radix: 16))}"
        default: nil
        }
    }

    /// - Parameter escape: nil for what stays as it is.
    private static func replacing(
        _ text: String, limit: Int, with escape: (Unicode.Scalar) -> String?
    ) -> String {
        var safe = ""
        var size = 0
        for scalar in text.unicodeScalars {
            let escape = escape(scalar)
            size += escape?.utf8.count ?? UTF8.width(scalar)
            guard size <= limit else { return safe + "…" }
            if let escape {
                safe += escape
            } else {
                safe.unicodeScalars.append(scalar)
            }
        }
        return safe
    }
}
