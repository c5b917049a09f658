extension JSONValue {
    /// The maximum depth of nested objects and arrays. No payload needs more, and it is far below the depth that would
    /// exhaust a stack.
    package static let maxDepth = 32

    /// The reason why a text is not JSON, and the number of the byte, from 1.
    package struct Malformed: Error, Sendable, Hashable, CustomStringConvertible {
        package let problem: String
        package let byte: Int

        package var description: String { "\(problem) at byte \(byte)" }
    }

    /// Reads one value with nothing after it. As strict as the gateways: duplicate names in an object, lone surrogates
    /// and invalid UTF-8 are errors.
    ///
    /// - Parameter isLenient: Whether to read careless JSON as servers written in Go do. U+FFFD replaces lone surrogates
    ///   and invalid UTF-8. The last of several members with one name counts. A byte order mark, and text after the
    ///   value, are ignored.
    package init(parsing bytes: some Collection<UInt8>, isLenient: Bool = false) throws(Malformed) {
        var reader = JSONReader(bytes, isLenient: isLenient)
        self = try reader.document()
    }

    package init(parsing text: String) throws(Malformed) {
        try self.init(parsing: Array(text.utf8))
    }
}

/// The names of an object's members. They are compared as bytes, because comparing texts uses their normal forms, which
/// is costly (see ``JSONObject``).
private struct MemberNames {
    /// Comparing a name with a few others is faster than hashing it.
    private static let few = 8
    private var indices: [[UInt8]: Int] = [:]

    /// Returns the index of the member with the name. `nil` if the name is new: its member must be appended.
    mutating func insert(_ name: String, after members: [(name: String, value: JSONValue)]) -> Int? {
        guard members.count >= Self.few else {
            return members.firstIndex {
                $0.name.utf8.count == name.utf8.count && $0.name.utf8.elementsEqual(name.utf8)
            }
        }
        if indices.isEmpty {
            for (index, member) in members.enumerated() { indices[Array(member.name.utf8)] = index }
        }
        let key = Array(name.utf8)
        if let index = indices[key] { return index }
        indices[key] = members.count
        return nil
    }
}

private struct JSONReader {
    private typealias Malformed = JSONValue.Malformed

    /// U+FEFF in UTF-8, with which some programs begin a text.
    private static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

    private let bytes: [UInt8]
    private let isLenient: Bool
    private var position = 0

    init(_ bytes: some Collection<UInt8>, isLenient: Bool) {
        self.bytes = Array(bytes)
        self.isLenient = isLenient
    }

    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private func malformed(_ problem: String, at offset: Int? = nil) -> Malformed {
        Malformed(problem: problem, byte: (offset ?? position) + 1)
    }

    mutating func document() throws(JSONValue.Malformed) -> JSONValue {
        if bytes.starts(with: Self.byteOrderMark) {
            // RFC 8259 §8.1
            guard isLenient else { throw malformed("a byte order mark, which JSON must not have,") }
            position = Self.byteOrderMark.count
        }
        skipBlanks()
        let value = try value(depth: 0)
        skipBlanks()
        guard next == nil || isLenient else { throw malformed("unexpected text after the value") }
        return value
    }

