import Foundation

/// A JSON object, written as a literal of its members. Members that are `nil` are left out, and times have the form of
/// RFC 3339.
struct JSONMembers: Encodable, ExpressibleByDictionaryLiteral {
    private struct Name: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    private let members: [(name: String, value: any Encodable)]

    init(dictionaryLiteral members: (String, (any Encodable)?)...) {
        self.members = members.compactMap { name, value in value.map { (name, $0) } }
    }

    init(_ members: some Sequence<(name: String, value: any Encodable)>) {
        self.members = Array(members)
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Name.self)
        for (name, value) in members {
            let name = Name(stringValue: name)
            if let time = value as? Date {
                try container.encode(time.rfc3339, forKey: name)
            } else {
                try container.encode(value, forKey: name)
            }
        }
    }
}

/// A type whose JSON is an object.
protocol JSONRecord: Encodable {
    var json: JSONMembers { get }
}

extension JSONRecord {
    func encode(to encoder: any Encoder) throws { try json.encode(to: encoder) }
}
