/// The grammar that header values share: lists, parameters, quoted strings (RFC 9110 §5.6).
enum HeaderText {
    /// The pieces between separators that stand outside of quotes.
    static func split(_ text: Substring, at separator: Unicode.Scalar) -> [Substring] {
        let scalars = text.unicodeScalars
        var pieces: [Substring] = []
        var start = scalars.startIndex
        var index = start
        var isQuoted = false
        while index < scalars.endIndex {
            let scalar = scalars[index]
            if isQuoted, scalar == "\\" {
                scalars.formIndex(after: &index)
                if index == scalars.endIndex { break }
            } else if scalar == "\"" {
                isQuoted.toggle()
            } else if scalar == separator, !isQuoted {
                pieces.append(Substring(scalars[start..<index]))
                start = scalars.index(after: index)
            }
            scalars.formIndex(after: &index)
        }
        pieces.append(Substring(scalars[start...]))
        return pieces
    }

    /// A parameter's name in lower case, and its value without quotes. Nil if there is no `=`.
    static func pair(_ parameter: Substring) -> (name: String, value: String)? {
        guard let equals = parameter.firstIndex(of: "=") else { return nil }
        let value = trimmed(parameter[parameter.index(after: equals)...])
        return (trimmed(parameter[..<equals]).lowercased(), unquoted(value))
    }

    static func trimmed(_ text: Substring) -> Substring {
        var text = text
        while let first = text.unicodeScalars.first, first == " " || first == "\t" { text.unicodeScalars.removeFirst() }
        while let last = text.unicodeScalars.last, last == " " || last == "\t" { text.unicodeScalars.removeLast() }
        return text
    }

    private static func unquoted(_ value: Substring) -> String {
        guard value.unicodeScalars.first == "\"" else { return String(value) }
        var text = String.UnicodeScalarView()
        var isEscaped = false
        for scalar in value.unicodeScalars.dropFirst() {
            if isEscaped {
                isEscaped = false
            } else if scalar == "\\" {
                isEscaped = true
                continue
            } else if scalar == "\"" {
                break
            }
            text.append(scalar)
        }
        return String(text)
    }

    /// Whether `text` contains `word`, which is in lower-case ASCII, in any case.
    static func contains(_ text: String, _ word: StaticString) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            word.withUTF8Buffer { word in
                guard bytes.count >= word.count else { return false }
                return (0...(bytes.count - word.count)).contains { start in
                    word.indices.allSatisfy { offset in
                        let byte = bytes[start + offset]
                        let isUpper = (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte)
                        return (isUpper ? byte | 0x20 : byte) == word[offset]
                    }
                }
            }
        }
    }

    /// What may stand in a header and a log line: printable ASCII, everything else replaced, cut at `limit`.
    static func sanitized(_ text: some StringProtocol, limit: Int) -> String {
        String(
            decoding: text.unicodeScalars.prefix(limit).map {
                (0x20...0x7E).contains($0.value) ? UInt8($0.value) : UInt8(ascii: "?")
            }, as: UTF8.self)
    }
}
