/// The charset of a text in a request. ASIFormDataRequest, the tutorial app's library, names one of these in
/// `Content-Type`.
enum Charset: Sendable, Hashable {
    case utf8
    case latin1
    case windows1252

    /// `nil` if the charset is not supported.
    init?(name: String) {
        switch name.lowercased() {
        case "utf-8", "utf8", "us-ascii", "ascii": self = .utf8
        case "iso-8859-1", "iso_8859-1", "iso8859-1", "latin1", "l1": self = .latin1
        case "windows-1252", "cp1252", "x-cp1252": self = .windows1252
        default: return nil
        }
    }

    /// Returns a text's bytes in UTF-8, which are not checked if this is its charset.
    func utf8(_ bytes: [UInt8]) -> [UInt8] { self == .utf8 ? bytes : text(bytes).map { Array($0.utf8) } ?? bytes }

    /// Decodes bytes. `nil` if they are not valid UTF-8. In the other two charsets every byte is a character.
    func text(_ bytes: some Collection<UInt8>) -> String? {
        switch self {
        case .utf8: String(validating: bytes, as: UTF8.self)
        case .latin1: String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
        case .windows1252:
            String(
                String.UnicodeScalarView(
                    bytes.map { (0x80...0x9F).contains($0) ? windows1252High[Int($0) - 0x80] : Unicode.Scalar($0) }))
        }
    }
}

/// The characters 0x80 to 0x9F. The five that Microsoft left undefined are the control characters of ISO 8859-1.
private let windows1252High: [Unicode.Scalar] = [
    "€", "\u{81}", "‚", "ƒ", "„", "…", "†", "‡", "ˆ", "‰", "Š", "‹", "Œ", "\u{8D}", "Ž", "\u{8F}",
    "\u{90}", "‘", "’", "“", "”", "•", "–", "—", "˜", "™", "š", "›", "œ", "\u{9D}", "ž", "Ÿ",
]
