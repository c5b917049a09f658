import ChatDomain

/// Rules for texts of other programs.
enum HookText {
    /// A word to compare with known ones, in lower case. `nil` if it is long or not ASCII: comparing it may be costly.
    static func shortWord(_ text: String?) -> String? {
        guard let text, text.utf8.count <= 64, text.utf8.allSatisfy({ $0 < 128 }) else { return nil }
        return text.lowercased()
    }

    /// The first line of a text.
    static func firstLine(_ text: String) -> String {
        String(text.unicodeScalars.prefix { $0 != "\n" && $0 != "\r" })
    }

    static func isWord(_ scalar: Unicode.Scalar) -> Bool {
        scalar.properties.isAlphabetic || ("0"..."9").contains(scalar)
    }

    // MARK: - Escapes

    /// The part of a line that ``escaped(_:isLineStart:)`` is in.
    private enum Place {
        case start
        /// Behind digits that begin the line: a list if a full stop follows.
        case number
        case inside
    }

    /// Escapes a text, so that a reader of Markdown shows exactly its characters. Blanks that begin a line become
    /// U+00A0, because Markdown drops them or reads code.
    ///
    /// - Parameter isLineStart: Whether the text begins a line.
    static func escaped(_ text: String, isLineStart: Bool = true) -> String {
        var result = String.UnicodeScalarView()
        var previous: Unicode.Scalar = " "
        var place = isLineStart ? Place.start : .inside
        let scalars = text.unicodeScalars
        for index in scalars.indices {
            let scalar = scalars[index]
            if place == .start, scalar == " " || scalar == "\t" {
                result.append("\u{A0}")
                continue
            }
            let isMarkup =
                switch scalar {
                case "\\", "`", "*", "[", "]", "<", "~", "|": true
                // Within a word, an underscore has no meaning in Markdown. Many addresses contain some.
                case "_": !isWord(previous)
                case "&": isEntity(scalars[index...])
                // Headings, quotes, lists and lines.
                case "#", ">", "-", "+", "=": place == .start && result.last != "\u{A0}"
                case ".", ")": place == .number && isBlank(scalars[scalars.index(after: index)...].first)
                default: false
                }
            if isMarkup { result.append("\\") }
            result.append(scalar)
            previous = scalar
            place =
                switch scalar {
                case "\n", "\r": .start
                case "0"..."9" where place != .inside: .number
                default: .inside
                }
        }
        return String(result)
    }

    /// Whether a character is a blank or the end of the text.
    private static func isBlank(_ scalar: Unicode.Scalar?) -> Bool { scalar?.properties.isWhitespace ?? true }

    /// Whether a text begins with an entity of HTML, such as `&lt;` or `&#60;`, which Markdown replaces.
    private static func isEntity(_ text: Substring.UnicodeScalarView) -> Bool {
        // The longest name has 31 letters.
        let name = text.dropFirst().prefix(33).prefix { $0 == "#" || $0.isASCII && isWord($0) }
        return !name.isEmpty && name.endIndex < text.endIndex && text[name.endIndex] == ";"
    }

    // MARK: - Links

    /// Returns the host of a link whose label looks like the address of another host. `nil` for an honest label.
    static func hiddenHost(of link: String, behind label: String) -> String? {
        // Marks of Markdown within the label are not shown.
        let shown = label.unicodeScalars.prefix(1000).filter { !"\\*_`~".unicodeScalars.contains($0) }
        let words = shown.split { $0.properties.isWhitespace }.map { String(scalars: $0).lowercased() }
        guard let host = host(of: link) else { return nil }
        let isHidden = words.contains { word in
            let isAddress = word.contains("://") || word.contains("www.") || words.count == 1 && isHost(word)
            return isAddress && self.host(of: word, isWhole: false) != host
        }
        return isHidden ? host : nil
    }

    /// Whether a word may be a host, with or without a path, such as `example.com`.
    private static func isHost(_ word: String) -> Bool {
        let parts = word.utf8.prefix { $0 != UInt8(ascii: "/") }.split(
            separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count > 1, let last = parts.last, last.count > 1 else { return false }
        return last.allSatisfy { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) }
            && parts.allSatisfy { !$0.isEmpty && $0.allSatisfy { $0 > UInt8(ascii: " ") && $0 != UInt8(ascii: "@") } }
    }

    /// Returns the host of an address, without `www.`. `nil` if it has none.
    ///
    /// - Parameter isWhole: Whether the scheme must begin the text.
    private static func host(of address: String, isWhole: Bool = true) -> String? {
        var rest = address.lowercased().unicodeScalars[...]
        if let scheme = address.range(of: "://") {
            rest = address[scheme.upperBound...].lowercased().unicodeScalars[...]
        } else if isWhole {
            return nil
        } else if let start = address.range(of: "www.") {
            rest = address[start.lowerBound...].lowercased().unicodeScalars[...]
        }
        let authority = rest.prefix { !"/?#\\()[]<>,;\"'".unicodeScalars.contains($0) }
        let host = authority.split(separator: "@", omittingEmptySubsequences: false).last ?? []
        let name = String(scalars: host.prefix { $0 != ":" })
        return name.hasPrefix("www.") ? String(name.dropFirst(4)) : name
    }
}

extension String {
    init(scalars: some Sequence<Unicode.Scalar>) { self = String(UnicodeScalarView(scalars)) }
}