    private mutating func skipBlanks() {
        while let byte = next, byte == 0x20 || (0x09...0x0A).contains(byte) || byte == 0x0D { position += 1 }
    }

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard next == UInt8(ascii: character) else { return false }
        position += 1
        return true
    }

    private mutating func value(depth: Int) throws(JSONValue.Malformed) -> JSONValue {
        switch next {
        case UInt8(ascii: "{"): return .object(try object(depth: depth + 1))
        case UInt8(ascii: "["): return .array(try array(depth: depth + 1))
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "-"), .some(UInt8(ascii: "0")...UInt8(ascii: "9")): return .number(try number())
        case UInt8(ascii: "t"): return try literal("true", .bool(true))
        case UInt8(ascii: "f"): return try literal("false", .bool(false))
        case UInt8(ascii: "n"): return try literal("null", .null)
        case nil: throw malformed("the text ends where a value is expected")
        default: throw malformed("expected a value")
        }
    }

    private mutating func literal(_ word: String, _ value: JSONValue) throws(JSONValue.Malformed) -> JSONValue {
        guard bytes[position...].starts(with: word.utf8) else { throw malformed("expected a value") }
        position += word.utf8.count
        return value
    }

    private mutating func object(depth: Int) throws(JSONValue.Malformed) -> JSONObject {
        var object = JSONObject()
        var names = MemberNames()
        try list("object", until: "}", depth: depth) { reader throws(JSONValue.Malformed) in
            let start = reader.position
            guard reader.next == UInt8(ascii: "\"") else {
                throw reader.malformed("expected a member's name in quotes")
            }
            let name = try reader.string()
            let known = names.insert(name, after: object.members)
            guard known == nil || reader.isLenient else { throw reader.malformed("duplicate member name", at: start) }
            reader.skipBlanks()
            guard reader.take(":") else { throw reader.malformed("expected a colon") }
            reader.skipBlanks()
            let value = try reader.value(depth: depth)
            if let known { object.replace(at: known, with: value) } else { object.append(name, value) }
        }
        return object
    }

    private mutating func array(depth: Int) throws(JSONValue.Malformed) -> [JSONValue] {
        var values: [JSONValue] = []
        try list("array", until: "]", depth: depth) { reader throws(JSONValue.Malformed) in
            values.append(try reader.value(depth: depth))
        }
        return values
    }

    /// Reads items between brackets, separated by commas.
    private mutating func list(
        _ kind: String, until end: Unicode.Scalar, depth: Int,
        _ item: (inout JSONReader) throws(JSONValue.Malformed) -> Void
    ) throws(JSONValue.Malformed) {
        guard depth <= JSONValue.maxDepth else { throw malformed("nested deeper than \(JSONValue.maxDepth)") }
        position += 1
        skipBlanks()
        if take(end) { return }
        while true {
            skipBlanks()
            try item(&self)
            skipBlanks()
            if take(end) { return }
            guard take(",") else { throw malformed("expected a comma or the end of the \(kind)") }
        }
    }

    /// Reads a number as in RFC 8259 §6: no leading zeros, and digits on both sides of a point.
    private mutating func number() throws(JSONValue.Malformed) -> String {
        let start = position
        _ = take("-")
        if !take("0") { try digits() }
        if take(".") { try digits() }
        if take("e") || take("E") {
            if !take("+") { _ = take("-") }
            try digits()
        }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    private mutating func digits() throws(JSONValue.Malformed) {
        let start = position
        while let byte = next, byte.isASCIIDigit { position += 1 }
        guard position > start else { throw malformed("expected a digit") }
    }

    private mutating func string() throws(JSONValue.Malformed) -> String {
        let start = position
        position += 1
        while let byte = next, JSONString.isPlain(byte) { position += 1 }
        // Most strings end here, without an escape.
        var text = bytes[start + 1..<position]
        while let byte = next {
            position += 1
            switch byte {
            case UInt8(ascii: "\""):
                if let string = String(validating: text, as: UTF8.self) { return string }
                guard isLenient else { throw malformed("a string is not UTF-8", at: start) }
                return String(decoding: text, as: UTF8.self)
            case UInt8(ascii: "\\"): text.append(contentsOf: try escape())
            case 0..<0x20: throw malformed("unescaped control character in a string", at: position - 1)
            default: text.append(byte)
            }
        }
        throw malformed("a string does not end", at: start)
    }

    private mutating func escape() throws(JSONValue.Malformed) -> [UInt8] {
        let start = position - 1
        guard let byte = next else { throw malformed("a string does not end", at: start) }
        position += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return [byte]
        case UInt8(ascii: "b"): return [0x08]
        case UInt8(ascii: "f"): return [0x0C]
        case UInt8(ascii: "n"): return [0x0A]
        case UInt8(ascii: "r"): return [0x0D]
        case UInt8(ascii: "t"): return [0x09]
        case UInt8(ascii: "u"):
            var code = UInt32(try unit(start))
            let end = position
            if (0xD800..<0xDC00).contains(code), take("\\"), take("u") {
                let low = UInt32(try unit(start))
                if (0xDC00..<0xE000).contains(low) { code = 0x10000 + (code - 0xD800) << 10 + (low - 0xDC00) }
            }
            if let scalar = Unicode.Scalar(code) { return Array(String(Character(scalar)).utf8) }
            guard isLenient else { throw malformed("half of a surrogate pair", at: start) }
            // The escape that follows is another character.
            position = end
            return Array("\u{FFFD}".utf8)
        default: throw malformed("unknown escape", at: start)
        }
    }

    private mutating func unit(_ start: Int) throws(JSONValue.Malformed) -> UInt16 {
        guard position + 4 <= bytes.count, let pair = Hex.bytes(Array(bytes[position..<position + 4])) else {
            throw malformed("expected four hexadecimal digits after \\u", at: start)
        }
        position += 4
        return UInt16(pair[0]) << 8 | UInt16(pair[1])
    }
}
