import ChatDomain
import Foundation
import PushChatCore

/// The output format of `pushchat chat`. Control characters in names and texts never reach the terminal.
struct ChatText {
    enum Form: Equatable {
        /// One line for each message, with the time in UTC.
        case plain
        /// Messages under a line with their day, with the local time.
        case terminal(isColoured: Bool)
        /// One JSON object per line.
        case json
    }

    let form: Form
    private var day = ""

    init(_ form: Form) {
        self.form = form
    }

    /// Formats a report.
    ///
    /// - Returns: The lines for standard output, and the line for standard error.
    mutating func lines(_ report: ChatClientState.Report) -> (output: [String], note: String?) {
        switch (report, form) {
        case (.note(let text), _): return ([], text.oneLine)
        case (.message(let message), .json):
            return ([Output.escaped(JSONValue.object(message.object).description)], nil)
        case (.changed(let message), .json):
            let event: JSONObject = [
                "event": .string(message.change?.kind.rawValue ?? ChatMessage.Change.Kind.edited.rawValue),
                "message": .object(message.object),
            ]
            return ([Output.escaped(JSONValue.object(event).description)], nil)
        case (.members(let count), .json): return ([#"{"event":"room","members":\#(count)}"#], nil)
        case (.deleted(let id), .json): return ([#"{"event":"deleted","id":\#(id)}"#], nil)
        case (.left(let wasRemoved), .json):
            return ([wasRemoved ? #"{"event":"left","reason":"removed"}"# : #"{"event":"left"}"#], nil)
        case (.moved(let code), .json):
            let event: JSONObject = ["event": .string("code"), "code": .string(code)]
            return ([Output.escaped(JSONValue.object(event).description)], nil)
        case (.moved(let code), _): return ([], "the room has a new code: \(code.oneLine)")
        case (.deleted, .terminal): return ([], "a message was deleted")
        case (.members(let count), .terminal):
            return ([], count == 1 ? "only you are in the room" : "\(count) members are in the room")
        case (.members, .plain), (.deleted, .plain), (.changed, .plain), (.left, _): return ([], nil)
        case (.message(let message), .plain):
            return (
                ["\(message.time.rfc3339) \(Self.writer(message)): \(Self.body(message).oneLine)"],
                nil
            )
        case (.message(let message), .terminal(let isColoured)):
            return (terminal(message, at: message.time, isColoured: isColoured), nil)
        case (.changed(let message), .terminal(let isColoured)):
            return (terminal(message, at: message.changedAt, isColoured: isColoured), nil)
        }
    }

    private mutating func terminal(_ message: ChatMessage, at time: Timestamp, isColoured: Bool) -> [String] {
        var lines: [String] = []
        let today = Self.local(time, "%A, %e %B %Y")
        func coloured(_ text: String, _ code: String) -> String {
            isColoured ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text
        }
        if today != day {
            day = today
            lines.append(coloured("— \(today) —", "2"))
        }
        let mark = message.change.map { " (\($0.kind.rawValue))" } ?? ""
        let name = coloured(Self.writer(message) + mark, message.isOwn ? "1" : Self.colour(of: message.name))
        // Indent the further lines of a text, so that they align.
        let rows = Self.body(message).split(omittingEmptySubsequences: false) { ["\n", "\r", "\r\n"].contains($0) }
        for (index, row) in rows.enumerated() {
            let head = index == 0 ? "\(coloured(Self.local(time, "%H:%M"), "2")) \(name): " : "      "
            lines.append(head + String(row).oneLine)
        }
        return lines
    }

    /// The writer's name. A program's name has the prefix `program:`. A member whose name starts with that prefix gets
    /// the prefix `member:`.
    private static func writer(_ message: ChatMessage) -> String {
        let name = message.name.oneLine
        if message.isFromProgram { return "program:" + name }
        return name.lowercased().hasPrefix("program:") ? "member:" + name : name
    }

    /// The text, together with the title and the link that a program may have added.
    private static func body(_ message: ChatMessage) -> String {
        let text = message.isMarkdown ? MarkdownText.plain(message.text) : message.text
        return [message.title, text, message.link].compactMap(\.self).joined(separator: "\n")
    }

    /// One of six colours. The same name always has the same colour.
    private static func colour(of name: String) -> String {
        "\(31 + name.utf8.reduce(7) { ($0 &* 31 &+ Int($1)) & 0xFFFF } % 6)"
    }

    private static func local(_ time: Timestamp, _ format: String) -> String {
        var (clock, broken) = (time_t(time.seconds), tm())
        localtime_r(&clock, &broken)
        var text = [CChar](repeating: 0, count: 100)
        let count = strftime(&text, text.count, format, &broken)
        return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self).replacing("  ", with: " ")
    }
}

/// Prints ``ChatText``. On a terminal it keeps the line that is being typed below the messages.
struct ChatScreen {
    private var text: ChatText
    private let keys: KeyMode?
    private var editor = LineEditor()
    private var splitter = LineSplitter()

    init(json: Bool, environment: [String: String] = ProcessInfo.processInfo.environment) {
        let isTerminal = Output.isTerminal && environment["TERM"] != "dumb"
        let isColoured = (environment["NO_COLOR"] ?? "").isEmpty
        text = ChatText(json ? .json : isTerminal ? .terminal(isColoured: isColoured) : .plain)
        keys = isTerminal && !json ? KeyMode() : nil
    }

    /// Whether a person reads the output and types.
    var isInteractive: Bool { keys != nil }

    mutating func print(_ reports: [ChatClientState.Report]) {
        guard !reports.isEmpty else { return }
        clearRow()
        for report in reports {
            let (output, note) = text.lines(report)
            if !output.isEmpty { Self.write(output.map { $0 + "\n" }.joined()) }
            if let note { Output.note(note) }
        }
        showRow()
    }

    /// Processes bytes that were typed or read. `nil` is the end of the input.
    ///
    /// - Returns: The complete lines, and whether the input has ended.
    mutating func read(_ bytes: [UInt8]?) -> (lines: [InputLine], hasEnded: Bool) {
        guard isInteractive else {
            return bytes.map { (splitter.read($0), false) } ?? (splitter.end(), true)
        }
        let lines = bytes.map { editor.type($0) } ?? []
        clearRow()
        showRow()
        return (lines, editor.hasEnded || bytes == nil)
    }

    /// Restores the terminal after the process was stopped and continued.
    func resume() {
        keys?.begin()
        showRow()
    }

    func end() {
        clearRow()
        keys?.end()
    }

    private func clearRow() {
        if isInteractive { Self.write("\r\u{1B}[K") }
    }

    private func showRow() {
        if isInteractive { Self.write(editor.shown(columns: KeyMode.columns)) }
    }

    /// Writes everything without a buffer, because a program may wait for the output.
    private static func write(_ text: String) {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Foundation.write(STDOUT_FILENO, $0.baseAddress, $0.count) }
            if count < 0, errno != EINTR, errno != EAGAIN { return }
            bytes = bytes.dropFirst(max(0, count))
        }
    }
}

extension ChatMessage {
    /// The time at which the message was sent.
    fileprivate var time: Timestamp { Self.timestamp(sentAt) }
    /// The time of the last change.
    fileprivate var changedAt: Timestamp { Self.timestamp(change?.at ?? sentAt) }

    private static func timestamp(_ date: Date) -> Timestamp {
        Timestamp(milliseconds: Int64((date.timeIntervalSince1970 * 1000).rounded()))
    }

    /// The message as the API writes it.
    fileprivate var object: JSONObject {
        var object: JSONObject = ["id": .number(id), "name": .string(name), "text": .string(text)]
        object["title"] = title.map { .string($0) }
        object["link"] = link.map { .string($0) }
        object["sent_at"] = .time(time)
        object["own"] = .bool(isOwn)
        if isFromProgram { object["program"] = .bool(true) }
        if isMarkdown { object["markdown"] = .bool(true) }
        if let change { object[change.kind.rawValue + "_at"] = .time(Self.timestamp(change.at)) }
        return object
    }
}
