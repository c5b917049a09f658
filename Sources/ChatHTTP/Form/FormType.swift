import ChatDomain

/// What the `Content-Type` of a request says: which form, in which characters.
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
            throw Self.unsupported("The request has a body but no Content-Type; \(Self.accepted)")
        default: break
        }
        let pieces = HeaderText.split((header ?? "")[...], at: ";")
        let type = HeaderText.trimmed(pieces[0]).lowercased()
        guard type == "application/x-www-form-urlencoded" || type == "multipart/form-data" else {
            throw Self.unsupported(
                "The Content-Type \(HeaderText.sanitized(type, limit: 60)) is not supported; \(Self.accepted)")
        }
        var charset = Charset.utf8
        var boundary: String?
        for piece in pieces.dropFirst() {
            guard let (name, value) = HeaderText.pair(piece) else { continue }
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
            throw ChatError(.malformedRequest, "The Content-Type multipart/form-data has no boundary")
        }
        guard boundary.utf8.count <= HTTPLimits.boundary else {
            throw ChatError(
                .malformedRequest, "The multipart boundary has more than \(HTTPLimits.boundary) characters")
        }
        self = .multipart(boundary: boundary, charset)
    }

    static func charset(_ name: String) throws(ChatError) -> Charset {
        guard let charset = Charset(name: name) else {
            throw unsupported(
                "The charset \(HeaderText.sanitized(name, limit: 40)) is not supported; "
                    + "send utf-8, iso-8859-1 or windows-1252")
        }
        return charset
    }

    private static func unsupported(_ message: String) -> ChatError {
        ChatError(.unsupportedMediaType, message)
    }
}
