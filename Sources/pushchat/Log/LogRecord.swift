import ChatDomain
import Logging

/// The format of the log's lines.
enum LogFormat: String, Sendable, CaseIterable {
    /// `2026-11-20T23:55:00.123Z info  message key=value key="two words"`
    case text
    /// One object per line with `time`, `level`, `label` and `message`. The metadata are further members.
    case json
}

/// One event, which becomes a line of the log.
struct LogRecord: Sendable {
    /// The label of the relay's own loggers.
    static let relay = "relay"
    /// The maximum size of a line in bytes, including its line feed. A pipe writes this number of bytes as a whole or
    /// not at all (`PIPE_BUF`).
    static let maxLine = 4096
    /// The maximum size in bytes of a label, a message or a value after escaping. Longer texts are cut.
    static let maxValue = 1024
    /// The maximum depth of nested metadata. Deeper values are left out.
    static let maxDepth = 4

    let time: Timestamp
    let level: Logger.Level
    let label: String
    let message: String
    let metadata: Logger.Metadata

    /// Returns the line, including its line feed.
    func line(_ format: LogFormat) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(256)
        var clock = LogClock()
        append(format, to: &line, clock: &clock)
        return line
    }

    /// Appends the line, including its line feed.
    ///
    /// - Parameter clock: The clock to use for all lines, because most lines have the same second as the line before.
    func append(_ format: LogFormat, to lines: inout [UInt8], clock: inout LogClock) {
        switch format {
        case .text: appendText(to: &lines, clock: &clock)
        case .json: appendJSON(to: &lines, clock: &clock)
        }
        lines += "\n".utf8
    }

    /// The size of the record's texts in bytes. `nil` if the record must be formatted at once, because its texts are
    /// longer than a line or the description of a value may change.
    var keptSize: Int? {
        var size = message.utf8.count + label.utf8.count
        for (key, value) in metadata {
            guard case .string(let text) = value else { return nil }
            size += key.utf8.count + text.utf8.count
        }
        return size <= Self.maxLine ? size : nil
    }

    private func appendText(to line: inout [UInt8], clock: inout LogClock) {
        let start = line.count
        clock.append(time, to: &line)
        line += " ".utf8
        let name = level.rawValue
        line += name.utf8
        for _ in name.utf8.count..<max(5, name.utf8.count) { line += " ".utf8 }
        line += " ".utf8
        // Name the part of the process, unless it is the relay itself.
        let text = label == Self.relay ? message : "\(label): \(message)"
        LogText.append(text, as: .plain, limit: Self.maxValue, to: &line)
        appendPairs(to: &line, start: start, closing: 0, cut: " …") { key, value, line in
            line += " ".utf8
            Self.appendWord(key, to: &line)
            line += "=".utf8
            switch value {
            case .string(let text): Self.appendWord(text, to: &line)
            case .stringConvertible(let value): Self.appendWord(value.description, to: &line)
            case .array, .dictionary:
                var json: [UInt8] = []
                Self.appendJSON(value, depth: 0, to: &json)
                Self.appendWord(String(decoding: json, as: UTF8.self), to: &line)
            }
        }
    }

    private func appendJSON(to line: inout [UInt8], clock: inout LogClock) {
        let start = line.count
        line += #"{"time":""#.utf8
        clock.append(time, to: &line)
        line += #"","level":""#.utf8
        line += level.rawValue.utf8
        line += #"","label":"#.utf8
        Self.appendJSON(label, to: &line)
        line += #","message":"#.utf8
        Self.appendJSON(message, to: &line)
        appendPairs(to: &line, start: start, closing: 1, cut: #","truncated":true"#) { key, value, line in
            line += ",".utf8
            // Avoid duplicate members such as a second `time`.
            switch key {
            case "time", "level", "label", "message", "truncated": Self.appendJSON("metadata." + key, to: &line)
            default: Self.appendJSON(key, to: &line)
            }
            line += ":".utf8
            Self.appendJSON(value, depth: 0, to: &line)
        }
        line += "}".utf8
    }

    /// Appends pairs in the order of their keys while they fit, then `cut` if some did not.
    ///
    /// - Parameters:
    ///   - start: The index at which the line begins.
    ///   - closing: The number of bytes that follow, not including the line feed.
    private func appendPairs(
        to line: inout [UInt8], start: Int, closing: Int, cut: String,
        append: (String, Logger.MetadataValue, inout [UInt8]) -> Void
    ) {
        var pairs: [(String, Logger.MetadataValue)] = []
        pairs.reserveCapacity(metadata.count)
        Self.flatten(metadata, prefix: "", depth: 0, into: &pairs)
        pairs.sort { $0.0 < $1.0 }
        let room = start + Self.maxLine - cut.utf8.count - closing - 1
        var isCut = false
        for (key, value) in pairs {
            let end = line.count
            append(key, value, &line)
            guard line.count > room else { continue }
            line.removeLast(line.count - end)
            isCut = true
        }
        if isCut { line += cut.utf8 }
    }

    /// Writes `["a": ["b": 1]]` as `a.b=1`.
    private static func flatten(
        _ metadata: Logger.Metadata, prefix: String, depth: Int, into pairs: inout [(String, Logger.MetadataValue)]
    ) {
        for (key, value) in metadata {
            if case .dictionary(let inner) = value {
                guard depth < maxDepth else { continue }
                flatten(inner, prefix: prefix + key + ".", depth: depth + 1, into: &pairs)
            } else {
                pairs.append((prefix.isEmpty ? key : prefix + key, value))
            }
        }
    }
}

