import PushWire

/// A text to find in payloads, whatever the case of its letters. In JSON it is found also where the sender has escaped
/// it: `Caf\u00e9`.
struct PayloadSearch: Sendable, Hashable {
    /// The maximum size of a text in bytes. A search looks at the whole inbox.
    static let limit = 200

    private let wanted: [UInt8]

    /// Returns `nil` if the text is empty or too long.
    init?(_ text: some StringProtocol) {
        guard (1...Self.limit).contains(text.utf8.count) else { return nil }
        wanted = Array(text.lowercased().utf8)
    }

    func matches(_ payload: [UInt8]) -> Bool {
        let bytes = payload.contains(UInt8(ascii: "\\")) ? Self.unescaped(payload) : payload
        return Array(String(decoding: bytes, as: UTF8.self).lowercased().utf8).firstRange(of: wanted) != nil
    }

    /// Replaces the escapes of JSON strings by their characters (RFC 8259 §7).
    private static func unescaped(_ bytes: [UInt8]) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(bytes.count)
        /// Code units of consecutive `\u` escapes. Two of them may be one character.
        var units: [UInt16] = []
        var position = 0
        func flush() {
            if !units.isEmpty { result += Array(String(decoding: units, as: UTF16.self).utf8) }
            units = []
        }
        while position < bytes.count {
            let byte = bytes[position]
            position += 1
            guard byte == UInt8(ascii: "\\"), position < bytes.count else {
                flush()
                result.append(byte)
                continue
            }
            let kind = bytes[position]
            position += 1
            let digits = bytes[position...].prefix(4).compactMap(\.hexDigit)
            if kind == UInt8(ascii: "u"), digits.count == 4 {
                units.append(digits.reduce(0) { $0 << 4 | UInt16($1) })
                position += 4
                continue
            }
            flush()
            switch kind {
            case UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"): result.append(UInt8(ascii: " "))
            default: result.append(kind)
            }
        }
        flush()
        return result
    }
}
