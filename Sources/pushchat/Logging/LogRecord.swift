import ChatDomain
import Logging

/// One thing that happened, as a line of the log.
struct LogRecord: Sendable {
    /// The label of the relay's own loggers.
    static let relay = "relay"
    /// Bytes of a line, its line feed included: what a pipe takes whole or not at all (`PIPE_BUF`).
    static let longestLine = 4096
    /// Bytes of a label, a message or a value after escaping; the rest is cut.
    static let longestValue = 1024
    /// How deep metadata may be nested; what is below is left out.
    static let deepest = 4

    let time: Timestamp
    let level: Logger.Level
    let label: String
    let message: String
    let metadata: Logger.Metadata

    /// The line, with its line feed.
    func line(_ format: LogFormat) -> [UInt8] {
        var line =
            switch format {
            case .text: textLine()
            case .json: jsonLine()
            }
        line.append(UInt8(ascii: "\n"))
        return line
    }

    /// Who speaks, where that is not the relay itself.
    private var origin: String { label == Self.relay ? "" : label + ": " }

    private func textLine() -> [UInt8] {
        let padding = String(repeating: " ", count: max(0, 5 - level.rawValue.count))
        let message = LogText.cut(origin + message, limit: Self.longestValue)
        var line = Array("\(time.rfc3339) \(level.rawValue)\(padding) \(message)".utf8)
        append(metadata, to: &line, closing: " …".utf8.count, cut: " …") { key, value in
            " \(Self.word(key))=\(Self.word(Self.flat(value)))"
        }
        return line
    }

    private func jsonLine() -> [UInt8] {
        var line: [UInt8] = []
        let own = [("time", time.rfc3339), ("level", level.rawValue), ("label", label), ("message", message)]
        for (key, text) in own {
            line += "\(line.isEmpty ? "{" : ",")\(Self.json(key)):\(Self.json(text))".utf8
        }
        let cut = #","truncated":true"#
        append(metadata, to: &line, closing: cut.utf8.count + 1, cut: cut) { key, value in
            // One that would be a second `time` or the like is kept under a name of its own.
            let isOwn = key == "truncated" || own.contains { $0.0 == key }
            return ",\(Self.json(isOwn ? "metadata." + key : key)):\(Self.json(value, depth: 0))"
        }
        line.append(UInt8(ascii: "}"))
        return line
    }

    /// Adds pairs in the order of their keys while there is room for them, then `cut` if some are missing.
    private func append(
        _ metadata: Logger.Metadata, to line: inout [UInt8], closing: Int, cut: String,
        pair: (String, Logger.MetadataValue) -> String
    ) {
        var isCut = false
        for (key, value) in Self.flattened(metadata).sorted(by: { $0.0 < $1.0 }) {
            let text = pair(key, value).utf8
            if line.count + text.count + closing + 1 <= Self.longestLine {
                line += text
            } else {
                isCut = true
            }
        }
        if isCut { line += Array(cut.utf8) }
    }

    /// `["a": ["b": 1]]` as `a.b=1`.
    private static func flattened(
        _ metadata: Logger.Metadata, prefix: String = "", depth: Int = 0
    ) -> [(String, Logger.MetadataValue)] {
        metadata.flatMap { key, value -> [(String, Logger.MetadataValue)] in
            guard case .dictionary(let inner) = value else { return [(prefix + key, value)] }
            return depth < deepest ? flattened(inner, prefix: prefix + key + ".", depth: depth + 1) : []
        }
    }
}

extension LogRecord {
    /// As it is, if it is one word that nothing can be confused with; else in quotation marks.
    private static func word(_ text: String) -> String {
        let isPlain =
            !text.isEmpty && text.utf8.count <= longestValue
            && !text.unicodeScalars.contains {
                $0 == "\"" || $0 == "\\" || $0 == "=" || $0.properties.isWhitespace || LogText.isUnsafe($0)
            }
        return isPlain ? text : LogText.quoted(text, limit: longestValue)
    }

    private static func flat(_ value: Logger.MetadataValue) -> String {
        switch value {
        case .string(let text): text
        case .stringConvertible(let value): value.description
        case .array, .dictionary: json(value, depth: 0)
        }
    }

    private static func json(_ value: Logger.MetadataValue, depth: Int) -> String {
        switch value {
        case .string(let text): return json(text)
        case .stringConvertible(let value):
            switch value {
            case let number as any BinaryInteger: return number.description
            case let flag as Bool: return flag ? "true" : "false"
            default: return json(value.description)
            }
        case .array(let values):
            guard depth < deepest else { return "null" }
            return "[" + values.map { json($0, depth: depth + 1) }.joined(separator: ",") + "]"
        case .dictionary(let values):
            guard depth < deepest else { return "null" }
            let pairs = values.sorted { $0.key < $1.key }.map { "\(json($0.key)):\(json($0.value, depth: depth + 1))" }
            return "{" + pairs.joined(separator: ",") + "}"
        }
    }

    private static func json(_ text: String) -> String {
        LogText.json(text, limit: longestValue)
    }
}
