extension JSONValue: CustomStringConvertible {
    /// The shortest text of the value: no blanks, and only the required escapes.
    package var description: String {
        var text = ""
        write(to: &text, indent: nil)
        return text
    }

    /// The text for people, with one member per line.
    package var indented: String {
        var text = ""
        write(to: &text, indent: 0)
        return text
    }

    /// Writes the value.
    ///
    /// - Parameter indent: The depth of indentation. `nil` writes everything on one line.
    private func write(to text: inout String, indent: Int?) {
        switch self {
        case .null: text += "null"
        case .bool(let value): text += value ? "true" : "false"
        case .number(let digits): text += digits
        case .string(let string): Self.write(string, to: &text)
        case .array(let values):
            Self.write(values, between: "[", "]", to: &text, indent) { value, text, indent in
                value.write(to: &text, indent: indent)
            }
        case .object(let object):
            Self.write(object.members, between: "{", "}", to: &text, indent) { member, text, indent in
                Self.write(member.name, to: &text)
                text += indent == nil ? ":" : ": "
                member.value.write(to: &text, indent: indent)
            }
        }
    }

    private static func write<Item>(
        _ items: [Item], between start: String, _ end: String, to text: inout String, _ indent: Int?,
        _ write: (Item, inout String, _ indent: Int?) -> Void
    ) {
        let line = indent.map { "\n" + String(repeating: "  ", count: $0) } ?? ""
        text += start
        for (index, item) in items.enumerated() {
            if index > 0 { text += "," }
            if indent != nil { text += line + "  " }
            write(item, &text, indent.map { $0 + 1 })
        }
        if !items.isEmpty { text += line }
        text += end
    }

    private static func write(_ string: String, to text: inout String) {
        text += "\""
        JSONString.escape(string, into: &text)
        text += "\""
    }
}

extension JSONValue {
    package static func optional(_ text: String?) -> JSONValue { text.map { .string($0) } ?? .null }
    package static func optional(_ number: (some BinaryInteger)?) -> JSONValue { number.map { .number($0) } ?? .null }
    /// The time in RFC 3339, in UTC.
    package static func optional(_ time: Timestamp?) -> JSONValue { .optional(time?.rfc3339) }
    package static func time(_ time: Timestamp) -> JSONValue { .string(time.rfc3339) }
}
