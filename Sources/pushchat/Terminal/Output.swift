import ArgumentParser
import ChatDomain
import Foundation

/// Prints results.
enum Output {
    static let isTerminal = isatty(STDOUT_FILENO) == 1

    /// Prints a JSON document: indented on a terminal, otherwise compact.
    static func print(json: JSONValue) {
        Swift.print(escaped(isTerminal ? json.indented : json.description))
    }

    /// Escapes the characters of a JSON document that JSON allows in strings but that could control a terminal.
    static func escaped(_ json: String) -> String {
        func isSafe(_ scalar: Unicode.Scalar) -> Bool { scalar.value < 0x7F || !scalar.isUnsafeInLine }
        guard !json.unicodeScalars.allSatisfy(isSafe) else { return json }
        return json.unicodeScalars.reduce(into: "") { text, scalar in
            if isSafe(scalar) {
                text.unicodeScalars.append(scalar)
            } else {
                text += "\\u" + Hex.text([UInt8(scalar.value >> 8), UInt8(scalar.value & 0xFF)])
            }
        }
    }

    /// Prints names and values in two columns. Omits fields without a value.
    static func print(fields: [(String, JSONValue)]) {
        let texts = fields.compactMap { name, value in text(value).map { (name, $0) } }
        let width = texts.map(\.0.count).max() ?? 0
        for (name, text) in texts {
            Swift.print(name + String(repeating: " ", count: width - name.count + 2) + text)
        }
    }

    /// Prints a note on standard error.
    static func note(_ text: String) {
        FileHandle.standardError.write(Data((text + "\n").utf8))
    }

    private static func text(_ value: JSONValue) -> String? {
        switch value {
        case .null: nil
        case .string(let text): text.oneLine
        case .array(let values): values.isEmpty ? nil : values.compactMap(text).joined(separator: ",")
        default: value.description
        }
    }
}

/// A table. On a terminal it has a header and aligned columns. Elsewhere, for `cut` and `awk`, tabs separate the
/// columns and the header is missing.
///
/// The first ``block`` rows determine the widths of the columns, so that a long list need not be held in memory.
struct OutputTable {
    private static let block = 500

    private let header: [String]
    private let inColumns: Bool
    private let write: (String) -> Void
    private var rows: [[String]] = []
    private var widths: [Int]?

    init(
        _ header: [String], inColumns: Bool = Output.isTerminal, write: @escaping (String) -> Void = { Swift.print($0) }
    ) {
        self.header = header
        self.inColumns = inColumns
        self.write = write
    }

    mutating func add(_ row: [String]) {
        let row = row.map(\.oneLine)
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
        let lines = (widths == nil ? [header] : []) + rows
        let widths = widths ?? header.indices.map { column in lines.map { $0[column].count }.max() ?? 0 }
        self.widths = widths
        rows = []
        for line in lines {
            let cells = zip(line, widths).map { $0 + String(repeating: " ", count: max(0, $1 - $0.count)) }
            let text = cells.joined(separator: "  ")
            write(String(text[..<(text.lastIndex { $0 != " " }.map(text.index(after:)) ?? text.startIndex)]))
        }
    }
}

/// The flag that limits the length of a list.
struct ListOptions: ParsableArguments {
    @Option(help: .value("number", "The maximum number of rows; 0 for all.")) var limit = 100

    private static let maxPage = 500

    func validate() throws {
        guard limit >= 0 else { throw ValidationError("--limit \(limit): must be 0 or more") }
    }

    /// Prints a list page by page: as a table, or as JSON with one object per line.
    ///
    /// - Parameter page: Returns the page after a cursor, with at most `size` items.
    func print<Cursor>(
        _ header: [String], json: Bool, row: (JSONObject) -> [String],
        page: (_ cursor: Cursor?, _ size: Int) async throws -> (items: [JSONObject], next: Cursor?)
    ) async throws {
        var table = OutputTable(header)
        var (count, cursor) = (0, Cursor?.none)
        repeat {
            let size = limit == 0 ? Self.maxPage : min(limit - count, Self.maxPage)
            let (items, next) = try await page(cursor, size)
            for item in items {
                if json {
                    Swift.print(Output.escaped(JSONValue.object(item).description))
                } else {
                    table.add(row(item))
                }
            }
            count += items.count
            cursor = next
        } while cursor != nil && (limit == 0 || count < limit)
        if !json { table.end() }
        if cursor != nil { Output.note("only the first \(limit) are shown; --limit 0 shows all") }
    }
}

extension JSONObject {
    /// A text or a number as a table cell. Markdown as plain text. Empty if the member is absent.
    func cell(_ name: String) -> String {
        let text = self[name]?.text ?? self[name]?.integer.map(String.init) ?? ""
        return name == "text" && self["markdown"] == .bool(true) ? MarkdownText.plain(text) : text
    }

    func cells(_ names: String...) -> [String] { names.map { cell($0) } }

    /// The cell with `words` before it. Empty if the member is absent.
    func cell(_ name: String, after words: String) -> String {
        let text = cell(name)
        return text.isEmpty ? "" : words + text
    }
}

/// The table cells of a push.
enum DeliveryCells {
    static let header = ["ID", "STATE", "REASON", "ATTEMPTS", "QUEUED", "SETTLED", "FROM"]

    static func cells(_ delivery: JSONObject) -> [String] {
        let origin =
            delivery["notification"]?.integer.map { "notification \($0)" }
            ?? delivery["message"]?.integer.map { "message \($0)" }
        return delivery.cells("id", "state", "reason", "attempts", "queued_at", "settled_at") + [origin ?? ""]
    }
}

/// Shows the progress of long work on standard error if that is a terminal.
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

    /// Clears the line.
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
