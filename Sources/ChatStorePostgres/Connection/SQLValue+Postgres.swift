import ChatDomain
import ChatSQL

/// A parameter is sent as text. The statement casts it where the server cannot infer its type: `$1::bigint`.
extension SQLValue {
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
