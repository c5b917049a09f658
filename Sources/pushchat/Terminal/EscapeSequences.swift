extension String {
    /// The text without the sequences with which programs colour their output and control a terminal (ECMA-48).
    var withoutEscapeSequences: String {
        guard utf8.contains(0x1B) else { return self }
        var (parser, kept) = (EscapeParser(), String.UnicodeScalarView())
        for scalar in unicodeScalars where parser.keeps(scalar) { kept.append(scalar) }
        return String(kept)
    }
}

/// The position in a text relative to its escape sequences.
private struct EscapeParser {
    private enum State {
        case text
        /// After ESC, and any intermediate bytes after it.
        case begun
        /// In a control sequence, which ends with its final byte: `ESC [ 31 m`.
        case control
        /// In a string for the terminal, such as a window's title or a link. It ends with BEL or `ESC \`.
        case string
        /// After an ESC in a string.
        case stringEscape
    }

    private var state = State.text

    /// Whether the next character of a text is outside of all sequences.
    mutating func keeps(_ scalar: Unicode.Scalar) -> Bool {
        switch (state, scalar.value) {
        case (.text, 0x1B), (.begun, 0x1B), (.control, 0x1B): state = .begun
        case (.text, _): return true
        case (.begun, 0x5B): state = .control
        // DCS, SOS, OSC, PM and APC.
        case (.begun, 0x50), (.begun, 0x58), (.begun, 0x5D...0x5F): state = .string
        case (.begun, 0x20...0x2F), (.control, 0x20...0x3F): break
        case (.begun, 0x30...0x7E), (.control, 0x40...0x7E): state = .text
        // The sequence is broken off. Its text is worth more than its form.
        case (.begun, _), (.control, _):
            state = .text
            return true
        case (.string, 0x07): state = .text
        // A string that does not end must not take the rest of the text with it.
        case (.string, 0x0A):
            state = .text
            return true
        case (.string, 0x1B): state = .stringEscape
        case (.string, _): break
        case (.stringEscape, _): state = scalar == "\\" ? .text : .string
        }
        return false
    }
}
