/// A JSON value that is written again as it was read: members keep their order and numbers their digits (RFC 8259).
package enum JSONValue: Sendable, Hashable {
    case null
    case bool(Bool)
    /// The text as it was read.
    case number(String)
    case string(String)
    case array([JSONValue])
    case object(JSONObject)

    package static func number(_ number: some BinaryInteger) -> JSONValue { .number(String(number)) }
    package static func texts(_ texts: [String]) -> JSONValue { .array(texts.map { .string($0) }) }

    /// The value of a whole number that fits, however it is written (`1`, `1.0`, `1e3`: JSON has one kind of number); nil for
    /// everything else.
    package var integer: Int64? {
        guard case .number(let digits) = self else { return nil }
        return Int64(digits) ?? Double(digits).flatMap { Int64(exactly: $0) }
    }

    package var text: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    package var object: JSONObject? {
        guard case .object(let object) = self else { return nil }
        return object
    }

    package var array: [JSONValue]? {
        guard case .array(let values) = self else { return nil }
        return values
    }

    /// What it is, for an error: `a string`.
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

/// The members of a JSON object, in order, no name twice.
package struct JSONObject: Sendable, Hashable, ExpressibleByDictionaryLiteral {
    package private(set) var members: [(name: String, value: JSONValue)] = []

    package init() {}

    /// Of members with the same name the last stands.
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

    /// Lengths are compared first: texts are compared by their normal forms, which costs the square of the length where combining
    /// marks follow each other, and a member's name may be as long as its document.
    private func index(of name: String) -> Int? {
        members.firstIndex { $0.name.utf8.count == name.utf8.count && $0.name == name }
    }

    /// For a reader that has seen to it that the name is new.
    package mutating func append(_ name: String, _ value: JSONValue) {
        members.append((name, value))
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
