import ChatDomain
import Foundation

/// Where results go, and how they look there.
enum Output {
    static let isTerminal = isatty(STDOUT_FILENO) == 1

    /// A JSON document: a member a line for people, compact for programs.
    static func print(json: JSONValue) {
        Swift.print(isTerminal ? json.indented : json.description)
    }

    /// Names and what they hold, where they hold something.
    static func print(fields: [(String, JSONValue)]) {
        let texts = fields.compactMap { name, value in text(value).map { (name, $0) } }
        let width = texts.map(\.0.count).max() ?? 0
        for (name, text) in texts {
            Swift.print(name + String(repeating: " ", count: width - name.count + 2) + text)
        }
    }

    /// Something for people beside the result.
    static func note(_ text: String) {
        FileHandle.standardError.write(Data((text + "\n").utf8))
    }

    /// What others wrote must not end a line, nor speak to the terminal.
    static func oneLine(_ text: String) -> String {
        String(
            String.UnicodeScalarView(text.unicodeScalars.map { $0.properties.generalCategory == .control ? " " : $0 }))
    }

    private static func text(_ value: JSONValue) -> String? {
        switch value {
        case .null: nil
        case .string(let text): oneLine(text)
        case .array(let values): values.isEmpty ? nil : values.compactMap(text).joined(separator: ",")
        default: value.description
        }
    }
}

/// Rows under a head. In columns on a terminal; else separated by tabs, without the head, for `cut` and `awk`.
///
/// The columns of a long list are as wide as the first ``block`` rows want them, so that it need not be held in memory.
struct OutputTable {
    private static let block = 500

    private let head: [String]
    private let inColumns: Bool
    private let write: (String) -> Void
    private var rows: [[String]] = []
    private var widths: [Int]?

    init(
        _ head: [String], inColumns: Bool = Output.isTerminal, write: @escaping (String) -> Void = { Swift.print($0) }
    ) {
        self.head = head
        self.inColumns = inColumns
        self.write = write
    }

    mutating func add(_ row: [String]) {
        let row = row.map(Output.oneLine)
        guard inColumns else { return write(row.joined(separator: "\t")) }
        rows.append(row)
        if rows.count >= Self.block { flush() }
    }

    mutating func end() {
        if inColumns, widths == nil, rows.isEmpty { Output.note("none") }
        flush()
    }

    private mutating func flush() {
        guard inColumns, !rows.isEmpty else { return }
        let lines: [[String]]
        if widths == nil {
            lines = [head] + rows
            widths = head.indices.map { column in lines.map { $0[column].count }.max() ?? 0 }
        } else {
            lines = rows
        }
        rows = []
        for line in lines {
            let cells = zip(line, widths ?? []).map { $0 + String(repeating: " ", count: max(0, $1 - $0.count)) }
            let text = cells.joined(separator: "  ")
            write(String(text[..<(text.lastIndex { $0 != " " }.map(text.index(after:)) ?? text.startIndex)]))
        }
    }
}

/// How far long work has come, on standard error, where that is a terminal.
struct ProgressLine {
    private let isShown = isatty(STDERR_FILENO) == 1
    private var width = 0
    private var last: ContinuousClock.Instant?
    private static let interval = Duration.milliseconds(100)

    mutating func show(_ text: @autoclosure () -> String) {
        guard isShown, last.map({ ContinuousClock.now - $0 >= Self.interval }) ?? true else { return }
        last = .now
        write(text())
    }

    /// Takes the line away.
    mutating func end() {
        guard width > 0 else { return }
        write("")
        FileHandle.standardError.write(Data("\r".utf8))
        width = 0
    }

    private mutating func write(_ text: String) {
        let padding = String(repeating: " ", count: max(0, width - text.count))
        FileHandle.standardError.write(Data("\r\(text)\(padding)".utf8))
        width = text.count
    }
}
