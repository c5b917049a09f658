import ChatDomain

/// Rules for texts of other programs.
enum HookText {
    /// The word in lower case, if it is short and ASCII. Comparing other texts may be costly.
    static func word(_ text: String?) -> String? {
        guard let text, text.utf8.count <= 64, text.utf8.allSatisfy({ $0 < 128 }) else { return nil }
        return text.lowercased()
    }

    /// The first line of a text.
    static func firstLine(_ text: String) -> String {
        String(text.unicodeScalars.prefix { $0 != "\n" && $0 != "\r" })
    }

    /// Escapes a text, so that a reader of Markdown shows exactly its characters.
    ///
    /// - Parameter isLineStart: Whether the text begins a line.
    static func escaped(_ text: String, isLineStart: Bool = true) -> String {
        var result = String.UnicodeScalarView()
        var previous: Unicode.Scalar = isLineStart ? "\n" : " "
        for scalar in text.unicodeScalars {
            let isMarkup =
                switch scalar {
                case "\\", "`", "*", "[", "]", "<", "~", "|": true
                // Within a word, an underscore has no meaning in Markdown. Many addresses contain some.
                case "_": !previous.properties.isAlphabetic && !("0"..."9").contains(previous)
                // Headings, quotes and lists.
                case "#", ">", "-", "+": previous == "\n"
                default: false
                }
            if isMarkup { result.append("\\") }
            result.append(scalar)
            previous = scalar
        }
        return String(result)
    }

    /// Replaces each part of a line that `<` and `>` enclose.
    ///
    /// - Parameter replacement: Returns the text in place of the part. `nil` if it stays.
    static func replacingTags(in text: String, _ replacement: (String) -> String?) -> String {
        let pieces = text.unicodeScalars.split(separator: "<", omittingEmptySubsequences: false)
        var result = pieces.first.map { String($0) } ?? ""
        for piece in pieces.dropFirst() {
            if let end = piece.firstIndex(of: ">"), let new = replacement(String(piece[..<end])) {
                result += new + String(piece[piece.index(after: end)...])
            } else {
                result += "<" + String(piece)
            }
        }
        return result
    }
}
