extension JSONValue: CustomStringConvertible {
    /// The shortest text of the value: no blanks, and only the required escapes.
    package var description: String { String(decoding: utf8, as: UTF8.self) }

    /// The bytes of ``description``.
    package var utf8: [UInt8] {
        var text: [UInt8] = []
        write(to: &text, indent: nil)
        return text
    }

    /// The text for people, with one member per line.
    package var indented: String {
        var text: [UInt8] = []
        write(to: &text, indent: 0)
        return String(decoding: text, as: UTF8.self)
    }

    /// Writes the value.
    ///
    /// - Parameter indent: The depth of indentation. `nil` writes everything on one line.
    private func write(to text: inout [UInt8], indent: Int?) {
        switch self {
        case .null: text += "null".utf8
        case .bool(let value): text += (value ? "true" : "false").utf8
        case .number(let digits): text += digits.utf8
        case .string(let string): Self.write(string, to: &text)
        case .array(let values):
            Self.write(values, between: "[", "]", to: &text, indent) { value, text, indent in
                value.write(to: &text, indent: indent)
            }
        case .object(let object):
            Self.write(object.members, between: "{", "}", to: &text, indent) { member, text, indent in
                Self.write(member.name, to: &text)
                text.append(UInt8(ascii: ":"))
                if indent != nil { text.append(UInt8(ascii: " ")) }
                member.value.write(to: &text, indent: indent)
            }
        }
    }

    private static func write<Item>(
        _ items: [Item], between start: Unicode.Scalar, _ end: Unicode.Scalar, to text: inout [UInt8], _ indent: Int?,
        _ write: (Item, inout [UInt8], _ indent: Int?) -> Void
    ) {
        let line = indent.map { ("\n" + String(repeating: "  ", count: $0)).utf8 }
        text.append(UInt8(ascii: start))
        for (index, item) in items.enumerated() {
            if index > 0 { text.append(UInt8(ascii: ",")) }
            if let line {
                text += line
                text += "  ".utf8
            }
            write(item, &text, indent.map { $0 + 1 })
        }
        if let line, !items.isEmpty { text += line }
        text.append(UInt8(ascii: end))
    }

    private static func write(_ string: String, to text: inout [UInt8]) {
        text.append(UInt8(ascii: "\""))
        JSONString.escape(string, into: &text)
        text.append(UInt8(ascii: "\""))
    }
}

extension JSONValue {
    package static func optional(_ text: String?) -> JSONValue { text.map { .string($0) } ?? .null }
    package static func optional(_ number: (some BinaryInteger)?) -> JSONValue { number.map { .number($0) } ?? .null }
    /// The time in RFC 3339, in UTC.
    package static func optional(_ time: Timestamp?) -> JSONValue { .optional(time?.rfc3339) }
    package static func time(_ time: Timestamp) -> JSONValue { .string(time.rfc3339) }
}
