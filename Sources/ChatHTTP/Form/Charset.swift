/// In which characters a form was written; the tutorial's client names one of these (pushchat-api.md §6).
enum Charset: Sendable, Hashable {
    case utf8
    case latin1
    case windows1252

    /// Nil for a name that is none of ours.
    init?(name: String) {
        switch name.lowercased() {
        case "utf-8", "utf8", "us-ascii", "ascii": self = .utf8
        case "iso-8859-1", "iso_8859-1", "iso8859-1", "latin1", "l1": self = .latin1
        case "windows-1252", "cp1252", "x-cp1252": self = .windows1252
        default: return nil
        }
    }

    /// Nil if the bytes are not UTF-8; in the other two every byte is a character.
    func text(_ bytes: some Collection<UInt8>) -> String? {
        switch self {
        case .utf8:
            return String(validating: bytes, as: UTF8.self)
        case .latin1:
            return Self.text(bytes) { Unicode.Scalar($0) }
        case .windows1252:
            return Self.text(bytes) {
                (0x80...0x9F).contains($0) ? Self.windows1252High[Int($0) - 0x80] : Unicode.Scalar($0)
            }
        }
    }

    private static func text(
        _ bytes: some Collection<UInt8>, _ scalar: (UInt8) -> Unicode.Scalar
    ) -> String {
        var text = String.UnicodeScalarView()
        for byte in bytes { text.append(scalar(byte)) }
        return String(text)
    }

    /// 0x80 to 0x9F. The five that Microsoft left undefined are the control characters of ISO 8859-1.
    private static let windows1252High: [Unicode.Scalar] = [
        "€", "\u{81}", "‚", "ƒ", "„", "…", "†", "‡", "ˆ", "‰", "Š", "‹", "Œ", "\u{8D}", "Ž", "\u{8F}",
        "\u{90}", "‘", "’", "“", "”", "•", "–", "—", "˜", "™", "š", "›", "œ", "\u{9D}", "ž", "Ÿ",
    ]
}
