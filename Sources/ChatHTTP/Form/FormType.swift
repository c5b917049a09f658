import ChatDomain

/// The `Content-Type` of a request: the kind of form, and its charset.
enum FormType: Sendable, Hashable {
    case urlEncoded(Charset)
    case multipart(boundary: String, Charset)

    private static let accepted = "send application/x-www-form-urlencoded or multipart/form-data"

    /// Reads the header; case and order of parameters do not matter, unknown ones are ignored.
    init(parsing header: String?) throws(ChatError) {
        switch header {
        // As the tutorial's client, browsers and curl send it.
        case "application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=utf-8":
            self = .urlEncoded(.utf8)
            return
        case nil:
            throw .unsupported("The request has a body but no Content-Type; \(Self.accepted)")
        default: break
        }
        let (type, parameters) = HeaderText.parameterized((header ?? "")[...])
        guard type == "application/x-www-form-urlencoded" || type == "multipart/form-data" else {
            throw .unsupported(
                "The Content-Type \(HeaderText.sanitized(type, limit: 60)) is not supported; \(Self.accepted)")
        }
        var charset = Charset.utf8
        var boundary: String?
        for (name, value) in parameters {
            switch name {
            case "charset": charset = try Self.charset(value)
            case "boundary": boundary = value
            default: break
            }
        }
        guard type == "multipart/form-data" else {
            self = .urlEncoded(charset)
            return
        }
        guard let boundary, !boundary.isEmpty else {
            throw .malformed("The Content-Type multipart/form-data has no boundary")
        }
        guard boundary.utf8.count <= HTTPLimits.boundary else {
            throw .malformed("The multipart boundary has more than \(HTTPLimits.boundary) characters")
        }
        self = .multipart(boundary: boundary, charset)
    }

    static func charset(_ name: String) throws(ChatError) -> Charset {
        guard let charset = Charset(name: name) else {
            throw .unsupported(
                "The charset \(HeaderText.sanitized(name, limit: 40)) is not supported; "
                    + "send utf-8, iso-8859-1 or windows-1252")
        }
        return charset
    }
}

/// The charset of a form; the tutorial's client sends one of these (pushchat-api.md §6).
enum Charset: Sendable, Hashable {
    case utf8
    case latin1
    case windows1252

    /// Nil for a charset that is not supported.
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
        case .utf8: String(validating: bytes, as: UTF8.self)
        case .latin1: String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
        case .windows1252:
            String(
                String.UnicodeScalarView(
                    bytes.map { (0x80...0x9F).contains($0) ? windows1252High[Int($0) - 0x80] : Unicode.Scalar($0) }))
        }
    }
}

/// 0x80 to 0x9F. The five that Microsoft left undefined are the control characters of ISO 8859-1.
private let windows1252High: [Unicode.Scalar] = [
    "€", "\u{81}", "‚", "ƒ", "„", "…", "†", "‡", "ˆ", "‰", "Š", "‹", "Œ", "\u{8D}", "Ž", "\u{8F}",
    "\u{90}", "‘", "’", "“", "”", "•", "–", "—", "˜", "™", "š", "›", "œ", "\u{9D}", "ž", "Ÿ",
]
