import ChatDomain
import Foundation

/// Where results go, and how they look there.
enum Output {
    static let isTerminal = isatty(STDOUT_FILENO) == 1

    /// A JSON document: a member a line for people, compact for programs.
    static func print(json: JSONValue) {
        Swift.print(isTerminal ? json.indented : json.description)
    }

    /// Rows under a head. In columns on a terminal; else separated by tabs, without the head, for `cut` and `awk`.
    static func print(_ head: [String], _ rows: [[String]], columns: Bool = isTerminal) {
        guard columns else {
            for row in rows { Swift.print(row.joined(separator: "\t")) }
            return
        }
        let all = [head] + rows
        let widths = head.indices.map { column in all.map { $0[column].count }.max() ?? 0 }
        for row in all {
            let cells = zip(row, widths).map { $0 + String(repeating: " ", count: $1 - $0.count) }
            Swift.print(cells.joined(separator: "  ").trimmingSuffix())
        }
    }

    /// Something for people beside the result.
    static func note(_ text: String) {
        FileHandle.standardError.write(Data((text + "\n").utf8))
    }
}

/// How far long work has come, on standard error, where that is a terminal.
struct ProgressLine {
    private let isShown = isatty(STDERR_FILENO) == 1
    private var width = 0
    private var last: ContinuousClock.Instant?
    private static let interval = Duration.milliseconds(100)

    mutating func show(_ text: String) {
        guard isShown, last.map({ ContinuousClock.now - $0 >= Self.interval }) ?? true else { return }
        last = .now
        write(text)
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

extension String {
    fileprivate func trimmingSuffix() -> String {
        String(self[..<(lastIndex { $0 != " " }.map { index(after: $0) } ?? startIndex)])
    }

    /// Enough of a device token to tell it from others.
    var shortToken: String { count > 12 ? prefix(8) + "…" : self }
}
