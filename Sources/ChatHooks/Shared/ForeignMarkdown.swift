import ChatDomain

/// Markdown of another program, made harmless: images become links, so that no reader's device loads them; `<` begins
/// only addresses, never HTML; a link that looks like another address shows its host. Code stays unchanged. Reads a text
/// in time that grows with its length.
struct ForeignMarkdown {
    private let scalars: [Unicode.Scalar]
    private var position = 0
    private var markdown: [Unicode.Scalar] = []
    private var plain = String.UnicodeScalarView()
    private var isMarked = false
    /// The position in the result at which a link's label may begin.
    private var label: Int?
    /// Lengths of marks of code that nothing ends.
    private var unended: Set<Int> = []

    /// - Parameter tag: Returns Markdown and text in place of a part between `<` and `>`. `nil` if it stays.
    static func read(_ text: String, tag: (String) -> MarkupText? = { _ in nil }) -> MarkupText {
        var reader = ForeignMarkdown(scalars: Array(text.unicodeScalars))
        while reader.position < reader.scalars.count { reader.step(tag) }
        return MarkupText(
            markdown: String(scalars: reader.markdown), plain: String(reader.plain), isMarked: reader.isMarked)
    }

    private init(scalars: [Unicode.Scalar]) { self.scalars = scalars }

    private func at(_ index: Int) -> Unicode.Scalar? { scalars.indices.contains(index) ? scalars[index] : nil }

    private mutating func add(_ written: some Sequence<Unicode.Scalar>) {
        markdown += written
        plain += written
    }

    private mutating func step(_ tag: (String) -> MarkupText?) {
        let scalar = scalars[position]
        let isLineStart = position == 0 || at(position - 1) == "\n"
        switch scalar {
        case "\\":
            isMarked = true
            add(scalars[position...].prefix(2))
            position += 1
        case "`": readCode()
        case "<": readTag(tag)
        case "!" where at(position + 1) == "[": break
        case "[":
            isMarked = true
            label = label ?? markdown.count
            add([scalar])
        case "]": endLabel()
        default:
            let isWithinWord = [at(position - 1), at(position + 1)].allSatisfy { $0.map(HookText.isWord) ?? false }
            switch scalar {
            case "*", "~", "|": isMarked = true
            case "_": isMarked = isMarked || !isWithinWord
            case "#", ">": isMarked = isMarked || isLineStart
            case "\n": label = nil
            default: break
            }
            add([scalar])
        }
        position += 1
    }

    /// Reads code between two marks of the same length.
    private mutating func readCode() {
        isMarked = true
        let size = scalars[position...].prefix { $0 == "`" }.count
        var end = position + size
        var run = 0
        if !unended.contains(size) {
            while end < scalars.count {
                run = scalars[end] == "`" ? run + 1 : 0
                end += 1
                if run == size, at(end) != "`" { break }
            }
            if run != size { unended.insert(size) }
        }
        let isEnded = run == size
        add(scalars[position..<(isEnded ? end : position + size)])
        position = (isEnded ? end : position + size) - 1
    }

    private mutating func readTag(_ tag: (String) -> MarkupText?) {
        let inner = scalars[(position + 1)...].prefix { !["<", ">", "\n"].contains($0) }
        let text = String(scalars: inner)
        guard at(inner.endIndex) == ">" else { return addOpening() }
        if let new = tag(text) {
            markdown += new.markdown.unicodeScalars
            plain += new.plain.unicodeScalars
            isMarked = isMarked || new.result.isMarkdown
        } else if MessageContent.isLink(text) {
            isMarked = true
            add(scalars[position...inner.endIndex])
        } else {
            return addOpening()
        }
        position = inner.endIndex
    }

    private mutating func addOpening() {
        markdown += ["\\", "<"]
        plain.append("<")
    }

    /// Ends a label. The host goes into it if the address behind it is another one than it says.
    private mutating func endLabel() {
        if at(position + 1) == "(", let start = label {
            let address = scalars[(position + 2)...].prefix(300).drop { $0 == "<" }.prefix {
                !$0.properties.isWhitespace && $0 != ")"
            }
            let link = String(scalars: address)
            let shown = String(scalars: markdown[start...])
            if let host = HookText.hiddenHost(of: link, behind: shown) {
                add(" (\(HookText.escaped(host, isLineStart: false)))".unicodeScalars)
            }
            label = nil
        } else if at(position + 1) == ":" {
            // The definition of a link has no text, and would vanish.
            markdown.append("\\")
        }
        add(["]"])
    }
}
