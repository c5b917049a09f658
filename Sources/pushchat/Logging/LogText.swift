/// Text that comes from outside, made safe for one line of a log or a terminal.
enum LogText {
    /// How a text stands in a line.
    enum Form {
        /// Control characters and line separators, which could forge lines or control a terminal, and marks that change
        /// the direction of writing, as escapes: `\n`, `\t`, `\r`, `\u{1b}`.
        case plain
        /// In quotation marks, with `"` and `\` escaped as well.
        case quoted
        /// A JSON string (RFC 8259 §7), with everything escaped that is in ``plain``, which JSON alone would not ask for.
        case json
    }

    /// What is written instead of the rest of a text that is cut.
    private static let ellipsis = "…"

    /// Escaped, and cut where it would have more than `limit` bytes; then `…` follows.
    static func cut(_ text: String, limit: Int) -> String {
        string(text, as: .plain, limit: limit)
    }

    /// Cut in the same way; the quotation marks do not count.
    static func quoted(_ text: String, limit: Int) -> String {
        string(text, as: .quoted, limit: limit)
    }

    private static func string(_ text: String, as form: Form, limit: Int) -> String {
        var line: [UInt8] = []
        append(text, as: form, limit: limit, to: &line)
        return String(decoding: line, as: UTF8.self)
    }

    /// Adds the text to a line, cut where it would have more than `limit` bytes; then `…` follows.
    static func append(_ text: String, as form: Form, limit: Int, to line: inout [UInt8]) {
        if form != .plain { line.append(UInt8(ascii: "\"")) }
        if !appendAsItIs(text, as: form, limit: limit, to: &line) {
            appendEscaped(text, as: form, limit: limit, to: &line)
        }
        if form != .plain { line.append(UInt8(ascii: "\"")) }
    }

    /// Adds the text if it is printable ASCII without anything to escape, as nearly always; a fast test.
    private static func appendAsItIs(_ text: String, as form: Form, limit: Int, to line: inout [UInt8]) -> Bool {
        text.withBytes { bytes in
            guard bytes.count <= limit else { return false }
            // Without an exit from the loop, so that the compiler can test many bytes at once.
            var isSafe = true
            for byte in bytes { isSafe = isSafe && isPrintable(byte) }
            if form != .plain {
                for byte in bytes { isSafe = isSafe && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\") }
            }
            if isSafe { line.append(contentsOf: bytes) }
            return isSafe
        }
    }

    private static func appendEscaped(_ text: String, as form: Form, limit: Int, to line: inout [UInt8]) {
        var size = 0
        for scalar in text.unicodeScalars {
            let escape = escape(scalar, as: form)
            size += escape?.utf8.count ?? UTF8.width(scalar)
            guard size <= limit else {
                line.append(contentsOf: ellipsis.utf8)
                return
            }
            if let escape {
                line.append(contentsOf: escape.utf8)
            } else if let bytes = UTF8.encode(scalar) {
                line.append(contentsOf: bytes)
            }
        }
    }

    /// Nil for what stays as it is.
    private static func escape(_ scalar: Unicode.Scalar, as form: Form) -> String? {
        switch scalar {
        case "\"" where form != .plain: return #"\""#
        case "\\" where form != .plain: return #"\\"#
        case "\n": return #"\n"#
        case "\r": return #"\r"#
        case "\t": return #"\t"#
        case _ where isUnsafe(scalar):
            let digits = String(scalar.value, radix: 16)
            return form == .json ? "\\u" + String(repeating: "0", count: 4 - digits.count) + digits : "\\u{\(digits)}"
        default: return nil
        }
    }

    /// Whether it needs no quotation marks in a line.
    static func isWord(_ text: String) -> Bool {
        text.withBytes { bytes in
            var isPlain = !bytes.isEmpty
            var isASCII = true
            for byte in bytes {
                isPlain =
                    isPlain && byte != UInt8(ascii: " ") && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
                    && byte != UInt8(ascii: "=")
                isASCII = isASCII && isPrintable(byte)
            }
            guard isPlain, !isASCII else { return isPlain }
            return !text.unicodeScalars.contains { $0.properties.isWhitespace || isUnsafe($0) }
        }
    }

    private static func isPrintable(_ byte: UInt8) -> Bool {
        byte >= 0x20 && byte < 0x7F
    }

    static func isUnsafe(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0..<0x20, 0x7F...0x9F: true
        case 0x2028, 0x2029: true
        case 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: true
        default: false
        }
    }
}

extension String {
    /// The UTF-8 of the text, copied only where it is not stored as that.
    fileprivate func withBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        if let result = utf8.withContiguousStorageIfAvailable(body) { return result }
        var copy = self
        return copy.withUTF8(body)
    }
}
