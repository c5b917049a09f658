import ChatDomain

/// A text that is Markdown only if it has to be: without links, emphasis or code it stays plain, so that pushes and pages
/// that show no Markdown have no escapes in it.
struct MarkupText {
    private(set) var markdown = ""
    private(set) var plain = ""
    private var isMarked = false

    /// A text whose characters have no meaning.
    init(_ text: String = "") {
        if !text.isEmpty { add(text) }
    }

    /// A text that is Markdown already.
    init(markdown: String, plain: String, isMarked: Bool) {
        add(markdown: Self.broken(markdown), plain: plain, isMarkup: isMarked)
    }

    /// A link.
    ///
    /// - Parameter text: The text of the link. `nil` for the address itself.
    static func link(_ address: String, _ text: String? = nil) -> MarkupText {
        var result = MarkupText()
        result.add(link: address, text: text)
        return result
    }

    /// The name of a part of the message, which may be a link.
    static func heading(_ title: String, link: String?) -> MarkupText {
        if let link { return .link(link, title) }
        var result = MarkupText()
        result.add(heading: title)
        return result
    }

    /// The text, and whether it is Markdown.
    var result: (text: String, isMarkdown: Bool) { isMarked ? (markdown, true) : (plain, false) }

    var isEmpty: Bool { FieldText.isBlank(plain) }

    private var isLineStart: Bool { markdown.utf8.last.map { $0 == UInt8(ascii: "\n") } ?? true }

    private mutating func add(markdown: String, plain: String, isMarkup: Bool) {
        self.markdown += markdown
        self.plain += plain
        isMarked = isMarked || isMarkup
    }

    /// Makes the line breaks of a text hard ones, as chats show them.
    private static func broken(_ text: String) -> String { text.replacing("\n", with: "  \n") }

    /// Adds a text whose characters have no meaning.
    mutating func add(_ text: String) {
        add(
            markdown: Self.broken(HookText.escaped(text, isLineStart: isLineStart)), plain: text, isMarkup: false)
    }

    /// Adds the name of a field or of a part. It is bold if the text is Markdown for another reason.
    mutating func add(heading text: String) {
        add(markdown: "**\(HookText.escaped(text, isLineStart: false))**", plain: text, isMarkup: false)
    }

    /// Adds the beginning or the end of a part with emphasis.
    mutating func add(mark: String) { add(markdown: mark, plain: "", isMarkup: true) }

    mutating func add(code: String, isBlock: Bool) {
        guard isBlock else { return add(markdown: "`\(code)`", plain: code, isMarkup: true) }
        if !isLineStart { add("\n") }
        add(markdown: "```\n\(FieldText.trimmed(code))\n```\n", plain: code, isMarkup: true)
    }

    /// Adds a link. An address that browsers cannot open becomes text.
    ///
    /// - Parameter text: The text of the link. `nil` for the address itself.
    mutating func add(link: String, text: String?) {
        guard MessageContent.isLink(link) else { return add(text ?? link) }
        // These would end the address in Markdown, or escape its end.
        let codes = ["(": "%28", ")": "%29", "<": "%3C", ">": "%3E", "\\": "%5C"]
        let address = link.map { codes[String($0)] ?? String($0) }.joined()
        if let text, !FieldText.isBlank(text), text != link {
            let host = HookText.hiddenHost(of: address, behind: text).map { " (\($0))" } ?? ""
            let shown = HookText.escaped(text + host, isLineStart: false).replacing("\n", with: " ")
            add(markdown: "[\(shown)](\(address))", plain: "\(text) (\(link))", isMarkup: true)
        } else {
            add(markdown: "<\(address)>", plain: link, isMarkup: false)
        }
    }

    /// Adds another text behind this one.
    mutating func add(after other: MarkupText) {
        add(markdown: other.markdown, plain: other.plain, isMarkup: other.isMarked)
    }

    /// Adds another text on a new line.
    mutating func add(line other: MarkupText) {
        guard !other.isEmpty else { return }
        if !isLineStart { add("\n") }
        add(after: other)
    }

    /// Adds a field on a new line: its name and its value.
    mutating func add(field name: String?, _ value: MarkupText) {
        var line = MarkupText()
        if let name {
            line.add(heading: name + ":")
            line.add(" ")
        }
        line.add(after: value)
        add(line: line)
    }
}
