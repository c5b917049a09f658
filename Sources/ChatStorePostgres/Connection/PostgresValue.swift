import ChatDomain

/// A parameter of a statement. It is sent as text, and the statement casts it: `$1::bigint`, `at($2::bigint)`,
/// `$3::text[]`.
enum PostgresValue: Sendable, Hashable {
    case null
    case int(Int64)
    case text(String)
    case bytes([UInt8])
    case bool(Bool)
    case ints([Int64])
    case texts([String])
    case optionalInts([Int64?])
    case optionalTexts([String?])
    /// Milliseconds. The statement converts them with `at($1::bigint)`.
    case time(Timestamp)

    static func int(_ value: Int?) -> PostgresValue { value.map { .int(Int64($0)) } ?? .null }
    static func optional(_ value: Int64?) -> PostgresValue { value.map { .int($0) } ?? .null }
    static func optional(_ text: String?) -> PostgresValue { text.map { .text($0) } ?? .null }
    static func optional(_ time: Timestamp?) -> PostgresValue { time.map { .time($0) } ?? .null }

    /// The text in the server's format. `nil` for NULL.
    var sent: String? {
        switch self {
        case .null: return nil
        case .int(let number): return String(number)
        case .text(let text): return text
        case .bytes(let bytes): return "\\x" + Hex.text(bytes)
        case .bool(let value): return value ? "t" : "f"
        case .ints(let numbers): return "{" + numbers.lazy.map(String.init).joined(separator: ",") + "}"
        case .optionalInts(let numbers):
            return "{" + numbers.lazy.map { $0.map(String.init) ?? "NULL" }.joined(separator: ",") + "}"
        case .texts(let texts): return Self.array(texts)
        case .optionalTexts(let texts): return Self.array(texts)
        case .time(let time): return String(time.milliseconds)
        }
    }

    private static func array(_ texts: [String?]) -> String {
        var array = "{"
        for text in texts {
            if array.utf8.count > 1 { array += "," }
            guard let text else {
                array += "NULL"
                continue
            }
            array += "\""
            for unit in text.unicodeScalars {
                if unit == "\"" || unit == "\\" { array += "\\" }
                array.unicodeScalars.append(unit)
            }
            array += "\""
        }
        return array + "}"
    }
}

extension PostgresValue: ExpressibleByIntegerLiteral, ExpressibleByStringLiteral, ExpressibleByBooleanLiteral {
    init(integerLiteral value: Int64) { self = .int(value) }
    init(stringLiteral value: String) { self = .text(value) }
    init(booleanLiteral value: Bool) { self = .bool(value) }
}
