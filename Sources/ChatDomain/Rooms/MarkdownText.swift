/// Reads Markdown as the text that notifications and terminals show: without the marks of emphasis, code, links and
/// tables.
///
/// Understands what programs use of CommonMark and of GitHub's additions, and leaves everything else unchanged. The
/// result is never longer. Reads any text in time that grows with its length.
package struct MarkdownText {
    private typealias Line = ArraySlice<Unicode.Scalar>

    /// `nil` in place of characters that turned out to be marks.
    private var result: [Unicode.Scalar?] = []
    /// Marks that may begin emphasis and have no end yet, by character: where they end in the result.
    private var openings: [Unicode.Scalar: [(end: Int, count: Int, mayEnd: Bool)]] = [:]
    /// The mark that began the block of code around the next line.
    private var fence: Line?

    /// Returns the text without its marks. A text that has only marks is unchanged.
    package static func plain(_ text: String) -> String {
        var reader = MarkdownText()
        let lines = Array(text.unicodeScalars).split(separator: "\n", omittingEmptySubsequences: false)
        for line in lines { reader.add(line) }
        let plain = FieldText.trimmed(String(String.UnicodeScalarView(reader.result.compactMap(\.self))))
        return FieldText.isBlank(plain) ? text : plain
    }

    private mutating func add(_ line: Line) {
        var rest = Self.trimmed(line)
        if let fence {
            let mark = rest.drop { $0 == ">" || Self.isBlank($0) }
            let isEnd = mark.count >= fence.count && mark.allSatisfy { $0 == fence.first }
            if isEnd { self.fence = nil } else { append(line[..<rest.endIndex] + ["\n"]) }
            return
        }
        let start = result.count
        append(line[..<rest.startIndex])
        while let first = rest.first, first == ">" || Self.beginsItem(rest) {
            let blanks = rest.dropFirst().prefix(while: Self.isBlank)
            append([first == ">" ? first : "-"] + blanks)
            rest = rest[blanks.endIndex...]
            openings = [:]
        }
        let run = rest.prefix { $0 == rest.first }
        let isFence =
            run.count >= 3 && ["`", "~"].contains(run[run.startIndex]) && !rest[run.endIndex...].contains("`")
        if isFence { fence = run }
        let isTable =
            rest.contains("|") && rest.contains("-") && rest.allSatisfy { "|:- \t".unicodeScalars.contains($0) }
        if isFence || isTable || rest.isEmpty { openings = [:] }
        if isFence || isTable { return result.removeSubrange(start...) }
        if run.first == "#", run.count <= 6, rest[run.endIndex...].first.map(Self.isBlank) ?? false {
            rest = Self.trimmed(rest[run.endIndex...])
        } else if run == ["|"], rest.count > 1, rest.last == "|" {
            rest = Self.trimmed(rest.dropFirst().dropLast())
        }
        add(inline: rest)
        result.append("\n")
    }

    private mutating func add(inline line: Line) {
        let codes = Self.codes(in: line)
        var labels: [Int] = []
        var isInAddress = false
        var rest = line
        while let first = rest.first {
            let next = rest.dropFirst().first
            var size = 1
            switch first {
            case "\\" where next.map { $0.isASCII && Self.kind($0) == .sign } ?? false:
                append(rest.dropFirst().prefix(1))
                size = 2
            case "`":
                let mark = rest.prefix { $0 == "`" }
                let end = codes[rest.startIndex]
                append(end.map { Self.trimmed(line[mark.endIndex..<$0]) } ?? mark)
                size = mark.count + (end.map { $0 - rest.startIndex } ?? 0)
            case "*", "_", "~":
                let mark = rest.prefix { $0 == first }
                add(mark: mark, in: line, isInAddress: isInAddress)
                size = mark.count
            case "!" where next == "[", "[":
                labels.append(result.count)
                size = first == "!" ? 2 : 1
                append(rest.prefix(size))
            case "]":
                isInAddress = false
                if let start = labels.popLast(), next == "(", let address = Self.address(in: rest.dropFirst(2)) {
                    let label = start + (result[start] == "!" ? 2 : 1)
                    for index in start..<label { result[index] = nil }
                    if label == result.count { append(address.prefix { !Self.isBlank($0) }) }
                    size = address.count + 3
                } else {
                    append([first])
                }
            case "<":
                let address = rest.dropFirst().prefix { !Self.isBlank($0) && $0 != "<" && $0 != ">" }
                let isAddress = line[address.endIndex...].first == ">" && address.contains { $0 == ":" || $0 == "@" }
                append(isAddress ? address : [first])
                size = isAddress ? address.count + 2 : 1
            default:
                if first == ":", rest.dropFirst().prefix(2) == ["/", "/"] { isInAddress = true }
                if first == ")" || Self.isBlank(first) { isInAddress = false }
                append([first])
            }
            rest = rest.dropFirst(size)
        }
    }

    /// Adds marks of emphasis, without those that end it, and removes those that began it.
    private mutating func add(mark: Line, in line: Line, isInAddress: Bool) {
        guard let sign = mark.first, sign != "~" || mark.count == 2 else { return append(mark) }
        let (before, after) = (Self.kind(line[..<mark.startIndex].last), Self.kind(line[mark.endIndex...].first))
        let opens = after != .blank && (after == .word || before != .word) && (sign != "_" || before != .word)
        let closes = before != .blank && (before == .word || after != .word) && (sign != "_" || after != .word)
        let isAtEnd = after == .blank || Self.kind(line[mark.endIndex...].dropFirst().first) == .blank
        let ends = closes && (isAtEnd || !isInAddress)
        var count = mark.count
        while ends, count > 0, let last = openings[sign]?.last {
            // CommonMark's rule for marks within a word, such as the single ones in `**a*b*c**`.
            if last.mayEnd || opens, (count + last.count) % 3 == 0, count % 3 != 0 { break }
            let pairs = min(count, last.count)
            for index in (last.end - pairs)..<last.end { result[index] = nil }
            openings[sign]?.removeLast()
            if pairs < last.count { openings[sign]?.append((last.end - pairs, last.count - pairs, last.mayEnd)) }
            count -= pairs
        }
        append(mark.prefix(count))
        if opens, !isInAddress, count > 0 { openings[sign, default: []].append((result.count, count, ends)) }
    }

    private mutating func append(_ scalars: some Sequence<Unicode.Scalar>) { result += scalars.lazy.map(\.self) }

    // MARK: - Rules

    private enum Kind { case blank, sign, word }

    /// - Parameter scalar: `nil` for the beginning or the end of a line.
    private static func kind(_ scalar: Unicode.Scalar?) -> Kind {
        guard let properties = scalar?.properties, !properties.isWhitespace else { return .blank }
        return properties.isAlphabetic || properties.numericType != nil ? .word : .sign
    }

    private static func isBlank(_ scalar: Unicode.Scalar) -> Bool { scalar == " " || scalar == "\t" || scalar == "\r" }

    private static func trimmed(_ line: Line) -> Line {
        let end = line.lastIndex { !isBlank($0) }.map { $0 + 1 } ?? line.startIndex
        return line[..<end].drop(while: isBlank)
    }

    private static func beginsItem(_ line: Line) -> Bool {
        ["-", "*", "+"].contains(line[line.startIndex]) && line.dropFirst().first.map(isBlank) ?? false
    }

    /// Returns the indices at which marks of code begin, each with the index of the mark that ends the code.
    private static func codes(in line: Line) -> [Int: Int] {
        var (codes, latest, index) = ([Int: Int](), [Int: Int](), line.startIndex)
        while let start = line[index...].firstIndex(of: "`") {
            let size = line[start...].prefix { $0 == "`" }.count
            if let previous = latest.updateValue(start, forKey: size) { codes[previous] = start }
            index = start + size
        }
        return codes
    }

    /// Returns the address of a link, and its title, up to the bracket that ends them. `nil` if there is none.
    private static func address(in line: Line) -> Line? {
        var depth = 1
        for index in line.indices {
            switch line[index] {
            case "(": depth += 1
            case ")": depth -= 1
            default: continue
            }
            // Each nested bracket may begin another search, so this limits the work for each character.
            guard (1...8).contains(depth) else {
                let title = trimmed(line[..<index].drop { !isBlank($0) })
                let hasTitle = title.count > 1 && title.first == title.last && ["\"", "'"].contains(title.first)
                return depth == 0 && (title.isEmpty || hasTitle) ? line[..<index] : nil
            }
        }
        return nil
    }
}
