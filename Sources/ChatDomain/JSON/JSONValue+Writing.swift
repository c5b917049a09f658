extension JSONValue: CustomStringConvertible {
    /// The shortest text of the value: no blanks, only the escapes that must be.
    package var description: String {
        var text = ""
        write(to: &text)
        return text
    }

    /// For people: a member a line.
    package var indented: String {
        var text = ""
        write(to: &text, indent: 0)
        return text
    }

    package func write(to text: inout String) {
        switch self {
        case .null: text += "null"
        case .bool(let value): text += value ? "true" : "false"
        case .number(let digits): text += digits
        case .string(let string): Self.write(string, to: &text)
        case .array(let values):
            text += "["
            for (index, value) in values.enumerated() {
                if index > 0 { text += "," }
                value.write(to: &text)
            }
            text += "]"
        case .object(let object):
            text += "{"
            for (index, member) in object.members.enumerated() {
                if index > 0 { text += "," }
                Self.write(member.name, to: &text)
                text += ":"
                member.value.write(to: &text)
            }
            text += "}"
        }
    }

    private func write(to text: inout String, indent: Int) {
        let blanks = String(repeating: "  ", count: indent)
        switch self {
        case .array(let values) where !values.isEmpty:
            text += "["
            for (index, value) in values.enumerated() {
                text += (index > 0 ? ",\n" : "\n") + blanks + "  "
                value.write(to: &text, indent: indent + 1)
            }
            text += "\n" + blanks + "]"
        case .object(let object) where !object.isEmpty:
            text += "{"
            for (index, member) in object.members.enumerated() {
                text += (index > 0 ? ",\n" : "\n") + blanks + "  "
                Self.write(member.name, to: &text)
                text += ": "
                member.value.write(to: &text, indent: indent + 1)
            }
            text += "\n" + blanks + "}"
        default: write(to: &text)
        }
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
    /// RFC 3339, UTC.
    package static func optional(_ time: Timestamp?) -> JSONValue { .optional(time?.rfc3339) }
    package static func time(_ time: Timestamp) -> JSONValue { .string(time.rfc3339) }
}
