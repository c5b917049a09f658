import Foundation

/// A value of JSON, with the types that the API's fields distinguish.
enum FCMValue: Sendable, Hashable, Decodable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([FCMValue])
    case object([String: FCMValue])

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode([FCMValue].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: FCMValue].self))
        }
    }

    var string: String? { if case .string(let value) = self { value } else { nil } }
    var object: [String: FCMValue]? { if case .object(let value) = self { value } else { nil } }

    /// The value as Google's errors show it.
    var shown: String {
        switch self {
        case .null: "null"
        case .bool(let value): "\(value)"
        case .integer(let value): "\(value)"
        case .number(let value): "\(value)"
        case .string(let value): "\"\(value.prefix(100))\""
        case .array: "an array"
        case .object: "an object"
        }
    }
}

/// The form of a field of the API, as in Google's discovery document `fcm` `v1`, revision 20261023.
indirect enum FCMForm: Sendable {
    case string, bool, int32, anyObject, timestamp, color
    /// A number in the range.
    case number(ClosedRange<Double>)
    /// A time such as `3.5s`.
    case duration
    /// One of the names. Google's guides write some in lower case, so the case does not count.
    case choice([String])
    /// Names and texts.
    case texts
    case list(FCMForm)
    case object([String: FCMForm])

    /// Google's name of the type in error messages.
    private var typeName: String {
        switch self {
        case .string, .color: "TYPE_STRING"
        case .bool: "TYPE_BOOL"
        case .int32: "TYPE_INT32"
        case .number: "TYPE_FLOAT"
        case .duration: "type.googleapis.com/google.protobuf.Duration"
        case .timestamp: "type.googleapis.com/google.protobuf.Timestamp"
        case .choice: "TYPE_ENUM"
        case .texts, .anyObject, .object: "TYPE_MESSAGE"
        case .list(let form): form.typeName
        }
    }

    /// Returns the value with snake case names in all of the API's own objects. Names may also be in camel case.
    ///
    /// - Parameters:
    ///   - path: The field's path. Empty for the whole body.
    ///   - violations: Gets an entry for each field with a wrong name or value.
    func checked(_ value: FCMValue, at path: String, _ violations: inout [FCMRefusal.Violation]) -> FCMValue {
        func wrong() -> FCMValue {
            violations.append(
                .init(field: path, description: "Invalid value at '\(path)' (\(typeName)), \(value.shown)"))
            return .null
        }
        switch (self, value) {
        // JSON's null is the same as no value.
        case (_, .null), (.string, .string), (.bool, .bool), (.anyObject, .object): return value
        case (.int32, .integer(let number)): return Int32(exactly: number) == nil ? wrong() : value
        case (.number(let range), .integer(let number)): return range.contains(Double(number)) ? value : wrong()
        case (.number(let range), .number(let number)): return range.contains(number) ? value : wrong()
        case (.duration, .string(let text)): return FCMDuration(text) == nil ? wrong() : value
        case (.timestamp, .string(let text)): return Date(rfc3339: text) == nil ? wrong() : value
        case (.color, .string(let text)): return Self.isColor(text) ? value : wrong()
        case (.choice(let names), .string(let text)): return names.contains(text.uppercased()) ? value : wrong()
        case (.texts, .object(let members)):
            for (index, member) in members.sorted(by: { $0.key < $1.key }).enumerated() where member.value.string == nil
            {
                let field = "\(path)[\(index)].value"
                violations.append(
                    .init(field: field, description: "Invalid value at '\(field)' (TYPE_STRING), \(member.value.shown)")
                )
            }
            return value
        case (.list(let form), .array(let elements)):
            return .array(
                elements.enumerated().map { form.checked($1, at: "\(path)[\($0)]", &violations) })
        case (.object(let forms), .object(let members)):
            var checked: [String: FCMValue] = [:]
            for (name, member) in members.sorted(by: { $0.key < $1.key }) {
                let known = Self.snakeCase(name)
                guard let form = forms[known] else {
                    let place = path.isEmpty ? "" : " at '\(path)'"
                    violations.append(
                        .init(
                            field: path,
                            description: "Invalid JSON payload received. Unknown name \"\(name.prefix(100))\"\(place): "
                                + "Cannot find field."))
                    continue
                }
                let result = form.checked(member, at: path.isEmpty ? known : "\(path).\(known)", &violations)
                if result != .null { checked[known] = result }
            }
            return .object(checked)
        default: return wrong()
        }
    }

    private static func isColor(_ text: String) -> Bool {
        text.utf8.count == 7 && text.hasPrefix("#") && text.dropFirst().allSatisfy(\.isHexDigit)
    }

    /// Returns `validateOnly` as `validate_only`.
    private static func snakeCase(_ name: String) -> String {
        var result = ""
        for character in name {
            if character.isUppercase { result += "_" }
            result += character.lowercased()
        }
        return result
    }
}

/// A time in the form of Google's JSON: seconds with up to nine decimals, followed by `s`.
struct FCMDuration: Sendable, Hashable {
    /// Whole seconds, rounded down.
    let seconds: Int64

    /// The seconds that `google.protobuf.Duration` allows: 10,000 years in both directions.
    private static let limits: ClosedRange<Int64> = -315_576_000_000...315_576_000_000

    /// `nil` if the text has another form.
    init?(_ text: String) {
        guard text.hasSuffix("s") else { return nil }
        let parts = text.dropLast().split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
        let digits = { (part: Substring) in !part.isEmpty && part.utf8.allSatisfy { (0x30...0x39).contains($0) } }
        guard let whole = parts.first else { return nil }
        let isNegative = whole.hasPrefix("-")
        guard digits(isNegative ? whole.dropFirst() : whole), let seconds = Int64(whole),
            Self.limits.contains(seconds),
            parts.count == 1 || (digits(parts[1]) && parts[1].count <= 9)
        else { return nil }
        self.seconds = isNegative && parts.count == 2 ? seconds - 1 : seconds
    }
}
