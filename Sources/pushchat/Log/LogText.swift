import ChatDomain

/// Makes text from outside safe for one line of a log or a terminal.
enum LogText {
    /// The form of a text in a line.
    enum Form {
        /// Escapes characters as `\n`, `\t`, `\r`, `\u{1b}`: control characters and line separators, which could forge
        /// lines or control a terminal, and marks that change the direction of writing.
        case plain
        /// Encloses the text in quotation marks, and also escapes `"` and `\`.
        case quoted
        /// A JSON string (RFC 8259 §7). Also escapes all characters that ``plain`` escapes, although JSON does not
        /// require it.
        case json
    }

    /// Replaces the rest of a text that is cut.
    private static let ellipsis = "…"

    /// Returns the escaped text. If it is longer than `limit` bytes, it is cut and ends with `…`.
    static func cut(_ text: String, limit: Int) -> String {
        string(text, as: .plain, limit: limit)
    }

    /// Returns the escaped text in quotation marks. It is cut as in ``cut(_:limit:)``, and the quotation marks do not
    /// count against the limit.
    static func quoted(_ text: String, limit: Int) -> String {
        string(text, as: .quoted, limit: limit)
    }

    private static func string(_ text: String, as form: Form, limit: Int) -> String {
        var line: [UInt8] = []
        append(text, as: form, limit: limit, to: &line)
        return String(decoding: line, as: UTF8.self)
    }

    /// Appends the escaped text. If it is longer than `limit` bytes, it is cut and ends with `…`.
    static func append(_ text: String, as form: Form, limit: Int, to line: inout [UInt8]) {
        if form != .plain { line.append(UInt8(ascii: "\"")) }
        if !appendAsItIs(text, as: form, limit: limit, to: &line) {
            appendEscaped(text, as: form, limit: limit, to: &line)
        }
        if form != .plain { line.append(UInt8(ascii: "\"")) }
    }

    /// Appends the text if it is printable ASCII without characters to escape, which is nearly always true. This test
    /// is fast.
    ///
    /// - Returns: Whether the text was appended.
    private static func appendAsItIs(_ text: String, as form: Form, limit: Int, to line: inout [UInt8]) -> Bool {
        text.withBytes { bytes in
            guard bytes.count <= limit else { return false }
            // The loop has no early exit, so that the compiler can test many bytes at once.
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

    /// The escape for a character. `nil` if the character needs none.
    private static func escape(_ scalar: Unicode.Scalar, as form: Form) -> String? {
        switch scalar {
        case "\"" where form != .plain: return #"\""#
        case "\\" where form != .plain: return #"\\"#
        case "\n": return #"\n"#
        case "\r": return #"\r"#
        case "\t": return #"\t"#
        case _ where scalar.isUnsafeInLine:
            let digits = String(scalar.value, radix: 16)
            return form == .json ? "\\u" + String(repeating: "0", count: 4 - digits.count) + digits : "\\u{\(digits)}"
        default: return nil
        }
    }

    /// Whether the text needs no quotation marks in a line.
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
            return !text.unicodeScalars.contains { $0.properties.isWhitespace || $0.isUnsafeInLine }
        }
    }

    private static func isPrintable(_ byte: UInt8) -> Bool {
        byte >= 0x20 && byte < 0x7F
    }
}

extension String {
    /// Calls `body` with the UTF-8 of the text. Copies the text only if it is not stored as UTF-8.
    fileprivate func withBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        if let result = utf8.withContiguousStorageIfAvailable(body) { return result }
        var copy = self
        return copy.withUTF8(body)
    }
}
