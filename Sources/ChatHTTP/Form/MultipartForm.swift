import ChatDomain

/// Parser for `multipart/form-data` (RFC 7578), with CR LF or LF as line ends. Ignores text before the first and after
/// the last boundary, and parts that are files.
struct MultipartForm {
    private static let lineFeed = UInt8(ascii: "\n")
    private static let carriageReturn = UInt8(ascii: "\r")
    private static let dash = UInt8(ascii: "-")

    private let body: [UInt8]
    /// `--` and the boundary.
    private let delimiter: [UInt8]
    private var form: FormFields

    static func parse(_ body: [UInt8], boundary: [UInt8], charset: Charset) throws(ChatError) -> FormFields {
        var parser = MultipartForm(
            body: body, delimiter: [dash, dash] + boundary, form: FormFields(body: body))
        try parser.parse(charset)
        return parser.form
    }

    private mutating func parse(_ charset: Charset) throws(ChatError) {
        guard var boundary = delimiterLine(from: 0) else {
            throw .malformed("The boundary of the Content-Type does not occur in the multipart body")
        }
        var count = 0
        while !boundary.isLast {
            count += 1
            guard count <= HTTPLimits.fields else {
                throw .malformed("The multipart body has more than \(HTTPLimits.fields) parts")
            }
            guard let next = delimiterLine(from: boundary.end) else {
                throw .malformed("The multipart body ends without its closing boundary")
            }
            // The line end before a boundary belongs to the boundary.
            var end = max(next.start - 1, boundary.end)
            if end > boundary.end, body[end - 1] == Self.carriageReturn { end -= 1 }
            try addPart(boundary.end..<end, charset)
            boundary = next
        }
    }

    private struct DelimiterLine {
        /// The position of the line's first dash.
        let start: Int
        /// The start of the next line.
        let end: Int
        let isLast: Bool
    }

    /// Returns the next delimiter line: the delimiter and optional white space, or a line that begins with the
    /// delimiter and `--`, which closes the body. `nil` if there is none.
    private func delimiterLine(from position: Int) -> DelimiterLine? {
        var lineStart = position
        while lineStart < body.count {
            if let line = delimiterLine(at: lineStart) { return line }
            guard let feed = body[lineStart...].firstIndex(of: Self.lineFeed) else { return nil }
            lineStart = feed + 1
        }
        return nil
    }

    private func delimiterLine(at start: Int) -> DelimiterLine? {
        var index = start + delimiter.count
        guard index <= body.count, body[start..<index].elementsEqual(delimiter) else { return nil }
        if index + 1 < body.count, body[index] == Self.dash, body[index + 1] == Self.dash {
            return DelimiterLine(start: start, end: body.count, isLast: true)
        }
        while index < body.count, body[index] == UInt8(ascii: " ") || body[index] == UInt8(ascii: "\t") { index += 1 }
        if index < body.count, body[index] == Self.carriageReturn { index += 1 }
        guard index < body.count, body[index] == Self.lineFeed else { return nil }
        return DelimiterLine(start: start, end: index + 1, isLast: false)
    }

    private mutating func addPart(_ part: Range<Int>, _ formCharset: Charset) throws(ChatError) {
        var charset = formCharset
        var name: String?
        var isFile = false
        var position = part.lowerBound
        var lines = 0
        while true {
            guard let feed = body[position..<part.upperBound].firstIndex(of: Self.lineFeed) else {
                // A part without a value may end right after its header.
                guard position == part.upperBound || isBlankLine(position..<part.upperBound) else {
                    throw .malformed("A part of the multipart body has no blank line after its header")
                }
                position = part.upperBound
                break
            }
            let line = position..<feed
            position = feed + 1
            if isBlankLine(line) { break }
            lines += 1
            guard lines <= HTTPLimits.partHeaders else {
                throw .malformed("A part of the multipart body has more than \(HTTPLimits.partHeaders) header lines")
            }
            // All relevant header text is ASCII. Comparing other text takes quadratic time.
            let text = String(decoding: body[line].map { $0 < 128 ? $0 : UInt8(ascii: "?") }, as: UTF8.self)
            guard let colon = text.unicodeScalars.firstIndex(of: ":") else {
                throw .malformed("A part of the multipart body has a header line without a colon")
            }
            var value = Substring(text.unicodeScalars[text.unicodeScalars.index(after: colon)...])
            if value.unicodeScalars.last == "\r" { value.unicodeScalars.removeLast() }
            switch HeaderText.trimmed(text[..<colon]).lowercased() {
            case "content-disposition":
                for (key, value) in HeaderText.parameterized(value).parameters {
                    if key == "name" { name = value }
                    if key == "filename" || key == "filename*" { isFile = true }
                }
            case "content-type":
                for (key, value) in HeaderText.parameterized(value).parameters where key == "charset" {
                    charset = try FormType.charset(value)
                }
            case "content-transfer-encoding":
                // RFC 7578 §4.7 deprecates this header. Values that change nothing are accepted.
                guard ["7bit", "8bit", "binary"].contains(HeaderText.trimmed(value).lowercased()) else {
                    throw .malformed("A part of the multipart body has a Content-Transfer-Encoding; send it as is")
                }
            default: break
            }
        }
        guard let name else {
            throw .malformed("A part of the multipart body has no name in its Content-Disposition")
        }
        guard name.utf8.count <= HTTPLimits.fieldName else {
            throw .malformed("A field name has more than \(HTTPLimits.fieldName) bytes")
        }
        guard !isFile else { return }
        form.set(
            FormField(key: name),
            FormFields.Value(range: position..<part.upperBound, charset: charset, isPercentEncoded: false))
    }

    private func isBlankLine(_ line: Range<Int>) -> Bool {
        line.isEmpty || (line.count == 1 && body[line.lowerBound] == Self.carriageReturn)
    }
}
