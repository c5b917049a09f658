import ChatDomain

/// Slack's markup: `*bold*`, `_italic_`, `~struck~`, code, `<address|text>`, and `&amp;` for `&`. Reads a text in time that
/// grows with its length.
struct Mrkdwn {
    private static let marks: [Unicode.Scalar: String] = ["*": "**", "_": "_", "~": "~~"]

    private let scalars: [Unicode.Scalar]
    private var position = 0
    /// The characters without meaning before the position that are not in the text yet.
    private var literal = ""
    private var text = MarkupText()
    /// The positions at which open marks end. Of each mark, at most one is open.
    private var ends: [Int: String] = [:]
    /// For each mark, the last end that was found. It ends a later opening before it as well, so that no part is
    /// searched twice.
    private var found: [Unicode.Scalar: Int] = [:]
    /// For each mark, the position up to which no end of it follows, so that no part is searched twice.
    private var searched: [Unicode.Scalar: Int] = [:]

    static func read(_ text: String) -> MarkupText {
        var reader = Mrkdwn(scalars: Array(text.unicodeScalars))
        reader.read()
        return reader.text
    }

    private init(scalars: [Unicode.Scalar]) { self.scalars = scalars }

    private mutating func flush() {
        if !literal.isEmpty { text.add(SlackText.withEmoji(literal)) }
        literal = ""
    }

    private mutating func read() {
        while position < scalars.count {
            let scalar = scalars[position]
            // An end within a tag or code that has been read counts as well.
            if !ends.isEmpty, let end = ends.keys.filter({ $0 <= position }).min(),
                let mark = ends.removeValue(forKey: end)
            {
                flush()
                text.add(mark: mark)
                if end == position { position += 1 }
                continue
            }
            switch scalar {
            case "`": readCode()
            case "<": readTag()
            case "&": literal += entity()
            case "*", "_", "~":
                if let mark = Self.marks[scalar], let end = endOfMark(scalar) {
                    flush()
                    text.add(mark: mark)
                    ends[end] = mark
                } else {
                    literal.unicodeScalars.append(scalar)
                }
                position += 1
            default:
                literal.unicodeScalars.append(scalar)
                position += 1
            }
        }
        flush()
        for mark in ends.values { text.add(mark: mark) }
    }

    /// Returns the position of the mark that ends the one at the position, on the same line. Marks within words, and
    /// beside blanks, are characters.
    private mutating func endOfMark(_ mark: Unicode.Scalar) -> Int? {
        func at(_ index: Int) -> Unicode.Scalar { scalars.indices.contains(index) ? scalars[index] : "\n" }
        let (before, after) = (at(position - 1), at(position + 1))
        guard !HookText.isWord(before), before != mark, after != mark, !after.properties.isWhitespace,
            position >= searched[mark] ?? 0
        else { return nil }
        // An end that another opening has already is none for this one.
        if let known = found[mark], known >= position + 2 { return ends[known] == nil ? known : nil }
        var index = position + 2
        while index < scalars.count, scalars[index] != "\n" {
            if scalars[index] == mark, !at(index - 1).properties.isWhitespace, !HookText.isWord(at(index + 1)) {
                found[mark] = index
                return ends[index] == nil ? index : nil
            }
            index += 1
        }
        searched[mark] = index
        return nil
    }

    /// Reads `code`, or a block between three marks. A mark that nothing ends is a character.
    private mutating func readCode() {
        let isBlock = scalars[position...].starts(with: ["`", "`", "`"])
        let size = isBlock ? 3 : 1
        // The keys of the two kinds differ.
        let key: Unicode.Scalar = isBlock ? "\"" : "`"
        var end = position + size
        if position >= searched[key] ?? 0 {
            while end < scalars.count, isBlock || scalars[end] != "\n" {
                if scalars[end] == "`", !isBlock || scalars[end...].starts(with: ["`", "`", "`"]), end > position + size
                {
                    let inner = String(scalars: scalars[position + size..<end])
                    flush()
                    text.add(code: Self.withoutTags(inner), isBlock: isBlock)
                    position = end + size
                    return
                }
                end += 1
            }
            searched[key] = end
        }
        literal += String(repeating: "`", count: size)
        position += size
    }

    /// Reads `<address|text>`, a mention or a command.
    private mutating func readTag() {
        var end = position + 1
        if position >= searched["<"] ?? 0 {
            while end < scalars.count, scalars[end] != ">", scalars[end] != "\n" { end += 1 }
        }
        guard end < scalars.count, scalars[end] == ">", end > position + 1 else {
            searched["<"] = max(end, searched["<"] ?? 0)
            literal += "<"
            position += 1
            return
        }
        let tag = String(scalars: scalars[position + 1..<end])
        position = end + 1
        let (target, label) = Self.parts(tag)
        if let spoken = Self.mention(target, label) {
            literal += spoken
        } else {
            flush()
            text.add(link: target, text: label)
        }
    }

    /// Returns the two parts of a tag, without entities.
    private static func parts(_ tag: String) -> (target: String, label: String?) {
        let (target, label) = SlackText.parts(ofTag: tag)
        return (SlackText.decoded(target), label.map(SlackText.decoded))
    }

    /// Returns the text of a mention or a command. `nil` for a link.
    private static func mention(_ target: String, _ label: String?) -> String? {
        switch target.utf8.first {
        case UInt8(ascii: "@"), UInt8(ascii: "#"):
            return label.map { String(target.unicodeScalars.prefix(1)) + $0 } ?? target
        case UInt8(ascii: "!"):
            // `!date` and `!subteam` have their texts as labels.
            let name = target.unicodeScalars.dropFirst().prefix { $0 != "^" }
            return label ?? "@\(String(name))"
        default:
            return target.hasPrefix("mailto:") ? label ?? String(target.dropFirst("mailto:".count)) : nil
        }
    }

    private static func withoutTags(_ text: String) -> String {
        let pieces = text.unicodeScalars.split(separator: "<", omittingEmptySubsequences: false).map { String($0) }
        var result = pieces[0]
        for piece in pieces.dropFirst() {
            if let end = piece.unicodeScalars.firstIndex(of: ">") {
                let (target, label) = parts(String(piece[..<end]))
                result += (mention(target, label) ?? label ?? target) + String(piece[end...].unicodeScalars.dropFirst())
            } else {
                result += "<" + piece
            }
        }
        return SlackText.decoded(result)
    }

    /// Reads an entity, or one `&`.
    private mutating func entity() -> String {
        for (name, character) in [("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")]
        where scalars[position...].starts(with: name.unicodeScalars) {
            position += name.unicodeScalars.count
            return character
        }
        position += 1
        return "&"
    }
}