extension LogRecord {
    /// Appends a text, in quotation marks unless it is an unambiguous single word.
    private static func appendWord(_ text: String, to line: inout [UInt8]) {
        let isPlain = text.utf8.count <= maxValue && LogText.isWord(text)
        LogText.append(text, as: isPlain ? .plain : .quoted, limit: maxValue, to: &line)
    }

    private static func appendJSON(_ value: Logger.MetadataValue, depth: Int, to line: inout [UInt8]) {
        switch value {
        case .string(let text): appendJSON(text, to: &line)
        case .stringConvertible(let value):
            switch value {
            case let number as any BinaryInteger: line += number.description.utf8
            case let flag as Bool: line += (flag ? "true" : "false").utf8
            default: appendJSON(value.description, to: &line)
            }
        case .array where depth >= maxDepth, .dictionary where depth >= maxDepth:
            line += "null".utf8
        case .array(let values):
            appendList("[", "]", values, to: &line) { appendJSON($0, depth: depth + 1, to: &$1) }
        case .dictionary(let values):
            appendList("{", "}", values.sorted { $0.key < $1.key }, to: &line) { member, line in
                appendJSON(member.key, to: &line)
                line += ":".utf8
                appendJSON(member.value, depth: depth + 1, to: &line)
            }
        }
    }

    private static func appendList<Item>(
        _ opening: String, _ closing: String, _ items: [Item], to line: inout [UInt8],
        append: (Item, inout [UInt8]) -> Void
    ) {
        line += opening.utf8
        for (index, item) in items.enumerated() {
            if index > 0 { line += ",".utf8 }
            append(item, &line)
        }
        line += closing.utf8
    }

    private static func appendJSON(_ text: String, to line: inout [UInt8]) {
        LogText.append(text, as: .json, limit: maxValue, to: &line)
    }
}

/// Writes times as RFC 3339. Computes the calendar date only once a second.
struct LogClock: Sendable {
    private var second: Int64?
    /// `2026-11-20T23:55:00.`
    private var prefix: [UInt8] = []

    mutating func append(_ time: Timestamp, to line: inout [UInt8]) {
        if time.seconds != second {
            let text = time.rfc3339.utf8
            // For years with more than four digits, `rfc3339` writes the nearest time with four, including the
            // milliseconds.
            guard (0...Timestamp.latestSeconds).contains(time.seconds) else {
                line += text
                return
            }
            prefix = Array(text.dropLast(4))
            second = time.seconds
        }
        line += prefix
        let fraction = UInt16(time.milliseconds - time.seconds * 1000)
        line.append(UInt8(ascii: "0") + UInt8(fraction / 100))
        line.append(UInt8(ascii: "0") + UInt8(fraction / 10 % 10))
        line.append(UInt8(ascii: "0") + UInt8(fraction % 10))
        line += "Z".utf8
    }
}
