import ChatDomain

/// Checks that a payload from another program is a JSON object (RFC 8259) in UTF-8, and finds out whether the push
/// shows something. Allocates nothing, unlike ``JSONValue``, because it runs for each push.
struct PayloadScan {
    /// Whether the payload only wakes the app: it has `content-available` and neither alert, badge nor sound (Apple,
    /// "Pushing background updates to your App").
    let isBackground: Bool
    /// Whether the payload has nothing but an alert without a text.
    let isEmptyAlert: Bool

    /// The maximum nesting of objects and arrays.
    private static let maxDepth = 512

    /// Fails if the payload is not a JSON object.
    init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = Reader(bytes: bytes)
        guard reader.document() else { return nil }
        isBackground = reader.wakes && !reader.shows
        isEmptyAlert = reader.hasEmptyAlert && reader.members == 2
    }

    /// The object whose members are being read.
    private enum Container {
        case top, aps, alert, other
    }

    /// Reads the document. Each function reads one element and returns whether it is well-formed.
    private struct Reader {
        let bytes: UnsafeRawBufferPointer
        var position = 0
        var wakes = false
        var shows = false
        var hasEmptyAlert = false
        /// The number of members of the document and of `aps`.
        var members = 0

        init(bytes: UnsafeRawBufferPointer) {
            self.bytes = bytes
        }

        private var next: UInt8 { position < bytes.count ? bytes[position] : 0 }

        mutating func document() -> Bool {
            skipBlanks()
            guard object(in: .top, depth: 1) else { return false }
            skipBlanks()
            return position == bytes.count
                && (bytes.allSatisfy { $0 < 0x80 } || String(validating: bytes, as: UTF8.self) != nil)
        }

        private static func isBlank(_ byte: UInt8) -> Bool {
            byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09
        }

        private mutating func skipBlanks() {
            while Self.isBlank(next) { position += 1 }
        }

        private mutating func take(_ character: Unicode.Scalar) -> Bool {
            guard next == UInt8(ascii: character) else { return false }
            position += 1
            return true
        }

        private mutating func value(in container: Container, depth: Int) -> Bool {
            switch next {
            case UInt8(ascii: "{"): object(in: container, depth: depth + 1)
            case UInt8(ascii: "["): array(depth: depth + 1)
            case UInt8(ascii: "\""): string()
            case UInt8(ascii: "t"): word("true")
            case UInt8(ascii: "f"): word("false")
            case UInt8(ascii: "n"): word("null")
            default: number()
            }
        }

        private mutating func object(in container: Container, depth: Int) -> Bool {
            guard depth <= PayloadScan.maxDepth, take("{") else { return false }
            skipBlanks()
            if take("}") { return true }
            repeat {
                skipBlanks()
                let start = position + 1
                guard string() else { return false }
                let name = UnsafeRawBufferPointer(rebasing: bytes[start..<position - 1])
                let inner = noteMember(name, in: container)
                skipBlanks()
                guard take(":") else { return false }
                skipBlanks()
                // An object is empty until one of its members has a text.
                if inner == .alert { hasEmptyAlert = nextIsEmpty || next == UInt8(ascii: "{") }
                if container == .alert, !nextIsEmpty, Self.isText(name) { hasEmptyAlert = false }
                guard value(in: inner, depth: depth) else { return false }
                skipBlanks()
            } while take(",")
            return take("}")
        }

        private static func isText(_ name: UnsafeRawBufferPointer) -> Bool {
            NotificationContent.texts.contains { name.elementsEqual($0.utf8) }
        }

        /// Records whether a member of `aps` shows something or wakes the app.
        /// - Returns: The kind of the member's value.
        private mutating func noteMember(_ name: UnsafeRawBufferPointer, in container: Container) -> Container {
            if container == .top || container == .aps { members += 1 }
            switch container {
            case .top: return name.elementsEqual("aps".utf8) ? .aps : .other
            case .aps:
                if name.elementsEqual("content-available".utf8) { wakes = true }
                if name.elementsEqual("alert".utf8) || name.elementsEqual("badge".utf8)
                    || name.elementsEqual("sound".utf8)
                {
                    shows = true
                }
                return name.elementsEqual("alert".utf8) ? .alert : .other
            case .alert, .other: return .other
            }
        }

        /// Whether the next value is an empty string, an empty object or null.
        private var nextIsEmpty: Bool {
            let rest = bytes[position...]
            guard next == UInt8(ascii: "{") else { return rest.starts(with: #""""#.utf8) || next == UInt8(ascii: "n") }
            return rest.dropFirst().first { !Self.isBlank($0) } == UInt8(ascii: "}")
        }

        private mutating func array(depth: Int) -> Bool {
            guard depth <= PayloadScan.maxDepth, take("[") else { return false }
            skipBlanks()
            if take("]") { return true }
            repeat {
                skipBlanks()
                guard value(in: .other, depth: depth) else { return false }
                skipBlanks()
            } while take(",")
            return take("]")
        }

        private mutating func word(_ word: StaticString) -> Bool {
            for index in 0..<word.utf8CodeUnitCount {
                guard next == word.utf8Start[index] else { return false }
                position += 1
            }
            return true
        }

        private mutating func number() -> Bool {
            _ = take("-")
            guard take("0") || digits() else { return false }
            if take("."), !digits() { return false }
            guard take("e") || take("E") else { return true }
            if !take("+") { _ = take("-") }
            return digits()
        }

        private mutating func digits() -> Bool {
            let start = position
            while (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(next) { position += 1 }
            return position > start
        }

        private mutating func string() -> Bool {
            guard take("\"") else { return false }
            while position < bytes.count {
                let byte = bytes[position]
                position += 1
                switch byte {
                case UInt8(ascii: "\""): return true
                case UInt8(ascii: "\\"): guard escape() else { return false }
                case 0..<0x20: return false
                default: break
                }
            }
            return false
        }

        private mutating func escape() -> Bool {
            guard take("u") else {
                position += 1
                return position <= bytes.count && "\"\\/bfnrt".utf8.contains(bytes[position - 1])
            }
            guard let code = codeUnit() else { return false }
            guard (0xD800..<0xE000).contains(code) else { return true }
            // The first half of a surrogate pair. The second half must follow.
            guard code < 0xDC00, take("\\"), take("u"), let low = codeUnit() else { return false }
            return (0xDC00..<0xE000).contains(low)
        }

        private mutating func codeUnit() -> UInt16? {
            guard position + 4 <= bytes.count,
                let pair = Hex.bytes(UnsafeRawBufferPointer(rebasing: bytes[position..<position + 4]))
            else { return nil }
            position += 4
            return UInt16(pair[0]) << 8 | UInt16(pair[1])
        }
    }
}
