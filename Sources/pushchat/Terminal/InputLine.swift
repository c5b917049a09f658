import ChatDomain

/// A line that was typed or read.
enum InputLine: Equatable, Sendable {
    case text(String)
    /// A line that cannot be used, and the reason.
    case unusable(String)
}

/// Splits bytes into lines, whatever pieces they arrive in.
struct LineSplitter {
    /// The length limit of a line in bytes. A longer line is discarded.
    static let maxLine = 64 * 1024

    private var line: [UInt8] = []
    private var isTooLong = false

    mutating func read(_ bytes: [UInt8]) -> [InputLine] {
        var lines: [InputLine] = []
        for byte in bytes {
            if byte == UInt8(ascii: "\n") {
                lines.append(take())
            } else if line.count >= Self.maxLine {
                isTooLong = true
            } else {
                line.append(byte)
            }
        }
        return lines
    }

    /// The text after the last line feed, at the end of the input.
    mutating func end() -> [InputLine] { line.isEmpty ? [] : [take()] }

    private mutating func take() -> InputLine {
        defer { (line, isTooLong) = ([], false) }
        if isTooLong { return .unusable("it has more than \(Self.maxLine) bytes") }
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        return String(validating: line, as: UTF8.self).map { .text($0) } ?? .unusable("it is not UTF-8")
    }
}

/// A line that is being typed on a terminal, key by key. A pure value without the terminal.
struct LineEditor {
    /// The text before the line.
    private static let prompt = "> "

    private enum Escape { case begun, inside }

    private var bytes: [UInt8] = []
    private var escape: Escape?
    /// Whether Ctrl-D was typed on an empty line.
    private(set) var hasEnded = false

    /// The line so far.
    var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Processes keys as the terminal sends them. Keys that would move the cursor have no effect.
    mutating func type(_ keys: [UInt8]) -> [InputLine] {
        var lines: [InputLine] = []
        for key in keys where !hasEnded && !skips(key) {
            switch key {
            case 0x0A, 0x0D:
                lines.append(String(validating: bytes, as: UTF8.self).map { .text($0) } ?? .unusable("it is not UTF-8"))
                bytes = []
            // Ctrl-D
            case 0x04: hasEnded = bytes.isEmpty
            // Backspace: terminals send one of these two bytes.
            case 0x08, 0x7F: bytes = Array(text.dropLast().utf8)
            // Ctrl-U, Ctrl-W
            case 0x15: bytes = []
            case 0x17:
                let words = String(text.reversed().drop { $0 == " " }.drop { $0 != " " }.reversed())
                bytes = Array(words.utf8)
            case 0x1B: escape = .begun
            case 0x09: append(0x20)
            case 0..<0x20: break
            default: append(key)
            }
        }
        return lines
    }

    private mutating func append(_ byte: UInt8) {
        if bytes.count < LineSplitter.maxLine { bytes.append(byte) }
    }

    /// Whether a byte belongs to the escape sequence of a key, such as an arrow (ECMA-48, section 5.4).
    private mutating func skips(_ byte: UInt8) -> Bool {
        switch escape {
        case nil: return false
        case .begun: escape = byte == UInt8(ascii: "[") || byte == UInt8(ascii: "O") ? .inside : nil
        case .inside: if (0x40...0x7E).contains(byte) { escape = nil }
        }
        return true
    }

    /// The prompt and the end of the line, as much as fits into one row.
    func shown(columns: Int) -> String {
        var free = columns - Self.prompt.count - 1
        var tail: [Character] = []
        for character in text.oneLine.reversed() {
            free -= Self.width(character)
            if free < 0 { break }
            tail.append(character)
        }
        return Self.prompt + String(tail.reversed())
    }

    /// The number of columns of a character on a terminal: two for ideographs and emoji, otherwise one.
    private static func width(_ character: Character) -> Int {
        guard let scalar = character.unicodeScalars.first else { return 0 }
        switch scalar.value {
        case 0x1100...0x115F, 0x2E80...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60,
            0xFFE0...0xFFE6, 0x1F300...0x1FAFF, 0x20000...0x3FFFD:
            return 2
        default: return 1
        }
    }
}
