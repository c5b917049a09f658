extension Unicode.Scalar {
    /// Whether the character could end a line, control a terminal, or change the direction of writing.
    package var isUnsafeInLine: Bool {
        switch value {
        case 0..<0x20, 0x7F...0x9F: true
        case 0x2028, 0x2029: true
        case 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: true
        default: false
        }
    }
}

extension String {
    /// The text with spaces in place of all characters that are unsafe in a line. Unlike the log's escapes, this keeps
    /// JSON valid.
    package var oneLine: String {
        String(String.UnicodeScalarView(unicodeScalars.map { $0.isUnsafeInLine ? " " : $0 }))
    }

    /// Whether all characters are ASCII that prints and is not blank.
    package var isVisibleASCII: Bool { utf8.allSatisfy { (0x21...0x7E).contains($0) } }

    /// Returns the printable ASCII characters among the first `limit` Unicode scalars. For explanations of push
    /// services.
    package func printableASCII(limit: Int) -> String {
        String(String.UnicodeScalarView(unicodeScalars.prefix(limit).filter { (0x20...0x7E).contains($0.value) }))
    }
}
