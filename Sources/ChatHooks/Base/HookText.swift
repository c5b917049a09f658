import ChatDomain

/// Rules for texts of other programs.
enum HookText {
    /// The word in lower case, if it is short and ASCII. Comparing other texts may be costly.
    static func word(_ text: String?) -> String? {
        guard let text, text.utf8.count <= 20, text.utf8.allSatisfy({ $0 < 128 }) else { return nil }
        return text.lowercased()
    }

    /// The first line of a text.
    static func firstLine(_ text: String) -> String {
        String(text.unicodeScalars.prefix { $0 != "\n" && $0 != "\r" })
    }

    /// Escapes a text, so that a reader of Markdown shows exactly its characters.
    static func escaped(_ text: String) -> String {
        var result = String.UnicodeScalarView()
        var previous: Unicode.Scalar = "\n"
        for scalar in text.unicodeScalars {
            let isMarkup =
                switch scalar {
                case "\\", "`", "*", "_", "[", "]", "<", "~", "|": true
                // Headings, quotes and lists, at the start of a line.
                case "#", ">", "-", "+": previous == "\n"
                default: false
                }
            if isMarkup { result.append("\\") }
            result.append(scalar)
            previous = scalar
        }
        return String(result)
    }
}
