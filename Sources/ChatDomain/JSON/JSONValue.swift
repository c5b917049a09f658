/// A JSON value that is written exactly as it was read: members keep their order, and numbers keep their digits (RFC
/// 8259).
package enum JSONValue: Sendable, Hashable {
    case null
    case bool(Bool)
    /// The number's text as it was read.
    case number(String)
    case string(String)
    case array([JSONValue])
    case object(JSONObject)

    package static func number(_ number: some BinaryInteger) -> JSONValue { .number(String(number)) }
    package static func texts(_ texts: [String]) -> JSONValue { .array(texts.map { .string($0) }) }

    /// The value of a whole number that fits, in any notation (`1`, `1.0`, `1e3`: JSON has one kind of number). `nil`
    /// for any other value. Nothing is rounded.
    package var integer: Int64? {
        guard case .number(let text) = self else { return nil }
        return Int64(text) ?? Self.whole(text)
    }

    /// The value of a number, rounded. `nil` for any other value, and for a number that is too large.
    package var double: Double? {
        guard case .number(let text) = self, let number = Double(text), number.isFinite else { return nil }
        return number
    }

    private static func whole(_ text: String) -> Int64? {
        let parts = text.utf8.split(maxSplits: 1) { $0 | 0x20 == UInt8(ascii: "e") }
        guard let mantissa = parts.first?.split(separator: UInt8(ascii: ".")), let start = mantissa.first else {
            return nil
        }
        let sign = start.first == UInt8(ascii: "-") ? "-" : ""
        let all = mantissa.joined().drop { $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "0") }
        let zeros = all.reversed().prefix { $0 == UInt8(ascii: "0") }.count
        let digits = Array(all).dropLast(zeros)
        if digits.isEmpty { return 0 }
        // No number with more than 19 digits fits.
        guard digits.count <= 19, let exponent = parts.count == 1 ? 0 : Int(Substring(parts[1])) else { return nil }
        let fraction = mantissa.count == 1 ? 0 : mantissa[1].count
        let (missing, isTooLarge) = exponent.addingReportingOverflow(zeros - fraction)
        guard !isTooLarge, (0...19).contains(missing) else { return nil }
        return Int64(sign + String(decoding: digits, as: UTF8.self) + String(repeating: "0", count: missing))
    }

    package var text: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// The text of a string that is not empty. `nil` for any other value.
    package var nonEmptyText: String? { text.flatMap { $0.isEmpty ? nil : $0 } }

    package var object: JSONObject? {
        guard case .object(let object) = self else { return nil }
        return object
    }

    package var array: [JSONValue]? {
        guard case .array(let values) = self else { return nil }
        return values
    }

    /// The value with the members of all objects in the order of their names. For comparisons: writers may change the
    /// order of members.
    package var sorted: JSONValue {
        switch self {
        case .null, .bool, .number, .string: self
        case .array(let values): .array(values.map(\.sorted))
        case .object(let object): .object(object.sorted)
        }
    }

    /// The kind of value for an error message, for example `a string`.
    package var kind: String {
        switch self {
        case .null: "null"
        case .bool: "true or false"
        case .number: "a number"
        case .string: "a string"
        case .array: "an array"
        case .object: "an object"
        }
    }
}

/// The members of a JSON object, in order and with unique names.
package struct JSONObject: Sendable, Hashable, ExpressibleByDictionaryLiteral {
    package private(set) var members: [(name: String, value: JSONValue)] = []

    package init() {}

    /// If several members have the same name, the last value counts.
    package init(dictionaryLiteral elements: (String, JSONValue)...) {
        for (name, value) in elements { self[name] = value }
    }

    package var isEmpty: Bool { members.isEmpty }

    package subscript(name: String) -> JSONValue? {
        get { index(of: name).map { members[$0].value } }
        set {
            let index = index(of: name)
            switch (index, newValue) {
            case (let index?, let value?): members[index].value = value
            case (let index?, nil): members.remove(at: index)
            case (nil, let value?): members.append((name, value))
            case (nil, nil): break
            }
        }
    }

    /// Returns the index of a member. Compares lengths first. Comparing texts uses their normal forms, which costs the
    /// square of the length if combining marks follow each other. A member's name may be as long as its document.
    private func index(of name: String) -> Int? {
        members.firstIndex { $0.name.utf8.count == name.utf8.count && $0.name == name }
    }

    /// Appends a member. The caller has checked that its name is new.
    package mutating func append(_ name: String, _ value: JSONValue) {
        members.append((name, value))
    }

    mutating func replace(at index: Int, with value: JSONValue) {
        members[index].value = value
    }

    /// The members in the order of their names, and those of all objects in them.
    fileprivate var sorted: JSONObject {
        var sorted = JSONObject()
        sorted.members = members.map { ($0.name, $0.value.sorted) }.sorted { $0.name < $1.name }
        return sorted
    }

    package static func == (left: JSONObject, right: JSONObject) -> Bool {
        left.members.elementsEqual(right.members) { $0 == $1 }
    }

    package func hash(into hasher: inout Hasher) {
        for (name, value) in members {
            hasher.combine(name)
            hasher.combine(value)
        }
    }
}
